"""The functions of a reader's file against the whole layer."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
from pathlib import Path
from types import FunctionType, ModuleType

import torch
import torch.distributed as dist
import torch.nn.functional as F

from macgpu.parallel.ranks import Ranks
from macgpu.parallel.weights import draw, part


def run(ranks: Ranks, asked: argparse.Namespace) -> dict:
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
