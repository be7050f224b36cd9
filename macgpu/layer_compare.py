"""Finds the layer that computes wrongly: a model on two devices, compared layer by layer.

The same weights and the same batch go through both models, once forward and once backward, with
hooks on every module. A wrong layer spoils all that follow it, so the *first* one that departs is
named: in the order of execution for outputs, in the order of backward for gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from macgpu.measure.steps import set_tf32

MARGIN = 10.0
"""A layer may be off by so many times what float32 on the CPU is off at the same layer."""
OUTPUT_LEAST, GRADIENT_LEAST = 1e-4, 1e-2
"""What is allowed at least, as a share of the layer's own size. A rounding that turns a ReLU on or
off changes single gradients wholly, at random, on a device that is right."""
UNSTABLE = 0.1
"""Where rounding alone does more than this to an output, nothing can be compared."""


@dataclass(frozen=True)
class Check:
    """One call of one layer, compared."""

    layer: str
    """The module's name in the model, such as ``"layer2.0.conv1"``; the model itself is ``""``."""
    kind: str
    error: float
    """Norm of the difference over the norm of the reference; NaN where a value is one."""
    allowed: float

    @property
    def departs(self) -> bool:
        # NaN departs, too.
        return not self.error <= self.allowed

    def __str__(self) -> str:
        return (
            f"{self.layer or 'the model'} ({self.kind}) is off by {self.error:.2g}, "
            f"{self.allowed:.2g} allowed"
        )


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
        and the one after."""
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

    TF32 is switched off. Gradients are cleared; running statistics move, as in any step.

    Args:
        reference: on the CPU. In float64, the tolerance of each layer is :data:`MARGIN` times what
            a run in float32 on the CPU is off there, and at least :data:`OUTPUT_LEAST` or
            :data:`GRADIENT_LEAST`. In float32, it is the least ones.
        suspect: with the same layers and weights, such as the second of :func:`twins`.
        batch: inputs and labels; moved and cast like the models.
        loss_fn: of what the model gives and the labels.

    Raises:
        ValueError: where dropout is active, since devices draw different random numbers; where the
            reference differs from its own run in float32, for the same reason or because nothing
            of it survives rounding; where the two models do not run the same layers.
    """
    expected, got = _run(reference, batch, loss_fn), _run(suspect, batch, loss_fn)
    if [call.name for call in expected.ended] != [call.name for call in got.ended]:
        raise ValueError("the two models do not run the same layers in the same order")
    rounded = None
    if next(reference.parameters()).dtype == torch.float64:
        rounded = _run(copy.deepcopy(reference).float(), batch, loss_fn)
        for check in _checks(expected.ended, rounded.ended, None, "outputs", UNSTABLE):
            if check.departs:
                raise ValueError(
                    f"{check.layer} ({check.kind}) differs by {check.error:.0%} from itself in "
                    "float32, on the CPU: does it draw random numbers?"
                )
    return LayerComparison(
        _checks(expected.ended, got.ended, rounded and rounded.ended, "outputs", OUTPUT_LEAST),
        _checks(
            expected.started[::-1],
            got.started[::-1],
            rounded and rounded.started[::-1],
            "gradients",
            GRADIENT_LEAST,
        ),
    )


@dataclass
class _Call:
    """One call of a module: float64 copies on the CPU of what it gave and of its gradients."""

    name: str
    kind: str
    outputs: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)


@dataclass
class _Trace:
    """The calls of a run, in the order in which they started and in which they ended."""

    started: list[_Call] = field(default_factory=list)
    ended: list[_Call] = field(default_factory=list)


def _run(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
) -> _Trace:
    active = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    if any(module.p > 0 and module.training for module in active):
        raise ValueError("dropout is active, and each device draws its own numbers: set p to 0")
    set_tf32(False)
    trace, first_calls = _Trace(), {}
    handles = []
    for name, module in model.named_modules():
        handles += _hook(module, name, trace, first_calls)
    parameter = next(model.parameters())
    inputs, labels = (_like(parameter, tensor) for tensor in batch)
    if inputs.is_floating_point():
        inputs.requires_grad_()
    model.zero_grad()
    loss_fn(model(inputs), labels).backward()
    for module, call in first_calls.items():
        own = [p.grad for p in module.parameters(recurse=False) if p.grad is not None]
        if own:
            # As one: a bias before a batch norm has a gradient of nothing but rounding.
            call.gradients.append(torch.cat([_kept(gradient).flatten() for gradient in own]))
    model.zero_grad()
    for handle in handles:
        handle.remove()
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

        def watched(tensor: Tensor) -> Tensor:
            tensor = tensor.clone()
            tensor.register_hook(lambda gradient: call.gradients.append(_kept(gradient)))
            return tensor

        def clone(value: object) -> object:
            return watched(value) if isinstance(value, Tensor) and value.requires_grad else value

        return tree_map(clone, args), tree_map(clone, kwargs)

    def leave(_module, _args, output):
        call = running.pop()
        trace.ended.append(call)
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
        call.outputs += [_kept(tensor) for tensor in tensors if tensor.is_floating_point()]

    return [
        module.register_forward_pre_hook(enter, with_kwargs=True),
        module.register_forward_hook(leave),
    ]


def _checks(
    expected: list[_Call],
    got: list[_Call],
    rounded: list[_Call] | None,
    part: str,
    least: float,
) -> tuple[Check, ...]:
    checks = []
    for index, (right, found) in enumerate(zip(expected, got, strict=True)):
        allowed = least
        if rounded:
            allowed = max(least, MARGIN * _error(rounded[index], right, part))
        checks.append(Check(right.name, right.kind, _error(found, right, part), allowed))
    return tuple(checks)


def _error(found: _Call, right: _Call, part: str) -> float:
    """The largest relative error among a call's tensors; 0 where there are none."""
    errors = [torch.zeros((), dtype=torch.float64)]
    for f, r in zip(getattr(found, part), getattr(right, part), strict=True):
        difference, size = (f - r).norm(), r.norm()
        # Zero where zero is expected is right; anything else there is wholly wrong.
        errors.append(difference / size if size else difference.sign())
    # Python's max() would drop a NaN.
    return torch.stack(errors).max().item()


def _like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """On the parameter's device, and of its type unless it holds whole numbers; a copy."""
    dtype = parameter.dtype if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to(parameter.device, dtype, copy=True)


def _kept(tensor: Tensor) -> Tensor:
    """A copy that later work in place does not reach."""
    return tensor.detach().cpu().to(torch.float64, copy=True)
