"""Numbers read well at any size."""

import pytest

from macgpu import words


def test_one_of_a_kind_has_no_s():
    found = [words.counted(number, "step") for number in (0, 1, 2, 1000)]
    assert found == ["0 steps", "1 step", "2 steps", "1,000 steps"]


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
    assert words.flop_rate(rate) == text
