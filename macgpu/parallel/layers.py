"""Linear layers split over the ranks of a group, with their communication in the open.

A column-parallel layer holds some of the rows of its weight (out, in), so some of the outputs; a
row-parallel layer holds some of the columns, so some of the inputs, and its products must be
summed. Gradients need the conjugate: what copies forward sums backward, and the reverse
(Shoeybi et al., Megatron-LM, 2019, section 3).

Tokens come flat: (tokens, width). Where a :class:`Split` says so, communication runs beside the
products: it is the same sum, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory
import torch.nn.functional as F
from torch.autograd import Function

# Renamed in torch 2.14; the old names warn there.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class Way:
    """How the communication of a split block is arranged."""

    chunks: int = 1
    """Of the tokens in a row-parallel product: a chunk is summed while the next is computed."""
    backward_chunks: int = 0
    """Of the tokens in the input gradient of a column-parallel layer, which is summed while the
    weight's gradient is computed; 0: it is summed first."""
    sequence: bool = False
    """Outside of the block, each rank holds a part of the tokens: all-gather and reduce-scatter
    in place of the all-reduce (Korthikanti et al., 2022)."""
    fused: bool = False
    """Of sequence parallelism: the product and the exchange in one operator, by PyTorch's
    symmetric memory (cuda alone)."""

    def __str__(self) -> str:
        if self.fused:
            return "sequence parallel, fused"
        name = "sequence parallel" if self.sequence else "all-reduce"
        if self.backward_chunks:
            name += ", overlapped backward"
        if self.backward_chunks > 1:
            name += f" in {self.backward_chunks}"
        return f"{name}, {self.chunks} chunks forward" if self.chunks > 1 else name


PLAIN = Way()


@dataclass(frozen=True)
class Split:
    """A rank's place among those that share a layer; of degree 1, the layer is whole."""

    group: dist.ProcessGroup | None = None
    degree: int = 1
    rank: int = 0
    way: Way = PLAIN


WHOLE = Split()


def column_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, split: Split
) -> torch.Tensor:
    """This rank's outputs (tokens, out / degree) of a layer whose outputs are split.

    Args:
        x: (tokens, in), the same on every rank; a rank's part of the tokens under
            ``way.sequence``.
        weight: this rank's rows, (out / degree, in).
        bias: this rank's part, (out / degree), or ``None``.
    """
    if split.degree == 1:
        return F.linear(x, weight, bias)
    return _ColumnLinear.apply(x, weight, bias, split)


def row_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, split: Split
) -> torch.Tensor:
    """The outputs (tokens, out) of a layer whose inputs are split, summed over the ranks.

    Under ``way.sequence``, this rank's part of the tokens.

    Args:
        x: this rank's inputs, (tokens, in / degree).
        weight: this rank's columns, (out, in / degree).
        bias: the whole bias (out), the same on every rank, or ``None``; it is added once.
    """
    if split.degree == 1:
        return F.linear(x, weight, bias)
    return _RowLinear.apply(x, weight, bias, split)


class _ColumnLinear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, split):
        ctx.split, ctx.has_bias = split, bias is not None
        if split.way.fused:
            x, product = _gather_matmul(x, weight.T, split)
            product = product if bias is None else product.add_(bias)
        else:
            x = _gather(x, split) if split.way.sequence else x
            product = F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight)
        return product

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        split, way = ctx.split, ctx.split.way
        gradient = gradient.contiguous()
        pending: list = []
        if way.fused:
            x_gradient = _matmul_scatter(gradient, weight, split)
        elif way.sequence:
            x_gradient, work = _scatter_sum(gradient @ weight, split)
            pending.append(work)
        else:
            x_gradient = gradient.new_empty(x.shape)
            pending += _matmul_sum(gradient, weight, x_gradient, way.backward_chunks or 1, split)
        if not way.backward_chunks:
            _wait(pending)
        weight_gradient = gradient.T @ x
        bias_gradient = gradient.sum(0) if ctx.has_bias else None
        _wait(pending)
        return x_gradient, weight_gradient, bias_gradient, None


class _RowLinear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, split):
        ctx.split, ctx.has_bias = split, bias is not None
        ctx.save_for_backward(x, weight)
        pending: list = []
        if split.way.fused:
            out = _matmul_scatter(x, weight.T, split)
        elif split.way.sequence:
            out, work = _scatter_sum(x @ weight.T, split)
            pending.append(work)
        else:
            out = x.new_empty(x.shape[0], weight.shape[0])
            pending += _matmul_sum(x, weight.T, out, split.way.chunks, split)
        _wait(pending)
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        split = ctx.split
        gradient = gradient.contiguous()
        bias_gradient = None
        if split.way.fused:
            gradient, x_gradient = _gather_matmul(gradient, weight, split)
        else:
            gradient = _gather(gradient, split) if split.way.sequence else gradient
            x_gradient = gradient @ weight
        if ctx.has_bias:
            bias_gradient = gradient.sum(0)
        return x_gradient, gradient.T @ x, bias_gradient, None


def _matmul_sum(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chunks: int, split: Split
) -> list[dist.Work]:
    """Write ``a @ b`` into ``out``, each chunk of rows given to the ranks' sum when computed."""
    pending = []
    for rows in _slices(a.shape[0], chunks):
        torch.mm(a[rows], b, out=out[rows])
        pending.append(dist.all_reduce(out[rows], group=split.group, async_op=True))
    return pending


def _slices(size: int, chunks: int) -> Iterator[slice]:
    """At most so many slices, none empty, that cover ``range(size)``."""
    step = -(-size // chunks)
    return (slice(start, min(size, start + step)) for start in range(0, size, step))


def _gather(x: torch.Tensor, split: Split) -> torch.Tensor:
    """All ranks' tokens, in order."""
    whole = x.new_empty(x.shape[0] * split.degree, x.shape[1])
    _all_gather(whole, x.contiguous(), group=split.group)
    return whole


def _scatter_sum(x: torch.Tensor, split: Split) -> tuple[torch.Tensor, dist.Work]:
    """This rank's tokens of the sum over the ranks, and what to wait for."""
    mine = x.new_empty(x.shape[0] // split.degree, x.shape[1])
    return mine, _reduce_scatter(mine, x, group=split.group, async_op=True)


def _wait(pending: list[dist.Work]) -> None:
    while pending:
        pending.pop().wait()


def _gather_matmul(x: torch.Tensor, b: torch.Tensor, split: Split):
    """All ranks' tokens, and their product with ``b``, computed as they arrive."""
    whole, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(
        x.contiguous(), [b], 0, split.group.group_name
    )
    return whole, product


def _matmul_scatter(a: torch.Tensor, b: torch.Tensor, split: Split) -> torch.Tensor:
    """This rank's tokens of the ranks' summed products, sent off as they are computed."""
    return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, split.group.group_name)
