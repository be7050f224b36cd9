"""Watches tensors being made on a device and moved between devices.

torch's constructors and ``Tensor``'s moves are replaced by ones that note what a Mac would refuse,
read ``cuda`` as the device under test, and go on with what works: float32 for float64, a copy to
the CPU before ``numpy()``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._device import DeviceContext, _device_constructors

from macgpu.preflight import pretend
from macgpu.preflight.gpu import KIND_OF_DTYPE, MPS, NARROWER, Gpu
from macgpu.preflight.ledger import Ledger
from macgpu.preflight.shapes import Shapes

CONSTRUCTORS = [
    "arange",
    "as_tensor",
    "asarray",
    "empty",
    "empty_permuted",
    "empty_strided",
    "eye",
    "full",
    "hann_window",
    "linspace",
    "logspace",
    "rand",
    "randint",
    "randn",
    "randperm",
    "range",
    "scalar_tensor",
    "sparse_coo_tensor",
    "sparse_csr_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
]
LIKE = [
    "empty_like",
    "full_like",
    "ones_like",
    "rand_like",
    "randint_like",
    "randn_like",
    "zeros_like",
]
NEW = ["new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"]

READS = {
    "item": ".item()",
    "__bool__": "bool() of a tensor, or if",
    "__float__": "float() of a tensor",
    "__int__": "int() of a tensor",
    "__index__": "a tensor as an index",
}
"""Methods of ``Tensor`` that give its value to Python."""


class Devices:
    """The replaced functions; :meth:`install` puts them in place."""

    def __init__(self, ledger: Ledger, gpu: Gpu, shapes: Shapes) -> None:
        self.ledger = ledger
        self.gpu = gpu
        self.shapes = shapes

    def install(self) -> None:
        _device_constructors()  # remembers torch's own functions, which DeviceContext looks for
        for name in (*CONSTRUCTORS, "ones", *LIKE):
            setattr(torch, name, self._constructor(getattr(torch, name)))
        for name in NEW:
            setattr(Tensor, name, self._constructor(getattr(Tensor, name)))
        self._to = Tensor.to
        for name in ("to", "cpu", "cuda", "numpy", "tolist", "pin_memory", "copy_"):
            replacement = getattr(self, f"_tensor_{name}")
            setattr(Tensor, name, _method(replacement, getattr(Tensor, name)))
        for name, call in READS.items():
            setattr(Tensor, name, self._reading(getattr(Tensor, name), call))
        for module in (torch.mps, torch.accelerator, torch.cuda):
            call = f"{module.__name__}.synchronize()"
            module.synchronize = self._waiting(module.synchronize, call)

    def read(self, device: object) -> torch.device | None:
        """A device as a script gives it; ``cuda`` is noted and read as mps."""
        if device is None:
            return None
        if isinstance(device, int):
            return MPS
        device = torch.device(device)
        if device.type == "cuda":
            self.ledger.note("hardcoded-cuda")
            return MPS
        return device

    def accepted(self, tensor: Tensor, detail: str) -> Tensor:
        """The tensor in a data type that mps has; another one is noted."""
        if tensor.layout is not torch.strided:
            self.ledger.note("sparse-tensor")
        if tensor.dtype in NARROWER:
            self.ledger.note(KIND_OF_DTYPE[tensor.dtype], detail)
            return self._to(tensor, NARROWER[tensor.dtype])
        return tensor

    def _constructor(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = original.__name__
        by_context = not name.endswith("_like") and not name.startswith("new_")

        @functools.wraps(original)
        def construct(*args: object, **named: object) -> Tensor:
            device = self.read(named.get("device"))
            if device is None:
                device = self.read(_device_of_context()) if by_context else None
                if name == "new_tensor" and self.gpu.holds(args[0]):
                    device = MPS
            if device is None or named.get("out") is not None:
                return self._decided(original(*args, **named))
            if device.type != "mps" or ("generator" in named and not self.gpu.pretends):
                return self._decided(original(*args, **{**named, "device": device}))
            source = args[0] if args else named.get("data")
            if name in ("as_tensor", "asarray") and isinstance(source, Tensor):
                return source.to(device, named.get("dtype") or source.dtype)
            requires_grad = named.pop("requires_grad", False)
            with torch.no_grad():
                tensor = original(*args, **{**named, "device": "cpu"})
                tensor = self.gpu.send(self.accepted(tensor, f"torch.{name}"))
            return tensor.requires_grad_() if requires_grad else tensor

        return construct

    def _reading(self, original: Callable, call: str) -> Callable:
        @functools.wraps(original)
        def read(tensor: Tensor) -> object:
            if self.gpu.holds(tensor):
                self._note_wait(call)
            return original(tensor)

        return read

    def _waiting(self, original: Callable, call: str) -> Callable:
        @functools.wraps(original)
        def wait(*args: object, **named: object) -> None:
            self._note_wait(call)
            return original(*args, **named)

        return wait

    def _decided(self, tensor: Tensor) -> Tensor:
        if self.gpu.pretends and pretend.is_undecided(tensor):
            pretend.put(tensor, False)
        return tensor

    def _tensor_to(self, _original: Callable, tensor: Tensor, *args: object, **named: object):
        copy = bool(named.pop("copy", False))
        other = named.pop("other", args[0] if args and isinstance(args[0], Tensor) else None)
        if other is not None:
            device, dtype, non_blocking, memory_format = other.device, other.dtype, False, None
        else:
            if args and isinstance(args[0], int):
                args = (MPS, *args[1:])
            device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **named)
        return self._move(tensor, device, dtype, non_blocking, copy, memory_format)

    def _tensor_cpu(self, original: Callable, tensor: Tensor, *args: object, **named: object):
        if not self.gpu.holds(tensor):
            return original(tensor, *args, **named)
        return self._fetch(tensor)

    def _tensor_cuda(
        self,
        _original: Callable,
        tensor: Tensor,
        _device: object = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> Tensor:
        cuda = torch.device("cuda")
        return self._move(tensor, cuda, None, non_blocking, False, memory_format)

    def _tensor_numpy(self, original: Callable, tensor: Tensor, *args: object, **named: object):
        if self.gpu.holds(tensor):
            self.ledger.note("numpy-of-mps", "numpy()")
            tensor = self.gpu.fetch(tensor)
        return original(tensor, *args, **named)

    def _tensor_tolist(self, original: Callable, tensor: Tensor) -> object:
        if self.gpu.holds(tensor):
            self._note_wait(".tolist()")
            tensor = self.gpu.fetch(tensor)
        return original(tensor)

    def _tensor_pin_memory(self, _original: Callable, tensor: Tensor, *_args: object) -> Tensor:
        self.ledger.note("pin-memory", "pin_memory()")
        return tensor

    def _tensor_copy_(
        self, original: Callable, tensor: Tensor, source: object, non_blocking: bool = False
    ) -> Tensor:
        if isinstance(source, Tensor):
            to_gpu, from_gpu = self.gpu.holds(tensor), self.gpu.holds(source)
            if to_gpu and not from_gpu and non_blocking:
                self.ledger.note("non-blocking")
            if from_gpu and not to_gpu:
                self._note_wait("copy_() to the CPU")
        return original(tensor, source, False)

    def _move(
        self,
        tensor: Tensor,
        device: torch.device | None,
        dtype: torch.dtype | None,
        non_blocking: bool,
        copy: bool,
        memory_format: torch.memory_format | None,
    ) -> Tensor:
        device = self.read(device)
        change = {"dtype": dtype or tensor.dtype, "copy": copy}
        if memory_format is not None:
            change["memory_format"] = memory_format
        on_gpu = self.gpu.holds(tensor)
        if device is not None and device.type not in ("mps", "cpu"):
            return self._to(tensor, device, **change)
        if device is None or (device.type == "mps") == on_gpu:
            return self._to(tensor, **change)
        if device.type == "cpu":
            return self._to(self._fetch(tensor), **change)
        if non_blocking:
            self.ledger.note("non-blocking")
        self.shapes.see("the batch", [tensor])
        return self.gpu.send(self.accepted(self._to(tensor, **change), "to the device"))

    def _fetch(self, tensor: Tensor) -> Tensor:
        self._note_wait("a copy to the CPU")
        return self.gpu.fetch(tensor)

    def _note_wait(self, call: str) -> None:
        place = self.ledger.direct_place()
        if place:
            self.ledger.note("sync-in-step", call, place)


def _method(function: Callable, original: Callable) -> Callable:
    @functools.wraps(original)
    def method(tensor: Tensor, *args: object, **named: object):
        return function(original, tensor, *args, **named)

    return method


def _device_of_context() -> torch.device | None:
    """What ``with torch.device(...)`` or ``torch.set_default_device`` asks for."""
    modes = torch.overrides._get_current_function_mode_stack()
    found = [mode.device for mode in modes if isinstance(mode, DeviceContext)]
    return found[-1] if found else None
