"""Finds the layer that computes wrongly: a model on two devices, compared layer by layer.

The same weights and the same batch go through both models, once forward and once backward, with
hooks on every module. A wrong layer spoils all that follow it, so the *first* one that departs is
named: in the order of execution for outputs, in the order of backward for gradients.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

MARGIN = 10.0
"""A layer may be off by so many times what float32 on the CPU is off at the same layer."""
OUTPUT_LEAST, GRADIENT_LEAST = 1e-4, 1e-2
"""What is allowed at least, as a share of the layer's own size. A rounding that turns a ReLU on or
off changes single gradients wholly, at random, on a device that is right."""
OUTPUT_MOST, GRADIENT_MOST = 0.1, 0.5
"""What is allowed at most: zeros in place of a gradient are off by 1. Where rounding alone does
more than this, nothing can be compared."""


@dataclass(frozen=True)
class Check:
    """One call of one layer, compared."""

    layer: str
    """The module's name in the model, such as ``"layer2.0.conv1"``; the model itself is ``""``."""
    kind: str
    error: float
    """Norm of the difference over the norm of the reference. Infinite where a tensor is there on
    one side only, and where a value is infinite or NaN on one side only."""
    allowed: float

    @property
    def departs(self) -> bool:
        return self.error > self.allowed

    def __str__(self) -> str:
        where = f"{self.layer or 'the model'} ({self.kind})"
        if math.isinf(self.error):
            return f"{where} is wholly off: a tensor is missing, or a value is not finite"
        return f"{where} is off by {self.error:.2g}, {self.allowed:.2g} allowed"


@dataclass(frozen=True)
class LayerComparison:
    """All layers, compared; a module comes after those that it is made of."""

    outputs: tuple[Check, ...]
    """In the order of execution."""
    gradients: tuple[Check, ...]
    """Of each layer's inputs and own parameters, in the order of backward."""

    @property
    def first_output(self) -> Check | None:
        """The first layer whose output departs: it, or code between it and the one before."""
        return next((check for check in self.outputs if check.departs), None)

    @property
    def first_gradient(self) -> Check | None:
        """The first layer, counted from the loss, whose backward departs: it, or code between it
        and the one after. Where the suspect's graph is cut, the layers from the cut to the loss
        lack gradients, too: the first of them is named, and the cut is further from the loss."""
        return next((check for check in self.gradients if check.departs), None)

    def table(self, part: str) -> pd.DataFrame:
        """``"outputs"`` or ``"gradients"``: a row for each call of a layer."""
        checks = getattr(self, part)
        return pd.DataFrame([{**vars(check), "departs": check.departs} for check in checks])


def twins(model: nn.Module, device: torch.device) -> tuple[nn.Module, nn.Module]:
    """Two copies with the same weights: in float64 on the CPU, and in float32 on the device."""
    return copy.deepcopy(model).to("cpu", torch.float64), copy.deepcopy(model).to(
        device, torch.float32
    )


