"""Trends: slopes that were planted are found, and noise alone is none."""

import math
from itertools import combinations

import numpy as np
import pytest

from macgpu.trend import LEAST, sustained, trend


def test_a_straight_line_gives_its_slope():
    line = trend(range(10), [3 + 0.5 * t for t in range(10)])
    assert (line.slope, line.low, line.high) == (0.5, 0.5, 0.5)
    assert line.rises and not line.falls


def test_a_planted_leak_is_found_under_noise_and_outliers():
    rng = np.random.default_rng(0)
    times = np.arange(60)
    readings = 500e6 + 2e5 * times + rng.normal(0, 2e6, 60)
    readings[[7, 31]] += 4e8
    line = trend(times, readings)
    assert line.rises
    assert line.low < 2e5 < line.high


def test_noise_alone_is_called_a_trend_about_one_time_in_twenty():
    rng = np.random.default_rng(1)
    called = [trend(range(30), rng.normal(0, 1, 30)) for _ in range(400)]
    share = np.mean([line.rises or line.falls for line in called])
    # Four standard errors around 0.05.
    assert 0.006 < share < 0.094


@pytest.mark.parametrize("count", [8, 20, 33])
def test_the_interval_leaves_out_as_many_slopes_as_kendalls_statistic_says(count):
    readings = np.random.default_rng(count).normal(0, 1, count).tolist()
    slopes = sorted((readings[t] - readings[s]) / (t - s) for s, t in combinations(range(count), 2))
    # Without a trend, the i-th reading lies below 0 to i - 1 of those before it, each as likely:
    # a variance of (i² - 1) / 12. The statistic counts each such pair twice.
    deviation = 2 * math.sqrt(sum((i * i - 1) / 12 for i in range(1, count + 1)))
    outside = math.floor((len(slopes) - 1.959964 * deviation) / 2)
    line = trend(range(count), readings)
    assert line.low == slopes[outside - 1]
    assert line.high == slopes[-outside]


def test_readings_upside_down_give_the_interval_upside_down():
    readings = np.random.default_rng(3).normal(0, 1, 12)
    up, down = trend(range(12), readings), trend(range(12), -readings)
    assert (down.slope, down.low, down.high) == (-up.slope, -up.high, -up.low)


@pytest.mark.parametrize("odd", [None, float("nan"), float("inf")])
def test_a_reading_that_is_no_number_is_refused(odd):
    readings = [1.0] * 5 + [odd] + [1.0] * 5
    for function in (trend, sustained):
        with pytest.raises(ValueError, match=f"finite readings, not {odd}"):
            function(range(11), readings)


@pytest.mark.parametrize("odd", [4, 3, float("nan")])
def test_times_that_do_not_rise_are_refused(odd):
    times = [0, 1, 2, 3, 4, odd, 6, 7, 8]
    with pytest.raises(ValueError, match=f"times that rise, not {odd} after 4"):
        trend(times, range(9))


def test_constant_readings_are_no_trend():
    line = trend(range(20), [4.0] * 20)
    assert not line.rises and not line.falls


def test_too_few_readings_are_refused():
    with pytest.raises(ValueError, match="at least 8 readings, not 7"):
        trend(range(LEAST - 1), range(LEAST - 1))


def test_throttling_is_shown_and_a_steady_run_is_not():
    rng = np.random.default_rng(2)
    steady = 1000 * rng.lognormal(0, 0.01, 40)
    slowed = steady * np.where(np.arange(40) < 15, 1.0, 0.8)
    assert not sustained(range(40), steady).slows
    found = sustained(range(40), slowed)
    assert found.slows
    assert found.share == pytest.approx(0.8, abs=0.02)


def test_a_loss_below_five_percent_is_not_called_throttling():
    rates = [1000 - t for t in range(40)]
    found = sustained(range(40), rates)
    assert found.trend.falls and not found.slows


def test_a_loss_above_five_percent_is_called_throttling():
    found = sustained(range(40), [1000 - 2.2 * t for t in range(40)])
    assert 0.92 < found.share < 0.94
    assert found.slows


def test_a_slow_end_without_a_falling_trend_is_not_called_throttling():
    # A fast start, and from then on the speed only rises.
    found = sustained(range(40), [1000] * 8 + [800 + 4 * t for t in range(32)])
    assert found.share < 0.95
    assert not found.trend.falls and not found.slows


def test_cold_and_sustained_are_the_medians_of_a_fifth():
    found = sustained(range(40), [1000 - 10 * t for t in range(40)])
    assert found.cold == 965  # of readings 0 to 7
    assert found.sustained == 645  # of readings 32 to 39
