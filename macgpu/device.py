"""The device: chosen in one place, by computing on it, and spoken to in one place.

Everything that differs between ``mps``, ``cuda`` and ``cpu`` (synchronise, empty the cache, read
memory, the autocast data type) is a function here, so that a chapter contains no ``if device``.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from macgpu.machine import DEVICES, explain_missing_mps, read_machine
from macgpu.words import counted


class DeviceUnavailableError(RuntimeError):
    """The device that was asked for cannot be used; the message says why and what to do."""


def pick(requested: str = "auto") -> torch.device:
    """The device to train on.

    ``"auto"`` is the first of mps, cuda, cpu that computes rightly (see :func:`probe`). A device
    asked for by name must do so too.

    Raises:
        ValueError: for a name that is none of auto, mps, cuda, cpu.
        DeviceUnavailableError: where the named device is absent or computes wrongly.
    """
    if requested not in ("auto", *DEVICES):
        raise ValueError(f"unknown device {requested!r}: choose auto, {', '.join(DEVICES)}")
    if requested != "auto":
        problem = why_not(requested)
        if problem:
            raise DeviceUnavailableError(problem)
        return torch.device(requested)
    for name in DEVICES:
        if not is_present(name):
            continue
        wrong = probe(name)
        if wrong is None:
            return torch.device(name)
        warnings.warn(f"{name} is present but not used: {wrong}", stacklevel=2)
    raise DeviceUnavailableError("not even the CPU computes rightly; reinstall torch")


def is_present(name: str) -> bool:
    """Whether torch says that the device is there. It may still compute wrongly."""
    if name == "mps":
        return torch.backends.mps.is_available()
    if name == "cuda":
        return torch.cuda.is_available()
    return True


def probe(name: str) -> str | None:
    """Allocate, multiply, synchronise, and compare with the CPU.

    Small whole numbers are used, so that the product is exact in float32 (and in tf32) and must be
    equal, not close. Returns ``None`` where it is, else what went wrong.
    """
    numbers = torch.arange(64 * 64).remainder(7).sub(3).reshape(64, 64).float()
    expected = numbers @ numbers.T
    try:
        on_device = numbers.to(name)
        product = on_device @ on_device.T
        synchronize(torch.device(name))
        result = product.cpu()
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        return f"a 64×64 product failed on it: {first_line}"
    if not torch.equal(result, expected):
        return "a 64×64 product of small whole numbers differs from the CPU's"
    return None


def why_not(name: str) -> str | None:
    """Why this device cannot be used here and what to do, or ``None`` where it can."""
    present = is_present(name)
    wrong = probe(name) if present else None
    if present and wrong is None:
        return None
    if name == "cpu":
        return f"the CPU computes wrongly: {wrong}. Install torch anew."
    if name == "cuda":
        if wrong:
            return f"cuda is present but unusable: {wrong}. Check the driver with nvidia-smi."
        if torch.version.cuda is None:
            return "this torch was built without CUDA. Use device auto, or install a CUDA build."
        return "torch sees no NVIDIA GPU. Check the driver with nvidia-smi, or use device auto."
    return explain_missing_mps(read_machine(), torch.backends.mps.is_built(), wrong)


def synchronize(device: torch.device) -> None:
    """Wait until all work given to the device is done. Nothing to wait for on the CPU."""
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type == "cuda":
        torch.cuda.synchronize()


def empty_cache(device: torch.device) -> None:
    """Give memory that the allocator keeps but nobody uses back to the system."""
    if device.type == "mps":
        torch.mps.empty_cache()
    elif device.type == "cuda":
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Memory:
    """Bytes on the device; ``None`` where there is no counter."""

    allocated: int | None
    """Held by tensors."""
    reserved: int | None
    """Held by the allocator: tensors and its cache."""
    limit: int | None
    """What the device recommends as the most (mps) or has (cuda)."""


def memory(device: torch.device) -> Memory:
    """Memory in use on the device now, in bytes. All ``None`` on the CPU, which has no counter."""
    if device.type == "mps":
        return Memory(
            torch.mps.current_allocated_memory(),
            torch.mps.driver_allocated_memory(),
            torch.mps.recommended_max_memory(),
        )
    if device.type == "cuda":
        return Memory(
            torch.cuda.memory_allocated(),
            torch.cuda.memory_reserved(),
            torch.cuda.get_device_properties(0).total_memory,
        )
    return Memory(None, None, None)


def autocast_dtype(device: torch.device) -> torch.dtype:
    """The half-precision type to try first: float16 on mps, bfloat16 elsewhere.

    float16 is what ``torch.get_autocast_dtype("mps")`` answers, too.
    """
    return torch.float16 if device.type == "mps" else torch.bfloat16


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def describe(device: torch.device) -> str:
    """The device by its own name: the chip, the graphics card or the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(0)
    if device.type == "mps":
        # The software device names itself here, so that nothing computed on it passes for a Mac's.
        return torch.backends.mps.get_name()
    machine = read_machine()
    return f"{machine.chip}, {counted(machine.cores, 'core')}"


@dataclass(frozen=True)
class Hardware:
    """The device as a piece of hardware; ``None`` where it does not say."""

    type: str
    """``"mps"``, ``"cuda"`` or ``"cpu"``."""
    name: str
    cores: int | None
    """GPU cores (mps), streaming multiprocessors (cuda), processor cores (cpu)."""
    memory_bytes: int | None
    """The device's own memory (cuda); the machine's where it is shared (mps, cpu)."""


def hardware(device: torch.device) -> Hardware:
    """What the device is, for a record. No serial number, no bus address."""
    machine = read_machine()
    name = describe(device)
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(0)
        return Hardware("cuda", name, properties.multi_processor_count, properties.total_memory)
    if device.type == "mps":
        return Hardware("mps", name, torch.backends.mps.get_core_count(), machine.memory_bytes)
    return Hardware("cpu", machine.chip, machine.cores, machine.memory_bytes)
