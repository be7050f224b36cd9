"""The three-way timing on a simulated clock, and the suite "loading" on this machine."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from macgpu.cli import app
from macgpu.measure import loading, records
from macgpu.measure.loading import three_way
from tests.measure.simulated import Clock

CPU = torch.device("cpu")


class Loader:
    """Batches that take a time to make; the first pass takes longer, by the start of workers."""

    def __init__(self, clock, seconds, sizes=(4, 4, 2), start_s=0.0):
        self.clock, self.seconds, self.sizes, self.start_s = clock, seconds, sizes, start_s

    def __iter__(self):
        self.clock.sleep(self.start_s)
        self.start_s = 0.0
        for size in self.sizes:
            self.clock.sleep(self.seconds * size)
            yield torch.zeros(size, 1), torch.zeros(size)


def timed(loader_s, model_s, **options):
    """Per picture, so that a batch of 4 takes four times as long."""
    clock = Clock()
    loader = Loader(clock, loader_s, **options)

    def step(inputs, labels):
        assert len(inputs) == len(labels)
        clock.sleep(model_s * len(inputs))

    return three_way(loader, step, CPU, passes=3, clock=clock)


@pytest.mark.parametrize(
    ("loader_s", "model_s", "bottleneck", "wait_share"),
    [(3.0, 1.0, "loader", 0.75), (1.0, 4.0, "model", 0.2), (0.01, 0.99, "model", 0.01)],
)
def test_the_three_times_name_the_bottleneck(loader_s, model_s, bottleneck, wait_share):
    found = timed(loader_s, model_s)
    mean_batch = 10 / 3
    assert found.loader_s == pytest.approx(loader_s * mean_batch)
    assert found.model_s == pytest.approx(model_s * mean_batch)
    # Nothing overlaps on a simulated clock.
    assert found.both_s == pytest.approx((loader_s + model_s) * mean_batch)
    assert found.bottleneck == bottleneck
    assert found.wait_share == pytest.approx(wait_share)
    assert (found.steps, len(found.passes)) == (3, 3)


def test_the_start_of_workers_is_in_the_first_pass_alone():
    found = timed(1.0, 1.0, start_s=50.0)
    assert found.first_pass_s == pytest.approx(60)
    assert max(one.loader for one in found.passes) == pytest.approx(10)
    assert found.both_s == pytest.approx(20 / 3)


def test_a_loader_without_a_batch_and_no_pass_are_refused():
    with pytest.raises(ValueError, match="gave no batch"):
        timed(1.0, 1.0, sizes=())
    with pytest.raises(ValueError, match="at least 1, not 0"):
        three_way([], print, CPU, passes=0)


def test_a_loader_that_gives_fewer_batches_later_is_refused():
    batches = [(torch.zeros(4, 1), torch.zeros(4))] * 3
    with pytest.raises(ValueError, match="3 batches in the first pass and 0 in a later one"):
        three_way(iter(batches), lambda *_: None, CPU)
    with pytest.raises(ValueError, match="3 batches in the first pass and 0 in a later one"):
        loading.time_passes(iter(batches), CPU, 2)


@pytest.mark.parametrize("short", ["loader", "both"])
def test_each_pass_over_the_loader_is_counted(short):
    class Shrinking:
        # One pass to look, then, backwards, training and the loader alone.
        counts = iter({"loader": (3, 3, 2), "both": (3, 2, 3)}[short])

        def __iter__(self):
            return iter([(torch.zeros(4, 1), torch.zeros(4))] * next(self.counts))

    with pytest.raises(ValueError, match="3 batches in the first pass and 2 in a later one"):
        three_way(Shrinking(), lambda *_: None, CPU, passes=1)


def test_the_model_alone_sees_all_pictures_where_the_first_batch_is_a_small_one():
    found = timed(1.0, 1.0, sizes=(2, 4, 4))
    assert [one.model for one in found.passes] == [pytest.approx(10)] * 3


def test_the_wait_share_is_the_median_over_passes_and_not_one_bad_pass():
    found = timed(1.0, 3.0)
    one = found.passes[0]
    slow = replace(one, both=10 * one.both)
    assert replace(found, passes=(slow, one, one)).wait_share == pytest.approx(0.25)


def test_reading_gives_bytes_per_second_of_all_files(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"x" * 100_000)
    clock = iter((10.0, 12.0))
    assert loading.read_rate(paths, lambda: next(clock)) == pytest.approx(100_000)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    arguments = ("loading", "--profile", "smoke", "--device", "cpu", "--out", str(folder))
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert done.exit_code == 0, done.output
    return next(records.read_all(folder))


def test_the_suite_measures_every_loader_with_each_number_of_workers(suite):
    assert suite.suites == ("loading",)
    assert [(entry.loader, entry.workers) for entry in suite.loading] == [
        *((kind, count) for kind in ("pictures", "jpeg", "mapped") for count in (0, 2)),
        ("resident", 0),
    ]
    assert [entry.failure for entry in suite.loading] == [None] * 7


def test_a_jpeg_is_smaller_than_its_pixels_and_a_rate_is_of_the_pictures_in_a_pass(suite):
    entries = {(entry.loader, entry.workers): entry for entry in suite.loading}
    jpeg, mapped = entries["jpeg", 0], entries["mapped", 0]
    assert jpeg.bytes_per_image < mapped.bytes_per_image == 3 * mapped.side**2
    seconds = mapped.timing.loader_s * mapped.timing.steps
    assert mapped.images_per_s == pytest.approx(mapped.images / seconds)
    spawned = entries["jpeg", 2].timing
    assert spawned.first_pass_s > max(one.loader for one in spawned.passes)


def test_a_loader_that_fails_is_recorded_without_a_time_and_the_others_go_on(monkeypatch):
    def broken(*_):
        raise RuntimeError("a worker died in /home/somebody")

    monkeypatch.setattr(loading.JpegDataset, "__getitem__", broken)
    monkeypatch.setitem(loading.PLANS, "smoke", replace(loading.PLANS["smoke"], workers=(0,)))
    found = {entry.loader: entry for entry in loading.measure(CPU, "smoke", lambda _: None)}
    assert found["jpeg"].failure == "failed: RuntimeError"
    assert found["jpeg"].timing is None and found["jpeg"].images_per_s is None
    assert found["resident"].timing is not None


def test_a_machine_that_slows_down_steadily_favours_none_of_the_three():
    clock, actions = Clock(), iter(range(100))

    def spend(*_):
        clock.sleep(1 + next(actions))

    class Slowing:
        def __iter__(self):
            spend()
            yield torch.zeros(1, 1), torch.zeros(1)

    found = three_way(Slowing(), spend, CPU, passes=2, clock=clock)
    assert found.loader_s == found.model_s == found.both_s / 2


def test_the_first_step_of_each_batch_size_is_in_none_of_the_three():
    clock, known = Clock(), set()

    def step(inputs, _labels):
        # As a compiler does: at length for a shape that it has not seen.
        clock.sleep(1.0 if len(inputs) in known else 1000.0)
        known.add(len(inputs))

    found = three_way(Loader(clock, 1.0), step, CPU, passes=2, clock=clock)
    assert max(one.model for one in found.passes) < 1000
    assert max(one.both for one in found.passes) < 1000
