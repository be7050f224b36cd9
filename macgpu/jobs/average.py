"""A copy of a model whose weights are the exponential moving average of the model's own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage:
    """Follows a model from its first update on; ``module`` is the averaged copy.

    torch's ``AveragedModel`` does the same, but brings its counter to the device in every update,
    and waits for that copy.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """``decay`` is the weight of what was, 0 to 1: 1 - 1/n averages over about n updates."""
        self.module = copy.deepcopy(model).requires_grad_(False)
        self._average = get_ema_multi_avg_fn(decay)
        # Looking them up anew in each update would take longer than a small network's average.
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None
        self._counters: tuple[list[Tensor], list[Tensor]] = ([], [])

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the model's weights and buffers as they are now; whole numbers are copied.

        The model is the same one in every update.
        """
        if self._pairs is None:
            own, new = ([*m.parameters(), *m.buffers()] for m in (self.module, model))
            torch._foreach_copy_(own, new)
            self._pairs, self._counters = (
                tuple([t for t in side if t.is_floating_point() == averaged] for side in (own, new))
                for averaged in (True, False)
            )
            return
        self._average(*self._pairs, 0)
        if self._counters[0]:
            torch._foreach_copy_(*self._counters)
