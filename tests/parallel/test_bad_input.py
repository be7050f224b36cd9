"""Bad input ends in one line, with no process left behind."""

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from macgpu.errors import BookError
from macgpu.parallel.checks import require
from macgpu.parallel.launch import LOCAL, PROGRAM, free_port, run, start
from macgpu.variables import FALLBACK


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
    ],
)
def test_each_fault_has_its_line(bad, said):
    good = {"device": "cpu", "ranks": 4, "degree": 4, "sides": {}, "environment": {}}
    require(**good)
    with pytest.raises(BookError, match=said) as refused:
        require(**{**good, **bad})
    assert "\n" not in str(refused.value)


def test_nothing_is_started_for_input_that_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(BookError, match="heads 8"):
        start("exact", 3, tmp_path, width=48)


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


def _command(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or ())
