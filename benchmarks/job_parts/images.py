"""ResNet-18 on pictures: the full recipe, beside a plain loop, and less one part at a time."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import resnet18

from job_parts.log import Log, beside, say, train
from macgpu.data import Pictures
from macgpu.jobs import images
from macgpu.jobs.augment import Augmentation, Normalise
from macgpu.jobs.images import Recipe
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.steps import Options
from macgpu.measure.timing import EFFORTS, Ratio, compare_steps

FULL = Recipe(augmentation=Augmentation(padding=2, flip=True, cutout=8))
RECIPES = {
    "smoke": replace(FULL, epochs=1, width=8, batch_size=100),
    "quick": replace(FULL, epochs=5, width=8, batch_size=100, peak_rate=0.1),
    "full": FULL,
}
FEW = {"smoke": 200, "quick": 2000, "full": 20_000}
"""Pictures in a pass of the two loops that are timed in turn."""


def measure(asked: argparse.Namespace, log: Log) -> None:
    training, test = images.pictures(asked.data, asked.folder)
    if asked.profile == "smoke":
        training, test = training.first(400), test.first(200)
    training, test = training.to(log.device), test.to(log.device)
    options = images.options_for(log.device)
    if log.device.type == "cuda":
        # With CUDA graphs: launching kernel by kernel took an H200's host longer than computing.
        options = replace(options, compiled="reduce-overhead")
        torch.backends.cudnn.benchmark = True
    recipe = RECIPES[asked.profile]
    if asked.epochs:
        recipe = replace(recipe, epochs=asked.epochs)

    def variant(name: str, recipe: Recipe, seeds: list[int]) -> Job | None:
        settings = ("images", asked.data, "test accuracy", name, str(recipe))
        make = partial(Job, *settings, len(training), options)

        def run(seed: int) -> SeedRun:
            return images.run(recipe, training, test, seed, options, report=say).kept(seed)

        return train(log, make, run, f"images, {name}", seeds)

    done = variant("recipe", recipe, asked.seeds)
    beside(log, done, "images", lambda: over_plain(training, recipe, options, asked.profile))
    for part in images.TRAINED:
        variant(f"without {part}", images.without(recipe, part), asked.seeds[: asked.ablations])


def over_plain(pictures: Pictures, recipe: Recipe, options: Options, profile: str) -> Ratio:
    """The time of the book's pass over that of the plain one's, in turn."""
    few = pictures.first(FEW[profile])
    # So many epochs that the schedule does not end while it is timed.
    endless = replace(recipe, epochs=10**6)
    book = images.prepare(endless, few, Normalise.of(pictures), options=options)
    plain = plain_pass(few, recipe, options)
    return compare_steps(book.epoch, plain, few.images.device, EFFORTS[profile])


def plain_pass(
    pictures: Pictures, recipe: Recipe, options: Options, seed: int = 0
) -> Callable[[], tuple[float, int]]:
    """One pass of the same work in a loop written for nothing else, with torchvision's network.

    The pictures are scaled and padded once; a step cuts, mirrors, trains, and counts. The mean loss
    and the hits are read at the end, as the book's loop does.
    """
    torch.manual_seed(seed)
    device, count = pictures.images.device, len(pictures)
    padding, cutout = recipe.augmentation.padding, recipe.augmentation.cutout
    height, width = pictures.images.shape[2:]
    ready = Normalise.of(pictures)(F.pad(pictures.images, (padding,) * 4))
    model = _torchvision(pictures.images.shape[1], recipe.width).to(device)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
    # With what batch norm has counted, which the averaged weights need.
    current = [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]
    current = [tensor.detach() for tensor in current]
    averages = [tensor.clone() for tensor in current]
    optimizer = torch.optim.SGD(
        model.parameters(),
        1e-3,
        recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=True,
        fused=options.fused or None,
    )
    dtype = getattr(torch, options.autocast) if options.autocast else torch.bfloat16
    rows, columns = (torch.arange(size, device=device) for size in (height, width))

    def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), y, label_smoothing=recipe.label_smoothing)
        return loss, (logits.detach().argmax(1) == y).sum()

    if options.compiled:
        loss_of = torch.compile(loss_of, mode=options.compiled, dynamic=False)

    def one_pass() -> tuple[float, int]:
        total, hits = torch.zeros((), device=device), torch.zeros((), device=device)
        order = torch.randperm(count, device=device)
        down, right = torch.randint(2 * padding + 1, (2, count, 1), device=device)
        mirrored = torch.rand(count, 1, device=device) < 0.5
        at = right + torch.where(mirrored, width - 1 - columns, columns)
        centres = torch.randint(height, (2, count, 1), device=device) - cutout // 2
        for start in range(0, count, recipe.batch_size):
            part = slice(start, start + recipe.batch_size)
            chosen = order[part]
            cut = (rows + down[part])[:, :, None], at[part][:, None]
            x = ready[chosen[:, None, None], :, cut[0], cut[1]].permute(0, 3, 1, 2)
            if cutout:
                inside = [(rows >= c[part]) & (rows < c[part] + cutout) for c in centres]
                x = x.masked_fill(inside[0][:, None, :, None] & inside[1][:, None, None], 0.0)
            optimizer.zero_grad(set_to_none=True)
            loss, hit = loss_of(x, pictures.labels[chosen])
            loss.backward()
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + math.cos(math.pi * start / count)) / 2
            optimizer.step()
            if recipe.averaged is not None:
                torch._foreach_lerp_(averages, current, 0.01)
            total.add_(loss.detach(), alpha=len(chosen))
            hits += hit
        return total.item() / count, int(hits.item())

    return one_pass


def _torchvision(channels: int, width: int) -> nn.Module:
    """torchvision's ResNet-18 with the stem for small pictures; it has one width."""
    if width != 64:
        return images.resnet18_small(channels, 10, width)
    model = resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model
