"""Speed-ups come only from a CPU and an accelerator of one machine, step by step."""

from dataclasses import replace

import pytest
import torch

from macgpu import speedup
from macgpu.device import Hardware
from macgpu.measure import records, timing
from macgpu.measure.energy import Energy
from macgpu.measure.flops import Work
from macgpu.measure.steps import Options
from macgpu.models import ARTICLE


def result(model, batch, seconds, options=None):
    label = records.Label(model, batch, options or Options())
    timed = timing.summarise([seconds * k for k in (0.99, 1.0, 1.01)], 1, 1.0, [], True)
    work = Work(flops=600 * batch, bytes=200 * batch)
    return records.Result(label, timed, None, None, work, None, None)


def record(device, *results, finished="2026-11-30T10:00:00+00:00"):
    made = records.make(torch.device("cpu"), ("models",), "smoke", results=tuple(results))
    return replace(made, device=Hardware(device, f"a {device}", None, None), finished=finished)


def test_the_cpu_s_time_is_divided_by_the_accelerator_s_for_equal_steps():
    cpu = record("cpu", result("mlp", 128, 0.9), result("cnn", 64, 8.0))
    cuda = record(
        "cuda",
        result("mlp", 128, 0.3),
        result("cnn", 32, 1.0),
        result("cnn", 64, 1.0, Options(autocast="bfloat16")),
    )
    # The same step once more, of the suite that compares data types.
    again = result("mlp", 128, 0.3)
    again = replace(again, label=replace(again.label, step="precision: float32"))
    cuda = replace(cuda, results=(*cuda.results, again))
    (pair,) = speedup.pairs([cuda, cpu])
    (only,) = pair.speedups()
    assert (only.label.model, only.label.batch_size) == ("mlp", 128)
    assert only.ratio.median == pytest.approx(3, rel=0.03)
    assert only.ratio.low <= only.ratio.median <= only.ratio.high
    assert only.intensity == 3


def test_another_machine_s_cpu_or_another_torch_is_no_pair():
    cpu, cuda = record("cpu", result("mlp", 128, 1.0)), record("cuda", result("mlp", 128, 1.0))
    other_machine = replace(cpu, machine=replace(cpu.machine, chip="another chip"))
    other_torch = replace(cpu, software={**cpu.software, "torch": "1.0"})
    assert speedup.pairs([cpu]) == speedup.pairs([cuda]) == []
    assert speedup.pairs([cuda, other_machine, other_torch]) == []
    fewer_cores = replace(cpu, machine=replace(cpu.machine, cores=cpu.machine.cores + 1))
    more_memory = replace(cpu, machine=replace(cpu.machine, memory_bytes=2**50))
    assert speedup.pairs([cuda, fewer_cores]) == speedup.pairs([cuda, more_memory]) == []
    # The machine's Python may differ, and a little of its memory.
    machine = replace(cpu.machine, python="3.99.0", memory_bytes=cpu.machine.memory_bytes + 4096)
    assert len(speedup.pairs([cuda, replace(cpu, machine=machine)])) == 1


def test_a_step_that_failed_gives_no_speed_up():
    good, bad = result("mlp", 128, 1.0), result("cnn", 64, 1.0)
    failed = replace(bad, timing=None, failure="out of memory")
    (pair,) = speedup.pairs([record("cpu", good, failed), record("cuda", good, bad)])
    assert [s.label.model for s in pair.speedups()] == ["mlp"]


def test_a_window_of_energy_or_uncounted_work_gives_no_speed_up():
    step = result("mlp", 128, 1.0)
    window = replace(step, energy=Energy("a meter", None))
    uncounted = replace(result("cnn", 64, 1.0), work=None)
    cpu = record("cpu", step, uncounted)
    (pair,) = speedup.pairs([cpu, record("cuda", window, uncounted)])
    assert pair.speedups() == []


def test_of_two_records_of_one_device_the_later_counts():
    early = record("cpu", result("mlp", 128, 5.0), finished="2026-11-01T10:00:00+00:00")
    late = record("cpu", result("mlp", 128, 2.0), finished="2026-11-02T10:00:00+00:00")
    (pair,) = speedup.pairs([late, record("cuda", result("mlp", 128, 1.0)), early])
    assert pair.speedups()[0].ratio.median == pytest.approx(2, rel=0.03)


def test_one_run_need_not_hold_all_the_models():
    cpu = record("cpu", result("mlp", 128, 6.0), result("cnn", 64, 8.0))
    first = record("cuda", result("mlp", 128, 2.0), finished="2026-11-01T10:00:00+00:00")
    second = record("cuda", result("cnn", 64, 4.0), finished="2026-11-02T10:00:00+00:00")
    (pair,) = speedup.pairs([second, cpu, first])
    ratios = {s.label.model: s.ratio.median for s in pair.speedups()}
    assert ratios == pytest.approx({"mlp": 3, "cnn": 2}, rel=0.03)
    assert (pair.name, pair.caption) == ("a cuda", second.caption)


def test_the_article_s_rows_name_the_book_s_cases_and_its_ratios_are_recomputed():
    rows = speedup.article()
    assert tuple(row.model for row in rows) == ARTICLE
    # As the article prints them.
    assert [f"{row.speedup:.2f}" for row in rows] == ["1.09", "1.89", "2.26"]
