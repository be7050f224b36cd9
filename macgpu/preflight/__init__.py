"""Preflight: will this script train on a Mac, and what will hurt?

The script runs for a few steps in a process of its own, on mps, on the software MPS device, or on
the CPU under a pretended mps, while every operator, move and wait is watched; its text is read for
what need not run. :func:`examine` gives the report, :func:`command` is the command line's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from macgpu import variables
from macgpu.machine import version_tuple
from macgpu.preflight.judge import Run, judge, read_ledger
from macgpu.preflight.report import Report
from macgpu.preflight.source import SourceError, read_program
from macgpu.preflight.static import read_faults

OLDEST_TORCH = (2, 8)
"""The first with ``GradScaler("mps")``."""

DEVICES = ("auto", "mps", "soft", "trace")

CHILD = "import json, sys; from macgpu.preflight.child import main; main(json.loads(sys.argv[1]))"

SETTINGS = {
    # The run has to go on after an operator without a kernel.
    variables.FALLBACK: "1",
    # torch.jit would hide its operators from the watch, as torch.compile would.
    "PYTORCH_JIT": "0",
}

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
"""For typer: what follows the script belongs to the script."""


class PreflightError(RuntimeError):
    """Preflight cannot examine this; the message says why in one line."""


def command(
    script: Annotated[Path, typer.Argument(help="A training script or a notebook.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own arguments.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps to watch.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Stop the script after so long.")] = 120,
    on: Annotated[str, typer.Option(help="auto, mps, soft (software mps) or trace.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit with 2 if anything would hurt.")] = False,
) -> None:
    """Say whether a script will train on a Mac, and what will hurt.

    Runs the script in its own process for a few steps; what it writes, it writes. Exits with 0 if
    nothing would fail on a Mac, 1 if something would, 2 with --strict if something would hurt or
    no training step was seen.
    """
    from rich.console import Console

    try:
        report = examine(script, arguments or [], steps, seconds, on)
    except PreflightError as error:
        typer.echo(f"macgpu preflight: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(report.as_json())
    else:
        report.show(Console())
    raise typer.Exit(report.exit_status(strict))


def examine(
    script: Path,
    arguments: list[str] | None = None,
    steps: int = 5,
    seconds: float = 120,
    on: str = "auto",
) -> Report:
    """Run and read a script or notebook, and report.

    Args:
        script: the program; it runs in the current directory.
        arguments: its own command-line arguments.
        steps: optimizer steps after which it is stopped.
        seconds: wall clock after which it is stopped.
        on: ``"mps"`` (a Mac), ``"soft"`` (the software device), ``"trace"`` (the CPU, with mps
            pretended), or ``"auto"``: the first of them that is there.

    Raises:
        PreflightError: where the script is no program, torch is missing or too old, or the device
            that was asked for is not there.
    """
    _check_torch()
    try:
        program = read_program(script)
    except SourceError as error:
        raise PreflightError(str(error)) from None
    environment, pretend, ran_on, why_trace = _device(on, _environment())
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        options = {
            "script": str(script),
            "arguments": arguments or [],
            "steps": steps,
            "ledger": str(ledger),
            "pretend": pretend,
            "environment": {name: os.environ.get(name) for name in (*SETTINGS, "PYTHONPATH")},
        }
        start = time.perf_counter()
        how_it_ended = _run(options, {**environment, **SETTINGS}, seconds, Path(folder))
        took = time.perf_counter() - start
        run = read_ledger(ledger)
    return Report(
        script=str(script),
        ran_on="trace on the CPU" if run.pretends else ran_on,
        why_trace=why_trace,
        steps=run.steps,
        ended=_ended(run, how_it_ended),
        seconds=took,
        findings=judge(
            run, read_faults(program), how_it_ended, on_a_mac=ran_on == "mps" and not run.pretends
        ),
    )


def _ended(run: Run, how_it_ended: str | None) -> str:
    if run.ended == "steps":
        return "stopped after the steps that were asked for"
    if run.ended == "apart":
        return "stopped where the devices are mixed: what comes after it was not examined"
    if run.ended == "error":
        return "the script ended with an error"
    if run.ended == "exit" and run.status:
        return f"the script exited with status {run.status}"
    return f"ended: {how_it_ended}" if how_it_ended else "the script ended by itself"


def _check_torch() -> None:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise PreflightError("torch is not installed: pip install torch") from None
    if version_tuple(version.partition("+")[0]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise PreflightError(f"torch {version} is too old: preflight needs {oldest} or newer")


def _device(on: str, base: dict[str, str]) -> tuple[dict[str, str], bool | None, str, str | None]:
    """The process's environment, whether to pretend mps, the device's name, why only a trace."""
    if on not in DEVICES:
        raise PreflightError(f"unknown device {on!r}: choose {', '.join(DEVICES)}")
    is_mac = sys.platform == "darwin"
    if on == "mps" and not is_mac:
        raise PreflightError("mps is the GPU of a Mac: choose soft or trace")
    if on == "trace":
        return base, True, "trace on the CPU", None
    if is_mac and on != "soft":
        return base, None if on == "auto" else False, "mps", None
    from macgpu.softmps import SoftMPSUnavailableError, environment

    try:
        return environment(base), False, "software mps", None
    except SoftMPSUnavailableError as error:
        if on == "soft":
            raise PreflightError(str(error)) from None
        return base, True, "trace on the CPU", str(error)


def _run(options: dict, environment: dict, seconds: float, folder: Path) -> str | None:
    """Run the watched process; why it ended, where it did not end by itself."""
    said = folder / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(options)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"after {seconds:g} s"
        finally:
            _end_session(process)
    if status == 0:
        return None
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    lines = said.read_text(errors="replace").strip().splitlines()
    return f"its process ended with status {status}: {lines[-1] if lines else 'no message'}"


def _end_session(process: subprocess.Popen) -> None:
    """End the process and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment() -> dict[str, str]:
    """This process's environment, with the folder that this macgpu lies in searched first."""
    before = os.environ.get("PYTHONPATH")
    mine = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([mine, before]) if before else mine}
