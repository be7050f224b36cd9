"""The model of the wire: its fit, its predictions, and the width at which a split breaks even."""

import pytest

from macgpu.parallel.traffic import Line, break_even, fit, mlp_cost, ring_bytes


def test_the_fit_finds_the_line_that_times_were_made_from():
    line = Line(20e-6, 5e9)
    sizes = [1 << k for k in range(10, 28, 2)]
    found = fit(sizes, [line.seconds(size) for size in sizes])
    assert found.latency_s == pytest.approx(20e-6)
    assert found.bytes_per_s == pytest.approx(5e9)


def test_noise_makes_no_message_free():
    falling = fit([1000, 2000], [2e-3, 1e-3])
    assert falling.latency_s > 0
    assert falling.bytes_per_s == 2000 / 1e-3
    steep = fit([1000, 2000], [1e-3, 9e-3])
    assert steep.latency_s == 1e-3


def test_a_ring_sends_everything_twice_but_one_share():
    # Reduce-scatter and all-gather: each passes on all parts but one.
    assert ring_bytes(100, 1) == 0
    assert ring_bytes(100, 2) == 100
    assert ring_bytes(100, 4) == 150


def test_weights_and_work_divide_and_traffic_does_not():
    one, four = mlp_cost(64, 10, 1, 4), mlp_cost(64, 10, 4, 4)
    assert one.weights == 2 * 64 * 256 * 4
    assert one.flops == 3 * 2 * 10 * 2 * 64 * 256
    assert (four.weights, four.flops) == (one.weights / 4, one.flops / 4)
    assert one.sent == 0
    assert four.sent == 2 * 1.5 * 10 * 64 * 4


@pytest.mark.parametrize("degree", [2, 4])
def test_at_the_break_even_width_both_take_as_long(degree):
    rate, line, tokens = 1e11, Line(50e-6, 2e9), 256
    width = break_even(rate, line, tokens, degree)
    whole = 3 * 2 * tokens * 8 * width**2 / rate
    split = whole / degree + 2 * line.seconds(tokens * width * 4)
    assert split == pytest.approx(whole)
