"""Bad input ends in one line, with no process left behind."""

import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
from argparse import Namespace

import psutil
import pytest

from macgpu.errors import BookError
from macgpu.parallel import ranks as ranks_module
from macgpu.parallel import run as program
from macgpu.parallel.checks import require
from macgpu.parallel.launch import (
    LOCAL,
    PROGRAM,
    Outcome,
    as_flags,
    free_port,
    reason,
    run,
    start,
)
from macgpu.parallel.shape import Shape
from macgpu.parallel.training import Run
from macgpu.variables import FALLBACK
from tests.conftest import ROOT

BENCHMARK = str(ROOT / "benchmarks" / "tensor_parallel.py")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"sides": {"width": 30}}, "width 30 does not divide by the degree 4"),
        ({"sides": {"heads": 6}}, "heads 6 does not divide by the degree 4"),
        ({"ranks": 2}, "degree 4 is above the 2 ranks"),
        ({"ranks": 8}, "leaves 4 of 8 ranks without work"),
        ({"device": "mps"}, "mps cannot take part"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"environment": {FALLBACK: "1"}}, f"{FALLBACK} is set"),
        ({"environment": {FALLBACK: "2"}}, f"{FALLBACK} is set"),
        ({"ranks": 0, "degree": 0}, "degree 0 of 0 ranks: both must be at least 1"),
        ({"degree": -4}, "degree -4 of 4 ranks: both must be at least 1"),
        ({"sides": {"width": 0}}, "width 0 must be at least 1"),
        ({"sides": {"heads": 0}}, "heads 0 must be at least 1"),
        ({"sides": {"vocabulary": 62}}, "vocabulary 62 does not divide by the degree 4"),
        ({"sides": {"width": 32, "heads": 12}}, "width 32 does not divide by the heads 12"),
    ],
)
def test_each_fault_has_its_line(bad, said):
    good = {"device": "cpu", "ranks": 4, "degree": 4, "sides": {}, "environment": {}}
    require(**good)
    with pytest.raises(BookError, match=said) as refused:
        require(**{**good, **bad})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", ["0", "00", ""])
def test_a_fallback_that_is_off_is_no_fault(value):
    # torch reads a number: 0 is as good as unset.
    require("cpu", 2, 2, {}, {FALLBACK: value})


BAD_TASKS = [
    ("exact", 3, {"width": 48}, "heads 8 does not divide by the degree 3"),
    ("exact", 3, {"width": 48, "heads": 6}, "vocabulary 64 does not divide by the degree 3"),
    ("exact", 2, {"width": 36, "heads": 4}, "by the heads 8 of the hand-written block"),
    ("exact", 16, {"heads": 16}, "heads 8 of the hand-written block does not divide by"),
    ("exact", 2, {"heads": 0}, "heads 0 must be at least 1"),
    ("exact", 2, {"width": 0}, "width 0 must be at least 1"),
    ("exact", 2, {"degree": 0}, "degree 0 of 2 ranks"),
    ("exact", 2, {"degree": -1}, "degree -1 of 2 ranks"),
    ("exact", 0, {}, "degree 0 of 0 ranks"),
    ("exact", 2, {"widht": 64}, "unrecognized arguments: --widht 64"),
    ("exakt", 2, {}, "invalid choice: 'exakt'"),
    ("train", 2, {"width": 36}, "width 36 does not divide by the heads 8"),
    ("train", 3, {"width": 48, "heads": 6}, "vocabulary 64 does not divide by the degree 3"),
    ("train", 2, {"resume": True}, "--resume needs --folder"),
    ("train", 2, {"save_every": 5}, "--save-every needs --folder"),
    ("train", 2, {"save_every": -5, "folder": "x"}, "--save-every: -5 is below 0"),
    ("train", 2, {"steps": -1}, "--steps: -1 is below 0"),
    ("time", 2, {"widths": [64, 33]}, "width 33 does not divide by the degree 2"),
    ("time", 2, {"widths": [0]}, "width 0 must be at least 1"),
    ("time", 2, {"tokens": 0}, "--tokens: 0 is below 1"),
    ("time", 2, {"sizes": [0]}, "--sizes: 0 is below 1"),
    ("time", 2, {"cores": 0}, "--cores: 0 is below 1"),
    ("layer", 2, {}, "layer needs --file"),
    ("layer", 2, {"file": "x", "width": 33}, "width 33 does not divide by the degree 2"),
]


