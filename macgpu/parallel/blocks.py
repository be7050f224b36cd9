"""The MLP block and the attention block of a transformer, whole or split over ranks.

Each rank draws its own part of the same seeded weights (:mod:`macgpu.parallel.weights`); of
degree 1, a block is the plain PyTorch one.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from macgpu.parallel.layers import WHOLE, Split, Way, column_linear, row_linear
from macgpu.parallel.weights import draw, part

EXPANSION = 4
"""How many times wider the inside of an MLP is."""


class Block(nn.Module):
    """What the blocks share: ``inner`` (column-parallel) and ``outer`` (row-parallel) weights."""

    split: Split

    def with_way(self, way: Way, group=None) -> Block:
        """The same weights with another way to communicate, and by another group of the ranks."""
        other = copy.copy(self)
        other.split = replace(self.split, way=way, group=group or self.split.group)
        return other


class MLP(Block):
    """Linear, GELU, linear; (tokens, width) in and out."""

    def __init__(
        self,
        width: int,
        bias: bool = False,
        split: Split = WHOLE,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        self.split = split
        place = {"degree": split.degree, "rank": split.rank, "device": device, "dtype": dtype}
        inside = EXPANSION * width
        self.inner = nn.Parameter(draw((inside, width), 0, seed=100 * seed, **place))
        self.outer = nn.Parameter(draw((width, inside), 1, seed=100 * seed + 1, **place))
        self.inner_bias, self.outer_bias = biases(width, inside, bias, seed, place)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(column_linear(x, self.inner, self.inner_bias, self.split))
        return row_linear(hidden, self.outer, self.outer_bias, self.split)


class Attention(Block):
    """Causal self-attention with its heads split; (tokens, width) in and out."""

    def __init__(
        self,
        width: int,
        heads: int,
        sequence: int,
        bias: bool = False,
        split: Split = WHOLE,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        self.split, self.sequence = split, sequence
        mine = part(heads, split.degree, split.rank)
        self.heads, self.head_width = mine.stop - mine.start, width // heads
        place = {"degree": split.degree, "rank": split.rank, "device": device, "dtype": dtype}
        # A rank's rows of query, key and value lie together: one product, one sum backward.
        three = [draw((width, width), 0, seed=100 * seed + 10 + i, **place) for i in range(3)]
        self.inner = nn.Parameter(torch.cat(three))
        self.outer = nn.Parameter(draw((width, width), 1, seed=100 * seed + 13, **place))
        self.inner_bias, self.outer_bias = biases(width, width, bias, seed, place, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projected = column_linear(x, self.inner, self.inner_bias, self.split)
        heads = projected.view(-1, self.sequence, 3, self.heads, self.head_width)
        query, key, value = (one.transpose(1, 2) for one in heads.unbind(2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(-1, self.heads * self.head_width)
        return row_linear(mixed, self.outer, self.outer_bias, self.split)


def biases(width: int, inside: int, wanted: bool, seed: int, place: dict, count: int = 1):
    """A rank's part of the inner bias (``count`` of them) and the whole outer one, or ``None``s."""
    if not wanted:
        return None, None
    inner = [draw((inside, 1), 0, seed=100 * seed + 20 + i, **place)[:, 0] for i in range(count)]
    whole = {**place, "degree": 1, "rank": 0}
    outer = draw((width, 1), 0, seed=100 * seed + 23, **whole)[:, 0]
    return nn.Parameter(torch.cat(inner)), nn.Parameter(outer)
