"""What must hold before processes are started: each fault is one line that says what to do."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from macgpu.errors import BookError
from macgpu.machine import DEVICES
from macgpu.variables import FALLBACK


def require(
    device: str,
    ranks: int,
    degree: int,
    sides: Mapping[str, int],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Refuse what no split can be made of.

    Args:
        sides: what is split into ``degree`` parts, by its name: a width, the heads, ...

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
    if environment.get(FALLBACK):
        raise BookError(
            f"{FALLBACK} is set: a collective never falls back to the CPU, so what works with "
            f"it would not be what is meant. Unset it"
        )
    if degree > ranks:
        raise BookError(f"degree {degree} is above the {ranks} ranks: start {degree} processes")
    if degree < ranks:
        raise BookError(f"degree {degree} leaves {ranks - degree} of {ranks} ranks without work")
    for name, side in sides.items():
        if side % degree:
            raise BookError(f"{name} {side} does not divide by the degree {degree}")


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
