"""Classifying pictures with ResNet-18: the data by name, the recipe, training, and scores.

The loop is :func:`macgpu.train.fit`; what the recipe adds hangs on its parts: the batches are
augmented, the loss is smoothed, a scheduler moves the rate, a hook of the optimizer averages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ConstantLR, LRScheduler, OneCycleLR

from macgpu import data, train
from macgpu.data import Batches, DataError, Pictures
from macgpu.device import seed_everything
from macgpu.jobs.augment import Augmentation, Augmented, Normalise
from macgpu.jobs.average import MovingAverage
from macgpu.jobs.forward import forward_of
from macgpu.jobs.resnet import resnet18_small
from macgpu.measure.jobs import SeedRun
from macgpu.measure.steps import Options

CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
NAMES = {"subset": data.CLASSES, "fashion-mnist": data.CLASSES, "cifar-10": CIFAR_CLASSES}
"""By data set: what its classes are called."""

EVALUATED = 500
"""Pictures a batch where nothing is learned."""


def pictures(name: str, folder: Path, download: bool = False) -> tuple[Pictures, Pictures]:
    """A data set by name: pictures to train on, and pictures to test on.

    Args:
        name: ``"subset"`` (shipped), ``"fashion-mnist"`` or ``"cifar-10"``.
        folder: where the full sets lie; see :mod:`macgpu.data`.
        download: fetch a full set that is not there.

    Raises:
        DataError: for another name, and where the set is not there.
    """
    if name == "subset":
        return data.fashion_subset()
    if name not in NAMES:
        raise DataError(f"no data set {name!r}: choose {', '.join(NAMES)}")
    load = data.fashion_mnist if name == "fashion-mnist" else data.cifar10
    return load(Path(folder), download)


@dataclass(frozen=True)
class Recipe:
    """How the network is trained and asked."""

    epochs: int = 30
    width: int = 64
    """Of the network: 64 is ResNet-18."""
    batch_size: int = 500
    """Divides the 60,000 of Fashion-MNIST and the 50,000 of CIFAR-10: every batch has one shape,
    and a compiler works once."""
    peak_rate: float = 0.4
    """The highest learning rate of SGD with Nesterov's momentum."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    one_cycle: bool = True
    """Up to the peak, and down to nothing (Smith and Topin, 2018). Without: half of the peak all
    the time, which is about the cycle's mean."""
    label_smoothing: float = 0.1
    augmentation: Augmentation = Augmentation()
    averaged: float | None = 0.02
    """The weights that are asked are an exponential moving average over about this share of all
    steps; ``None`` for the last weights."""
    flip_at_test: bool = True
    """The logits are the mean of those for a picture and for its mirror image."""

    def __str__(self) -> str:
        changed = self.augmentation
        parts = [
            f"width {self.width}",
            f"{self.epochs} epochs of batches of {self.batch_size}",
            f"{'one cycle up to' if self.one_cycle else 'constant, half of'} {self.peak_rate:g}",
            f"momentum {self.momentum:g}",
            f"weight decay {self.weight_decay:g}",
            f"label smoothing {self.label_smoothing:g}",
            f"shift {changed.padding}, {'flip' if changed.flip else 'no flip'}, "
            f"cutout {changed.cutout}",
        ]
        parts += [f"weights averaged over {self.averaged:.0%}"] if self.averaged else []
        parts += ["flip at test"] if self.flip_at_test else []
        return ", ".join(parts)


PARTS = {
    "one-cycle rate": {"one_cycle": False},
    "label smoothing": {"label_smoothing": 0.0},
    "augmentation": {"augmentation": Augmentation(padding=0, flip=False, cutout=0)},
    "averaged weights": {"averaged": None},
    "flip at test": {"flip_at_test": False},
}
"""By name, each part of the recipe, and what takes it away."""

AFTERWARDS = ("averaged weights", "flip at test")
"""Those of them that leave the training as it is: a run is scored without them, too."""
TRAINED = tuple(part for part in PARTS if part not in AFTERWARDS)


def without(recipe: Recipe, part: str) -> Recipe:
    """The recipe less one of :data:`PARTS`."""
    return replace(recipe, **PARTS[part])


