"""How long a step takes, and whether one step is faster than another.

A device works asynchronously: a call returns before its work is done. So steps are timed in blocks,
one synchronise at the end of each, blocks long enough that the clock and the synchronise do not
count. The spread between blocks gives the interval; two steps are compared by interleaved pairs
of blocks, so that whatever slows the machine down for a while slows both.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from macgpu.device import synchronize
from macgpu.measure.fields import Count, Positive, Samples

Step = Callable[[], object]
Clock = Callable[[], float]

STABLE_BLOCKS = 5
"""So many blocks in a row must agree before a step counts as warm."""
STABLE_WITHIN = 0.02
"""By so much of their median may those blocks differ."""
NOISY_ABOVE = 0.10
"""A run whose interquartile range is over this share of its median is flagged."""

LEVEL = 0.95
"""Of the interval around a median."""
RATIO_LEVEL = 0.99
"""Of the interval around a ratio. Wider, because it decides: the bootstrap of a median covers a
little less than it says, and equal steps must not be called different more than 5 times in 100."""
RESAMPLES = 4000
LEAST_PAIRS = 60
"""Of blocks for a ratio, whatever the effort: a ratio is a claim. With 30 of them, a slow-down of
5 % was missed in a fifth of the trials on a machine that others used."""

SAME = "no difference shown"
NOISY = "noisy: interquartile range over 10 % of the median"
NOT_WARM = "not warm: the last five warm-up blocks differ by over 2 %"


@dataclass(frozen=True)
class Effort:
    """How much is spent on one measurement."""

    block_s: float
    """A block lasts at least this long, in seconds."""
    blocks: int
    """Blocks that are kept."""
    warm_up_blocks: int
    """At most so many before them."""


EFFORTS = {
    "smoke": Effort(0.002, 5, 5),
    "quick": Effort(0.020, 15, 20),
    "full": Effort(0.100, 30, 25),
}
"""By profile."""


@dataclass(frozen=True)
class Timing:
    """The time of one step, from blocks of steps."""

    steps_per_block: Count
    block_seconds: Samples
    """The raw samples: wall clock of each kept block."""
    warm_up_seconds: tuple[Positive, ...]
    """The blocks before them, of rising length."""
    first_call_s: Positive
    """The very first call, apart: it holds what is compiled or loaded at first use."""
    median_s: Positive
    """Per step, as the two bounds are."""
    low_s: Positive
    high_s: Positive
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        flags = "".join(f" ({flag.partition(':')[0]})" for flag in self.flags)
        return (
            f"{self.median_s * 1e3:.4g} ms [{self.low_s * 1e3:.4g}, {self.high_s * 1e3:.4g}]{flags}"
        )


@dataclass(frozen=True)
class Ratio:
    """The time of step A over the time of step B, from pairs of blocks."""

    pairs: Samples
    """The raw samples: seconds per step of A over those of B, a pair of blocks each."""
    median: Positive
    low: Positive
    high: Positive
    """The interval around the median, at :data:`RATIO_LEVEL`."""

    @property
    def verdict(self) -> str:
        """``"faster"`` or ``"slower"`` (of A), or :data:`SAME`."""
        if self.high < 1:
            return "faster"
        if self.low > 1:
            return "slower"
        return SAME

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}], {self.verdict}"


def time_step(
    step: Step,
    device: torch.device,
    effort: Effort,
    first_call_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time one step on the device: first call, warm-up, then ``effort.blocks`` blocks.

    Args:
        step: called without arguments; what it returns is dropped.
        device: what to wait for at the end of a block.
        first_call_s: of the first call, where the caller has made and timed it already.
        clock: seconds, rising.

    Errors of ``step`` pass through.
    """
    if first_call_s is None:
        first_call_s = time_block(step, 1, device, clock)
    count, warm_up, warm = _warm_up(step, device, effort, clock)
    blocks: list[float] = []
    while len(blocks) < effort.blocks:
        blocks.append(time_block(step, count, device, clock))
        if np.median(blocks) < effort.block_s:
            # The step has got faster still: these blocks were warm-up, too.
            warm_up += blocks
            count, blocks = _longer(count, blocks[-1], effort.block_s), []
    return summarise(blocks, count, first_call_s, warm_up, warm)


