"""Generating pictures with a DCGAN (Radford et al., 2016): networks, losses, training.

A generator makes pictures of random numbers; a discriminator scores pictures, real ones higher.
One iteration is one update of the discriminator and one of the generator, on the same batch of
generated pictures. Nothing in it waits for the device.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from macgpu.data import Batches, Pictures
from macgpu.device import seed_everything, synchronize
from macgpu.jobs.average import MovingAverage
from macgpu.measure.steps import Options


@dataclass(frozen=True)
class Recipe:
    """How the two networks are made and trained.

    Raises:
        ValueError: for a loss that is none, and sizes or rates that are too small.
    """

    iterations: int = 15_000
    width: int = 64
    """Channels of the discriminator's first layer."""
    latent: int = 64
    """Random numbers that a picture is made of."""
    batch_size: int = 100
    loss: Literal["usual", "hinge"] = "hinge"
    spectral: bool = True
    """Spectral norm in the discriminator (Miyato et al., 2018), in place of batch norm."""
    generator_rate: float = 2e-4
    discriminator_rate: float = 2e-4
    """Learning rates of Adam, whose momentum is 0.5 as in the paper."""
    averaged: float | None = 0.03
    """The generator that is asked has weights averaged over about this share of all iterations;
    ``None`` for the last weights."""

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"no loss {self.loss!r}: choose {' or '.join(LOSSES)}")
        for name in ("iterations", "width", "latent", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("generator_rate", "discriminator_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def __str__(self) -> str:
        parts = [
            f"width {self.width}, latent {self.latent}",
            f"{self.iterations:,} iterations of batches of {self.batch_size}",
            f"{self.loss} loss, {'spectral' if self.spectral else 'batch'} norm",
            f"rates {self.generator_rate:g} (generator), {self.discriminator_rate:g}",
        ]
        parts += [f"weights averaged over {self.averaged:.0%}"] if self.averaged else []
        return ", ".join(parts)


def generator(channels: int, side: int, width: int = 64, latent: int = 64) -> nn.Sequential:
    """A network from numbers (N, latent) to pictures (N, channels, side, side) of -1 to 1.

    Args:
        channels: of a picture, 1 or 3.
        side: of a picture in pixels; a multiple of 4, since two layers double it.
        width: of the discriminator beside it; the first layer here has four times as many channels.
        latent: numbers that a picture is made of.

    Raises:
        ValueError: for another side.
    """
    quarter = _quarter(side)
    model = nn.Sequential(
        nn.Linear(latent, 4 * width * quarter**2, bias=False),
        nn.Unflatten(1, (4 * width, quarter, quarter)),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(2 * width, channels, 4, 2, 1),
        nn.Tanh(),
    )
    return _drawn(model)


def discriminator(
    channels: int, side: int, width: int = 64, spectral: bool = True
) -> nn.Sequential:
    """A network from pictures (N, channels, side, side) of -1 to 1 to scores (N,).

    With ``spectral``, each layer's weight is divided by its largest singular value; without, the
    layer in the middle has batch norm, as in the paper.

    Raises:
        ValueError: where the side is no multiple of 4.
    """
    layers = (
        nn.Conv2d(channels, width, 4, 2, 1),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=spectral),
        nn.Linear(2 * width * _quarter(side) ** 2, 1),
    )
    for layer in layers:
        _drawn(layer)
        if spectral:
            spectral_norm(layer)
    first, middle, last = layers
    return nn.Sequential(
        first,
        nn.LeakyReLU(0.2, inplace=True),
        middle,
        nn.Identity() if spectral else nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Flatten(),
        last,
        nn.Flatten(0),
    )


def _quarter(side: int) -> int:
    if side < 4 or side % 4:
        raise ValueError(f"pictures of {side} pixels: the side must be a multiple of 4")
    return side // 4


def _drawn(model: nn.Module) -> nn.Module:
    """With weights as the paper draws them."""
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.normal_(layer.weight, std=0.02)
    return model


@dataclass(frozen=True)
class Loss:
    """What each network lowers: means over a batch of scores (N,)."""

    judging: Callable[[Tensor, Tensor], Tensor]
    """Of the discriminator: of its scores of real pictures and of generated ones."""
    fooling: Callable[[Tensor], Tensor]
    """Of the generator: of the scores of what it made."""


LOSSES = {
    # Cross-entropy of "real or not", in the form whose gradient does not vanish for the generator
    # (Goodfellow et al., 2014); softplus(-s) is -log of the probability that score s means.
    "usual": Loss(
        lambda real, made: F.softplus(-real).mean() + F.softplus(made).mean(),
        lambda made: F.softplus(-made).mean(),
    ),
    # Scores beyond the margin are not pushed any further (Lim and Ye, 2017).
    "hinge": Loss(
        lambda real, made: F.relu(1 - real).mean() + F.relu(1 + made).mean(),
        lambda made: -made.mean(),
    ),
}
"""By name."""


def scaled(images: Tensor) -> Tensor:
    """uint8 pictures as the networks take them: float32, -1 to 1, same shape."""
    return images.float().div_(127.5).sub_(1)


def as_bytes(pictures: Tensor) -> Tensor:
    """What :func:`scaled` came from: uint8, rounded."""
    return pictures.float().add(1).mul(127.5).round().clamp(0, 255).to(torch.uint8)


@dataclass
class Training:
    """All that one run trains with; :meth:`step` is one iteration."""

    generator: nn.Module
    discriminator: nn.Module
    averaged: MovingAverage | None
    optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer]
    """Of the generator and of the discriminator."""
    reals: Iterator[Tensor]
    """Batches of real pictures, uint8: scaled where the loss is, so that a compiler takes part."""
    latent: Callable[[], Tensor]
    generate: Callable[[Tensor], Tensor]
    judge: Callable[[Tensor, Tensor], Tensor]
    fool: Callable[[Tensor], Tensor]
    losses: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Of the discriminator and of the generator, iteration by iteration, on the device."""

    def step(self) -> None:
        made = self.generate(self.latent())
        self.losses.append((self.update_discriminator(made.detach()), self.update_generator(made)))

    def update_discriminator(self, made: Tensor) -> Tensor:
        """Better scores for the next real batch and for these pictures; gives the loss."""
        optimizer = self.optimizers[1]
        loss = self.judge(next(self.reals), made)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def update_generator(self, made: Tensor) -> Tensor:
        """Pictures with better scores than these, which still know how they were made."""
        optimizer = self.optimizers[0]
        # Its gradients are not needed here, and so not computed.
        self.discriminator.requires_grad_(False)
        loss = self.fool(made)
        loss.backward()
        self.discriminator.requires_grad_(True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if self.averaged is not None:
            self.averaged.update(self.generator)
        return loss.detach()

    @property
    def asked(self) -> nn.Module:
        """The generator with the averaged weights, if the recipe averages."""
        return self.generator if self.averaged is None else self.averaged.module


def prepare(
    recipe: Recipe,
    pictures: Pictures,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
) -> Training:
    """Two networks and what trains them, where the pictures lie; the seed decides what is drawn.

    Raises:
        ValueError: for fewer pictures than a batch, and where their side is no multiple of 4.
    """
    if len(pictures) < recipe.batch_size:
        raise ValueError(f"{len(pictures)} pictures make no batch of {recipe.batch_size}")
    device = pictures.images.device
    channels, side = pictures.images.shape[1:3]
    seed_everything(seed)
    layout = torch.channels_last if options.channels_last else torch.preserve_format
    maker, judge = (
        model.to(device, memory_format=layout)
        for model in (
            generator(channels, side, recipe.width, recipe.latent),
            discriminator(channels, side, recipe.width, recipe.spectral),
        )
    )
    optimizers = tuple(
        torch.optim.Adam(model.parameters(), rate, betas=(0.5, 0.999), fused=options.fused or None)
        for model, rate in ((maker, recipe.generator_rate), (judge, recipe.discriminator_rate))
    )
    averaged = None
    if recipe.averaged is not None:
        averaged = MovingAverage(maker, 1 - 1 / max(1.0, recipe.averaged * recipe.iterations))
    reals = _endless(Batches(pictures, recipe.batch_size, shuffle_seed=seed, prepare=lambda x: x))
    shape = recipe.batch_size, recipe.latent
    return Training(
        maker,
        judge,
        averaged,
        optimizers,
        reals,
        lambda: torch.randn(shape, device=device),
        *computed(maker, judge, LOSSES[recipe.loss], device, options),
    )


def computed(
    maker: nn.Module, judge: nn.Module, loss: Loss, device: torch.device, options: Options
) -> tuple[Callable[..., Tensor], ...]:
    """What an iteration computes, in this way: pictures of numbers, and the loss of each network.

    The losses are float32. Real pictures are uint8, made ones as the generator gives them.
    """
    dtype = getattr(torch, options.autocast) if options.autocast else torch.bfloat16
    # Batch norm has to see real pictures and made ones apart: together, it would tell each picture
    # about the other kind. Without it, one call scores both, with half as many kernels to launch.
    apart = any(isinstance(layer, nn.BatchNorm2d) for layer in judge.modules())

    def score(images: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            return judge(images).float()

    def generate(numbers: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            return maker(numbers)

    def judging(real: Tensor, made: Tensor) -> Tensor:
        real = scaled(real)
        if apart:
            return loss.judging(score(real), score(made))
        return loss.judging(*score(torch.cat([real, made])).chunk(2))

    def fooling(made: Tensor) -> Tensor:
        return loss.fooling(score(made))

    functions = generate, judging, fooling
    if options.compiled:
        return tuple(torch.compile(f, mode=options.compiled, dynamic=False) for f in functions)
    return functions


def _endless(batches: Batches) -> Iterator[Tensor]:
    """Whole batches for ever, pass after pass: all have one shape, and a compiler works once."""
    for images, _ in itertools.chain.from_iterable(itertools.repeat(batches)):
        if len(images) == batches.batch_size:
            yield images


@dataclass
class Run:
    """A training run, looked at from time to time.

    Attributes:
        generator: the network that the recipe asks, on the device.
        looks: the iterations after which it was looked at, rising.
        seconds: of the training from one look to the next, without the looks; synchronised at
            both ends.
        losses: float32 (iterations, 2), on the CPU: of the discriminator, of the generator.
    """

    generator: nn.Module
    looks: tuple[int, ...]
    seconds: list[float]
    losses: Tensor


def run(
    recipe: Recipe,
    pictures: Pictures,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
    looks: Sequence[int] = (),
    look: Callable[[int, nn.Module], object] | None = None,
) -> Run:
    """Train by the recipe where the pictures lie.

    Args:
        recipe: how.
        pictures: to learn from, on the device.
        seed: of weights, order and latent numbers.
        options: how an iteration is computed.
        looks: after how many iterations ``look`` is called; the last iteration is added.
        look: is given the number of iterations and the generator that the recipe asks.

    Raises:
        ValueError: as :func:`prepare` does, and for a look before the start or after the end.
    """
    looks = tuple(sorted({*looks, recipe.iterations}))
    if looks[0] < 1 or looks[-1] > recipe.iterations:
        raise ValueError(f"looks must lie between 1 and {recipe.iterations}, not {looks}")
    device = pictures.images.device
    prepared = prepare(recipe, pictures, seed, options)
    seconds, before = [], 0
    for after in looks:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(before, after):
            prepared.step()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
        before = after
        if look is not None:
            look(after, prepared.asked)
    losses = torch.stack([torch.stack(pair) for pair in prepared.losses]).cpu()
    return Run(prepared.asked, looks, seconds, losses)


@torch.no_grad()
def sample(model: nn.Module, numbers: Tensor, batch_size: int = 500) -> Tensor:
    """Pictures of latent numbers (N, latent): uint8 (N, channels, side, side), on the CPU.

    In evaluation mode: a picture depends on its own numbers alone.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    made = [as_bytes(model(part.to(device))).cpu() for part in numbers.split(batch_size)]
    model.train(was_training)
    return torch.cat(made)


def latents(count: int, latent: int, seed: int = 0) -> Tensor:
    """Latent numbers (count, latent) from a seed: drawn on the CPU, the same for every device."""
    return torch.randn(count, latent, generator=torch.Generator().manual_seed(seed))


def between(start: Tensor, end: Tensor, count: int) -> Tensor:
    """From one latent (latent,) to another in ``count`` even turns: (count, latent), ends included.

    Along the sphere (White, 2016): numbers on the straight line have a smaller norm than those
    that the generator was trained on.
    """
    cosine = F.cosine_similarity(start, end, dim=0).clamp(-1, 1)
    angle = torch.acos(cosine)
    shares = torch.linspace(0, 1, count)[:, None]
    if torch.sin(angle) < 1e-3:
        # Of one direction, or opposite ones: there is no turn to make.
        return start + shares * (end - start)
    return (torch.sin((1 - shares) * angle) * start + torch.sin(shares * angle) * end) / torch.sin(
        angle
    )
