"""The comparer of layers finds what is wrong on mps alone, and nothing where nothing is."""

from __future__ import annotations

import pytest
import torch
from torchvision.models import resnet18

from macgpu.layer_compare import compare_layers, twins

MPS = torch.device("mps")
BATCH = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1)), torch.arange(4)


class WrongOnMps(torch.autograd.Function):
    """Gives what it gets; its gradient is a tenth too large, on mps."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return 1.1 * gradient if gradient.device.type == "mps" else gradient


def wrong_output(module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
    return 1.002 * output if output.device.type == "mps" else output


@pytest.fixture
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return resnet18(num_classes=10)


def test_the_device_departs_nowhere(network: torch.nn.Module) -> None:
    found = compare_layers(*twins(network, MPS), BATCH)
    assert found.first_output is None
    assert found.first_gradient is None


def test_an_output_that_is_wrong_on_mps_is_named(network: torch.nn.Module) -> None:
    network.layer2[1].conv1.register_forward_hook(wrong_output)
    found = compare_layers(*twins(network, MPS), BATCH)
    assert found.first_output is not None
    assert found.first_output.layer == "layer2.1.conv1"


def test_a_gradient_that_is_wrong_on_mps_is_named(network: torch.nn.Module) -> None:
    network.layer3[0].conv2.register_forward_hook(lambda m, i, o: WrongOnMps.apply(o))
    found = compare_layers(*twins(network, MPS), BATCH)
    assert found.first_output is None
    assert found.first_gradient is not None
    assert found.first_gradient.layer == "layer3.0.conv2"
