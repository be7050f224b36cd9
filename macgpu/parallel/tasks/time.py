"""The MLP block by width, split and whole, and the all-reduce by size."""

from __future__ import annotations

import argparse

import torch

from macgpu.measure.timing import time_in_turn
from macgpu.parallel import measure
from macgpu.parallel.ranks import Ranks, SharedClock
from macgpu.parallel.scaling import Case


def run(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """The MLP block by width: split, whole on one core, whole on all; and the all-reduce by size.

    The split block uses one core a rank.
    """
    groups = measure.Groups(ranks, (ranks.count,), asked.timeout)
    effort = measure.SWEEP_EFFORTS[asked.profile]
    torch.set_num_threads(1)
    sums = [
        {"bytes": one.bytes, "seconds": one.timing.median_s}
        for one in measure.collectives(
            asked.sizes, ranks.count, torch.float32, asked.profile, groups
        )
    ]
    rows = []
    for width in asked.widths:
        case = Case("mlp", width, asked.tokens, "float32", ranks.count)
        split = groups.split(ranks.count)
        block = measure.make_block(case, split, ranks.device)
        alone = measure.BlockStep(block, *measure.inputs(case, split, ranks.device))
        full = measure.WHOLE
        whole_step = measure.BlockStep(
            measure.make_block(case, full, ranks.device), *measure.inputs(case, full, ranks.device)
        )
        steps = [
            alone,
            _threads(whole_step, 1) if ranks.first else measure.nothing,
            _threads(whole_step, asked.cores) if ranks.first else measure.nothing,
        ]
        timings = time_in_turn(steps, ranks.device, effort, clock=SharedClock(ranks))
        names = ("split", "one core", "all cores")
        rows.append(
            {"width": width}
            | {name: timing.median_s for name, timing in zip(names, timings, strict=True)}
        )
    return {"all-reduce": sums, "blocks": rows, "tokens": asked.tokens, "degree": ranks.count}


def _threads(step, count: int):
    """The step with so many threads, and one again after it."""

    def run():
        torch.set_num_threads(count)
        try:
            return step()
        finally:
            torch.set_num_threads(1)

    return run
