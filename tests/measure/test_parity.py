"""A device that computes wrongly is found, named, and not timed."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from macgpu.measure import parity, suites
from macgpu.measure.steps import Options, TrainStep
from macgpu.models import CASES

CPU = torch.device("cpu")


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient * (1.2 if gradient.dtype == torch.float32 else 1)


class Planted(nn.Module):
    """The small network with a fault that only the measured data type has, not the reference."""

    def __init__(self, fault):
        super().__init__()
        self.inner, self.fault, self.calls = CASES["mlp"].make(), fault, 0

    def forward(self, x):
        self.calls += 1
        measured = x.dtype == torch.float32
        x = x.flatten(1)
        hidden = self.inner[2](self.inner[1](x))
        if self.fault == "gradients":
            hidden = WrongBackward.apply(hidden)
        logits = self.inner[3](hidden)
        if measured and self.fault == "outputs":
            logits = logits + 0.01 * torch.arange(10) * logits
        if measured and self.fault == "curve" and self.calls > 1:
            logits = logits * 3
        if measured and self.fault == "not a number":
            logits = logits / (logits.detach() * 0)
        return logits


def planted(fault):
    return replace(CASES["mlp"], make=lambda: Planted(fault))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_right_device_passes_with_room(name):
    checked = parity.gate(CASES[name], CPU, steps=3)
    assert checked.passed
    assert max(checked.loss, checked.outputs, checked.gradients, checked.curve) < 1e-4
    assert "float64" in checked.reference


@pytest.mark.parametrize("fault", ["outputs", "gradients", "curve"])
def test_a_planted_fault_is_found_and_named_with_its_size(fault):
    checked = parity.gate(planted(fault), CPU, batch_size=4, steps=3)
    assert not checked.passed
    assert f"{fault} off by" in checked.difference
    if fault == "curve":
        assert checked.gradients < 1e-4, "the first step was right"


def test_a_result_that_is_no_number_fails_and_is_kept_as_none():
    checked = parity.gate(planted("not a number"), CPU, steps=2)
    assert not checked.passed
    assert checked.loss is None


def test_a_case_that_fails_is_reported_and_not_timed():
    lines = []
    results = list(suites.measure_case(planted("outputs"), CPU, "smoke", (), lines.append))
    assert [result.timing for result in results] == [None]
    assert results[0].failure.startswith("wrong: ")
    assert "not timed" in lines[0] and "off by" in lines[0]


@pytest.mark.parametrize(("last", "passed"), [(1.99, True), (1.8, False), (float("nan"), False)])
def test_a_tuned_steps_losses_are_held_against_the_plain_ones(last, passed):
    checked = parity.same_curve([2.3, 2.1, last], [2.3, 2.1, 2.0], "the plain step", 0.02)
    assert checked.passed == passed


def test_a_rung_that_fails_says_so_and_the_next_is_tried(monkeypatch):
    def step(case, device, options, batch_size):
        if options.autocast and not options.fused:
            raise RuntimeError("MPS backend out of memory")
        if options.fused:
            raise NotImplementedError("an operator is missing in /Users/me/torch")
        return TrainStep(case, device, options, batch_size)

    rungs = [
        ("float32", Options()),
        ("bfloat16", Options(autocast="bfloat16")),
        ("fused", Options(fused=True)),
        ("float32 again", Options()),
    ]
    monkeypatch.setattr(suites, "ladder", lambda case, device: rungs)
    monkeypatch.setattr(suites, "TrainStep", step)
    results = list(suites.measure_case(CASES["mlp"], CPU, "smoke", (), lambda line: None))
    assert [result.failure for result in results] == [
        None,
        "out of memory",
        "failed: NotImplementedError",
        None,
    ]
    assert [result.timing is None for result in results] == [False, True, True, False]


def test_a_rung_whose_losses_leave_the_plain_ones_is_not_timed(monkeypatch):
    class Astray(TrainStep):
        """With the option on, computes on other inputs."""

        def __init__(self, case, device, options, batch_size):
            super().__init__(case, device, options, batch_size)
            if options.fused:
                self.batch = (self.batch[0] * 3, self.batch[1])

    rungs = [("float32", Options()), ("fused", Options(fused=True))]
    monkeypatch.setattr(suites, "ladder", lambda case, device: rungs)
    monkeypatch.setattr(suites, "TrainStep", Astray)
    plain, wrong = suites.measure_case(CASES["mlp"], CPU, "smoke", (), lambda line: None)
    assert plain.timing is not None
    assert wrong.timing is None
    assert wrong.failure.startswith("wrong: curve off by")
