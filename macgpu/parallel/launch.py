"""Starting several processes with torchrun, within a time limit, and ending all of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from macgpu.parallel.ranks import MULTICAST_OFF

LOCAL = "127.0.0.1"
GRACE_S = 10
"""For torchrun to end its processes when asked to, before they are killed."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: int
    """The exit status of torchrun; 0 is success."""
    output: str
    """Of all processes, as it came."""
    seconds: float
    timed_out: bool


def torchrun(
    program: Sequence[str],
    ranks: int,
    timeout_s: float,
    port: int | None = None,
    variables: dict[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a program in so many processes of this machine, by PyTorch's own starter.

    Args:
        program: what follows torchrun's own options, such as ``["-m", "package.module", "--x"]``.
        timeout_s: after which all processes are ended.
        port: where they meet; ``None`` takes a free one.
        variables: of the environment, beside this process's own.
        report: called with each line of output as it comes.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-addr", LOCAL, "--master-port", str(port or free_port()), *program]
    environment = {**os.environ, **MULTICAST_OFF, **local_network(), **(variables or {})}
    # torchrun sets it to 1 and warns where it is not set.
    environment.setdefault("OMP_NUM_THREADS", "1")
    return run(command, timeout_s, environment, report)


def run(
    command: Sequence[str],
    timeout_s: float,
    environment: dict[str, str],
    report: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a command and end it with all that it has started, at the latest after ``timeout_s``."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        env=environment,
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


def local_network() -> dict[str, str]:
    """Variables that keep gloo and NCCL on this machine's loopback interface.

    Else they look this machine's own name up, which fails on machines without a network, and on
    Macs with some routers.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == LOCAL for address in addresses):
            return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}
