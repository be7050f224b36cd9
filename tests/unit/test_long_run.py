"""The long run: killed and resumed it ends as one left alone; it stops by itself; it logs."""

import errno
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from macgpu import data, long_run
from macgpu.checkpoints import CheckpointError, Checkpoints, load_model
from macgpu.errors import BookError
from macgpu.lock import locked
from macgpu.long_run import Settings, Stream, differences, make_model, read_log, run
from macgpu.train import accuracy
from tests.conftest import ROOT

CPU = torch.device("cpu")
SETTINGS = Settings(steps=12, every=3, batch_size=16)
PROGRAM = [sys.executable, "-m", "macgpu.long_run"]


@pytest.fixture(scope="module")
def pictures():
    training, held_out = data.fashion_subset()
    return training.first(100), held_out.first(100)


@pytest.fixture
def go(tmp_path, pictures):
    """Run in a folder of this name; what it reported comes with why it ended."""

    def go(name, settings=SETTINGS, **options):
        lines = []
        options = {"pictures": pictures, "report": lines.append, **options}
        return run(tmp_path / name, settings, CPU, **options), lines

    return go


class ClockThatMoves:
    """Seconds that pass only when somebody asks for the time."""

    def __init__(self, seconds):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


def test_a_time_limit_stops_a_run_that_goes_on_to_the_same_end(go, tmp_path):
    assert go("alone")[0] == "finished"
    starts = 0
    while go("limited", time_limit_s=15, clock=ClockThatMoves(10))[0] == "time limit":
        starts += 1
    # The clock is asked at the start and at each check: the second check is beyond the limit.
    assert starts == 1
    assert differences(tmp_path / "alone", tmp_path / "limited") == []
    assert [line["step"] for line in read_log(tmp_path / "limited")] == [3, 6, 9, 12]


@pytest.mark.parametrize("part", ["model", "optimizer", "scheduler", "scaler", "loader"])
def test_a_part_that_was_not_restored_would_be_found(go, tmp_path, monkeypatch, pictures, part):
    go("alone")
    go("other", time_limit_s=0)
    kind = type(long_run.make_parts(SETTINGS, pictures[0], CPU)[part])
    monkeypatch.setattr(kind, "load_state_dict", lambda self, state: None)
    go("other")
    assert differences(tmp_path / "alone", tmp_path / "other")


def test_random_numbers_that_were_not_restored_would_be_found(go, tmp_path, monkeypatch):
    go("alone")
    go("other", time_limit_s=0)
    monkeypatch.setattr("macgpu.checkpoints.restore_random_state", lambda *_: None)
    go("other")
    assert "log" in differences(tmp_path / "alone", tmp_path / "other")


