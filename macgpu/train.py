"""The training loop that every later chapter uses.

It is device-agnostic, and nothing in a step waits for the device: losses and guesses are
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
Forward = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From the inputs and the labels of a batch to its mean loss and its logits."""


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
    forward: Forward | None = None,
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
        forward: calls the model; :func:`plain_forward` by default.
        scheduler: stepped after every optimizer step.
        report: is given one line of plain text an epoch; ``None`` for silence.
    """
    parameter = next(model.parameters())
    device = parameter.device
    forward = forward or plain_forward(model)
    seed_everything(seed)
    history = History()
    model.train()
    for number in range(1, epochs + 1):
        losses, guesses, answers = [], [], []
        synchronize(device)
        start = time.perf_counter()
        for inputs, labels in batches:
            inputs, labels = _like(parameter, inputs), labels.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss, logits = forward(inputs, labels)
            loss.backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            # A copy: a compiler's CUDA graphs write the next loss into the same memory.
            losses.append(loss.detach().clone())
            guesses.append(logits.argmax(1))
            answers.append(labels)
        synchronize(device)
        seconds = time.perf_counter() - start
        step_losses = torch.stack(losses).tolist()
        hits = (torch.cat(guesses) == torch.cat(answers)).sum().item()
        sizes = [len(labels) for labels in answers]
        samples = sum(sizes)
        history.step_losses += step_losses
        mean_loss = sum(a * b for a, b in zip(step_losses, sizes, strict=True)) / samples
        epoch = Epoch(number, mean_loss, hits / samples, seconds, samples)
        history.epochs.append(epoch)
        if report is not None:
            report(str(epoch))
    return history


def plain_forward(model: nn.Module) -> Forward:
    """The cross-entropy of what the model gives, as it is."""

    def forward(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(inputs)
        return F.cross_entropy(logits, labels), logits.detach()

    return forward


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
