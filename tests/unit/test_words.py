"""Numbers in sentences: a true minus, a space that does not break, and no "0 times as fast"."""

import pytest

from macgpu.words import counted, flop_rate, gib, percent, times


@pytest.mark.parametrize(
    ("share", "options", "shown"),
    [
        (0.194, {}, "19\u00a0%"),
        (-0.478, {}, "−48\u00a0%"),
        (0.194, {"digits": 1, "sign": True}, "+19.4\u00a0%"),
        (-0.001, {"sign": True}, "0\u00a0%"),
        (1.0, {}, "100\u00a0%"),
    ],
)
def test_a_share_is_shown_in_percent(share, options, shown):
    assert percent(share, **options) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(0.042, "0.042"), (0.3, "0.3"), (1.44, "1.4"), (30.4, "30"), (9.99, "10"), (1713.0, "1,713")],
)
def test_a_small_ratio_does_not_become_zero(ratio, shown):
    assert times(ratio) == shown


def test_one_is_not_a_plural():
    found = [counted(n, "worker") for n in (0, 1, 2, 1000)]
    assert found == ["0 workers", "1 worker", "2 workers", "1,000 workers"]


def test_bytes_are_shown_in_binary_units():
    assert gib(3 * 2**29) == "1.5\u00a0GiB" and gib(2**40, 0) == "1,024\u00a0GiB"
    assert gib(None) == "–"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1.5e8, "0.15 GFLOP/s"),
        (1.3416e9, "1.34 GFLOP/s"),
        (9.994e11, "999 GFLOP/s"),
        # Neither "1000 GFLOP/s" nor an exponent.
        (9.996e11, "1 TFLOP/s"),
        (6.688e14, "669 TFLOP/s"),
        (2.345e15, "2340 TFLOP/s"),
    ],
)
def test_a_rate_takes_the_unit_that_fits(rate, text):
    assert flop_rate(rate) == text