@pytest.mark.parametrize(("task", "ranks", "options", "said"), BAD_TASKS)
def test_nothing_is_started_for_input_that_is_refused(
    tmp_path, monkeypatch, task, ranks, options, said
):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(BookError, match=re.escape(said)) as refused:
        start(task, ranks, tmp_path, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("task", "ranks", "options", "said"), BAD_TASKS)
def test_the_program_refuses_the_same_in_one_line(monkeypatch, capsys, task, ranks, options, said):
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": ranks}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(sys, "argv", ["program", task, "--json", "x", *as_flags(options)])
    monkeypatch.setattr(ranks_module, "joined", lambda *_: pytest.fail("joined the others"))
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("macgpu: ") and said in line


def test_the_first_rank_has_time_to_say_it_before_another_ends(monkeypatch, capsys):
    # As soon as one has ended torchrun ends all, so the line could be lost.
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["program", "layer", "--json", "x"])
    waited = []
    monkeypatch.setattr(
        time, "sleep", lambda seconds: waited.append((seconds, capsys.readouterr().err))
    )
    with pytest.raises(SystemExit):
        program.main()
    assert waited == [(program.FIRST_RANKS_S, "")]
    assert capsys.readouterr().err.startswith("macgpu: layer needs --file")


@pytest.mark.parametrize("missing", ["RANK", "LOCAL_RANK", "WORLD_SIZE"])
def test_the_program_without_torchrun_says_how_to_start_it(monkeypatch, capsys, missing):
    for name in {"RANK", "LOCAL_RANK", "WORLD_SIZE"} - {missing}:
        monkeypatch.setenv(name, "0")
    monkeypatch.delenv(missing, raising=False)
    monkeypatch.setattr(sys, "argv", ["program", "exact", "--json", "x"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("macgpu: not started by torchrun: put python -m torch.distributed.run")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ranks", "3"), "width 128 of a measured block does not divide by the degree 3"),
        (("--ranks", "16"), "heads 8 of a measured block does not divide by the degree 16"),
        (("--ranks", "1"), "--ranks 1: a block is split over at least 2"),
        (("--ranks", "0"), "--ranks 0: a block is split over at least 2"),
        (("--ranks", "-2"), "--ranks -2: a block is split over at least 2"),
    ],
)
def test_the_benchmark_refuses_in_one_line_and_writes_no_record(
    tmp_path, monkeypatch, arguments, said
):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    given = ["--device", "cpu", "--profile", "smoke", "--out", str(tmp_path), *arguments]
    monkeypatch.setattr(sys, "argv", ["tensor_parallel.py", *given])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(BENCHMARK, run_name="__main__")
    # Text as the status: Python prints it, and the status is 1.
    assert ended.value.code.startswith("macgpu: ") and said in ended.value.code
    assert "\n" not in ended.value.code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("profile", ["smoke", "quick", "full"])
def test_the_benchmark_takes_the_ranks_of_common_machines(profile):
    check_input = runpy.run_path(BENCHMARK)["check_input"]
    for count in (2, 4, 8):
        check_input(Namespace(device="cpu", ranks=count, profile=profile))


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BookError, match=f"port {port} cannot be used: address already in use"):
            start("exact", 2, tmp_path, port=port)


