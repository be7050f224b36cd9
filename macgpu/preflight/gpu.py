"""The device under test: a real mps device (a Mac's, or the software one), or a pretended one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from macgpu.preflight import pretend

MPS = torch.device("mps")

NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}
"""What mps refuses, and what the run goes on with."""

KIND_OF_DTYPE = {torch.float64: "float64", torch.complex128: "complex128"}

_to = torch.Tensor.to


@dataclass(frozen=True)
class Gpu:
    """Where tensors lie, and how they get there and back."""

    pretends: bool
    holds: Callable[[Tensor], bool]
    send: Callable[[Tensor], Tensor]
    fetch: Callable[[Tensor], Tensor]


REAL = Gpu(
    pretends=False,
    holds=lambda tensor: tensor.device.type == "mps",
    send=lambda tensor: _to(tensor, "mps"),
    fetch=lambda tensor: _to(tensor, "cpu"),
)

PRETENDED = Gpu(
    pretends=True,
    holds=pretend.is_on_mps,
    send=lambda tensor: pretend.copy(tensor, True),
    fetch=lambda tensor: pretend.copy(tensor, False),
)
