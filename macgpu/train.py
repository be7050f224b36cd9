"""The training loop that every later chapter uses.

It is device-agnostic, and nothing in a step waits for the device: losses and hits are
gathered in tensors there, and read once an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macgpu.device import seed_everything, synchronize
from macgpu.words import percent

Batch = tuple[Tensor, Tensor]


@dataclass
class Epoch:
    """What one pass over the data gave."""

    number: int
    loss: float
    """Mean over the pictures."""
    accuracy: float
    """Share of training pictures classified rightly while training, 0 to 1."""
    seconds: float
    """Wall clock, synchronised at both ends."""
    samples: int

    def __str__(self) -> str:
        return (
            f"epoch {self.number}: loss {self.loss:.3f}, accuracy {percent(self.accuracy, 1)}, "
            f"{self.samples / self.seconds:,.0f} images/s"
        )


@dataclass
class History:
    """A training run: its epochs, and the loss of every step."""

    epochs: list[Epoch] = field(default_factory=list)
    step_losses: list[float] = field(default_factory=list)


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    optimizer: torch.optim.Optimizer,
    epochs: int,
    seed: int = 0,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    report: Callable[[str], None] | None = print,
) -> History:
    """Train a classifier where its parameters lie, in their data type.

    Args:
        model: maps inputs (batch, …) to logits (batch, classes).
        batches: yields (inputs, labels); iterated once an epoch. Tensors that lie elsewhere are
            moved to the model's device.
        optimizer: over the model's parameters.
        epochs: passes over ``batches``.
        seed: of what is drawn at random while training, such as dropout. The weights and the
            order of the batches were decided by whoever made them.
        loss_fn: of logits and labels, the mean over a batch.
        scheduler: stepped after every optimizer step.
        report: is given one line of plain text an epoch; ``None`` for silence.
    """
    parameter = next(model.parameters())
    device = parameter.device
    seed_everything(seed)
    history = History()
    model.train()
    for number in range(1, epochs + 1):
        losses, sizes, hits = [], [], torch.zeros((), dtype=torch.int64, device=device)
        synchronize(device)
        start = time.perf_counter()
        for inputs, labels in batches:
            inputs, labels = _like(parameter, inputs), labels.to(device)
            optimizer.zero_grad(set_to_none=True)
            logits = model(inputs)
            loss = loss_fn(logits, labels)
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            losses.append(loss.detach())
            sizes.append(len(labels))
            hits += (logits.detach().argmax(1) == labels).sum()
        synchronize(device)
        seconds = time.perf_counter() - start
        step_losses = torch.stack(losses).tolist()
        samples = sum(sizes)
        history.step_losses += step_losses
        mean_loss = sum(a * b for a, b in zip(step_losses, sizes, strict=True)) / samples
        epoch = Epoch(number, mean_loss, hits.item() / samples, seconds, samples)
        history.epochs.append(epoch)
        if report is not None:
            report(str(epoch))
    return history


@torch.no_grad()
def predict(model: nn.Module, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """Logits (N, classes) and labels (N,) over all batches, on the CPU. In evaluation mode."""
    was_training = model.training
    model.eval()
    parameter = next(model.parameters())
    logits, labels = [], []
    for inputs, batch_labels in batches:
        logits.append(model(_like(parameter, inputs)))
        labels.append(batch_labels)
    model.train(was_training)
    return torch.cat(logits).cpu(), torch.cat(labels).cpu()


def accuracy(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Share of labels that the largest logit hits, 0 to 1."""
    logits, labels = predict(model, batches)
    return (logits.argmax(1) == labels).double().mean().item()


def _like(parameter: Tensor, inputs: Tensor) -> Tensor:
    """Inputs where the parameter lies; of its data type too, unless they are whole numbers."""
    dtype = parameter.dtype if inputs.is_floating_point() else inputs.dtype
    return inputs.to(parameter.device, dtype)
