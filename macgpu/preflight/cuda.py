"""Lets a script that was written for NVIDIA run on the device under test, noting each place.

Also watches mixed precision and torch.distributed, where a script names ``cuda`` or ``nccl``.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.amp.autocast_mode import autocast

from macgpu.preflight.gpu import Gpu
from macgpu.preflight.ledger import Ledger

HALF = (torch.float16, torch.bfloat16)

STAND_INS = {
    "synchronize": None,
    "set_device": None,
    "current_device": 0,
    "get_device_name": "the device under test",
    "get_device_capability": (8, 0),
    "reset_peak_memory_stats": None,
    "memory_summary": "",
    "ipc_collect": None,
    "mem_get_info": (1, 1),
    "get_rng_state": None,
    "set_rng_state": None,
    "get_rng_state_all": [],
    "set_rng_state_all": None,
    "initial_seed": 0,
    "init": None,
    "utilization": 0,
    "reset_max_memory_allocated": None,
    "reset_accumulated_memory_stats": None,
    "is_current_stream_capturing": False,
    "set_stream": None,
    "set_per_process_memory_fraction": None,
    "get_device_properties": SimpleNamespace(
        name="the device under test",
        major=8,
        minor=0,
        total_memory=psutil.virtual_memory().total,
        multi_processor_count=1,
    ),
}
"""Functions of torch.cuda that raise on a Mac, and what they answer here so that the run goes on.
Those that are harmless without CUDA (``empty_cache``, ``manual_seed_all``, …) are left alone."""


TENSOR_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


class _Event:
    """``torch.cuda.Event`` where there is no CUDA: the time it tells is the CPU's."""

    def __init__(self, *_args: object, **_named: object) -> None:
        self._time = time.perf_counter()

    def record(self, *_args: object) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end._time - self._time)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, *_args: object) -> None: ...


class _Stream(contextlib.nullcontext):
    """``torch.cuda.Stream`` where there is no CUDA: all work is in order."""

    cuda_stream = 0

    def __init__(self, *_args: object, **_named: object) -> None:
        super().__init__(self)

    def record_event(self, event: _Event | None = None) -> _Event:
        return event or _Event()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait_event(self, *_args: object) -> None: ...

    def wait_stream(self, *_args: object) -> None: ...


CLASSES = {"Event": _Event, "Stream": _Stream, "ExternalStream": _Stream, "device": _Stream}
"""Classes of torch.cuda that need CUDA, and those that stand for them; ``device`` is a context."""

STREAMS = ("current_stream", "default_stream", "stream")
"""Functions of torch.cuda that answer with a stream."""


def install(ledger: Ledger, gpu: Gpu, cuda_is_there: bool) -> None:
    """Replace what names CUDA.

    Args:
        ledger: where places are noted.
        gpu: the device under test.
        cuda_is_there: what ``torch.cuda.is_available()`` tells the user's code. True for a script
            that does not know mps, so that what it does on a GPU is seen.
    """
    if cuda_is_there:
        for name, there, absent in (
            ("is_available", True, False),
            ("device_count", 1, 0),
            ("is_bf16_supported", True, False),
        ):
            setattr(torch.cuda, name, _answers_the_user(ledger, there, absent))
    for name, answer in STAND_INS.items():
        setattr(torch.cuda, name, _stand_in(ledger, name, lambda *_, answer=answer, **__: answer))
    for name in STREAMS:
        setattr(torch.cuda, name, _stand_in(ledger, name, _Stream))
    # Classes stay classes: scripts and torch ask isinstance() of them.
    for name, parent in CLASSES.items():
        init = _stand_in(ledger, name, parent.__init__)
        setattr(torch.cuda, name, type(name, (parent,), {"__init__": init}))
    for name, dtype in TENSOR_TYPES.items():
        new = _stand_in(ledger, name, _tensor_maker(dtype))
        setattr(torch.cuda, name, type(name, (), {"__new__": new}))
    Tensor.record_stream = lambda *_args: None
    _install_autocast(ledger, gpu)
    _install_scaler(ledger, gpu)
    _install_distributed(ledger)


