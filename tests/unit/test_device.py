"""The device is chosen by computing on it."""

import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from macgpu import device


class WrongProducts(TorchDispatchMode):
    """From the second product on, the answer is zeros: a device that computes nothing."""

    def __init__(self):
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mm.default:
            self.products += 1
            if self.products > 1:
                return torch.zeros_like(result)
        return result


def test_the_cpu_passes_the_probe():
    assert device.probe("cpu") is None


def test_a_device_that_answers_zeros_fails_the_probe():
    with WrongProducts():
        assert "differs from the CPU" in device.probe("cpu")


def test_the_probe_waits_for_the_device(monkeypatch):
    waited = []
    monkeypatch.setattr(device, "synchronize", waited.append)
    device.probe("cpu")
    assert waited == [torch.device("cpu")]


@pytest.mark.parametrize("name", ["cpu", "cuda", "mps"])
def test_autocast_takes_half_of_float32(name):
    dtype = device.autocast_dtype(torch.device(name))
    assert dtype.itemsize == 2
    # What torch itself chooses, but for CUDA, where its float16 is the older choice.
    assert dtype == torch.get_autocast_dtype(name) or name == "cuda"


def test_a_device_that_cannot_be_read_fails_the_probe():
    assert "failed on it" in device.probe("meta")


def test_auto_takes_the_first_device_that_computes_rightly(monkeypatch):
    monkeypatch.setattr(device, "is_present", lambda name: name in ("mps", "cuda", "cpu"))
    wrong = {"mps": "all zeros", "cuda": None, "cpu": None}
    monkeypatch.setattr(device, "probe", wrong.get)
    with pytest.warns(UserWarning, match="mps is present but not used: all zeros"):
        assert device.pick("auto").type == "cuda"


def test_auto_falls_back_to_the_cpu_without_a_warning(monkeypatch):
    monkeypatch.setattr(device, "is_present", lambda name: name == "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert device.pick("auto").type == "cpu"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="choose auto, mps, cuda, cpu"):
        device.pick("gpu")


def test_a_missing_device_is_an_error_that_says_why(monkeypatch):
    monkeypatch.setattr(device, "is_present", lambda name: name == "cpu")
    for name in ("mps", "cuda"):
        with pytest.raises(device.DeviceUnavailableError) as raised:
            device.pick(name)
        assert device.why_not(name) == str(raised.value)
        assert "Use device" in str(raised.value) or "use device" in str(raised.value)


def test_memory_without_a_counter_is_none_and_not_zero():
    assert device.memory(torch.device("cpu")) == device.Memory(None, None, None)


def test_a_seed_repeats_all_three_generators():
    import random

    import numpy as np

    def draw():
        device.seed_everything(7)
        return random.random(), np.random.rand(), torch.rand(1).item()

    assert draw() == draw()
