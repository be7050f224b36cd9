"""What a job's training step computes before the backward pass, in one piece for a compiler."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macgpu.measure.steps import Options
from macgpu.train import Forward


def forward_of(
    model: nn.Module, options: Options, dynamic: bool, smoothing: float = 0.0
) -> Forward:
    """The cross-entropy of the model's logits, computed as the options say; both are float32.

    Args:
        model: from inputs (N, …) to logits (N, classes).
        options: of which half precision and the compiler belong here.
        dynamic: whether batches differ in shape; the compiler works once either way.
        smoothing: of the labels.
    """
    dtype = getattr(torch, options.autocast) if options.autocast else torch.bfloat16

    def forward(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(inputs.device.type, dtype, enabled=options.autocast is not None):
            logits = model(inputs)
        logits = logits.float()
        return F.cross_entropy(logits, labels, label_smoothing=smoothing), logits.detach()

    if options.compiled:
        return torch.compile(forward, mode=options.compiled, dynamic=dynamic)
    return forward
