"""The tables of tensor parallelism, made of records whose numbers are known."""

import itertools
from dataclasses import replace

import pytest

from macgpu.measure import records
from macgpu.measure.timing import Ratio, summarise
from macgpu.parallel import results
from macgpu.parallel.scaling import Case, Collective, Footprint, Scaling, Setting, Speedup, Step
from macgpu.parallel.traffic import Line
from tests.parallel.threads import CPU

WHOLE = Case("mlp", 64, 32, "float32", 1)
HALVES = replace(WHOLE, degree=2)
WIRE = Line(0.01, 1e6)


def timing(seconds):
    return summarise([seconds] * 5, 1, seconds, [], True)


def all_reduce(size, seconds, degree=2, ctas=None):
    return Collective("all-reduce", degree, size, ctas, timing(seconds))


def speedup(case, ratio):
    return Speedup(case, Setting("DTensor"), Setting("whole"), ratio)


MEASURED = (
    *(all_reduce(size, WIRE.seconds(size)) for size in (1000, 10_000, 100_000)),
    # Of another degree and of a group that was kept short: not what a block's sum takes.
    *(all_reduce(size, 7 * WIRE.seconds(size), degree=4) for size in (1000, 100_000)),
    *(all_reduce(size, 5 * WIRE.seconds(size), ctas=4) for size in (1000, 100_000)),
)


@pytest.fixture(scope="module")
def record():
    """To be filled: of this machine, without any measurement."""
    return records.make(CPU, ("parallel",), "smoke", scaling=Scaling("gloo", 2))


def filled(record, finished=None, **parts):
    scaling = replace(record.scaling, **parts)
    return replace(record, finished=finished or record.finished, scaling=scaling)


def test_the_line_is_that_of_the_degree_with_all_multiprocessors():
    found = results.line(Scaling("nccl", 4, collectives=MEASURED), 2)
    assert (found.latency_s, found.bytes_per_s) == pytest.approx((0.01, 1e6))
    assert results.line(Scaling("nccl", 4, collectives=MEASURED[:1]), 2) is None


@pytest.mark.parametrize(("dtype", "itemsize"), [("bfloat16", 2), ("float32", 4), ("float64", 8)])
def test_the_prediction_is_half_of_the_work_and_two_sums(dtype, itemsize):
    whole = replace(WHOLE, dtype=dtype)
    others = (
        replace(whole, width=65),
        replace(whole, tokens=33),
        replace(whole, block="attention"),
        replace(whole, dtype="float16"),
        replace(whole, degree=2),
    )
    steps = (
        Step(whole, Setting("whole"), timing(3.0)),
        Step(whole, Setting("whole", blas="cublaslt"), timing(2.0)),
        *(Step(one, Setting("whole"), timing(0.1)) for one in others),
    )
    found = results.predicted(
        Scaling("nccl", 2, collectives=MEASURED, steps=steps), replace(whole, degree=2)
    )
    one_sum = 0.01 + 32 * 64 * itemsize / 1e6
    assert found == pytest.approx(2.0 / (1.0 + 2 * one_sum))


def test_nothing_is_predicted_of_what_was_not_measured():
    step = Step(WHOLE, Setting("whole"), timing(2.0))
    assert results.predicted(Scaling("gloo", 2, steps=(step,)), HALVES) is None
    assert results.predicted(Scaling("gloo", 2, collectives=MEASURED), HALVES) is None


def test_a_speed_up_stands_between_its_bounds(record):
    ratio = Ratio((1.4, 1.5, 1.7), 1.5, 1.4, 1.7)
    (row,) = results.speedups(filled(record, speedups=(speedup(HALVES, ratio),))).to_dict("records")
    assert (row["low"], row["speed-up"], row["high"]) == (1.4, 1.5, 1.7)
    assert (row["block"], row["width"], row["degree"]) == ("mlp", 64, 2)
    assert row["way"] == "DTensor"


def test_the_newest_record_of_each_number_of_devices_is_taken(record, monkeypatch):
    done = (speedup(HALVES, Ratio((1.5,), 1.5, 1.5, 1.5)),)
    attention = (speedup(replace(HALVES, block="attention"), Ratio((1.5,), 1.5, 1.5, 1.5)),)

    def of(ranks, day, speedups=done, backend="nccl"):
        finished = f"2026-01-{day:02}T00:00:00+00:00"
        return filled(record, finished, ranks=ranks, speedups=speedups, backend=backend)

    two, four = of(2, 5), of(4, 3)
    others = [
        *(of(2, 4), of(4, 2)),
        # Newer, but without the MLP block, of another backend, or about something else.
        *(of(2, 6, attention), of(2, 7, backend="gloo"), replace(of(2, 8), scaling=None)),
    ]
    for order in itertools.permutations([two, four, *others[:2]]):
        stored = [*order, *others[2:]]
        monkeypatch.setattr(records, "read_all", lambda stored=stored: iter(stored))
        assert results.newest() == [two, four]
    assert [found.finished[:10] for found in results.newest("gloo")] == ["2026-01-07"]


def test_the_share_of_memory_is_that_of_the_fullest_rank(record):
    wide, wide_halves = replace(WHOLE, width=128), replace(HALVES, width=128)
    found = results.shares(
        filled(
            record,
            footprints=(
                Footprint(WHOLE, "whole", (1000,), (8,)),
                Footprint(HALVES, "all-reduce", (500, 600), (4, 4)),
                Footprint(HALVES, "sequence parallel", (510, 505), (4, 4)),
                Footprint(wide, "whole", (4000,), (32,)),
                Footprint(wide_halves, "all-reduce", (2000, 3000), (16, 16)),
                # No counter, so no share.
                Footprint(replace(HALVES, width=256), "all-reduce", (None, None), (4, 4)),
            ),
        )
    )
    assert found.to_dict("split")["data"] == [
        ["mlp", 64, 2, "all-reduce", 0.6],
        ["mlp", 64, 2, "sequence parallel", 0.51],
        ["mlp", 128, 2, "all-reduce", 0.75],
    ]


@pytest.mark.parametrize(("degree", "share"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_the_bandwidth_counts_what_a_ring_sends(record, degree, share):
    # Reduce-scatter and all-gather each pass on all parts of the tensor but one.
    one = all_reduce(4000, 2.0, degree)
    assert one.bus_bytes_per_s == share * 4000 / 2.0
    many = (all_reduce(8000, 2.0, degree), one, all_reduce(4000, 1.0, degree, ctas=4))
    table = results.bandwidths(filled(record, collectives=(*many, all_reduce(9, 1.0, 3))), degree)
    assert table.to_dict("list") == {
        "bytes": [4000, 8000],
        "bytes a second": [share * 2000, share * 4000],
    }
