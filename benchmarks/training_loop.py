"""The training loop's own cost: `train.fit` against the plainest loop over the same batches.

Prints the ratio of their throughputs, from pairs of epochs in turn. `make bench` runs it.
"""

from __future__ import annotations

import random
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from macgpu import data, train
from macgpu.device import describe, pick, seed_everything, synchronize
from macgpu.long_run import make_model

PAIRS = 25


def plain(model: nn.Module, batches: data.Batches, optimizer: torch.optim.Optimizer) -> None:
    """A loop that does nothing but train."""
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def fit(model: nn.Module, batches: data.Batches, optimizer: torch.optim.Optimizer) -> None:
    """The book's loop."""
    train.fit(model, batches, optimizer, epochs=1, report=None)


def main() -> None:
    device = pick("auto")
    pictures = data.fashion_subset()[0].to(device)

    def epoch_seconds(loop) -> float:
        seed_everything(0)
        model = make_model().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        batches = data.Batches(pictures, 128, shuffle_seed=0)
        synchronize(device)
        start = time.perf_counter()
        loop(model, batches, optimizer)
        synchronize(device)
        return time.perf_counter() - start

    epoch_seconds(plain), epoch_seconds(fit)
    ratios, rates = [], []
    for _ in range(PAIRS):
        loops = [plain, fit]
        random.shuffle(loops)
        seconds = {loop: epoch_seconds(loop) for loop in loops}
        ratios.append(seconds[plain] / seconds[fit])
        rates.append(len(pictures) / seconds[fit])
    print(f"{device.type}, {describe(device)}, torch {torch.__version__}")
    print(f"train.fit: {statistics.median(rates):,.0f} images/s (median of {PAIRS} epochs)")
    print(
        f"throughput of train.fit over the plainest loop: {statistics.median(ratios):.3f} "
        f"(median of {PAIRS} pairs, {min(ratios):.3f} to {max(ratios):.3f}; at least 0.95 wanted)"
    )


if __name__ == "__main__":
    main()