def test_torchrun_itself_ends_with_the_line_once_and_leaves_no_process(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-addr", LOCAL, "--master-port", str(free_port())),
            *("-m", PROGRAM, "exact", "--json", str(tmp_path / "x.json")),
            *("--device", "mps"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert done.stderr.count("macgpu: mps cannot take part") == 1
    assert not (tmp_path / "x.json").exists()
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in _command(p)]


def test_what_runs_too_long_is_ended_with_all_that_it_started(tmp_path):
    child = f"import time; time.sleep(1000)  # {tmp_path}"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    outcome = run([sys.executable, "-c", parent], 2.0, dict(os.environ))
    assert outcome.timed_out and outcome.status != 0
    deadline = time.monotonic() + 10
    while left := [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in _command(p)]:
        assert time.monotonic() < deadline, left


def test_a_run_that_fails_gives_the_programs_own_line(tmp_path):
    with pytest.raises(BookError, match=r"^rank \d failed: .*No such file"):
        start("layer", 2, tmp_path, file=tmp_path / "missing.py", report=None)


TORCHRUN = """\
Traceback (most recent call last):
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
macgpu.parallel.run FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : {code} (pid: 77)
  error_file: <N/A>
  traceback : {signal}
============================================================
"""
UNKNOWN = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
FAILED = TORCHRUN.format(code=1, signal=UNKNOWN)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (f"saved\nmacgpu: rank 1 failed: gone\nOSError: no disk\n{FAILED}", "rank 1 failed: gone"),
        (f"Traceback:\n  raise x\n[rank0]: ValueError: no such size\n{FAILED}", "no such size$"),
        (FAILED, r"exitcode  : 1 \(pid: 77\)$"),
        (TORCHRUN.format(code=-9, signal="Signal 9 (SIGKILL) received by PID 77"), "SIGKILL"),
        ("=====\n-----\n", "^status 1$"),
        ("", "^status 1$"),
    ],
)
def test_the_reason_of_a_failure_is_a_line_that_says_something(output, said):
    assert re.search(said, reason(Outcome(1, output, 0.0, False)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with two checkpoints."""
    folder = tmp_path_factory.mktemp("saved")
    one = Run(Shape(layers=1))
    for _ in range(2):
        one.advance()
        one.save(folder)
    return folder


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("spoil", "shape"),
    [
        (lambda newest: _cut(newest / "__0_0.distcp"), Shape(layers=1)),
        (lambda newest: (newest / "__0_0.distcp").unlink(), Shape(layers=1)),
        (lambda newest: _cut(newest / ".metadata"), Shape(layers=1)),
        (lambda newest: (newest / ".metadata").write_bytes(b"\n"), Shape(layers=1)),
        (lambda _: None, Shape(layers=1, width=64)),
        (lambda _: None, Shape(layers=2)),
    ],
)
def test_a_checkpoint_that_does_not_load_is_named_with_what_to_do(
    saved, tmp_path, caplog, spoil, shape
):
    folder = shutil.copytree(saved, tmp_path / "saved")
    newest = folder / "step-000002"
    spoil(newest)
    with pytest.raises(BookError) as refused:
        Run(shape).load(folder)
    line = str(refused.value)
    assert "\n" not in line
    # The root logger's go to the output.
    assert not [record for record in caplog.records if record.name == "root"]
    assert line.startswith(f"{newest} cannot be loaded: ")
    assert line.endswith("remove this folder; the run then goes on from step-000001")
    shutil.rmtree(newest)
    found = Run(Shape(layers=1))
    assert found.load(folder) and found.step == 1


def test_a_run_from_a_damaged_checkpoint_ends_in_that_line(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "saved")
    _cut(folder / "step-000002" / "__0_0.distcp")
    lines = []
    with pytest.raises(BookError, match=r"^\S+step-000002 cannot be loaded: .* step-000001$"):
        start("train", 2, tmp_path, folder=folder, steps=3, resume=True, report=lines.append)
    # No rank says more; what is below is torchrun's own.
    assert sum("macgpu: " in line for line in lines) == 1
    assert not [line for line in lines if "CheckpointException" in line]


def _command(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or ())
