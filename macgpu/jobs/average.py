"""A copy of a model whose weights are the exponential moving average of the model's own."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage:
    """Follows a model from its first update on; ``module`` is the averaged copy.

    torch's ``AveragedModel`` does the same, but brings its counter to the device in every update,
    and waits for that copy.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """``decay`` is the weight of what was, 0 to 1: 1 - 1/n averages over about n updates."""
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.started = False
        self._average = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the model's weights and buffers as they are now; whole numbers are copied."""
        own, new = ([*m.parameters(), *m.buffers()] for m in (self.module, model))
        pairs = list(zip(own, new, strict=True))
        averaged = [pair for pair in pairs if self.started and pair[0].is_floating_point()]
        if averaged:
            self._average([a for a, _ in averaged], [b.detach() for _, b in averaged], 0)
        for kept, value in pairs:
            if not (self.started and kept.is_floating_point()):
                kept.copy_(value)
        self.started = True