def _answers_the_user(ledger: Ledger, there: object, absent: object) -> Callable:
    def answer(*_args: object, **_named: object) -> object:
        return there if ledger.is_user(sys._getframe(1).f_code.co_filename) else absent

    return answer


def _stand_in(ledger: Ledger, name: str, answer: Callable) -> Callable:
    def stand_in(*args: object, **named: object) -> object:
        place = ledger.direct_place()
        if place:  # torch itself asks for streams, too
            ledger.note("hardcoded-cuda", f": torch.cuda.{name}()", place)
        return answer(*args, **named)

    return stand_in


def _tensor_maker(dtype: torch.dtype) -> Callable[..., Tensor]:
    def make(_type: type, *content: object, **_named: object) -> Tensor:
        sizes = content[0] if content and isinstance(content[0], torch.Size) else content
        if all(isinstance(size, int) for size in sizes):
            return torch.zeros(sizes, dtype=dtype, device="mps")
        return torch.as_tensor(content[0], dtype=dtype, device="mps")

    return make


def _install_autocast(ledger: Ledger, gpu: Gpu) -> None:
    original = autocast.__init__

    def init(self: autocast, device_type: str, *args: object, **named: object) -> None:
        enabled = named.get("enabled", args[1] if len(args) > 1 else True)
        if device_type == "cuda" and enabled:
            if type(self) is autocast:
                ledger.note("cuda-autocast", 'autocast("cuda")')
            else:
                ledger.note("cuda-amp")
        if device_type in ("cuda", "mps"):
            if gpu.pretends and not args and named.get("dtype") is None:
                named["dtype"] = torch.float16  # the default of both, and not of the CPU
            device_type = "cpu" if gpu.pretends else "mps"
        original(self, device_type, *args, **named)

    autocast.__init__ = init


def _install_scaler(ledger: Ledger, gpu: Gpu) -> None:
    original_init, original_unscale = GradScaler.__init__, GradScaler.unscale_
    original_step = GradScaler.step

    def init(self: GradScaler, device: str = "cuda", *args: object, **named: object) -> None:
        enabled = named.get("enabled", args[4] if len(args) > 4 else True)
        if device == "cuda" and enabled:
            if type(self) is GradScaler:
                ledger.note("cuda-autocast", 'GradScaler("cuda")')
            else:
                ledger.note("cuda-amp")
        original_init(self, "mps" if device == "cuda" else device, *args, **named)

    def check(scaler: GradScaler, optimizer: torch.optim.Optimizer) -> None:
        if not scaler.is_enabled():
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        found = {p.dtype for p in parameters if p.dtype in HALF and gpu.holds(p)}
        for dtype in sorted(found, key=str):
            ledger.note("half-parameters", str(dtype).removeprefix("torch."))

    def unscale(self: GradScaler, optimizer: torch.optim.Optimizer) -> None:
        check(self, optimizer)
        original_unscale(self, optimizer)

    def step(self: GradScaler, optimizer: torch.optim.Optimizer, *args: object, **named: object):
        check(self, optimizer)
        return original_step(self, optimizer, *args, **named)

    GradScaler.__init__, GradScaler.unscale_, GradScaler.step = init, unscale, step


def _install_distributed(ledger: Ledger) -> None:
    if not torch.distributed.is_available():
        return
    original = torch.distributed.init_process_group

    def init_process_group(backend: str | None = None, *args: object, **named: object) -> None:
        if backend is not None and "nccl" in backend.lower():
            ledger.note("distributed", "the nccl backend")
            backend = "gloo"
        with contextlib.suppress(KeyError):
            if torch.device(named["device_id"]).type == "cuda":
                del named["device_id"]
        original(backend, *args, **named)

    torch.distributed.init_process_group = init_process_group
