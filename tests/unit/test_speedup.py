"""Speed-ups come only from a CPU and an accelerator of one machine, step by step."""

from dataclasses import replace

import pytest
import torch

from macgpu import speedup
from macgpu.device import Hardware
from macgpu.measure import records, timing
from macgpu.measure.ceilings import Cell
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
    assert pair.name == "a cuda"
    # Below a figure stand all the records that it is drawn from, each device's.
    assert pair.caption == f"{first.caption} {second.caption} {cpu.caption}"


def test_a_full_record_counts_before_a_newer_brief_one():
    full = record("cpu", result("mlp", 128, 5.0), finished="2026-11-01T10:00:00+00:00")
    full = replace(full, profile="full")
    brief = record("cpu", result("mlp", 128, 2.0), finished="2026-11-02T10:00:00+00:00")
    (pair,) = speedup.pairs([brief, record("cuda", result("mlp", 128, 1.0)), full])
    assert pair.speedups()[0].ratio.median == pytest.approx(5, rel=0.03)
    assert full.caption in pair.caption and brief.caption not in pair.caption


def peak(flops_per_s):
    timed = timing.summarise([1.0] * 3, 1, 1.0, [], True)
    return (Cell("matmul", "float32", 1, int(flops_per_s), 0, timed),)


def test_a_gain_against_the_order_of_intensity_is_said_with_its_shares():
    def step(model, intensity, seconds):
        exact = timing.summarise([seconds] * 3, 1, 1.0, [], True)
        work = Work(flops=200 * intensity, bytes=200)
        return replace(result(model, 128, seconds), timing=exact, work=work)

    cpu = record("cpu", step("mlp", 1, 1.0), step("cnn", 2, 8.0), step("encoder", 4, 8.0))
    cuda = record("cuda", step("mlp", 1, 1.0), step("cnn", 2, 1.0), step("encoder", 4, 2.0))
    cpu, cuda = replace(cpu, ceilings=peak(1000)), replace(cuda, ceilings=peak(8000))
    (pair,) = speedup.pairs([cpu, cuda])
    # The mlp gains least, as its intensity says: there is nothing to explain.
    assert speedup.order_words(pair) == (
        "In float32 the best product of the a cuda is 8 times that of the CPU beside it. "
        "cnn gains 8.0-fold and encoder 4.0-fold, although the intensity of encoder is 2.0 times "
        "as high: the accelerator's share over the CPU's is 1.00 for cnn and 0.50 for encoder."
    )
    assert "cnn, batch 128, float32; encoder" in speedup.held_words(pair)
    assert speedup.held_words(pair).endswith("Each model is there once, which is no sweep.")


def test_the_speed_up_is_the_ratio_of_the_peaks_and_of_what_each_side_makes_of_its_own():
    step, faster = result("mlp", 128, 1.0), result("mlp", 128, 0.25)
    cpu = replace(record("cpu", step), ceilings=peak(600 * 128 * 2))
    cuda = replace(record("cuda", faster), ceilings=peak(600 * 128 * 16))
    (pair,) = speedup.pairs([cpu, cuda])
    (found,) = pair.speedups()
    assert pair.shares_of_peak(found) == pytest.approx((0.5, 0.25))
    (unknown,) = speedup.pairs([cpu, replace(cuda, ceilings=())])
    assert unknown.shares_of_peak(found) is None


def test_the_article_s_rows_name_the_book_s_cases_and_its_ratios_are_recomputed():
    rows = speedup.article()
    assert tuple(row.model for row in rows) == ARTICLE
    # As the article prints them.
    assert [f"{row.speedup:.2f}" for row in rows] == ["1.09", "1.89", "2.26"]
