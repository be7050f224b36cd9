"""Ceilings, memory: what cannot be measured says so, and the sweep goes on."""

from functools import partial

import pytest
import torch

from macgpu.measure import ceilings, memory
from macgpu.measure.ceilings import Cell, Sweep
from macgpu.measure.timing import EFFORTS, Timing, time_block
from tests.measure import simulated

CPU = torch.device("cpu")
SMOKE = EFFORTS["smoke"]
SWEEP = Sweep((16, 32), (4096, 8192))


def test_every_ceiling_of_this_machine_is_measured():
    lines = []
    cells = ceilings.measure(CPU, SWEEP, SMOKE, lines.append)
    assert [cell.failure for cell in cells] == [None] * len(cells)
    assert {cell.kind for cell in cells} == {"matmul", "copy", "launch", "round trip"}
    assert len(lines) == len(cells)
    assert ceilings.peak_flops(cells, "float32") > 0
    assert ceilings.bandwidth(cells) > 0
    assert ceilings.peak_flops(cells, "float16") is None, "not measured on a CPU"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        MemoryError(),
    ],
)
def test_a_cell_that_runs_out_of_memory_says_so_and_the_sweep_goes_on(error, monkeypatch):
    original = ceilings._step

    def step(kind, dtype, size, device):
        if kind == "matmul" and size == 16:
            raise error
        return original(kind, dtype, size, device)

    monkeypatch.setattr(ceilings, "_step", step)
    cells = ceilings.measure(CPU, SWEEP, SMOKE, lambda line: None)
    failed = [cell for cell in cells if cell.failure]
    assert {(cell.kind, cell.size, cell.failure) for cell in failed} == {
        ("matmul", 16, "out of memory")
    }
    assert all(cell.timing is None and cell.flops_per_s is None for cell in failed)
    assert ceilings.peak_flops(cells, "float32") > 0
    assert "out of memory" in ceilings.describe(failed[0])


def test_another_error_is_not_taken_for_a_lack_of_memory(monkeypatch):
    def broken(*args):
        raise RuntimeError("a kernel is missing")

    monkeypatch.setattr(ceilings, "_step", broken)
    with pytest.raises(RuntimeError, match="a kernel is missing"):
        ceilings.measure(CPU, SWEEP, SMOKE, lambda line: None)


def timed(seconds):
    return Timing(1, (seconds,), (), seconds, seconds, seconds, seconds)


def test_a_step_that_takes_too_long_is_not_timed_and_the_sweep_goes_on(monkeypatch):
    clock = simulated.Clock()
    slow = clock.step(lambda call: 2.0 if call < 2 else pytest.fail("timed all the same"))

    def step(kind, dtype, size, device):
        return slow if (dtype, size) == ("bfloat16", 32) else lambda: None

    monkeypatch.setattr(ceilings, "_step", step)
    monkeypatch.setattr(ceilings, "time_block", partial(time_block, clock=clock))
    cells = ceilings.measure(CPU, SWEEP, SMOKE, lambda line: None)
    (untimed,) = (cell for cell in cells if cell.timing is None)
    assert (untimed.dtype, untimed.size) == ("bfloat16", 32)
    assert untimed.failure == "not timed: one step takes 2.0 s"
    assert cells[-1].kind == "round trip"


def test_rates_are_work_over_time_and_bandwidth_is_that_of_the_largest_copy():
    cells = (
        Cell("matmul", "float32", 1000, 2 * 10**9, 0, timed(0.001)),
        Cell("matmul", "float32", 2000, 16 * 10**9, 0, timed(0.004)),
        Cell("copy", "float32", 10**6, 0, 2 * 10**6, timed(1e-6)),
        Cell("copy", "float32", 10**9, 0, 2 * 10**9, timed(0.02)),
    )
    assert ceilings.peak_flops(cells, "float32") == pytest.approx(4e12)
    assert ceilings.bandwidth(cells) == pytest.approx(1e11), "the small copy stayed in a cache"
    assert ceilings.bandwidth(cells, "upload") is None


def test_memory_without_a_counter_is_none(monkeypatch):
    mps = torch.device("mps")
    assert memory.peak_bytes(CPU) is None
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda: 0, raising=False)
    assert memory.peak_bytes(mps) is None, "a counter that stays at 0 counts nothing"
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda: 7, raising=False)
    assert memory.peak_bytes(mps) == 7

    def absent():
        raise RuntimeError("not implemented for mps")

    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", absent, raising=False)
    assert memory.peak_bytes(mps) is None
