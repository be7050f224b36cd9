"""What a training step must do at least: its operations, its traffic, and the time both imply.

Operations are counted once, on the CPU, whatever device is measured: the number belongs to the
model, and not to the kernels that a device happens to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from macgpu.measure.fields import Amount, Positive
from macgpu.models import Case

SOURCE = "FlopCounterMode on the CPU, math attention, no fused LSTM, forward and backward"

OPTIMIZER_PASSES = 10
"""How often a step moves each parameter's bytes: weights read by forward and backward, the gradient
written and read, and AdamW reads and writes the weight and its two moments."""


@dataclass(frozen=True)
class Work:
    """What one training step takes, forward and backward, at one batch size."""

    flops: Amount
    """Floating-point operations of matrix products, convolutions and attention; a multiply-add
    is two. Elementwise work is not counted."""
    bytes: Amount
    """Traffic to memory that no step in float32 avoids, estimated from below: see
    :data:`OPTIMIZER_PASSES`, and every activation that backward needs, written and read once."""
    source: str = SOURCE


@dataclass(frozen=True)
class Floor:
    """The least time that the measured ceilings of a device allow for some work."""

    seconds: Positive
    bound: Literal["compute", "memory"]
    """``"compute"`` or ``"memory"``: which of the two takes longer."""


def count_step(case: Case, batch_size: int) -> Work:
    """Count the forward and backward of one sample, and scale: all counted is linear in it."""
    model = case.build(seed=0)
    inputs, labels = case.batch(1, seed=0)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        case.loss(model(inputs), labels)
    flops = count(lambda: case.loss(model(inputs), labels).backward(), model)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return Work(
        flops=flops * batch_size,
        bytes=OPTIMIZER_PASSES * weights + 2 * sum(saved.values()) * batch_size,
    )


def count(work: Callable[[], object], model: nn.Module) -> int:
    """Operations of ``work()``, which runs ``model`` on the CPU.

    The CPU's fused attention and its fused LSTM count as nothing in torch 2.14, so both are
    kept from being chosen: the first always, the second where the model is recurrent (it costs
    convolutions their fast path).
    """
    counter = FlopCounterMode(display=False)
    with ExitStack() as chosen:
        chosen.enter_context(sdpa_kernel(SDPBackend.MATH))
        if any(isinstance(module, nn.RNNBase) for module in model.modules()):
            chosen.enter_context(torch.backends.mkldnn.flags(enabled=False))
        chosen.enter_context(counter)
        work()
    return counter.get_total_flops()


def floor(work: Work, flops_per_s: float, bytes_per_s: float, bytes_per_value: int = 4) -> Floor:
    """The roofline's answer for one step (Williams, Waterman and Patterson, CACM 52(4), 2009).

    Args:
        flops_per_s: measured peak of matrix products, in the data type of the step.
        bytes_per_s: measured bandwidth of a copy.
        bytes_per_value: 4 for float32, 2 where activations are of a half-precision type; the
            whole traffic is scaled by it, which keeps the estimate one from below.
    """
    compute = work.flops / flops_per_s
    memory = work.bytes * bytes_per_value / 4 / bytes_per_s
    return Floor(max(compute, memory), "compute" if compute >= memory else "memory")
