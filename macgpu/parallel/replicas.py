"""Data parallelism, plain and fully sharded, against one step of the whole batch."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from macgpu.parallel.model import batch, build, loss_of
from macgpu.parallel.ranks import Ranks
from macgpu.parallel.shape import Shape
from macgpu.parallel.traffic import Traffic
from macgpu.parallel.training import apart, held
from macgpu.parallel.weights import part


def replicas(ranks: Ranks, shape: Shape) -> dict:
    """One step of the whole batch on one rank, and of a part of it on each: DDP and FSDP2."""
    expected = build(shape)
    _step(expected, *batch(shape, 0))
    tokens, targets = (one[part(one.shape[0], ranks.count, ranks.rank)] for one in batch(shape, 0))
    found = {}
    for name in ("DDP", "FSDP2"):
        model = build(shape)
        if name == "DDP":
            trained = DistributedDataParallel(model)
        else:
            mesh = init_device_mesh("cpu", (ranks.count,))
            for one in model.layers:
                fully_shard(one, mesh=mesh)
            trained = fully_shard(model, mesh=mesh)
        with Traffic() as traffic:
            _step(trained, tokens, targets)
        found[name] = {
            "weights apart": apart(model, expected),
            "elements held": held(model),
            "calls": dict(traffic.calls),
        }
    return found | {"whole": {"elements held": held(expected)}}


def _step(model, tokens: torch.Tensor, targets: torch.Tensor) -> None:
    # AdamW's first step hardly depends on the gradient's size, and so would hide a wrong one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model, tokens, targets).backward()
    optimizer.step()
