"""What the software MPS device adds to a training step: its time over the CPU's.

    macgpu softmps run -- python benchmarks/softmps_step.py

Both devices run the same kernels, so this is the price of the detour alone. It says nothing about
a Mac. Steps alternate between the devices, so that what else the machine does hits both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet18


class Encoder(nn.Module):
    """6 layers of width 256 over sequences of 128 tokens: (N, 128) -> (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6)
        self.head = nn.Linear(256, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens)).mean(1))


def training_step(model: nn.Module, x: torch.Tensor, device: str) -> Callable[[], float]:
    """A step of AdamW on one batch; it returns its own seconds."""
    torch.manual_seed(0)
    model = model.to(device)
    x, y = x.to(device), torch.randint(0, 10, (len(x),)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        torch.accelerator.synchronize()
        return time.perf_counter() - start

    return step


def compare(name: str, make: Callable[[], nn.Module], x: torch.Tensor, steps: int) -> None:
    run = {device: training_step(make(), x, device) for device in ("cpu", "mps")}
    times: dict[str, list[float]] = {device: [] for device in run}
    for round_ in range(steps + 2):
        for device, step in run.items():
            seconds = step()
            if round_ >= 2:  # the first two warm up
                times[device].append(seconds)
    cpu, mps = (statistics.median(times[device]) for device in ("cpu", "mps"))
    print(f"{name}: cpu {cpu * 1e3:.0f} ms, mps {mps * 1e3:.0f} ms, ratio {mps / cpu:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    images, tokens = torch.randn(64, 3, 32, 32), torch.randint(0, 1000, (8, 128))
    compare("ResNet-18, 64 x 3x32x32", lambda: resnet18(num_classes=10), images, steps)
    compare("encoder, 8 x 128 tokens", Encoder, tokens, steps)


if __name__ == "__main__":
    main()