def compare_layers(
    reference: nn.Module,
    suspect: nn.Module,
    batch: tuple[Tensor, Tensor],
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> LayerComparison:
    """Run both models on the batch, each where it lies, and compare every layer.

    TF32 is off meanwhile. Gradients are cleared; running statistics move, as in any step.

    Args:
        reference: on the CPU. In float64, the tolerance of each layer is :data:`MARGIN` times what
            a run in float32 on the CPU is off there, at least :data:`OUTPUT_LEAST` or
            :data:`GRADIENT_LEAST`, and at most :data:`OUTPUT_MOST` or :data:`GRADIENT_MOST`. In
            float32, it is the least ones.
        suspect: with the same layers and weights, such as the second of :func:`twins`.
        batch: inputs and labels; moved and cast like the models.
        loss_fn: of what the model gives and the labels.

    Raises:
        ValueError: where dropout is active, or two equal runs on the CPU differ in any bit, since
            devices draw different random numbers; where rounding alone does too much; where the
            two models do not run the same layers; where a model holds no floating-point tensor
            that says on which device it lies.
    """
    with _without_tf32():
        rounded, again = (_run(copy.deepcopy(reference).float(), batch, loss_fn) for _ in range(2))
        expected, got = _run(reference, batch, loss_fn), _run(suspect, batch, loss_fn)
    for part in ("outputs", "gradients"):
        for call, error in zip(rounded.calls(part), _errors(again, rounded, part), strict=True):
            if error:
                raise ValueError(
                    f"{call} differs between two equal runs on the CPU: does it draw random "
                    "numbers?"
                )
    return LayerComparison(
        _checks(expected, got, rounded, "outputs", OUTPUT_LEAST, OUTPUT_MOST),
        _checks(expected, got, rounded, "gradients", GRADIENT_LEAST, GRADIENT_MOST),
    )


@dataclass
class _Call:
    """One call of a module: float64 copies on the CPU of what it gave and of its gradients."""

    name: str
    kind: str
    outputs: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """By input, and one for all of the module's own parameters, by their names."""

    def __str__(self) -> str:
        return f"{self.name or 'the model'} ({self.kind})"


@dataclass
class _Trace:
    """The calls of a run, in the order in which they started and in which they ended."""

    started: list[_Call] = field(default_factory=list)
    ended: list[_Call] = field(default_factory=list)

    def calls(self, part: str) -> list[_Call]:
        """In the order in which outputs or gradients come."""
        return self.ended if part == "outputs" else self.started[::-1]


@contextmanager
def _without_tf32() -> Iterator[None]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul.allow_tf32
    kept = {name: getattr(cudnn, name) for name in ("enabled", "benchmark", "deterministic")}
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        # Not by assignment, which torch's own testing tools forbid.
        with cudnn.flags(**kept, allow_tf32=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul


def _run(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
) -> _Trace:
    active = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    if any(module.p > 0 and module.training for module in active):
        raise ValueError("dropout is active, and each device draws its own numbers: set p to 0")
    held = chain(model.parameters(), model.buffers())
    example = next((tensor for tensor in held if tensor.is_floating_point()), None)
    if example is None:
        raise ValueError("a model without parameters does not say on which device it lies")
    inputs, labels = (_like(example, tensor) for tensor in batch)
    if inputs.is_floating_point():
        inputs.requires_grad_()
    trace, first_calls, handles = _Trace(), {}, []
    try:
        for name, module in model.named_modules():
            handles += _hook(module, name, trace, first_calls)
        model.zero_grad()
        loss = loss_fn(model(inputs), labels)
        # A graph that is cut before the loss gives no gradients, which the comparison then shows.
        if loss.requires_grad:
            loss.backward()
        for module, call in first_calls.items():
            own = dict(module.named_parameters(recurse=False))
            own = {name: _kept(p.grad).flatten() for name, p in own.items() if p.grad is not None}
            if own:
                # As one: a bias before a batch norm has a gradient of nothing but rounding.
                call.gradients[", ".join(own)] = torch.cat(list(own.values()))
    finally:
        for handle in handles:
            handle.remove()
        model.zero_grad()
    return trace


def _hook(module: nn.Module, name: str, trace: _Trace, first_calls: dict[nn.Module, _Call]) -> list:
    """Note each call of the module. Its inputs are cloned, so that each clone gets the gradient
    that comes from this module alone, and a module that works in place changes nothing else."""
    running: list[_Call] = []

    def enter(_module, args, kwargs):
        call = _Call(name, type(module).__name__)
        first_calls.setdefault(module, call)
        trace.started.append(call)
        running.append(call)
        numbers = count()

        def watched(value: object) -> object:
            key = f"input {next(numbers)}"
            if not isinstance(value, Tensor) or not value.requires_grad:
                return value
            value = value.clone()
            # Under no_grad, the clone has none.
            if value.requires_grad:
                value.register_hook(lambda grad: call.gradients.__setitem__(key, _kept(grad)))
            return value

        return tree_map(watched, args), tree_map(watched, kwargs)

    def leave(_module, _args, output):
        call = running.pop()
        trace.ended.append(call)
        for number, leaf in enumerate(tree_leaves(output)):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                call.outputs[f"output {number}"] = _kept(leaf)

    return [
        module.register_forward_pre_hook(enter, with_kwargs=True),
        module.register_forward_hook(leave),
    ]


def _checks(
    expected: _Trace, got: _Trace, rounded: _Trace, part: str, least: float, most: float
) -> tuple[Check, ...]:
    checks = []
    calls, errors = expected.calls(part), _errors(got, expected, part)
    # A reference in float32 is its own run in float32: no rounding there.
    for call, error, rounding in zip(calls, errors, _errors(rounded, expected, part), strict=True):
        if rounding > most:
            raise ValueError(
                f"{call} differs too much from itself in float32, on the CPU, for its {part} to be "
                "compared"
            )
        allowed = min(max(least, MARGIN * rounding), most)
        checks.append(Check(call.name, call.kind, error, allowed))
    return tuple(checks)


def _errors(found: _Trace, right: _Trace, part: str) -> list[float]:
    """Of each call, the largest relative error among its tensors; 0 where there are none."""
    pairs = list(zip(found.calls(part), right.calls(part), strict=False))
    same = len(found.calls(part)) == len(right.calls(part)) == len(pairs)
    if not same or any(f.name != r.name for f, r in pairs):
        raise ValueError(
            "the two models do not run the same layers in the same order, or not at each run"
        )
    errors = []
    for tensors, references in ((getattr(f, part), getattr(r, part)) for f, r in pairs):
        if tensors.keys() != references.keys():
            errors.append(math.inf)
        else:
            each = (_error(tensors[key], references[key]) for key in references)
            errors.append(max(each, default=0.0))
    return errors


def _error(found: Tensor, right: Tensor) -> float:
    """Norm of the difference over the norm of what is right, both of the finite values."""
    if found.shape != right.shape:
        return math.inf
    finite = found.isfinite() & right.isfinite()
    # A mask of -inf on both sides is right.
    equal = (found == right) | (found.isnan() & right.isnan())
    if not (finite | equal).all():
        return math.inf
    difference, size = (found - right)[finite].norm().item(), right[finite].norm().item()
    if math.isinf(size):
        return math.inf
    # Zero where zero is expected is right; anything else there is wholly wrong.
    return difference / size if size else float(difference > 0)


def _like(example: Tensor, tensor: Tensor) -> Tensor:
    """On the example's device, and of its type unless it holds whole numbers; a copy."""
    dtype = example.dtype if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(example.device, dtype, copy=True)


def _kept(tensor: Tensor) -> Tensor:
    """A copy that later work in place does not reach."""
    return tensor.detach().cpu().to(torch.float64, copy=True)
