"""DCGAN: a first run of a few hundred iterations, and long ones, judged between two bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from job_parts.log import Log, beside, say, train
from macgpu.data import Pictures
from macgpu.jobs import gan, images, quality
from macgpu.measure.generation import Generation, MadeBy
from macgpu.measure.steps import Options
from macgpu.measure.timing import EFFORTS, Ratio, compare_steps

HINGE = gan.Recipe()
RECIPES = {
    "smoke": replace(HINGE, iterations=6, width=4, batch_size=20),
    "quick": replace(
        HINGE, iterations=1500, width=16, generator_rate=1e-3, discriminator_rate=1e-3
    ),
    "full": HINGE,
}
FIRST = {"smoke": 2, "quick": 300, "full": 300}
"""Iterations of the first run, by profile."""
JUDGE = images.Recipe(epochs=10, width=16)
"""Of the classifier whose features are compared."""


def measure(asked: argparse.Namespace, log: Log) -> None:
    training, test = images.pictures(asked.data, asked.folder)
    judging = JUDGE
    if asked.profile == "smoke":
        training, test = training.first(200), test.first(80)
        judging = replace(JUDGE, epochs=1, width=8, batch_size=100)
    training, test = training.to(log.device), test.to(log.device)
    options = images.options_for(log.device)
    say("== the judge")
    classifier = images.run(judging, training, test, 0, options, report=say)
    half = len(test) // 2
    judge = quality.Judge.of(classifier.model, classifier.normalise, test.images[:half])
    bounds = judge(test.images[half : 2 * half]), judge(quality.noise(test.images[:half]))
    say(f"real against real: {bounds[0]}; noise: {bounds[1]}")
    features = f"{judge.real.shape[1]} of a ResNet of width {judging.width}, {half:,} pictures"
    if log.device.type == "cuda":
        options = replace(options, compiled="default")
        torch.backends.cudnn.benchmark = True
    hinge = RECIPES[asked.profile]
    usual = replace(hinge, loss="usual", spectral=False, averaged=None)
    # As the paper has them.
    first = replace(usual, generator_rate=2e-4, discriminator_rate=2e-4)
    first = replace(first, iterations=FIRST[asked.profile])

    def variant(name: str, recipe: gan.Recipe) -> Generation | None:
        looks = sorted({max(1, recipe.iterations // 2**power) for power in range(6)})
        settings = (asked.data, name, str(recipe), features, recipe.batch_size, options)
        make = partial(Generation, *settings, *bounds)

        def run(seed: int) -> MadeBy:
            return quality.judged(recipe, training, judge, seed, options, looks).kept

        return train(log, make, run, f"generation, {name}", asked.seeds[: asked.ablations])

    variant("first", first)
    done = variant("hinge", hinge)
    plain = partial(over_plain, training, hinge, options, asked.profile)
    beside(log, done, "generation", plain)
    variant("usual", usual)


def over_plain(pictures: Pictures, recipe: gan.Recipe, options: Options, profile: str) -> Ratio:
    """The time of the book's iteration over that of the plain one's, in turn."""
    book = gan.prepare(recipe, pictures, options=options)

    def iteration() -> None:
        book.step()
        # So many are run that their losses would fill lists that nobody reads.
        book.losses.clear()

    plain = plain_iteration(pictures, recipe, options)
    return compare_steps(iteration, plain, pictures.images.device, EFFORTS[profile])


def plain_iteration(
    pictures: Pictures, recipe: gan.Recipe, options: Options, seed: int = 0
) -> Callable[[], None]:
    """One iteration of the same two networks in a loop written for nothing else.

    The pictures are scaled once; a step gathers, and updates both networks.
    """
    torch.manual_seed(seed)
    device, count = pictures.images.device, len(pictures)
    channels, side = pictures.images.shape[1:3]
    ready = pictures.images.float() / 127.5 - 1
    layout = torch.channels_last if options.channels_last else torch.preserve_format
    maker = gan.generator(channels, side, recipe.width, recipe.latent)
    critic = gan.discriminator(channels, side, recipe.width, recipe.spectral)
    maker, critic = (model.to(device, memory_format=layout) for model in (maker, critic))
    own = {"betas": (0.5, 0.999), "fused": options.fused or None}
    making = torch.optim.Adam(maker.parameters(), recipe.generator_rate, **own)
    judging = torch.optim.Adam(critic.parameters(), recipe.discriminator_rate, **own)
    current = [*maker.parameters(), *(b for b in maker.buffers() if b.is_floating_point())]
    current = [tensor.detach() for tensor in current]
    averages = [tensor.clone() for tensor in current]
    dtype = getattr(torch, options.autocast) if options.autocast else torch.bfloat16
    usual = recipe.loss == "usual"

    def make(numbers: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            return maker(numbers)

    def judge(real: Tensor, made: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            real, made = critic(real).float(), critic(made).float()
        if usual:
            return F.softplus(-real).mean() + F.softplus(made).mean()
        return F.relu(1 - real).mean() + F.relu(1 + made).mean()

    def fool(made: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            made = critic(made).float()
        return F.softplus(-made).mean() if usual else -made.mean()

    if options.compiled:
        make, judge, fool = (
            torch.compile(f, mode=options.compiled, dynamic=False) for f in (make, judge, fool)
        )

    def one_iteration() -> None:
        real = ready[torch.randint(count, (recipe.batch_size,), device=device)]
        made = make(torch.randn(recipe.batch_size, recipe.latent, device=device))
        judge(real, made.detach()).backward()
        judging.step()
        judging.zero_grad(set_to_none=True)
        critic.requires_grad_(False)
        fool(made).backward()
        critic.requires_grad_(True)
        making.step()
        making.zero_grad(set_to_none=True)
        if recipe.averaged is not None:
            torch._foreach_lerp_(averages, current, 0.01)

    return one_iteration
