"""The benchmark that torchrun's processes share, its record, and the tables made of it."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from macgpu.measure import records
from macgpu.measure.records import RecordError
from macgpu.measure.timing import summarise
from macgpu.parallel import results
from macgpu.parallel.scaling import Case, Setting, Step
from macgpu.publish.results import results_tables
from tests.conftest import ROOT

BENCHMARK = ROOT / "benchmarks" / "tensor_parallel.py"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A record of the benchmark on two processes."""
    out = tmp_path_factory.mktemp("records")
    done = subprocess.run(
        [
            *(sys.executable, str(BENCHMARK), "--device", "cpu", "--profile", "smoke"),
            *("--ranks", "2", "--parts", "mlp", "checks", "--out", str(out)),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = records.paths(out)
    return path


@pytest.fixture(scope="module")
def record(path):
    return records.read(path)


def test_it_holds_every_part(record):
    scaling = record.scaling
    assert (scaling.backend, scaling.ranks, scaling.failures) == ("gloo", 2, ())
    assert all(one.output < 1e-12 and one.failure is None for one in scaling.exact)
    assert {one.case.width for one in scaling.speedups} == {64, 128}
    assert {one.setting.way for one in scaling.speedups} >= {"DTensor"}
    assert all(step.failure is None and step.timing for step in scaling.steps)
    assert [one.bytes for one in scaling.collectives] == [1 << 10, 1 << 16]


def test_each_rank_holds_half_of_the_weights(record):
    whole = {}
    for one in record.scaling.footprints:
        key = (one.case.block, one.case.width)
        if one.case.degree == 1:
            whole[key] = one.parameters[0]
        else:
            assert one.parameters == (whole[key] / 2, whole[key] / 2)


def test_the_tables_are_made_from_it(record):
    table = results.speedups(record)
    assert len(results.fastest(table)) == 2
    assert (table["predicted"] > 0).all()
    assert {"DTensor", "all-reduce"} <= set(results.ways(record, "mlp", 2).index)
    # The CPU counts no memory, so there is no share of it.
    assert results.shares(record).empty


def test_a_way_is_held_against_the_whole_block_timed_beside_it(record):
    whole = Case("mlp", 64, 32, "float32", 1)
    halves = replace(whole, degree=2)

    def step(case, way, seconds):
        return Step(case, Setting(way), summarise([seconds] * 5, 1, seconds, [], True))

    # The machine was twice as slow when the second part ran.
    steps = (
        step(whole, "whole", 4.0),
        step(whole, "whole; cublaslt", 3.0),
        step(halves, "DTensor", 2.0),
        step(whole, "whole", 6.0),
        step(halves, "DTensor", 5.0),
        step(halves, "fused", 3.0),
    )
    table = results.ways(replace(record, scaling=replace(record.scaling, steps=steps)), "mlp", 2)
    assert table["64"].to_dict() == {"DTensor": "1.500", "fused": "2.000"}


@pytest.mark.parametrize("part", ["collectives", "steps"])
def test_a_median_that_is_not_that_of_its_samples_is_refused(path, tmp_path, part):
    content = json.loads(path.read_text())
    content["scaling"][part][0]["timing"]["median_s"] *= 0.5
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=rf"scaling\.{part}\.0\.timing\.median_s"):
        records.read(changed)


def test_a_speedup_that_is_not_the_median_of_its_pairs_is_refused(path, tmp_path):
    content = json.loads(path.read_text())
    content["scaling"]["speedups"][0]["ratio"]["median"] = 1.99
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=r"scaling\.speedups\.0\.ratio\.median"):
        records.read(changed)


def test_the_results_page_and_the_list_show_it(path, record):
    page = results_tables(path.parent)
    speedup = record.scaling.speedups[0]
    assert f"| {speedup.case} | 2 | {speedup.setting} | {speedup.ratio.median:.2f} [" in page
    done = subprocess.run(
        [sys.executable, "-m", "macgpu", "results", "list", "--in", str(path.parent)],
        capture_output=True,
        text=True,
    )
    assert "blocks split over 2" in done.stdout
