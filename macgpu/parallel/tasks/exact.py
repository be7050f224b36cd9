"""Blocks and a language model, split against whole; a block's collectives; data parallelism."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from macgpu.parallel import measure
from macgpu.parallel.arguments import BLOCK_TOKENS
from macgpu.parallel.model import batch, build, splitting
from macgpu.parallel.ranks import Ranks
from macgpu.parallel.replicas import replicas
from macgpu.parallel.shape import Shape
from macgpu.parallel.traffic import Traffic
from macgpu.parallel.training import whole

ALL_REDUCE, SEQUENCE = "all-reduce", "sequence parallel"


def run(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """Blocks and language model, split against whole, and the collectives of a block counted."""
    groups = measure.Groups(ranks, (ranks.count,), asked.timeout)
    blocks = [
        {"block": one.block, "way": one.way, "output": one.output}
        | {"input gradient": one.input_gradient, "weight gradient": one.weight_gradient}
        for block in ("mlp", "attention")
        for one in measure.exactness(
            block, asked.width, BLOCK_TOKENS, ranks.count, (None, *measure.WAYS), groups
        )
    ]
    mesh = init_device_mesh("cpu", (ranks.count,))
    shape = Shape(width=asked.width, heads=asked.heads, layers=1)
    models = [
        {"layout": layout} | _model_differences(shape, mesh, layout == SEQUENCE, dtype)
        for layout, dtype in (
            (ALL_REDUCE, torch.float64),
            (SEQUENCE, torch.float64),
            (SEQUENCE, torch.float32),
            (SEQUENCE, torch.bfloat16),
        )
    ]
    counts = [_counted(shape, mesh, layout) for layout in (ALL_REDUCE, SEQUENCE)]
    found = {"blocks": blocks, "models": models, "counts": counts}
    return found | {"replicas": replicas(ranks, shape)}


def _model_differences(shape: Shape, mesh, sequence: bool, dtype: torch.dtype) -> dict:
    """Of logits, loss and gradients from the whole model's: in the same type, largest (float64);
    by norm, beside the whole model's own error against float64 (narrower types)."""
    split = _pass(build(shape, mesh, sequence, dtype), shape, mesh)
    same = _pass(build(shape, dtype=dtype), shape)
    true = _pass(build(shape), shape)
    found = {"dtype": str(dtype).removeprefix("torch.")}
    for number, name in enumerate(("logits", "loss", "gradients")):
        found[name] = float((split[number] - same[number]).abs().max())
        found[f"{name}, relative"] = _relative(split[number], true[number])
        found[f"{name}, relative, whole"] = _relative(same[number], true[number])
    return found


def _pass(model, shape: Shape, mesh=None) -> list[torch.Tensor]:
    """Logits, loss, and all gradients in one vector, put together from the ranks' parts."""
    tokens, targets = batch(shape, 0)
    with splitting(mesh):
        logits = model(tokens)
        loss = F.cross_entropy(logits, targets)
        loss.backward()
    gradients = [whole(weight.grad).flatten().double() for weight in model.parameters()]
    return [whole(logits).detach().double(), whole(loss).detach().double(), torch.cat(gradients)]


def _relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def _counted(shape: Shape, mesh, layout: str) -> dict:
    """The collectives of one transformer block, forward and backward."""
    model = build(shape, mesh, layout == SEQUENCE)
    tokens = shape.batch * shape.sequence
    if layout == SEQUENCE:
        tokens //= mesh.size()
    x = torch.randn(tokens, shape.width, dtype=torch.float64, requires_grad=True)
    with Traffic() as forward:
        out = model.layers[0](x)
    with Traffic() as backward:
        out.sum().backward()
    return {
        "layout": layout,
        "forward": dict(forward.calls),
        "backward": dict(backward.calls),
        "bytes": dict(forward.bytes),
    }
