"""The harness's statistics against closed forms, and its choices on a simulated clock."""

import math

import numpy as np
import pytest
import torch

from macgpu.measure import timing
from macgpu.measure.timing import EFFORTS, SAME, compare_steps, time_in_turn, time_step
from tests.measure.simulated import Clock

CPU = torch.device("cpu")
QUICK, FULL = EFFORTS["quick"], EFFORTS["full"]


@pytest.mark.parametrize("effort", [QUICK, FULL])
@pytest.mark.parametrize("step_s", [1e-6, 1e-3, 0.07, 2.0])
def test_every_block_is_long_enough_and_none_is_needlessly_long(step_s, effort):
    clock = Clock()
    timed = time_step(clock.step(lambda _: step_s), CPU, effort, clock=clock)
    assert len(timed.block_seconds) == effort.blocks
    assert min(timed.block_seconds) >= effort.block_s
    assert max(timed.block_seconds) <= max(2 * effort.block_s, step_s * 1.001)
    assert timed.median_s == pytest.approx(step_s, rel=1e-6)
    assert timed.flags == ()


def test_blocks_grow_with_a_step_that_gets_faster_as_it_warms_up():
    clock = Clock()
    step = clock.step(lambda call: 0.010 if call < 20 else 0.001)
    timed = time_step(step, CPU, QUICK, clock=clock)
    assert min(timed.block_seconds) >= QUICK.block_s
    assert timed.median_s == pytest.approx(0.001)


def test_the_first_call_is_kept_apart_and_in_no_statistic():
    clock = Clock()
    timed = time_step(clock.step(lambda call: 0.001 if call else 30.0), CPU, QUICK, clock=clock)
    assert timed.first_call_s == pytest.approx(30)
    assert timed.high_s == pytest.approx(0.001)
    assert max(timed.warm_up_seconds + timed.block_seconds) < 1


def test_warm_up_ends_once_five_blocks_agree_and_not_before():
    clock = Clock()
    # Blocks of one step, each 3 % faster than the last until the eighth: no five agree within 2 %.
    step = clock.step(lambda call: 0.1 * 0.97 ** min(call, 8))
    timed = time_step(step, CPU, QUICK, clock=clock)
    assert timed.flags == ()
    assert len(timed.warm_up_seconds) == 12
    last = timed.warm_up_seconds[-5:]
    assert max(last) - min(last) <= timing.STABLE_WITHIN * np.median(last)


def test_a_step_that_never_settles_is_timed_and_flagged():
    clock = Clock()
    step = clock.step(lambda call: 0.1 if call % 2 else 0.14)
    timed = time_step(step, CPU, QUICK, clock=clock)
    assert len(timed.warm_up_seconds) == QUICK.warm_up_blocks
    assert timed.flags == (timing.NOT_WARM, timing.NOISY)


@pytest.mark.parametrize(("spread", "flagged"), [(0.05, False), (0.2, True)])
def test_a_wide_run_is_flagged_as_noisy(spread, flagged):
    # Half of the blocks lower, half higher: the interquartile range is twice the spread.
    blocks = [1 - spread / 1.9] * 10 + [1.0] + [1 + spread / 1.9] * 10
    timed = timing.summarise(blocks, 1, 0.0, [], warm=True)
    assert (timing.NOISY in timed.flags) == flagged


