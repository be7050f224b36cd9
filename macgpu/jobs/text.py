"""Judging sentences with BERT: the recipe, training, and scores.

The loop is :func:`macgpu.train.fit`; what the recipe adds hangs on its parts: the batches come in
few lengths, a scheduler warms the rate up, a hook of the optimizer clips the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import get_linear_schedule_with_warmup

from macgpu import train
from macgpu.device import seed_everything
from macgpu.jobs import bert
from macgpu.jobs.bert import Bert
from macgpu.jobs.forward import forward_of
from macgpu.jobs.tokens import Padding, SentenceBatches, Sentences, train_tokenizer
from macgpu.measure.jobs import SeedRun
from macgpu.measure.steps import Options

EVALUATED = 200
"""Sentences a batch where nothing is learned."""


@dataclass(frozen=True)
class Recipe:
    """How the network is trained."""

    size: str = "base"
    """One of :data:`macgpu.jobs.bert.SIZES`."""
    vocabulary: int = 8000
    """Tokens that are made of the training sentences, at most."""
    longest: int = 64
    """Tokens of a sentence; what is longer is cut."""
    epochs: int = 10
    batch_size: int = 64
    peak_rate: float = 1e-4
    """The highest learning rate of AdamW."""
    warm_up: float = 0.1
    """The share of all steps in which the rate rises to the peak; then it falls to nothing, both
    in a straight line."""
    weight_decay: float = 0.01
    """Of matrices; biases and norms are left alone, as in BERT's own training."""
    clip: float = 1.0
    """The most that the norm of all gradients together may be."""
    padding: Padding = "buckets"
    pretrained: str | None = None
    """Start from weights and tokenizer of this name or folder; then size and vocabulary are
    theirs."""

    def __str__(self) -> str:
        start = self.pretrained or f"{self.size}, untrained, up to {self.vocabulary} tokens"
        return ", ".join(
            [
                f"BERT ({start})",
                f"{self.epochs} epochs of batches of {self.batch_size}",
                f"AdamW up to {self.peak_rate:g} after {self.warm_up:.0%} of the steps",
                f"weight decay {self.weight_decay:g}",
                f"gradients clipped at {self.clip:g}",
                f"at most {self.longest} tokens, padding: {self.padding}",
            ]
        )


PARTS = {"warm-up": {"warm_up": 0.0}, "buckets": {"padding": "fixed"}}
"""By name, each part of the recipe that can be taken away, and what takes it away."""


def without(recipe: Recipe, part: str) -> Recipe:
    """The recipe less one of :data:`PARTS`."""
    return replace(recipe, **PARTS[part])


def tokenizer(recipe: Recipe, texts: Iterable[str]) -> Tokenizer:
    """The recipe's tokenizer: trained on these texts, or the one of the pretrained weights.

    Raises:
        DataError: where the latter cannot be had.
    """
    if recipe.pretrained:
        return bert.pretrained_tokenizer(recipe.pretrained)
    return train_tokenizer(texts, recipe.vocabulary)


@dataclass
class Run:
    """A training run.

    Attributes:
        model: the network, on the device.
        scores: after each epoch, the share of test sentences judged rightly, 0 to 1.
        trained: the same for the training sentences, while training.
        seconds: of each epoch's training, without the test; synchronised at both ends.
    """

    model: Bert
    scores: list[float] = field(default_factory=list)
    trained: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def kept(self, seed: int) -> SeedRun:
        """What a record keeps of it."""
        return SeedRun(seed, tuple(self.scores), tuple(self.seconds))


@dataclass
class Training:
    """All that one run trains with; :meth:`epoch` goes through the sentences once."""

    model: Bert
    forward: train.Forward
    batches: SentenceBatches
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler
    seed: int
    epochs: int = 0
    """That are done."""

    def epoch(self) -> train.Epoch:
        # Each epoch draws its own dropout.
        seed = 1000 * self.seed + self.epochs
        self.epochs += 1
        history = train.fit(
            self.model,
            self.batches,
            self.optimizer,
            1,
            seed,
            self.forward,
            self.scheduler,
            report=None,
        )
        return history.epochs[0]


def prepare(
    recipe: Recipe,
    training: Sentences,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
) -> Training:
    """A network and what trains it, where the sentences lie; the seed decides all that is drawn.

    Raises:
        DataError: where pretrained weights cannot be had.
    """
    seed_everything(seed)
    if recipe.pretrained:
        model = bert.pretrained(recipe.pretrained)
    else:
        model = Bert(bert.configuration(recipe.size))
    model = model.to(training.ids.device)
    # Batches differ in length: the compiler leaves it open at once, and works once.
    forward = forward_of(model, options, dynamic=True)
    batches = SentenceBatches(training, recipe.batch_size, recipe.padding, seed)
    optimizer = torch.optim.AdamW(
        decayed(model, recipe.weight_decay), recipe.peak_rate, fused=options.fused or None
    )
    parameters = list(model.parameters())

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(parameters, recipe.clip)

    optimizer.register_step_pre_hook(clip)
    steps = recipe.epochs * len(batches)
    scheduler = get_linear_schedule_with_warmup(optimizer, round(recipe.warm_up * steps), steps)
    return Training(model, forward, batches, optimizer, scheduler, seed)


def decayed(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """The parameters in two groups: matrices, which decay, and vectors, which do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def run(
    recipe: Recipe,
    training: Sentences,
    test: Sentences,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
    report: Callable[[str], None] | None = print,
) -> Run:
    """Train by the recipe where the sentences lie, with a test after every epoch.

    Args:
        recipe: how.
        training, test: on the device.
        seed: of weights, order and dropout.
        options: how a step is computed.
        report: is given one line of plain text an epoch; ``None`` for silence.

    Raises:
        DataError: where pretrained weights cannot be had.
    """
    prepared = prepare(recipe, training, seed, options)
    batches = SentenceBatches(test, EVALUATED, "buckets")
    done = Run(prepared.model)
    for number in range(1, recipe.epochs + 1):
        epoch = prepared.epoch()
        done.seconds.append(epoch.seconds)
        done.trained.append(epoch.accuracy)
        done.scores.append(train.accuracy(prepared.model, batches))
        if report is not None:
            report(
                f"epoch {number}: loss {epoch.loss:.3f}, training {epoch.accuracy:.1%}, "
                f"test {done.scores[-1]:.1%}"
            )
    return done


def options_for(device: torch.device) -> Options:
    """How a step is computed on this device where nothing else is asked for.

    AdamW goes through all weights several times, and fused once. NVIDIA's cards have units
    for bfloat16.
    """
    return Options(autocast="bfloat16" if device.type == "cuda" else None, fused=True)
