"""The command as a reader meets it: its exit status, its one clear line for each bad input."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
from importlib import metadata

import pytest
from rich.console import Console

import macgpu.preflight as preflight
from macgpu.preflight import PreflightError, examine

from .test_corpus import HERE
from .zygote import Zygote

PROGRAM = """
import sys, typer
from macgpu.preflight import CONTEXT_SETTINGS, command
app = typer.Typer()
app.command(context_settings=CONTEXT_SETTINGS)(command)
app()
"""

TRAIN = """
import torch
model = torch.nn.Linear(2, 1).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps, extra=lambda loss: None):
    for _ in range(steps):
        loss = model(torch.ones(4, 2, device="mps")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        extra(loss)
"""


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        env=preflight._environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def zygote():
    started = Zygote(preflight._environment())
    yield started
    started.close()


@pytest.fixture
def report_of(tmp_path, monkeypatch, zygote):
    """The report on a script with this text, traced in a fork."""

    def report(text: str, *arguments: str, name: str = "train.py", **options: object):
        monkeypatch.setattr(preflight, "_run", zygote.run)
        path = tmp_path / name
        path.write_text(text)
        return examine(path, list(arguments), on="trace", **options)

    return report


def lines_of(report) -> list[str]:
    return [f"{finding.kind}: {finding.message}" for finding in report.findings]


def test_a_script_that_would_fail_exits_with_1_and_names_line_remedy_and_entry():
    done = run("--on", "trace", HERE / "corpus" / "mode_in_loss.py")
    assert done.returncode == 1, done.stderr
    assert "mode_in_loss.py:20  aten::mode has no MPS kernel" in done.stdout
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1" in done.stdout
    assert "book: troubleshooting.html#missing-operator\n" in done.stdout
    assert "would fail on a Mac" in done.stdout


def test_json_arguments_steps_and_strict(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN + "import sys\ntrain(int(sys.argv[2]), lambda loss: loss.item())\n")
    done = run("--on", "trace", "--json", "--strict", "--steps", "3", script, "--count", "9")
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] == 3
    (finding,) = report["findings"]
    assert finding["kind"] == "sync-in-step"
    assert finding["line"] == len(TRAIN.splitlines()) + 2
    assert finding["count"] == 3
    assert finding["book"] == "troubleshooting.html#sync-in-step"


def test_only_strict_turns_what_hurts_into_a_status(report_of):
    report = report_of(TRAIN + "train(4, float)\n")
    assert [finding.kind for finding in report.findings] == ["sync-in-step"]
    assert report.exit_status(strict=False) == 0
    assert report.exit_status(strict=True) == 2


def test_a_script_that_runs_for_ever_is_ended(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("while True: pass\n")
    report = examine(script, seconds=1, on="trace")
    assert lines_of(report) == ["no-training-step: no training step was seen after 1 s"]


def test_what_was_seen_survives_a_crash(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        TRAIN + "import os, signal\n"
        "def crash(loss):\n"
        "    torch.mode(loss.reshape(1))\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "train(2, crash)\n"
    )
    report = examine(script, on="trace")
    assert [finding.kind for finding in report.findings] == ["missing-operator", "script-error"]
    assert "SIGSEGV" in report.findings[1].message


def test_no_process_of_the_script_outlives_the_run(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = tmp_path / "train.py"
    endless = (
        f"pipe = open({str(pipe)!r}, 'w')\n"
        "print(1, file=pipe, flush=True)\n"
        "print(2, flush=True)\n"
        "while True: pass\n"
    )
    script.write_text(
        "import subprocess, sys\n"
        f"command = [sys.executable, '-c', {endless!r}]\n"
        "subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline()\n"
    )
    examine(script, on="trace")
    assert os.read(reader, 10) == b"1\n"
    # The end of the pipe comes when the last process that holds it is gone.
    os.set_blocking(reader, True)
    ready, _, _ = select.select([reader], [], [], 30)
    assert ready and os.read(reader, 10) == b""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys; sys.exit(3)", "script-error: the script stopped: it exited with status 3"),
        (
            "from argparse import *\np = ArgumentParser()\np.add_argument('data')\np.parse_args()",
            "it exited with status 2: train.py: error: the following arguments are required: data",
        ),
        ("import sys; sys.exit('no data')", "it exited with status 1: no data"),
        ("raise ValueError('no such\\nfolder')", "the script stopped: ValueError: no such"),
        ("import nosuchpackage", "ModuleNotFoundError: No module named 'nosuchpackage'"),
        ("import torch; torch.ones(2).sum()", "no-training-step: no training step was seen"),
        ("import sys; sys.exit(0)", "no-training-step: no training step was seen"),
    ],
)
def test_a_script_that_does_not_train_gets_one_clear_line(report_of, text, said):
    (line,) = lines_of(report_of(text))
    assert said in line and "\n" not in line


def test_the_line_of_the_scripts_own_error_is_given(report_of):
    report = report_of("def f():\n    raise KeyError('x')\n\nf()\n")
    assert report.findings[0].line == 2


def test_a_process_that_the_script_starts_is_noted(report_of):
    report = report_of(
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.Process(target=print)\n"
        "    p.start()\n"
        "    p.join()\n"
    )
    assert ("unwatched-process", 4) in [(f.kind, f.line) for f in report.findings]


def test_except_does_not_keep_the_run_going(report_of):
    text = (
        TRAIN + "while True:\n    try:\n        train(1)\n    except BaseException:\n        pass\n"
    )
    assert report_of(text, steps=2).steps == 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train.py", None, "train.py does not exist"),
        ("train.py", "def f(:\n", "train.py:1 is not valid Python"),
        ("train.py", b"\xff\xfe\x00", "train.py cannot be read as text"),
        ("lesson.ipynb", "not json", "lesson.ipynb is not a notebook"),
        ("lesson.ipynb", "[1]", "lesson.ipynb is not a notebook"),
        (
            "lesson.ipynb",
            json.dumps({"cells": [{"cell_type": "code", "source": ["x = 1\n", "y = = 2"]}]}),
            "lesson.ipynb, cell 1, line 2 is not valid Python",
        ),
    ],
)
def test_what_is_no_program_is_refused_in_one_line(tmp_path, name, content, said):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PreflightError) as error:
        examine(path, on="trace")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_the_command_says_it_in_one_line_and_exits_with_1(tmp_path):
    done = run(tmp_path / "missing.py")
    assert done.returncode == 1
    assert done.stderr == "macgpu preflight: missing.py does not exist\n"


def test_torch_that_is_too_old_or_missing_is_named(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _name: "2.3.1+cu121")
    with pytest.raises(PreflightError, match=r"torch 2\.3\.1\+cu121 is too old: .* 2\.8"):
        examine(HERE / "clean" / "gan.py")

    def missing(_name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(PreflightError, match="torch is not installed"):
        examine(HERE / "clean" / "gan.py")


@pytest.mark.skipif(sys.platform != "linux", reason="the software device is Linux's")
def test_without_a_compiler_the_script_is_traced_and_the_reason_given(
    monkeypatch, tmp_path, zygote
):
    monkeypatch.setattr(preflight, "_run", zygote.run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.devnull)
    report = examine(HERE / "clean" / "gan.py")
    assert report.ran_on == "trace on the CPU"
    assert report.why_trace
    with pytest.raises(PreflightError):
        examine(HERE / "clean" / "gan.py", on="soft")


def test_the_line_at_which_cuda_stopped_the_run_is_never_hidden(report_of):
    text = (
        "import torch\n"
        "def ask():\n"
        "    torch.cuda.current_blas_handle()\n"
        "torch.zeros(2).cuda()\n"
        "ask()\n"
    )
    found = {(finding.kind, finding.line) for finding in report_of(text).findings}
    assert found == {("hardcoded-cuda", 3), ("hardcoded-cuda", 4), ("untraceable", 3)}


@pytest.mark.parametrize("module", ["mps", "accelerator", "cuda"])
def test_waiting_for_the_device_in_each_step_is_found(report_of, module):
    report = report_of(TRAIN + f"train(4, lambda loss: torch.{module}.synchronize())\n")
    (wait,) = [finding for finding in report.findings if finding.kind == "sync-in-step"]
    assert f"torch.{module}.synchronize()" in wait.message
    assert wait.line == len(TRAIN.splitlines()) + 1


def test_each_part_that_a_worker_cannot_load_is_named(report_of):
    report = report_of(
        TRAIN + "from torch.utils.data import DataLoader\n"
        "def make():\n"
        "    class Data(list): pass\n"
        "    return Data([1, 2])\n"
        "loader = DataLoader(make(), num_workers=1, collate_fn=lambda rows: rows)\n"
        "train(2)\n"
    )
    dataset, collate = [f for f in report.findings if f.kind == "worker-cannot-load"]
    assert "the collate_fn" in collate.message or "the collate_fn" in dataset.message
    assert "the dataset" in dataset.message or "the dataset" in collate.message
    assert dataset.line == collate.line == len(TRAIN.splitlines()) + 5


def test_updates_by_hand_are_training_steps(report_of):
    text = (
        "import torch\n"
        "w = torch.ones(2, device='mps', requires_grad=True)\n"
        "for _ in range(9):\n"
        "    loss = (w * 3).square().sum()\n"
        "    loss.backward()\n"
        "    with torch.no_grad():\n"
        "        w -= 0.1 * w.grad\n"
        "        w.grad = None\n"
        "    print(loss.item())\n"
    )
    report = report_of(text, steps=4)
    assert report.steps == 4
    assert [(f.kind, f.line, f.count) for f in report.findings] == [("sync-in-step", 9, 4)]


def test_where_no_step_was_seen_the_text_says_that_nothing_was_examined(report_of):
    report = report_of("import torch\n")
    console = Console(record=True, file=io.StringIO(), width=80)
    report.show(console)
    assert "Nothing was examined" in console.export_text()
    assert report.exit_status(strict=True) == 2


def test_long_lines_are_wrapped_under_their_text(report_of):
    report = report_of("raise ValueError('a word ' * 40 + 'end')\n")
    console = Console(record=True, file=io.StringIO(), width=60)
    report.show(console)
    lines = console.export_text().splitlines()
    start = next(i for i, line in enumerate(lines) if "train.py:1" in line)
    end = next(i for i, line in enumerate(lines) if line.rstrip().endswith("end"))
    assert end > start + 3
    assert all(len(line) <= 60 for line in lines)
    assert all(line.startswith("  ") and line[2] != " " for line in lines[start : end + 1])
