"""The same blocks split by PyTorch's own engine, ``torch.distributed.tensor.parallel``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from macgpu.parallel.blocks import MLP, Attention, Block

INPUT = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())


class PlainMLP(nn.Module):
    """Linear, GELU, linear, as one writes it for one device."""

    PLAN = {"inner": ColwiseParallel(), "outer": RowwiseParallel()}

    def __init__(self, width: int, inside: int, bias: bool):
        super().__init__()
        self.inner = nn.Linear(width, inside, bias)
        self.outer = nn.Linear(inside, width, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(F.gelu(self.inner(x)))


class PlainAttention(nn.Module):
    """Causal self-attention; it takes as many heads as its projections hold."""

    PLAN = {
        "query": ColwiseParallel(),
        "key": ColwiseParallel(),
        "value": ColwiseParallel(),
        "outer": RowwiseParallel(),
    }

    def __init__(self, width: int, head_width: int, sequence: int, bias: bool):
        super().__init__()
        self.head_width, self.sequence = head_width, sequence
        self.query, self.key, self.value, self.outer = (
            nn.Linear(width, width, bias) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projected = (self.query(x), self.key(x), self.value(x))
        query, key, value = (
            one.view(
                -1, self.sequence, one.shape[-1] // self.head_width, self.head_width
            ).transpose(1, 2)
            for one in projected
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outer(mixed.transpose(1, 2).reshape(x.shape[0], -1))


def adopt(block: Block, mesh: DeviceMesh) -> nn.Module:
    """The engine's version of a rank's block, on the same weights.

    The module is made and split on the meta device, so no rank ever holds a whole weight.
    """
    width = block.outer.shape[0]
    bias = block.outer_bias is not None
    with torch.device("meta"):
        if isinstance(block, MLP):
            module = PlainMLP(width, block.inner.shape[0] * mesh.size(), bias)
            parts = {"inner": (block.inner, block.inner_bias)}
        elif isinstance(block, Attention):
            module = PlainAttention(width, block.head_width, block.sequence, bias)
            names = ("query", "key", "value")
            inner_biases = block.inner_bias.chunk(3) if bias else (None,) * 3
            parts = dict(
                zip(names, zip(block.inner.chunk(3), inner_biases, strict=True), strict=True)
            )
    parts["outer"] = (block.outer, block.outer_bias)
    parallelize_module(module, mesh, module.PLAN)
    # The input once for all projections: else each would sum its own gradient over the ranks.
    parallelize_module(module, mesh, INPUT)
    for name, (weight, bias_part) in parts.items():
        _fill(module.get_submodule(name), "weight", weight)
        if bias_part is not None:
            _fill(module.get_submodule(name), "bias", bias_part)
    return module


def _fill(module: nn.Module, name: str, part: torch.Tensor) -> None:
    """Give a split parameter of the meta device this rank's part."""
    empty = getattr(module, name)
    split = DTensor.from_local(part.detach(), empty.device_mesh, empty.placements, run_check=False)
    setattr(module, name, nn.Parameter(split))