class WithMirror(nn.Module):
    """The mean of a model's logits for pictures (N, channels, height, width) and mirrored ones."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return (self.model(images) + self.model(images.flip(3))) / 2


@dataclass
class Run:
    """A training run.

    Attributes:
        model: the network that the recipe asks, on the device.
        normalise: what it takes pictures through.
        scores: after each epoch, the share of test pictures classified rightly, 0 to 1.
        seconds: of each epoch's training, without the test; synchronised at both ends.
        without: the last score without each part of :data:`AFTERWARDS` that the recipe has.
    """

    model: nn.Module
    normalise: Normalise
    scores: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    without: dict[str, float] = field(default_factory=dict)

    def kept(self, seed: int) -> SeedRun:
        """What a record keeps of it."""
        return SeedRun(seed, tuple(self.scores), tuple(self.seconds), dict(self.without))


@dataclass
class Training:
    """All that one run trains with; :meth:`epoch` goes through the pictures once."""

    model: nn.Module
    forward: train.Forward
    averaged: MovingAverage | None
    batches: Augmented
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler
    seed: int

    def epoch(self) -> train.Epoch:
        history = train.fit(
            self.model,
            self.batches,
            self.optimizer,
            1,
            self.seed,
            self.forward,
            self.scheduler,
            report=None,
        )
        return history.epochs[0]

    @property
    def asked(self) -> nn.Module:
        """The network with the averaged weights, if the recipe averages."""
        return self.model if self.averaged is None else self.averaged.module


def prepare(
    recipe: Recipe,
    training: Pictures,
    normalise: Normalise,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
    classes: int = 10,
) -> Training:
    """A network and what trains it, where the pictures lie; the seed decides all that is drawn."""
    device = training.images.device
    seed_everything(seed)
    model = resnet18_small(training.images.shape[1], classes, recipe.width)
    layout = torch.channels_last if options.channels_last else torch.preserve_format
    model = model.to(device, memory_format=layout)
    forward = forward_of(model, options, False, recipe.label_smoothing)
    compiled = options.compiled is not None
    batches = Augmented(training, recipe.batch_size, seed, normalise, recipe.augmentation, compiled)
    optimizer = torch.optim.SGD(
        model.parameters(),
        recipe.peak_rate,
        recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=True,
        fused=options.fused or None,
    )
    steps = recipe.epochs * len(batches)
    scheduler = _scheduler(recipe, optimizer, steps)
    averaged = None
    if recipe.averaged is not None:
        decay = 1 - 1 / max(1.0, recipe.averaged * steps)
        averaged = MovingAverage(model, decay)
        optimizer.register_step_post_hook(lambda *_: averaged.update(model))
    return Training(model, forward, averaged, batches, optimizer, scheduler, seed)


def _scheduler(recipe: Recipe, optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler:
    if not recipe.one_cycle:
        return ConstantLR(optimizer, factor=0.5, total_iters=steps + 1)
    # A hair over a fifth: of five steps the rise would have no length, and torch divides by it.
    rise = 0.2 + 1e-6
    return OneCycleLR(optimizer, recipe.peak_rate, steps, pct_start=rise, cycle_momentum=False)


def run(
    recipe: Recipe,
    training: Pictures,
    test: Pictures,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
    classes: int = 10,
    report: Callable[[str], None] | None = print,
) -> Run:
    """Train by the recipe where the pictures lie, with a test after every epoch.

    Args:
        recipe: how.
        training, test: on the device.
        seed: of weights, order and augmentation.
        options: how a step is computed.
        classes: that labels are drawn from.
        report: is given one line of plain text an epoch; ``None`` for silence.
    """
    normalise = Normalise.of(training)
    prepared = prepare(recipe, training, normalise, seed, options, classes)
    batches = Batches(test, EVALUATED, prepare=normalise)
    done = Run(prepared.asked, normalise)
    for number in range(1, recipe.epochs + 1):
        epoch = prepared.epoch()
        done.seconds.append(epoch.seconds)
        done.scores.append(_score(prepared.asked, batches, recipe.flip_at_test))
        if report is not None:
            report(f"epoch {number}: loss {epoch.loss:.3f}, test {done.scores[-1]:.2%}")
    if recipe.averaged is not None:
        last = _score(prepared.model, batches, recipe.flip_at_test)
        done.without["averaged weights"] = last
    if recipe.flip_at_test:
        done.without["flip at test"] = _score(prepared.asked, batches, False)
    return done


def last_score(
    recipe: Recipe,
    training: Pictures,
    test: Pictures,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
    classes: int = 10,
) -> float:
    """Train as :func:`run` does, with one test at the end: its last score, for less."""
    normalise = Normalise.of(training)
    prepared = prepare(recipe, training, normalise, seed, options, classes)
    for _ in range(recipe.epochs):
        prepared.epoch()
    batches = Batches(test, EVALUATED, prepare=normalise)
    return _score(prepared.asked, batches, recipe.flip_at_test)


def _score(model: nn.Module, batches: Iterable[train.Batch], mirrored: bool) -> float:
    return train.accuracy(WithMirror(model) if mirrored else model, batches)


def options_for(device: torch.device) -> Options:
    """How a step is computed on this device where nothing else is asked for.

    NVIDIA's cards have units for bfloat16. A Mac's gain depends on its chip, and float16 needs a
    loss scale, so float32 stays there, and on the CPU.
    """
    if device.type == "cuda":
        return Options(autocast="bfloat16", channels_last=True, fused=True)
    return Options()
