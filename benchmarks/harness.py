"""The harness measured by itself: its own cost, false alarms, and a planted slow-down found.

The step is real work of about a given time on the CPU. `make bench` runs it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch

from macgpu.measure.timing import EFFORTS, SAME, Clock, Step, compare_steps, time_block

CPU = torch.device("cpu")
STEP_S = 0.010
SLOW_DOWN = 1.05
PAIRS = 15


def products(count: int) -> Step:
    """A step of so many small matrix products."""
    a = torch.randn(64, 64)

    def step() -> None:
        for _ in range(count):
            torch.mm(a, a)

    return step


def count_for(seconds: float, clock: Clock) -> int:
    """How many products take about so long."""
    timed(products(1000), clock)
    return round(seconds * 2000 / timed(products(2000), clock))


def timed(step: Step, clock: Clock) -> float:
    start = clock()
    step()
    return clock() - start


def own_cost(clock: Clock) -> None:
    """A block of 10 steps beside a bare loop over the same, in random order; and an empty step."""
    step = products(count_for(STEP_S, clock))

    def bare() -> None:
        for _ in range(10):
            step()

    def pair() -> float:
        if random.random() < 0.5:
            return time_block(step, 10, CPU, clock) / timed(bare, clock)
        return 1 / (timed(bare, clock) / time_block(step, 10, CPU, clock))

    ratios = [pair() for _ in range(PAIRS)]
    empty_s = statistics.median(time_block(lambda: None, 1, CPU, clock) for _ in range(1000))
    share = empty_s / STEP_S
    print(f"own cost of a block: {share:.4%} of a {STEP_S * 1e3:.0f} ms step (under 1 % wanted)")
    print(f"blocks over a bare loop: {statistics.median(ratios):.4f} (median of {PAIRS} pairs)")


def trials(count: int, effort: str, clock: Clock) -> None:
    """How often two equal steps are called different, and how often a slower one is found."""
    count_a = count_for(EFFORTS[effort].block_s / 10, clock)
    same, slower = products(count_a), products(round(count_a * SLOW_DOWN))
    alarms = found = 0
    for trial in range(count):
        alarms += compare_steps(same, same, CPU, EFFORTS[effort], trial, clock).verdict != SAME
        found += compare_steps(slower, same, CPU, EFFORTS[effort], trial, clock).verdict == "slower"
    print(f"A against A called different: {alarms} of {count} (at most 5 of 100 wanted)")
    print(f"a planted {SLOW_DOWN - 1:.0%} slow-down found: {found} of {count} (at least 90 of 100)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--effort", default="quick", choices=EFFORTS)
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count this process's time instead of the wall's, where the machine is not idle",
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time if asked.processor_time else time.perf_counter
    own_cost(clock)
    trials(asked.trials, asked.effort, clock)


if __name__ == "__main__":
    main()
