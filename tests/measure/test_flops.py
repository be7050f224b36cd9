"""Operations against closed forms, and the floor against the roofline's arithmetic."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from macgpu.measure import flops
from macgpu.measure.flops import Work
from macgpu.models import CASES

N = 4


def test_a_linear_layer_is_two_operations_a_weight_and_sample_and_as_many_for_its_gradient():
    layer = nn.Linear(30, 50)
    x = torch.randn(N, 30)
    assert flops.count(lambda: layer(x).sum().backward(), layer) == 2 * (2 * N * 30 * 50)


def test_a_convolution_is_two_operations_a_weight_and_output_pixel():
    layer = nn.Conv2d(3, 8, 5, padding=2)
    x = torch.randn(N, 3, 16, 16)
    assert flops.count(lambda: layer(x), layer) == 2 * N * 8 * 3 * 5 * 5 * 16 * 16


def test_attention_is_counted_though_the_processor_has_a_fused_kernel_for_it():
    heads, length, width = 2, 10, 16
    q, k, v = (torch.randn(N, heads, length, width, requires_grad=True) for _ in range(3))

    def attend():
        F.scaled_dot_product_attention(q, k, v).sum().backward()

    product = 2 * N * heads * length * length * width
    assert flops.count(attend, nn.Identity()) == 6 * product, "two forward, four backward"


def test_an_lstm_is_counted_though_the_processor_has_a_fused_kernel_for_it():
    layer = nn.LSTM(16, 32)
    x = torch.randn(5, N, 16)
    expected = 5 * N * 2 * (4 * 32) * (16 + 32)
    assert flops.count(lambda: layer(x), layer) == expected


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_step_is_linear_in_the_batch(name):
    case = CASES[name]
    model = case.build()
    inputs, labels = case.batch(3)
    whole = flops.count(lambda: case.loss(model(inputs), labels).backward(), model)
    assert flops.count_step(case, 3).flops == whole


def test_traffic_holds_the_weights_ten_times_and_what_backward_needs_twice():
    case = CASES["mlp"]
    weights = 4 * (784 * 1024 + 1024 + 1024 * 10 + 10)
    one, two = (flops.count_step(case, size).bytes for size in (1, 2))
    # Input, hidden layer, log-probabilities, label and the loss's weight: kept for backward.
    kept = 4 * 784 + 4 * 1024 + 4 * 10 + 8 + 4
    assert two - one == pytest.approx(2 * kept, abs=16)
    assert one - (two - one) == 10 * weights


@pytest.mark.parametrize(
    ("flops_per_s", "bytes_per_s", "seconds", "bound"),
    [(1e12, 1e12, 2.0, "compute"), (1e13, 1e11, 10.0, "memory")],
)
def test_the_floor_is_the_longer_of_the_two(flops_per_s, bytes_per_s, seconds, bound):
    least = flops.floor(Work(2 * 10**12, 10**12), flops_per_s, bytes_per_s)
    assert (least.seconds, least.bound) == (pytest.approx(seconds), bound)


def test_half_precision_moves_half_the_bytes():
    work = Work(1, 10**12)
    assert flops.floor(work, 1e12, 1e12, 2).seconds == pytest.approx(0.5)
