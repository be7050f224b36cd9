"""Correct first: a device's results beside the CPU's, before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from macgpu.measure.steps import FIRST, LEARNING_RATE, set_tf32
from macgpu.models import Case
from macgpu.words import counted


@dataclass(frozen=True)
class Tolerance:
    """The largest error that passes, each relative; see :class:`Parity` for what to.

    Gradients of a deep network with batch norms differ by up to 2 % between float32 and float64
    on the CPU itself; a wrong operator is off by a multiple of that.
    """

    loss: float = 1e-4
    outputs: float = 1e-3
    gradients: float = 5e-2
    curve: float = 2e-2


@dataclass(frozen=True)
class Parity:
    """How far a device's results are from the reference's; ``None`` where not compared."""

    reference: str
    loss: float | None
    """Difference of the first loss, over the reference's."""
    outputs: float | None
    """Norm of the difference of the logits, over the norm of the reference's."""
    gradients: float | None
    """The same of the gradient of the parameter where it is largest; a gradient that is nothing
    but rounding is set against the typical gradient instead of against itself."""
    curve: float | None
    """Largest difference of a loss of the short run, over the reference's first."""
    tolerance: Tolerance
    difference: str | None
    """``None`` where all is within tolerance; else what is not, by how much."""

    @property
    def passed(self) -> bool:
        return self.difference is None


def gate(
    case: Case,
    device: torch.device,
    batch_size: int = 2,
    steps: int = FIRST,
    tolerance: Tolerance = Tolerance(),  # noqa: B008  (frozen)
) -> Parity:
    """Compare loss, logits, gradients and a short run on ``device`` in float32 with the CPU's.

    The reference is the CPU in float32; where the device is the CPU, it is the CPU in float64.
    TF32 is off while the device computes.
    """
    reference_dtype = torch.float64 if device.type == "cpu" else torch.float32
    got = _run(case, device, torch.float32, batch_size, steps)
    expected = _run(case, torch.device("cpu"), reference_dtype, batch_size, steps)
    errors = {
        "loss": abs(got.losses[0] - expected.losses[0]) / abs(expected.losses[0]),
        "outputs": _relative(got.outputs, expected.outputs),
        "gradients": _worst_gradient(got.gradients, expected.gradients),
        "curve": curve_error(got.losses, expected.losses),
    }
    name = str(reference_dtype).removeprefix("torch.")
    reference = f"the CPU in {name}, batch {batch_size}, {counted(steps, 'step')}"
    return _judge(reference, errors, tolerance)


def same_curve(losses: list[float], expected: list[float], reference: str, within: float) -> Parity:
    """Compare only the losses of a short run: of a tuned step beside those of the plain one."""
    errors = {"curve": curve_error(losses, expected)}
    return _judge(reference, errors, Tolerance(curve=within))


def curve_error(losses: list[float], expected: list[float]) -> float:
    """Largest difference of two curves, over the first expected loss; NaN where one is NaN."""
    differences = torch.tensor(losses).double() - torch.tensor(expected).double()
    return (differences.abs().max() / abs(expected[0])).item()


@dataclass(frozen=True)
class _Run:
    outputs: Tensor
    gradients: list[Tensor]
    losses: list[float]


def _run(case: Case, device: torch.device, dtype: torch.dtype, batch_size: int, steps: int) -> _Run:
    set_tf32(False)
    model = case.build().to(device, dtype)
    inputs, labels = (tensor.to(device) for tensor in case.batch(batch_size))
    if inputs.is_floating_point():
        inputs = inputs.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses, outputs, gradients = [], None, None
    for _ in range(steps):
        optimizer.zero_grad()
        logits = model(inputs)
        loss = case.loss(logits, labels)
        loss.backward()
        if outputs is None:
            outputs = logits.detach().cpu().double()
            gradients = _gradients(model)
        optimizer.step()
        losses.append(loss.detach())
    return _Run(outputs, gradients, torch.stack(losses).tolist())


def _gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.cpu().double() for p in model.parameters() if p.grad is not None]


def _relative(got: Tensor, expected: Tensor) -> float:
    return ((got - expected).norm() / expected.norm()).item()


def _worst_gradient(got: list[Tensor], expected: list[Tensor]) -> float:
    """A bias before a batch norm has a gradient of zero, so each is set against at least a
    thousandth of the typical size (root mean square) of all."""
    count = sum(gradient.numel() for gradient in expected)
    typical = (sum(gradient.square().sum() for gradient in expected) / count).sqrt()
    errors = []
    for g, e in zip(got, expected, strict=True):
        least = 1e-3 * typical * e.numel() ** 0.5
        errors.append(((g - e).norm() / torch.maximum(e.norm(), least)).item())
    # NaN must not get lost: max() of Python would drop it.
    return torch.tensor(errors).max().item()


def _judge(reference: str, errors: dict[str, float], tolerance: Tolerance) -> Parity:
    beyond = [
        f"{name} off by {error:.2g} ({getattr(tolerance, name):.2g} allowed)"
        for name, error in errors.items()
        if not error <= getattr(tolerance, name)
    ]
    finite = {name: error if abs(error) < float("inf") else None for name, error in errors.items()}
    return Parity(
        reference=reference,
        **{name: finite.get(name) for name in ("loss", "outputs", "gradients", "curve")},
        tolerance=tolerance,
        difference="; ".join(beyond) or None,
    )