def test_random_kills_on_smoke():
    """The program of `make bench`, with fewer kills; forks, so that each costs a second."""
    command = [sys.executable, "benchmarks/kills.py", "--kills", "6", "--seed", "1"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.stdout.endswith("resumed to the last bit: 6 of 6 random kills\n"), (
        done.stdout + done.stderr
    )
    assert "call 2, clock 2, byte 2" in done.stdout


def test_a_real_process_that_was_killed_goes_on(tmp_path):
    options = ["--device", "cpu", "--steps", "12", "--every", "3", "--batch-size", "16"]
    command = [*PROGRAM, str(tmp_path / "killed"), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert first.startswith("step 3: loss ")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps = re.findall(r"^step (\d+)", done.stdout, re.MULTILINE)
    assert steps and steps[0] != "3", "it began anew"
    assert done.stdout.endswith("ended at step 12: finished\n")
    assert [line["step"] for line in read_log(tmp_path / "killed")] == [3, 6, 9, 12]


def test_a_second_run_in_the_same_folder_is_refused_and_touches_nothing(go, tmp_path):
    go("run", time_limit_s=0)
    folder = tmp_path / "run"
    # As a checkpoint that the first run is writing.
    (folder / "step-000000006.pt.partial").touch()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with locked(folder):
        command = [*PROGRAM, str(folder), "--device", "cpu"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "macgpu: another run is at work in run; wait for it\n"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_that_ended_does_not_go_on(go, tmp_path):
    go("run")
    before = read_log(tmp_path / "run")
    assert go("run") == ("finished", ["ended at step 12: finished"])
    assert read_log(tmp_path / "run") == before


def test_it_stops_when_the_held_out_loss_has_not_improved_and_keeps_the_best(
    go, tmp_path, pictures
):
    # With this rate it diverges.
    settings = replace(SETTINGS, steps=60, patience=2, learning_rate=0.05)
    assert go("run", settings)[0] == "no improvement"
    log = read_log(tmp_path / "run")
    losses = [line["held_out_loss"] for line in log]
    best = losses.index(min(losses))
    assert len(log) == best + 1 + settings.patience < 20
    model = make_model()
    kept = load_model(tmp_path / "run" / long_run.BEST, model)
    assert (kept["best_step"], kept["best_loss"]) == (log[best]["step"], losses[best])
    held_out = data.Batches(pictures[1], 500)
    assert accuracy(model, held_out) == log[best]["held_out_accuracy"]


def test_a_loss_that_is_no_number_or_the_same_is_no_gain():
    progress = {"best_loss": 1.0, "best_step": 3, "checks_without_gain": 0}
    for loss in (float("nan"), 1.0):
        assert long_run._judged(progress, 6, loss) == {"step": 6, "checks_without_gain": 1}


def test_the_log_holds_speed_memory_rate_and_scale(go, tmp_path):
    go("run")
    *_, last = read_log(tmp_path / "run")
    assert last["images_per_s"] == pytest.approx(48 / last["seconds"])
    assert 50e6 < last["process_bytes"] < 50e9
    assert last["device_bytes"] is None, "the CPU has no counter"
    assert last["learning_rate"] == 0.0
    assert len(last["losses"]) == 3


def test_what_was_logged_after_the_checkpoint_comes_once(go, tmp_path):
    go("alone")
    go("other", time_limit_s=0)
    log = tmp_path / "other" / long_run.LOG
    # As a kill between the log line and the checkpoint leaves it, and one within the next line.
    log.write_text(log.read_text() + json.dumps({"step": 6, "losses": []}) + '\n{"step": 9, "lo')
    go("other")
    assert differences(tmp_path / "alone", tmp_path / "other") == []


@pytest.mark.parametrize("rubbish", [b"{", b"\0\0\0", b"\xff", b"", b"3", b'{"losses": []}'])
def test_rubbish_in_the_log_is_named_by_file_and_line(go, tmp_path, rubbish):
    go("run", time_limit_s=15, clock=ClockThatMoves(10))
    log = tmp_path / "run" / long_run.LOG
    first, second = log.read_bytes().splitlines(keepends=True)
    damaged = first + rubbish + b"\n" + second
    log.write_bytes(damaged)
    with pytest.raises(BookError) as error:
        go("run")
    assert str(error.value) == f"{log}: line 2 is no line of a log; remove it to go on"
    assert log.read_bytes() == damaged
    log.write_bytes(first + second)
    assert go("run")[0] == "finished"


def test_the_log_is_on_the_disk_before_its_checkpoint(go, monkeypatch, tmp_path):
    synced, to_disk = [], long_run.checkpoints.to_disk

    def listed(file):
        to_disk(file)
        synced.append((Path(file.name).name, os.fstat(file.fileno()).st_size))

    monkeypatch.setattr("macgpu.checkpoints.to_disk", listed)
    go("run", time_limit_s=0)
    log = (tmp_path / "run" / long_run.LOG).stat().st_size
    names = [name for name, _size in synced]
    assert names == [
        "log.jsonl.partial",
        "best.pt.partial",
        "log.jsonl",
        "step-000000003.pt.partial",
    ]
    assert synced[2] == ("log.jsonl", log) and log > 0


def test_two_runs_that_diverged_alike_do_not_differ(go, tmp_path):
    settings = replace(SETTINGS, steps=6, learning_rate=float("1e30"))
    go("one", settings)
    go("other", settings)
    assert math.isnan(read_log(tmp_path / "one")[-1]["held_out_loss"])
    assert not (tmp_path / "one" / long_run.BEST).exists()
    assert differences(tmp_path / "one", tmp_path / "other") == []
    go("third", replace(settings, seed=1))
    assert "log" in differences(tmp_path / "one", tmp_path / "third")


def test_a_missing_file_is_a_difference(go, tmp_path):
    one, other, empty = (tmp_path / name for name in ("one", "other", "empty"))
    go("one", time_limit_s=0)
    go("other", time_limit_s=0)
    (other / long_run.BEST).unlink()
    assert differences(one, other) == differences(other, one) == ["best model"]
    (one / long_run.LOG).unlink()
    assert differences(one, other) == ["best model", "log"]
    assert differences(one, empty) == differences(empty, one) == ["checkpoint"]
    # Nothing to compare is not the same as nothing that differs.
    assert differences(empty, empty) == ["checkpoint"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), True),
        (torch.tensor([1.0, float("nan")]), torch.tensor([float("nan"), 1.0]), False),
        (torch.ones(2), torch.ones(2).double(), False),
        (torch.ones(2), torch.ones(1), False),
        (torch.tensor(True), torch.tensor(False), False),
        ({"a": [float("nan")]}, {"a": [float("nan")]}, True),
        ([1.0, float("nan")], [float("nan"), 1.0], False),
        (1, 1.0, False),
    ],
)
def test_what_is_the_same(one, other, same):
    assert long_run._same(one, other) is same


