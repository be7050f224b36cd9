"""What this device can do at best, measured: the ceilings that a training step is held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from macgpu.device import synchronize
from macgpu.measure.fields import Amount
from macgpu.measure.memory import OUT_OF_MEMORY, ran_out
from macgpu.measure.steps import set_tf32
from macgpu.measure.timing import Effort, Step, Timing, time_block, time_step
from macgpu.words import flop_rate

MIB = 2**20

TOO_LONG_S = 0.5
"""A step that takes longer is not timed: it would be run dozens of times. Some processors compute
bfloat16 products hundreds of times slower than float32."""
HOPELESS_S = 10.0
"""A first step that takes longer is not even tried again; loading a library takes less."""


@dataclass(frozen=True)
class Cell:
    """One entry of a sweep. A cell that could not be measured says why instead."""

    kind: Literal["matmul", "copy", "upload", "launch", "round trip"]
    """``"matmul"``, ``"copy"`` (within the device), ``"upload"`` (host to device), ``"launch"`` (an
    operation on one number, in a queue of many) or ``"round trip"`` (the same, waited for)."""
    dtype: str
    size: Amount
    """Of a matmul the side of its square matrices; else bytes of the tensor."""
    flops: Amount
    """Operations of one step of this cell; 0 where it is not about operations."""
    bytes: Amount
    """Bytes moved by one step: a copy reads and writes, so counts twice its size."""
    timing: Timing | None
    failure: str | None = None

    @property
    def flops_per_s(self) -> float | None:
        return self.flops / self.timing.median_s if self.timing and self.flops else None

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes / self.timing.median_s if self.timing and self.bytes else None


@dataclass(frozen=True)
class Sweep:
    """What is measured. Matrices are square; copies and uploads are of float32."""

    sides: tuple[int, ...]
    copy_bytes: tuple[int, ...]


SWEEPS = {
    "smoke": Sweep((64, 512), (MIB // 4, 4 * MIB)),
    "quick": Sweep((256, 1024, 2048), (MIB // 4, 4 * MIB, 64 * MIB)),
    "full": Sweep((512, 2048, 8192), (MIB, 64 * MIB, 2048 * MIB)),
}
"""By profile."""


def matmul_dtypes(device: torch.device) -> tuple[str, ...]:
    """The types that are worth a sweep: ``"tf32"`` is float32 with rounded inputs, NVIDIA only."""
    extra = {"cuda": ("tf32", "float16"), "mps": ("float16",), "cpu": ()}
    return ("float32", *extra[device.type], "bfloat16")


def measure(
    device: torch.device, sweep: Sweep, effort: Effort, report: Callable[[str], None] = print
) -> tuple[Cell, ...]:
    """Measure all ceilings of a device, with a line of report for each cell."""
    cells = []
    for dtype in matmul_dtypes(device):
        for side in sweep.sides:
            flops = 2 * side**3
            cells.append(_cell("matmul", dtype, side, flops, 0, device, effort))
            report(describe(cells[-1]))
    for kind, times_moved in (("copy", 2), ("upload", 1)):
        if kind == "upload" and device.type == "cpu":
            continue
        for size in sweep.copy_bytes:
            moved = times_moved * size
            cells.append(_cell(kind, "float32", size, 0, moved, device, effort))
            report(describe(cells[-1]))
    for kind in ("launch", "round trip"):
        cells.append(_cell(kind, "float32", 4, 0, 0, device, effort))
        report(describe(cells[-1]))
    return tuple(cells)


def peak_flops(cells: tuple[Cell, ...], dtype: str) -> float | None:
    """The best measured rate of matrix products of a type, in operations per second."""
    rates = [cell.flops_per_s for cell in cells if cell.kind == "matmul" and cell.dtype == dtype]
    return max((rate for rate in rates if rate), default=None)


def bandwidth(cells: tuple[Cell, ...], kind: str = "copy") -> float | None:
    """The rate of the largest copy (or upload) that was measured, in bytes per second.

    The largest, not the fastest: small copies stay in a cache.
    """
    measured = [cell for cell in cells if cell.kind == kind and cell.bytes_per_s]
    return max(measured, key=lambda cell: cell.size).bytes_per_s if measured else None


def what(cell: Cell) -> str:
    """What a cell measures: ``"matmul float32, side 512"``, ``"launch"``."""
    if cell.kind == "matmul":
        return f"{cell.kind} {cell.dtype}, side {cell.size:,}"
    return f"{cell.kind} {cell.dtype}, {cell.size:,} bytes" if cell.bytes else cell.kind


def describe(cell: Cell) -> str:
    """A cell in a line of text."""
    if cell.timing is None:
        return f"{what(cell)}: {cell.failure}"
    if cell.flops_per_s:
        return f"{what(cell)}: {flop_rate(cell.flops_per_s)}"
    if cell.bytes_per_s:
        return f"{what(cell)}: {cell.bytes_per_s / 1e9:.3g} GB/s"
    return f"{what(cell)}: {cell.timing.median_s * 1e6:.3g} µs"


def _cell(
    kind: str,
    dtype: str,
    size: int,
    flops: int,
    moved: int,
    device: torch.device,
    effort: Effort,
) -> Cell:
    timing, failure = None, None
    set_tf32(dtype == "tf32")
    try:
        step = _step(kind, dtype, size, device)
        first_call_s = time_block(step, 1, device)
        # The second call tells: the first may load a library.
        second_s = first_call_s if first_call_s > HOPELESS_S else time_block(step, 1, device)
        if second_s > TOO_LONG_S:
            failure = f"not timed: one step takes {second_s:.1f} s"
        else:
            timing = time_step(step, device, effort, first_call_s)
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error, device):
            raise
        failure = OUT_OF_MEMORY
    return Cell(kind, dtype, size, flops, moved, timing, failure)


def _step(kind: str, dtype: str, size: int, device: torch.device) -> Step:
    if kind == "matmul":
        torch_dtype = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
        # Random numbers: a product of zeros draws less power and runs faster than a real one.
        a, b = (torch.randn(size, size, device=device, dtype=torch_dtype) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)
    if kind in ("copy", "upload"):
        source = torch.ones(size // 4, device="cpu" if kind == "upload" else device)
        target = torch.empty(size // 4, device=device)
        return lambda: target.copy_(source)
    number = torch.zeros(1, device=device)
    if kind == "launch":
        return lambda: number.add_(1)

    def round_trip() -> None:
        number.add_(1)
        synchronize(device)

    return round_trip
