"""The loader that keeps its pictures on the device: against the plain one, and while training.

Prints images per second of both on the shipped pictures, with their ratio, and the share of a
training step that waits for data. `make bench` runs it.
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from macgpu import data
from macgpu.device import describe, pick, seed_everything
from macgpu.loading import OnDevice
from macgpu.measure.loading import three_way, time_passes

BATCH = 128
PASSES = 15
STEPS = 10


def make_model() -> nn.Module:
    """The network of chapter 05."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


def main() -> None:
    device = pick("auto")
    pictures = data.fashion_subset()[0]
    plain = OnDevice(DataLoader(data.PictureDataset(pictures), BATCH, shuffle=True), device)
    resident = data.Batches(pictures.to(device), BATCH, shuffle_seed=0)

    ratios, rates = [], {"plain": [], "resident": []}
    for _ in range(PASSES):
        seconds = {}
        for name, loader in (("plain", plain), ("resident", resident)):
            seconds[name] = time_passes(loader, device, 1)[0]
            rates[name].append(len(pictures) / seconds[name])
        ratios.append(seconds["plain"] / seconds["resident"])

    seed_everything(0)
    model = make_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(inputs: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    # Short passes: what slows the machine for a while must not fall on one of the three alone.
    some = data.Batches(pictures.first(BATCH * STEPS).to(device), BATCH, shuffle_seed=0)
    timed = three_way(some, step, device, PASSES)
    print(f"{device.type}, {describe(device)}, torch {torch.__version__}")
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):,.0f} images/s (median of {PASSES} passes)")
    print(
        f"resident over plain: {statistics.median(ratios):.0f} "
        f"(median of {PASSES} pairs, {min(ratios):.0f} to {max(ratios):.0f}; at least 20 wanted)"
    )
    print(f"training from the resident loader: {timed} (under 5 % waiting wanted)")


if __name__ == "__main__":
    main()
