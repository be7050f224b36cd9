"""Watches DataLoaders as if their workers were spawned, as on a Mac, and runs them without."""

from __future__ import annotations

import inspect
import io
import multiprocessing.process
import pickle
import sys
from types import FunctionType

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from macgpu.preflight.gpu import Gpu
from macgpu.preflight.ledger import Ledger
from macgpu.preflight.source import Program

SIGNATURE = inspect.signature(DataLoader.__init__)

WITHOUT_WORKERS = {
    "num_workers": 0,
    "pin_memory": False,
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}


def install(ledger: Ledger, gpu: Gpu, program: Program) -> None:
    """Replace the parts of ``DataLoader`` that start workers or pin memory."""
    original_init, original_iter = DataLoader.__init__, DataLoader.__iter__
    original_next = _BaseDataLoaderIter.__next__
    original_start = multiprocessing.process.BaseProcess.start

    def init(self: DataLoader, *args: object, **named: object) -> None:
        given = SIGNATURE.bind(self, *args, **named)
        given.apply_defaults()
        wanted = given.arguments
        if wanted["pin_memory"]:
            ledger.note("pin-memory", "pin_memory=True")
        self._macgpu_place = ledger.place() if wanted["num_workers"] else None
        if wanted["num_workers"]:
            for role in ("dataset", "collate_fn", "worker_init_fn"):
                problem = why_not_loadable(wanted[role], program, gpu)
                if problem:
                    ledger.note("worker-cannot-load", f"the {role}: {problem}")
        wanted.update({name: WITHOUT_WORKERS[name] for name in WITHOUT_WORKERS if name in wanted})
        original_init(*given.args, **given.kwargs)

    def iterate(self: DataLoader):
        if self._macgpu_place:
            line = _line_of_main()
            if line and not program.is_guarded(line):
                ledger.note("no-main-guard", place=(str(program.path), line))
        iterator = original_iter(self)
        iterator._macgpu_place = self._macgpu_place
        return iterator

    def next_batch(self: _BaseDataLoaderIter):
        batch = original_next(self)
        if getattr(self, "_macgpu_place", None) and _any_on_gpu(batch, gpu):
            ledger.note("device-tensor-in-worker", place=self._macgpu_place)
        return batch

    def start(self: multiprocessing.process.BaseProcess) -> None:
        ledger.note("unwatched-process")
        original_start(self)

    DataLoader.__init__ = init
    DataLoader.__iter__ = iterate
    _BaseDataLoaderIter.__next__ = next_batch
    multiprocessing.process.BaseProcess.start = start


class _Pickler(pickle.Pickler):
    """Pickles without the tensors' content, and meets every function and class by the way."""

    def __init__(self, program: Program, gpu: Gpu) -> None:
        super().__init__(io.BytesIO(), protocol=pickle.HIGHEST_PROTOCOL)
        self.program = program
        self.gpu = gpu

    def reducer_override(self, obj: object):
        if isinstance(obj, Tensor) and self.gpu.holds(obj):
            raise pickle.PicklingError("it holds mps tensors")
        if isinstance(obj, Tensor | np.ndarray):
            return str, ()
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            if self.program.is_notebook:
                raise pickle.PicklingError(f"{obj.__qualname__} is defined in the notebook")
            if self.program.is_guarded(_first_line(obj, str(self.program.path))):
                raise pickle.PicklingError(
                    f"{obj.__qualname__} is defined under if __name__ == '__main__'"
                )
        return NotImplemented


def why_not_loadable(value: object, program: Program, gpu: Gpu) -> str | None:
    """Why a spawned process could not load this object, or ``None``."""
    if isinstance(value, FunctionType) and value.__name__ == "<lambda>":
        return "it is a lambda"
    try:
        _Pickler(program, gpu).dump(value)
    except Exception as error:  # noqa: BLE001 - whatever a user's __reduce__ raises
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _first_line(obj: type | FunctionType, script: str) -> int:
    """Where in the script the function, or the class's first method, begins; 0 if unknown."""
    functions = [obj] if isinstance(obj, FunctionType) else list(vars(obj).values())
    codes = [getattr(function, "__code__", None) for function in functions]
    lines = [code.co_firstlineno for code in codes if code and code.co_filename == script]
    return min(lines, default=0)


def _line_of_main() -> int | None:
    """The line at which the script itself, and not one of its functions, stands."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return frame.f_lineno
        frame = frame.f_back
    return None


def _any_on_gpu(batch: object, gpu: Gpu) -> bool:
    if isinstance(batch, Tensor):
        return gpu.holds(batch)
    if isinstance(batch, dict):
        return any(_any_on_gpu(value, gpu) for value in batch.values())
    return isinstance(batch, tuple | list) and any(_any_on_gpu(value, gpu) for value in batch)
