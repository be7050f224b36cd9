"""What goes over the wire: counted as it happens, and predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

NAMES = {
    "all_reduce": "all-reduce",
    "allreduce_": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "_allgather_base_": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "_reduce_scatter_base_": "reduce-scatter",
}
"""By the operator's name in torch: the engine's functional collectives, and the plain ones."""


class Traffic(TorchDispatchMode):
    """Counts the collectives that run within it, and the bytes of the tensors they are given."""

    def __init__(self):
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if any(issubclass(kind, DTensor) for kind in types):
            # The engine turns it into operators on each rank's part, which come by again.
            return NotImplemented
        operator = function._schema.name.partition("::")[2]
        name = NAMES.get(operator)
        if name:
            # These are given the tensor to write to, and then the one to send.
            given = arguments[1 if operator.endswith("_base_") else 0]
            tensor = given[0] if isinstance(given, (list, tuple)) else given
            self.calls[name] += 1
            self.bytes[name] += tensor.numel() * tensor.element_size()
        return function(*arguments, **(keywords or {}))


@dataclass(frozen=True)
class Line:
    """Alpha and beta: a collective of ``b`` bytes takes ``latency_s + b / bytes_per_s``."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, size: float) -> float:
        return self.latency_s + size / self.bytes_per_s


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line nearest to measured times, each of which counts by its relative error.

    Hockney, The communication challenge for MPP (1994).
    """
    wanted, sizes = np.asarray(seconds), np.asarray(sizes)
    columns = np.stack([1 / wanted, sizes / wanted], axis=1)
    latency, per_byte = np.linalg.lstsq(columns, np.ones(len(wanted)), rcond=None)[0]
    # A line through noise may be no line at all; the smallest message is then all latency, and the
    # largest one all bytes.
    if latency <= 0:
        latency = wanted[sizes.argmin()]
    if per_byte <= 0:
        per_byte = wanted[sizes.argmax()] / sizes.max()
    return Line(float(latency), 1 / float(per_byte))


def ring_bytes(size: float, degree: int) -> float:
    """What each rank sends in a ring all-reduce of a tensor of so many bytes.

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).
    """
    return 2 * (degree - 1) / degree * size


@dataclass(frozen=True)
class MLPCost:
    """Of one MLP block on one rank, forward and backward."""

    weights: int
    """Bytes."""
    flops: int
    sent: float
    """Bytes: an all-reduce of the output and one of the input gradient."""


def mlp_cost(width: int, tokens: int, degree: int, itemsize: int, expansion: int = 4) -> MLPCost:
    """Predict what a rank holds, computes and sends; weights divide, the all-reduces do not.

    A multiply-add counts as two operations, and backward as twice the forward.
    """
    elements = 2 * expansion * width**2 // degree
    summed = tokens * width * itemsize
    return MLPCost(elements * itemsize, 3 * 2 * tokens * elements, 2 * ring_bytes(summed, degree))


def break_even(rate: float, line: Line, tokens: int, degree: int, itemsize: int = 4) -> float:
    """The width above which a split MLP block beats the whole one on one rank.

    Args:
        rate: operations per second of one rank.
        line: of the all-reduce among the ranks.

    Twice the all-reduce must cost less than the share of the work that goes elsewhere; both sides
    are polynomials of the width.
    """
    saved = 3 * 2 * tokens * 8 * (1 - 1 / degree) / rate
    sent = 2 * tokens * itemsize / line.bytes_per_s
    return float((sent + np.sqrt(sent**2 + 8 * saved * line.latency_s)) / (2 * saved))