def exact_bootstrap_quantile(samples, share):
    """Of the median of an odd number n of samples: a resampled median is at most the k-th
    smallest where more than half of n draws are, each with chance k/n (a binomial)."""
    ordered, n = sorted(samples), len(samples)
    for k in range(1, n + 1):
        at_most = sum(
            math.comb(n, hits) * (k / n) ** hits * (1 - k / n) ** (n - hits)
            for hits in range(n // 2 + 1, n + 1)
        )
        if at_most >= share:
            return ordered[k - 1]
    raise AssertionError


@pytest.mark.parametrize("n", [15, 31])
def test_the_bootstrap_agrees_with_its_exact_distribution(n):
    samples = np.random.default_rng(n).lognormal(size=n)
    low, high = timing.bootstrap_interval(samples, 0.90)
    assert low == exact_bootstrap_quantile(samples, 0.05)
    assert high == exact_bootstrap_quantile(samples, 0.95)


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(400):
        low, high = timing.bootstrap_interval(rng.lognormal(size=30), 0.95, seed=trial)
        covered += low <= 1 <= high
    assert 0.92 <= covered / 400 <= 0.98


def verdicts(slower_by, spread, trials=100):
    """What is said of two noisy steps while the whole machine slows down by half."""
    found = []
    for trial in range(trials):
        clock = Clock()
        a = clock.noisy(0.010 * slower_by, spread, seed=2 * trial)
        b = clock.noisy(0.010, spread, seed=2 * trial + 1)
        found.append(compare_steps(a, b, CPU, QUICK, seed=trial, clock=clock).verdict)
    return found


def test_equal_steps_are_called_different_in_at_most_five_of_a_hundred_trials():
    assert sum(verdict != SAME for verdict in verdicts(1.0, 0.05)) <= 5


def test_a_slow_down_of_five_per_cent_is_found_in_ninety_of_a_hundred_trials():
    assert verdicts(1.05, 0.05).count("slower") >= 90


def test_a_machine_that_slows_down_meanwhile_makes_no_step_slower_than_itself():
    clock, start = Clock(), 100.0
    drifting = clock.step(lambda _: 0.010 * (1 + (clock.now - start)))
    ratio = compare_steps(drifting, drifting, CPU, QUICK, clock=clock)
    assert clock.now > start + 0.5, "the machine got half as slow again and more"
    assert ratio.verdict == SAME
    assert ratio.median == pytest.approx(1, abs=0.02)


def test_the_order_within_a_pair_is_drawn_and_the_ratio_is_a_over_b():
    clock, order = Clock(), []

    def step(name, seconds):
        def run():
            order.append(name)
            clock.now += seconds

        return run

    ratio = compare_steps(step("a", 0.0375), step("b", 0.025), CPU, QUICK, clock=clock)
    assert ratio.median == pytest.approx(1.5)
    assert ratio.verdict == "slower"
    first = {tuple(order[i : i + 2]) for i in range(len(order) - 60, len(order), 2)}
    assert first == {("a", "b"), ("b", "a")}
    assert compare_steps(step("b", 0.025), step("a", 0.0375), CPU, QUICK, clock=clock).verdict == (
        "faster"
    )


def test_separate_runs_are_compared_with_an_interval_as_well():
    clock = Clock()
    slow, fast = (
        time_step(clock.noisy(seconds, 0.02, seed), CPU, FULL, clock=clock)
        for seed, seconds in enumerate((0.03, 0.02))
    )
    ratio = timing.ratio_of_timings(slow, fast)
    assert ratio.low < 1.5 < ratio.high
    assert ratio.verdict == "slower"


def test_steps_in_turn_share_a_drift_and_each_round_has_every_step_once():
    clock, order = Clock(), []

    def step(name, seconds):
        def run():
            order.append(name)
            clock.now += seconds * (1 + clock.now / 1000)

        return run

    names, effort = ("a", "b", "c"), EFFORTS["smoke"]
    # So long that a block is one step.
    steps = [step(name, effort.block_s * (number + 1)) for number, name in enumerate(names)]
    timings = time_in_turn(steps, CPU, effort, clock=clock)
    rounds = order[-3 * effort.blocks :]
    rounds = [tuple(rounds[i : i + 3]) for i in range(0, len(rounds), 3)]
    assert all(sorted(one) == list(names) for one in rounds)
    assert len(set(rounds)) > 1
    assert [len(timing.block_seconds) for timing in timings] == [effort.blocks] * 3
    assert timings[2].median_s / timings[0].median_s == pytest.approx(3, rel=0.01)