def compare_steps(
    a: Step,
    b: Step,
    device: torch.device,
    effort: Effort,
    seed: int = 0,
    clock: Clock = time.perf_counter,
) -> Ratio:
    """Compare two steps by pairs of blocks, in random order, each order in half of the pairs.

    At least :data:`LEAST_PAIRS` pairs are taken.
    """
    steps = (a, b)
    for step in steps:
        time_block(step, 1, device, clock)
    counts = [_warm_up(step, device, effort, clock)[0] for step in steps]
    orders = [(0, 1), (1, 0)] * (max(LEAST_PAIRS, effort.blocks) // 2)
    random.Random(seed).shuffle(orders)
    pairs = []
    for order in orders:
        seconds = [0.0, 0.0]
        for side in order:
            block = time_block(steps[side], counts[side], device, clock)
            seconds[side] = block / counts[side]
        pairs.append(seconds[0] / seconds[1])
    return ratio_of_pairs(pairs)


def time_in_turn(
    steps: Sequence[Step],
    device: torch.device,
    effort: Effort,
    seed: int = 0,
    clock: Clock = time.perf_counter,
) -> list[Timing]:
    """Time several steps whose blocks take turns, in another order each round.

    Whatever slows the machine down for a while so slows all of them.
    """
    firsts = [time_block(step, 1, device, clock) for step in steps]
    warm_ups = [_warm_up(step, device, effort, clock) for step in steps]
    blocks: list[list[float]] = [[] for _ in steps]
    order = list(range(len(steps)))
    rng = random.Random(seed)
    for _ in range(effort.blocks):
        rng.shuffle(order)
        for i in order:
            blocks[i].append(time_block(steps[i], warm_ups[i][0], device, clock))
    return [
        summarise(measured, count, first, warm_up, warm)
        for measured, first, (count, warm_up, warm) in zip(blocks, firsts, warm_ups, strict=True)
    ]


def time_block(
    step: Step, count: int, device: torch.device, clock: Clock = time.perf_counter
) -> float:
    """Wall clock of ``count`` steps in seconds, the device idle at both ends."""
    synchronize(device)
    start = clock()
    for _ in range(count):
        step()
    synchronize(device)
    return clock() - start


def summarise(
    blocks: list[float],
    steps_per_block: int,
    first_call_s: float,
    warm_up: list[float],
    warm: bool,
) -> Timing:
    """The statistics of raw blocks, with the flags they earn."""
    per_step = np.array(blocks) / steps_per_block
    low, high = bootstrap_interval(per_step, LEVEL)
    median = float(np.median(per_step))
    quarter, three_quarters = np.percentile(per_step, (25, 75))
    flags = [] if warm else [NOT_WARM]
    if three_quarters - quarter > NOISY_ABOVE * median:
        flags.append(NOISY)
    return Timing(
        steps_per_block,
        tuple(blocks),
        tuple(warm_up),
        first_call_s,
        median,
        low,
        high,
        tuple(flags),
    )


def ratio_of_pairs(pairs: list[float]) -> Ratio:
    """The statistics of paired ratios."""
    low, high = bootstrap_interval(np.array(pairs), RATIO_LEVEL)
    return Ratio(tuple(pairs), float(np.median(pairs)), low, high)


def ratio_of_timings(a: Timing, b: Timing, seed: int = 0) -> Ratio:
    """A over B where the two were not interleaved, such as records of two machines.

    Blocks are paired at random; a drift between the two runs does not show in the interval.
    """
    rng = np.random.default_rng(seed)
    count = min(len(a.block_seconds), len(b.block_seconds))
    sides = [
        rng.choice(timing.block_seconds, count, replace=False) / timing.steps_per_block
        for timing in (a, b)
    ]
    return ratio_of_pairs((sides[0] / sides[1]).tolist())


def bootstrap_interval(samples: np.ndarray, level: float, seed: int = 0) -> tuple[float, float]:
    """The percentile bootstrap interval of the median of ``samples`` (N,).

    Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    rng = np.random.default_rng(seed)
    resampled = rng.choice(samples, (RESAMPLES, len(samples)))
    tail = 50 * (1 - level)
    low, high = np.percentile(np.median(resampled, axis=1), (tail, 100 - tail))
    return float(low), float(high)


def _warm_up(
    step: Step, device: torch.device, effort: Effort, clock: Clock
) -> tuple[int, list[float], bool]:
    """Steps per block, the blocks run to find it, and whether the last ones agreed.

    A step gets faster as it warms up, so a block that turns out too short makes all later ones
    longer, and the count of those that agree begins anew.
    """
    count, seconds, agreeing = 1, [], []
    while len(seconds) < effort.warm_up_blocks or seconds[-1] < effort.block_s:
        seconds.append(time_block(step, count, device, clock))
        if seconds[-1] < effort.block_s:
            count, agreeing = _longer(count, seconds[-1], effort.block_s), []
            continue
        agreeing = [*agreeing, seconds[-1]][-STABLE_BLOCKS:]
        if len(agreeing) == STABLE_BLOCKS and _agree(agreeing):
            return count, seconds, True
    return count, seconds, False


def _longer(count: int, seconds: float, wanted_s: float) -> int:
    """More steps for a block that was too short: a tenth over what is wanted, at most tenfold."""
    factor = min(10.0, 1.1 * wanted_s / seconds) if seconds > 0 else 10.0
    return max(count + 1, math.ceil(count * factor))


def _agree(blocks: list[float]) -> bool:
    return max(blocks) - min(blocks) <= STABLE_WITHIN * float(np.median(blocks))