def test_a_damaged_checkpoint_costs_an_interval_and_not_the_run(go, tmp_path):
    go("alone")
    go("other", time_limit_s=15, clock=ClockThatMoves(10))
    newest = tmp_path / "other" / "step-000000006.pt"
    newest.write_bytes(newest.read_bytes()[:-1])
    _, lines = go("other")
    assert lines[0] == ("step-000000006.pt: truncated or damaged. Going on from step-000000003.pt.")
    assert differences(tmp_path / "alone", tmp_path / "other") == []


def test_other_settings_are_refused(go):
    go("run", time_limit_s=0)
    with pytest.raises(BookError, match="started with batch_size 16, not 8; go on with that"):
        go("run", replace(SETTINGS, batch_size=8))


@pytest.mark.parametrize("progress", [{}, {"step": 3}])
def test_a_checkpoint_of_another_program_is_refused(tmp_path, pictures, progress):
    parts = long_run.make_parts(SETTINGS, pictures[0], CPU)
    path = Checkpoints(tmp_path, parts, CPU).save(3, progress)
    with pytest.raises(BookError, match="is of another program"):
        run(tmp_path, SETTINGS, CPU, pictures=pictures)
    assert path.exists() and not (tmp_path / long_run.LOG).exists()


def test_another_network_is_refused(go, monkeypatch):
    go("run", time_limit_s=0)
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    monkeypatch.setattr(long_run, "make_model", lambda: other)
    with pytest.raises(CheckpointError, match="of another model: 1.weight is missing there"):
        go("run")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--batch-size", "0"], "greater than or equal to 1"),
        (["--device", "tpu"], "unknown device 'tpu': choose auto, mps, cuda, cpu"),
    ],
)
def test_bad_options_are_one_line(tmp_path, options, error):
    command = [*PROGRAM, str(tmp_path / "run"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def ended_in_a_line(folder, *options, limit=None):
    """What the program wrote when it could not go on; no file may grow beyond the limit."""
    set_limit = limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    done = subprocess.run(
        [*PROGRAM, str(folder), "--device", "cpu", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=set_limit,
    )
    assert done.returncode == 1
    return done.stderr


def test_a_full_disk_is_one_line(tmp_path):
    options = ["--steps", "1", "--every", "1", "--batch-size", "8"]
    why = os.strerror(errno.EFBIG)
    stderr = ended_in_a_line(tmp_path, *options, limit=2000)
    assert stderr == f"macgpu: {tmp_path}: best.pt: cannot be written: {why}\n"


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "run").touch()
    stderr = ended_in_a_line(tmp_path / "run")
    assert stderr == f"macgpu: {tmp_path / 'run'}: {os.strerror(errno.EEXIST)}\n"


def test_the_stream_goes_through_each_epoch_once_and_shuffles_anew(pictures):
    stream = Stream(pictures[0], 30, seed=0)
    epochs = [torch.cat([stream.next()[0] for _ in range(4)]) for _ in range(2)]
    everything = data.normalise(pictures[0].images)
    for epoch in epochs:
        assert torch.equal(_sorted(epoch), _sorted(everything))
    assert not torch.equal(*epochs)


def test_the_stream_goes_on_from_any_position(pictures):
    stream = Stream(pictures[0], 30, seed=3)
    for position in range(9):
        other = Stream(pictures[0], 30, seed=3)
        other.load_state_dict(stream.state_dict())
        for one, two in zip(stream.next(), other.next(), strict=True):
            assert torch.equal(one, two), position


def _sorted(images):
    """The pictures in an order that depends on nothing but what they are."""
    rows = images.flatten(1)
    return rows[sorted(range(len(rows)), key=lambda row: rows[row].tolist())]


def test_the_last_check_comes_at_the_last_step_and_ends_the_run_whatever_the_limit(go, tmp_path):
    assert go("run", replace(SETTINGS, steps=4))[0] == "finished"
    assert [line["step"] for line in read_log(tmp_path / "run")] == [3, 4]
    assert go("limited", replace(SETTINGS, steps=3), time_limit_s=0)[0] == "finished"


def test_training_goes_on_with_dropout_after_a_check(pictures):
    parts = long_run.make_parts(SETTINGS, pictures[0], CPU)
    parts["model"].eval()
    long_run.advance(parts, 1, CPU)
    assert parts["model"].training


def test_a_check_is_shown_by_the_mean_of_its_losses(go, tmp_path):
    _, (first, *_) = go("run")
    line = read_log(tmp_path / "run")[0]
    assert first.startswith(f"step 3: loss {sum(line['losses']) / 3:.3f}, held out ")
    assert first.endswith(f", {line['images_per_s']:,.0f} images/s")


def test_nothing_is_measured_on_the_software_device(go, tmp_path, monkeypatch):
    monkeypatch.setattr("macgpu.softmps.is_active", lambda: True)
    _, lines = go("run")
    measured = ("seconds", "images_per_s", "process_bytes", "device_bytes")
    assert all(line[name] is None for line in read_log(tmp_path / "run") for name in measured)
    assert "images/s" not in "".join(lines)
