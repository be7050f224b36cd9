"""Starting several processes with torchrun, within a time limit, and ending all of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from macgpu.errors import BookError
from macgpu.parallel.arguments import HEADS as HEADS  # the chapter reads it here
from macgpu.parallel.arguments import parse
from macgpu.parallel.checks import require_port, require_task
from macgpu.parallel.network import LOCAL, MULTICAST_OFF, through

PROGRAM = "macgpu.parallel.run"
GRACE_S = 10
"""For torchrun to end its processes when asked to, before they are killed."""
NAMED_ERROR = re.compile(r"(?:\[rank\d+\]: *)?(\w[\w.]*(?:Error|Exception|Interrupt): \S.*)")
"""The last line of a traceback, with the mark that torch puts before it."""
EMPTY_WORDS = re.compile(r"To enable traceback see|error_file: <N/A>")
"""In what torchrun writes below every failure."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: int
    """The exit status of torchrun; 0 is success."""
    output: str
    """Of all processes, as it came."""
    seconds: float
    timed_out: bool


def start(
    task: str,
    ranks: int,
    work: Path,
    device: str = "cpu",
    degree: int | None = None,
    port: int | None = None,
    limit_s: float = 120,
    report: Callable[[str], None] | None = print,
    **options: object,
) -> dict:
    """Run a task of the book's program in so many processes; what its first rank wrote.

    Args:
        work: the folder for the result's file.
        degree: over how many ranks to split; all of them unless given.
        port: where the ranks meet; a free one unless given.
        limit_s: after which everything is ended.
        options: of the program, such as ``steps=20`` for ``--steps 20``.

    Raises:
        BookError: where the input is bad (nothing is started then), or the run failed or was too
            slow (all its processes are ended then); the message is the program's own line.
    """
    result = Path(work) / f"{task}.json"
    arguments = [task, "--json", str(result), "--device", device]
    arguments += as_flags({"degree": degree, **options})
    require_task(parse(arguments), ranks)
    if port is not None:
        require_port(LOCAL, port)
    result.unlink(missing_ok=True)
    program = ["-m", PROGRAM, *arguments]
    if report:
        report(f"$ python -m torch.distributed.run --nproc-per-node {ranks} {shlex.join(program)}")
    outcome = torchrun(program, ranks, limit_s, port, report=report)
    if outcome.timed_out:
        raise BookError(f"{task} was ended after {limit_s:.0f} s")
    if outcome.status:
        raise BookError(reason(outcome))
    return json.loads(result.read_text(encoding="utf-8"))


def as_flags(options: dict[str, object]) -> list[str]:
    """``{"steps": 20, "resume": True, "widths": [64]}`` as arguments of a command."""
    flags = []
    for name, value in options.items():
        if value is False or value is None:
            continue
        flags.append(f"--{name.replace('_', '-')}")
        if isinstance(value, (list, tuple)):
            flags += map(str, value)
        elif value is not True:
            flags.append(str(value))
    return flags


def reason(outcome: Outcome) -> str:
    """The program's own line about what went wrong; else the last error that any process names;
    else the last line that says something."""
    lines = [line.strip() for line in outcome.output.splitlines()]
    own = [line.partition("macgpu: ")[2] for line in lines if "macgpu: " in line]
    errors = [named[1] for line in lines if (named := NAMED_ERROR.match(line))]
    told = [line for line in lines if any(map(str.isalnum, line)) and not EMPTY_WORDS.search(line)]
    return (own[:1] or errors[-1:] or told[-1:] or [f"status {outcome.status}"])[0]


def torchrun(
    program: Sequence[str],
    ranks: int,
    timeout_s: float,
    port: int | None = None,
    report: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a program in so many processes of this machine, by PyTorch's own starter.

    Args:
        program: what follows torchrun's own options, such as ``["-m", "package.module", "--x"]``.
        timeout_s: after which all processes are ended.
        port: where they meet; ``None`` takes a free one.
        report: called with each line of output as it comes.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-addr", LOCAL, "--master-port", str(port or free_port()), *program]
    return run(command, timeout_s, environment(through(LOCAL)), report)


def host_command(
    program: Sequence[str], hosts: int, meeting: str, address: str, first: bool, ranks: int = 1
) -> list[str]:
    """One host's share of a run over several: each host starts the same, with its own address.

    Args:
        meeting: ``"address:port"`` of the host where all meet, which every host can reach.
        address: of this host, by which the others reach it.
        first: whether this is the host where they meet. torchrun would tell by the machine's own
            name, which need not be the one that the others use.
        ranks: processes on each host.
    """
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(hosts), "--nproc-per-node", str(ranks)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", meeting, "--rdzv-id", "book"),
        *("--local-addr", address, "--rdzv-conf", f"is_host={int(first)}"),
        *program,
    ]


def run_host(
    command: Sequence[str],
    address: str = LOCAL,
    limit_s: float = 120,
    report: Callable[[str], None] | None = None,
) -> Outcome:
    """Run what :func:`host_command` gives, on the network interface of this host's address."""
    return run(command, limit_s, environment(through(address)), report)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """This process's own, with what several processes on one machine need, and ``variables``."""
    found = {**os.environ, **MULTICAST_OFF, **variables}
    # torchrun sets the first to 1 and warns where it is not set. Processes that share the cores
    # must sleep while they wait, not spin.
    found.setdefault("OMP_NUM_THREADS", "1")
    found.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return found


def run(
    command: Sequence[str],
    timeout_s: float,
    variables: dict[str, str],
    report: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a command and end it with all that it has started, at the latest after ``timeout_s``."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: list[str] = []

    def read() -> None:
        for line in process.stdout:
            lines.append(line)
            if report:
                report(line.rstrip("\n"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    timed_out = False
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _end(process)
    reader.join(GRACE_S)
    return Outcome(process.returncode, "".join(lines), time.monotonic() - start, timed_out)


def _end(process: subprocess.Popen) -> None:
    """End a process and all its descendants; those of one that has ended are ended by torchrun."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for member in family:
        if member.is_running():
            member.kill()
    psutil.wait_procs(family, timeout=GRACE_S)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        return probe.getsockname()[1]
