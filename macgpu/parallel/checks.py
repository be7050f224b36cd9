"""What must hold before processes are started: each fault is one line that says what to do."""

from __future__ import annotations

import os
import socket
from argparse import Namespace
from collections.abc import Mapping

from macgpu.errors import BookError
from macgpu.machine import DEVICES
from macgpu.parallel.arguments import splits
from macgpu.variables import FALLBACK


def require(
    device: str,
    ranks: int,
    degree: int,
    sides: Mapping[str, int],
    environment: Mapping[str, str] = os.environ,
    of: str = "",
) -> None:
    """Refuse what no split can be made of.

    Args:
        sides: what is split into ``degree`` parts, by its name: a width, the heads, ... Heads must
            divide the width, too.
        of: whose sides they are, where that is not clear.

    Raises:
        BookError: with the reason and the remedy, in one line.
    """
    if device == "mps":
        raise BookError(
            "mps cannot take part: torch has no collective for tensors on mps, and a Mac has one "
            "such device. Use device cpu, whose collectives are gloo's"
        )
    if device not in DEVICES:
        raise BookError(f"unknown device {device!r}: choose cpu or cuda")
    if environment.get(FALLBACK, "").strip(" 0"):
        # Unset or 0 is off; torch reads a number.
        raise BookError(
            f"{FALLBACK} is set: a collective never falls back to the CPU, so what works with "
            f"it would not be what is meant. Unset it"
        )
    if min(ranks, degree) < 1:
        raise BookError(f"degree {degree} of {ranks} ranks: both must be at least 1")
    if degree > ranks:
        raise BookError(f"degree {degree} is above the {ranks} ranks: start {degree} processes")
    if degree < ranks:
        raise BookError(f"degree {degree} leaves {ranks - degree} of {ranks} ranks without work")
    whose = f" of {of}" if of else ""
    for name, side in sides.items():
        if side < 1:
            raise BookError(f"{name} {side}{whose} must be at least 1")
        if side % degree:
            raise BookError(f"{name} {side}{whose} does not divide by the degree {degree}")
    width, heads = sides.get("width", 0), sides.get("heads", 1)
    if width % heads:
        raise BookError(f"width {width} does not divide by the heads {heads}{whose}")


def require_task(asked: Namespace, ranks: int, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse what the task of the program cannot split, as :func:`require` does."""
    degree = ranks if asked.degree is None else asked.degree
    for of, sides in splits(asked):
        require(asked.device, ranks, degree, sides, environment, of)


def require_torchrun(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a process that torchrun has not started.

    Raises:
        BookError: with the command to start it by.
    """
    if not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= environment.keys():
        raise BookError(
            "not started by torchrun: put python -m torch.distributed.run --nproc-per-node 2 "
            "before -m macgpu.parallel.run"
        )


def require_port(address: str, port: int) -> None:
    """Refuse a port on which this machine cannot listen.

    Raises:
        BookError: where another process has it.
    """
    with socket.socket() as probe:
        # As torchrun does: a port that was just given back counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise BookError(
                f"port {port} cannot be used: {error.strerror.lower()}. Choose another, or none"
            ) from None
