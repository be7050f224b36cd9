"""Training a split model beside the whole one, from the start or from a checkpoint."""

from __future__ import annotations

import argparse

import torch
from torch.distributed.device_mesh import init_device_mesh

from macgpu.parallel.ranks import Ranks
from macgpu.parallel.shape import Shape
from macgpu.parallel.training import Run, apart, checkpoints, held


def run(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """Train the split model beside the whole one, both from the newest checkpoint if asked."""
    shape = Shape(width=asked.width, heads=asked.heads)
    mesh = init_device_mesh("cpu", (ranks.count,))
    split, other = Run(shape, mesh), Run(shape)
    resumed = split.load(asked.folder) if asked.resume else False
    start, losses, expected = split.step, [], []
    if ranks.first and asked.resume:
        print(f"going on from step {start}" if resumed else "no checkpoint yet", flush=True)
    if ranks.first and start >= asked.steps:
        print(f"nothing left to do: step {start} is done, --steps {asked.steps}", flush=True)
    while other.step < start:
        other.advance()
    while split.step < asked.steps:
        losses.append(split.advance())
        expected.append(other.advance())
        if asked.save_every and split.step % asked.save_every == 0:
            split.save(asked.folder)
            if ranks.first:
                print(f"saved step {split.step}", flush=True)
    return {
        "from step": start,
        "degree": ranks.count,
        "losses": torch.stack(losses).tolist() if losses else [],
        "losses, whole": torch.stack(expected).tolist() if expected else [],
        "weights apart": apart(split.model, other.model),
        "elements held": ranks.gathered(held(split.model)),
        "elements, whole": sum(weight.numel() for weight in other.model.parameters()),
        "checkpoints": [path.name for path in checkpoints(asked.folder)] if asked.folder else [],
    }
