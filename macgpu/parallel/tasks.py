"""What the program does that torchrun starts: each task is run by all ranks and gives a result."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
from pathlib import Path
from types import FunctionType, ModuleType

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from macgpu.measure.timing import time_in_turn
from macgpu.parallel import measure
from macgpu.parallel.model import Shape, batch, build, loss_of, splitting
from macgpu.parallel.ranks import Ranks, SharedClock
from macgpu.parallel.scaling import Case
from macgpu.parallel.traffic import Traffic
from macgpu.parallel.training import Run, apart, checkpoints, whole
from macgpu.parallel.weights import draw, part


def layer(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """Each function of the reader's file against the whole layer, in float64.

    A function takes ``(x, weight, bias, group)``: the whole input (tokens, in), this rank's
    columns of the weight (out, in / degree) and the whole bias, and returns the output.
    """
    width, degree, tokens = asked.width, ranks.count, 16
    kind = {"dtype": torch.float64}
    x, upstream = (draw((tokens, width), 0, seed=seed, **kind) * width**0.5 for seed in (1, 2))
    weight = draw((width, width), 1, seed=3, **kind)
    bias = draw((width, 1), 0, seed=4, **kind)[:, 0]
    expected = _with_gradients(F.linear, (x, weight, bias), upstream)
    mine = part(width, degree, ranks.rank)
    expected[2] = expected[2][:, mine]
    found = []
    for function in _functions(_load(asked.file)):
        given = (x, weight[:, mine].contiguous(), bias)
        got = _with_gradients(
            lambda *given, function=function: function(*given, dist.group.WORLD), given, upstream
        )
        differences = [
            ranks.largest(float((one - other).abs().max()))
            for one, other in zip(got, expected, strict=True)
        ]
        names = ("output", "input gradient", "weight gradient", "bias gradient")
        found.append({"step": function.__name__, **dict(zip(names, differences, strict=True))})
    return {"steps": found, "largest output": float(expected[0].abs().max())}


def _with_gradients(function, given: tuple, upstream: torch.Tensor) -> list[torch.Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in given]
    out = function(*leaves)
    gradients = torch.autograd.grad(out, leaves, upstream, allow_unused=True)
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    return [
        out.detach(),
        *(g if g is not None else z for g, z in zip(gradients, zeros, strict=True)),
    ]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("reader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _functions(module: ModuleType) -> list[FunctionType]:
    """Those that the file defines, in its order; a leading underscore marks a helper."""
    return [
        thing
        for thing in vars(module).values()
        if inspect.isfunction(thing)
        and thing.__module__ == module.__name__
        and not thing.__name__.startswith("_")
    ]


def exact(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """Blocks and language model, split against whole, and the collectives of a block counted."""
    groups = measure.Groups(ranks, (ranks.count,), asked.timeout)
    blocks = [
        {"block": one.block, "way": one.way, "output": one.output}
        | {"input gradient": one.input_gradient, "weight gradient": one.weight_gradient}
        for block in ("mlp", "attention")
        for one in measure.exactness(
            block, asked.width, 16 * measure.SEQUENCES, ranks.count, (None, *measure.WAYS), groups
        )
    ]
    mesh = init_device_mesh("cpu", (ranks.count,))
    shape = _shape(asked)
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
    return {"blocks": blocks, "models": models, "counts": counts}


ALL_REDUCE, SEQUENCE = "all-reduce", "sequence parallel"


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


def train(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """Train the split model beside the whole one, both from the newest checkpoint if asked."""
    shape = _shape(asked)
    mesh = init_device_mesh("cpu", (ranks.count,))
    split, other = Run(shape, mesh), Run(shape)
    resumed = split.load(asked.folder) if asked.resume else False
    start, losses, expected = split.step, [], []
    if ranks.first and asked.resume:
        print(f"going on from step {start}" if resumed else "no checkpoint yet", flush=True)
    while other.step < start:
        other.advance()
    while split.step < asked.steps:
        losses.append(split.advance())
        expected.append(other.advance())
        if asked.save_every and split.step % asked.save_every == 0:
            split.save(asked.folder)
            if ranks.first:
                print(f"saved step {split.step}", flush=True)
    held = sum(_local(weight).numel() for weight in split.model.parameters())
    return {
        "from step": start,
        "degree": ranks.count,
        "losses": torch.stack(losses).tolist() if losses else [],
        "losses, whole": torch.stack(expected).tolist() if expected else [],
        "weights apart": apart(split.model, other.model),
        "elements held": ranks.gathered(held),
        "elements, whole": sum(weight.numel() for weight in other.model.parameters()),
        "checkpoints": [path.name for path in checkpoints(asked.folder)] if asked.folder else [],
    }


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def time(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """The MLP block by width: split, whole on one core, whole on all; and the all-reduce by size.

    The split block uses one core a rank.
    """
    groups = measure.Groups(ranks, (ranks.count,), asked.timeout)
    effort = measure.SWEEP_EFFORTS[asked.profile]
    torch.set_num_threads(1)
    sums = [
        {"bytes": one.bytes, "seconds": one.timing.median_s}
        for one in measure.collectives(
            asked.sizes, ranks.count, torch.float32, asked.profile, groups
        )
    ]
    rows = []
    for width in asked.widths:
        case = Case("mlp", width, asked.tokens, "float32", ranks.count)
        split = groups.split(ranks.count)
        block = measure.make_block(case, split, ranks.device)
        alone = measure.BlockStep(block, *measure.inputs(case, split, ranks.device))
        full = measure.WHOLE
        whole_step = measure.BlockStep(
            measure.make_block(case, full, ranks.device), *measure.inputs(case, full, ranks.device)
        )
        steps = [
            alone,
            _threads(whole_step, 1) if ranks.first else measure.nothing,
            _threads(whole_step, asked.cores) if ranks.first else measure.nothing,
        ]
        timings = time_in_turn(steps, ranks.device, effort, clock=SharedClock(ranks))
        names = ("split", "one core", "all cores")
        rows.append(
            {"width": width}
            | {name: timing.median_s for name, timing in zip(names, timings, strict=True)}
        )
    return {"all-reduce": sums, "blocks": rows, "tokens": asked.tokens, "degree": ranks.count}


def _threads(step, count: int):
    """The step with so many threads, and one again after it."""

    def run():
        torch.set_num_threads(count)
        try:
            return step()
        finally:
            torch.set_num_threads(1)

    return run


def replicas(ranks: Ranks, asked: argparse.Namespace) -> dict:
    """One step of the whole batch on one rank, and of a part of it on each: DDP and FSDP2."""
    shape = _shape(asked)
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
            "elements held": sum(_local(weight).numel() for weight in model.parameters()),
            "calls": dict(traffic.calls),
        }
    return {"replicas": found, "elements": sum(w.numel() for w in expected.parameters())}


def _step(model, tokens: torch.Tensor, targets: torch.Tensor) -> None:
    # AdamW's first step hardly depends on the gradient's size, and so would hide a wrong one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of(model, tokens, targets).backward()
    optimizer.step()


def _shape(asked: argparse.Namespace) -> Shape:
    return Shape(width=asked.width, heads=asked.heads)


TASKS = {
    "layer": layer,
    "exact": exact,
    "train": train,
    "time": time,
    "replicas": replicas,
}
