"""Whole jobs on the device, over several seeds, into one record.

    PYTHONPATH=. python benchmarks/jobs.py --out results --seconds 540 --folder FOLDER

``images`` trains ResNet-18 by the full recipe from each seed, times the book's loop against a
plain one in turn, and then trains the recipe less one part at a time. The record is written anew
after each run, so that a benchmark that is cut off loses nothing of what it has measured.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import resnet18

from macgpu.data import DataError, Pictures
from macgpu.device import describe, pick
from macgpu.jobs import images
from macgpu.jobs.augment import Augmentation, Normalise
from macgpu.jobs.images import Recipe
from macgpu.measure import records
from macgpu.measure.jobs import Job
from macgpu.measure.steps import Options
from macgpu.measure.timing import EFFORTS, Ratio, compare_steps

PARTS = ("images",)
FULL = Recipe(augmentation=Augmentation(padding=2, flip=True, cutout=8))
RECIPES = {
    "smoke": replace(FULL, epochs=1, width=8, batch_size=100),
    "quick": replace(FULL, epochs=5, width=8, batch_size=100, peak_rate=0.1),
    "full": FULL,
}
SMALL = {"smoke": 200, "quick": 2000, "full": 10_000}
"""Pictures in a pass of the two loops that are timed in turn."""


@dataclass
class Log:
    """The jobs so far; each change of them is written."""

    device: torch.device
    profile: str
    out: Path
    jobs: dict[str, Job] = field(default_factory=dict)
    written: Path | None = None

    def put(self, key: str, job: Job) -> None:
        self.jobs[key] = job
        record = records.make(
            self.device, PARTS, self.profile, "maintainer", jobs=tuple(self.jobs.values())
        )
        path = records.write(record, self.out)
        if self.written not in (None, path):
            self.written.unlink()
        self.written = path


def plain_pass(
    pictures: Pictures, recipe: Recipe, options: Options, seed: int = 0
) -> Callable[[], None]:
    """One pass of the same work in a loop written for nothing else, with torchvision's network.

    The pictures are scaled and padded once; a step cuts, mirrors, and trains.
    """
    torch.manual_seed(seed)
    device, count = pictures.images.device, len(pictures)
    padding, cutout = recipe.augmentation.padding, recipe.augmentation.cutout
    height, width = pictures.images.shape[2:]
    ready = Normalise.of(pictures)(F.pad(pictures.images, (padding,) * 4))
    model = _torchvision(pictures.images.shape[1], recipe.width).to(device)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
    averages = [value.detach().clone() for value in model.parameters()]
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(
        parameters,
        1e-3,
        recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=True,
        fused=options.fused or None,
    )
    dtype = getattr(torch, options.autocast) if options.autocast else torch.bfloat16
    rows, columns = (torch.arange(size, device=device) for size in (height, width))

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            logits = model(x)
        return F.cross_entropy(logits.float(), y, label_smoothing=recipe.label_smoothing)

    if options.compiled:
        loss_of = torch.compile(loss_of, mode=options.compiled, dynamic=False)

    def one_pass() -> None:
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
            loss_of(x, pictures.labels[chosen]).backward()
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + math.cos(math.pi * start / count)) / 2
            optimizer.step()
            if recipe.averaged is not None:
                torch._foreach_lerp_(averages, parameters, 0.01)

    return one_pass


def _torchvision(channels: int, width: int) -> nn.Module:
    """torchvision's ResNet-18 with the stem for small pictures; it has one width."""
    if width != 64:
        return images.resnet18_small(channels, 10, width)
    model = resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def over_plain(pictures: Pictures, recipe: Recipe, options: Options, profile: str) -> Ratio:
    """The time of the book's pass over that of the plain one's, in turn."""
    torch.compiler.reset()
    few = pictures.first(SMALL[profile])
    # So many epochs that the schedule does not end while it is timed.
    endless = replace(recipe, epochs=10**6)
    book = images.prepare(endless, few, Normalise.of(pictures), options=options)
    plain = plain_pass(few, recipe, options)
    return compare_steps(book.epoch, plain, few.images.device, EFFORTS[profile])


def measure_images(asked: argparse.Namespace, log: Log, end: float) -> None:
    training, test = images.pictures(asked.data, asked.folder)
    if asked.profile == "smoke":
        training, test = training.first(400), test.first(200)
    training, test = training.to(log.device), test.to(log.device)
    options = images.options_for(log.device)
    if log.device.type == "cuda":
        options = replace(options, compiled="default")
        torch.backends.cudnn.benchmark = True
    recipe = RECIPES[asked.profile]
    if asked.epochs:
        recipe = replace(recipe, epochs=asked.epochs)

    def train(variant: str, recipe: Recipe, seeds: list[int]) -> None:
        for seed in seeds:
            if time.monotonic() > end:
                say(f"== {variant}, seed {seed}: skipped, no time left")
                return
            say(f"== {variant}, seed {seed} ({end - time.monotonic():.0f} s left)")
            # The compiler gives up on a function that it has compiled for many models.
            torch.compiler.reset()
            done = images.run(recipe, training, test, seed, options, report=say).kept(seed)
            before = log.jobs.get(variant)
            runs = (*before.runs, done) if before else (done,)
            job = Job(
                "images",
                asked.data,
                "test accuracy",
                variant,
                str(recipe),
                len(training),
                options,
                runs,
            )
            log.put(variant, job)
            say(f"{variant}: mean {job.mean:.2%} of {len(runs)}, {job.epoch_s:.2f} s an epoch")

    train("recipe", recipe, asked.seeds)
    if "recipe" in log.jobs and time.monotonic() < end:
        ratio = over_plain(training, recipe, options, asked.profile)
        log.put("recipe", replace(log.jobs["recipe"], over_plain=ratio))
        say(f"time over the plain loop's: {ratio}")
    for part in images.TRAINED:
        train(f"without {part}", images.without(recipe, part), asked.seeds[: asked.ablations])


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seconds", type=float, default=540, help="start no run after so long")
    parser.add_argument("--profile", default="full", choices=RECIPES)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--data", default="fashion-mnist", choices=images.NAMES)
    parser.add_argument("--folder", type=Path, default=Path("datasets"), help="of the full sets")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--ablations", type=int, default=3, help="seeds of a recipe less a part")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    device = pick("auto")
    if device.type != "cuda" and asked.profile == "full":
        say("no NVIDIA card here: the full size is for one (--profile smoke tries it anyway)")
        return
    say(f"{device.type}, {describe(device)}, torch {torch.__version__}")
    log = Log(device, asked.profile, asked.out)
    try:
        if "images" in asked.parts:
            measure_images(asked, log, end)
    except DataError as error:
        sys.exit(f"{error}")
    say(str(log.written))


if __name__ == "__main__":
    main()
