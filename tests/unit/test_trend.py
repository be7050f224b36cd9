"""Trends: slopes that were planted are found, and noise alone is none."""

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
