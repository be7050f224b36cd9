"""ResNet-18 in the form for small pictures (He et al., 2016, section 4.2, as commonly used)."""

from __future__ import annotations

from torch import nn
from torchvision.models.resnet import BasicBlock


def resnet18_small(channels: int = 1, classes: int = 10, width: int = 64) -> nn.Sequential:
    """ResNet-18 for pictures (N, channels, side, side) of about 32 pixels.

    It differs from torchvision's, made for 224 pixels, in its stem alone: a 3×3 convolution of
    stride 1 and no max-pool, so that a small picture is not shrunk before it is looked at.

    Args:
        channels: of a picture, 1 or 3.
        classes: length of the logits.
        width: channels of the first stage, 8 and more. 64 is ResNet-18; with fewer, each layer
            is as much narrower, and it is another, smaller network.
    """
    stages, inputs = [], width
    for number in range(4):
        outputs = width * 2**number
        stages.append(nn.Sequential(*_stage(inputs, outputs, stride=1 if number == 0 else 2)))
        inputs = outputs
    model = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, classes),
    )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model


def _stage(inputs: int, outputs: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """Two blocks; where the size changes, a 1×1 convolution fits the shortcut of the first."""
    shortcut = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )
    return BasicBlock(inputs, outputs, stride, shortcut), BasicBlock(outputs, outputs)
