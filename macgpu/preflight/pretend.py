"""mps without an mps device: CPU tensors, some of which are said to lie on mps.

Used where neither a Mac nor the software device is there. A tensor "lies on mps" when its storage
was sent there; views share their storage and so their device. Python sees it in ``x.device``,
while the arithmetic stays on the CPU, with autograd and all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import psutil
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

MPS = torch.device("mps", 0)

_real_device = torch._C.TensorBase.device


class _Storages:
    """A set of storages that does not keep them alive."""

    def __init__(self) -> None:
        self._references: dict[int, StorageWeakRef] = {}
        self._sweep_at = 10_000

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        reference = self._references.get(storage._cdata)
        return reference is not None and not reference.expired()

    def add(self, storage: torch.UntypedStorage) -> None:
        # The weak reference keeps the address from being given to another storage.
        self._references[storage._cdata] = StorageWeakRef(storage)
        if len(self._references) > self._sweep_at:
            expired = [key for key, ref in self._references.items() if ref.expired()]
            for key in expired:
                del self._references[key]
            self._sweep_at = 2 * len(self._references) + 10_000

    def discard(self, storage: torch.UntypedStorage) -> None:
        self._references.pop(storage._cdata, None)


_on_mps = _Storages()
_undecided = _Storages()


def is_on_mps(tensor: Tensor) -> bool:
    """Whether the tensor is said to lie on mps."""
    return _real_device.__get__(tensor).type == "cpu" and storage_of(tensor) in _on_mps


def put(tensor: Tensor, on_mps: bool) -> Tensor:
    """Say where the tensor, and whatever shares its storage, lies. Returns it."""
    storage = storage_of(tensor)
    _undecided.discard(storage)
    if on_mps:
        _on_mps.add(storage)
    else:
        _on_mps.discard(storage)
    return tensor


def leave_undecided(tensor: Tensor) -> None:
    """For what torch makes within an operation: on a Mac it is where the other tensors are."""
    _undecided.add(storage_of(tensor))


def is_undecided(tensor: Tensor) -> bool:
    """Whether nobody has said where the tensor lies."""
    return storage_of(tensor) in _undecided


def storage_of(tensor: Tensor) -> torch.UntypedStorage:
    """The tensor's storage; a sparse tensor's values', or what a torch.func wrapper wraps."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.values()
    return tensor.untyped_storage()


class _Copy(torch.autograd.Function):
    """A copy that lies on the other device; the gradient goes back the same way."""

    generate_vmap_rule = True

    @staticmethod
    def forward(source: Tensor, on_mps: bool) -> Tensor:
        return put(source.clone(), on_mps)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, bool], _output: Tensor) -> None:
        ctx.source_on_mps = is_on_mps(inputs[0])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return put(gradient.clone(), ctx.source_on_mps), None


def copy(tensor: Tensor, on_mps: bool) -> Tensor:
    """A copy on mps or on the CPU, differentiable."""
    return _Copy.apply(tensor, on_mps)


def _always(answer: object) -> Callable:
    @functools.wraps(torch.mps.is_available)  # torch._dynamo unwraps some of those replaced
    def function(*_args: object, **_named: object) -> object:
        return answer

    return function


def install() -> None:
    """Make torch say that there is an mps device, and say of each tensor where it lies."""

    def device(tensor: Tensor) -> torch.device:
        return MPS if is_on_mps(tensor) else _real_device.__get__(tensor)

    torch.Tensor.device = property(device)
    torch.Tensor.is_mps = property(is_on_mps)
    torch.Tensor.is_cpu = property(lambda tensor: tensor.device.type == "cpu")

    memory = psutil.virtual_memory().total
    answers = {
        torch.backends.mps: {"is_available": True, "is_built": True, "is_macos_or_newer": True},
        torch.mps: {
            "is_available": True,
            "device_count": 1,
            "synchronize": None,
            "manual_seed": None,
            "seed": None,
            "empty_cache": None,
            "set_per_process_memory_fraction": None,
            "current_allocated_memory": 0,
            "driver_allocated_memory": 0,
            "recommended_max_memory": memory * 3 // 4,
            "set_rng_state": None,
        },
        torch.accelerator: {
            "is_available": True,
            "device_count": 1,
            "current_accelerator": torch.device("mps"),
            "current_device_index": 0,
            "synchronize": None,
            "empty_cache": None,
            "memory_allocated": 0,
            "max_memory_allocated": 0,
            "memory_reserved": 0,
            "max_memory_reserved": 0,
            "reset_peak_memory_stats": None,
        },
    }
    for module, functions in answers.items():
        for name, answer in functions.items():
            if hasattr(module, name):
                setattr(module, name, _always(answer))
    torch.mps.get_rng_state = lambda *_args: torch.get_rng_state()

    class Generator(torch._C.Generator):
        def __new__(cls, device: object = "cpu") -> torch.Generator:
            on_mps = torch.device(device).type == "mps"
            return torch._C.Generator("cpu" if on_mps else device)

    torch.Generator = Generator
    _load = torch.load

    def load(*args: object, map_location: object = None, **named: object) -> object:
        wanted = map_location if isinstance(map_location, str | torch.device) else None
        if wanted is None or torch.device(wanted).type != "mps":
            return _load(*args, map_location=map_location, **named)
        loaded = _load(*args, map_location="cpu", **named)
        return torch.utils._pytree.tree_map_only(Tensor, lambda tensor: put(tensor, True), loaded)

    torch.load = load
