"""Whole jobs on the device, over several seeds, into one record.

    PYTHONPATH=. python benchmarks/jobs.py --out results --seconds 540 --folder FOLDER

``images`` trains ResNet-18 and ``text`` BERT: by the full recipe from each seed; then the book's
loop is timed against a plain one in turn; then the recipe is trained less one part at a time. Of
BERT the memory by length is measured, too. The record is written anew after each run, so that a
benchmark that is cut off loses nothing of what it has measured.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import resnet18
from transformers import BertForSequenceClassification

from macgpu.data import DataError, Pictures
from macgpu.device import describe, pick
from macgpu.jobs import bert, images, snippets, text
from macgpu.jobs.augment import Augmentation, Normalise
from macgpu.jobs.images import Recipe
from macgpu.jobs.tokens import PAD, Sentences, encode, plan_batches
from macgpu.measure import footprint, records
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.records import Footprint
from macgpu.measure.steps import Options
from macgpu.measure.timing import EFFORTS, Ratio, compare_steps

PARTS = ("images", "text")
FULL = Recipe(augmentation=Augmentation(padding=2, flip=True, cutout=8))
RECIPES = {
    "smoke": replace(FULL, epochs=1, width=8, batch_size=100),
    "quick": replace(FULL, epochs=5, width=8, batch_size=100, peak_rate=0.1),
    "full": FULL,
}
SMALL = {"smoke": 200, "quick": 2000, "full": 10_000}
"""Pictures in a pass of the two loops that are timed in turn."""

TEXT = {
    "smoke": text.Recipe("tiny", epochs=1, batch_size=16, longest=16),
    "quick": text.Recipe("tiny", epochs=5, batch_size=32, peak_rate=1e-3),
    "full": text.Recipe(peak_rate=5e-5),
}
FEW_SENTENCES = {"smoke": 32, "quick": 256, "full": 2048}
"""As :data:`SMALL`, for BERT."""
LENGTHS = {"smoke": (16,), "quick": (32, 64), "full": (32, 64, 128, 256, 512)}
"""Of the sentences whose memory is measured, at a batch of :data:`MEMORY_BATCH`."""
MEMORY_BATCH = {"smoke": 2, "quick": 8, "full": 64}


@dataclass
class Log:
    """What is measured so far; each change of it is written."""

    device: torch.device
    profile: str
    parts: tuple[str, ...]
    out: Path
    end: float
    """No run is begun after this moment of the monotonic clock."""
    jobs: dict[tuple[str, str], Job] = field(default_factory=dict)
    footprints: list[Footprint] = field(default_factory=list)
    written: Path | None = None

    def put(self, job: Job) -> None:
        self.jobs[job.name, job.variant] = job
        self.write()

    def write(self) -> None:
        record = records.make(
            self.device,
            self.parts,
            self.profile,
            "maintainer",
            footprints=tuple(self.footprints),
            jobs=tuple(self.jobs.values()),
        )
        path = records.write(record, self.out)
        if self.written not in (None, path):
            self.written.unlink()
        self.written = path

    def out_of_time(self, what: str) -> bool:
        left = self.end - time.monotonic()
        say(f"== {what}: skipped, no time left" if left < 0 else f"== {what} ({left:.0f} s left)")
        return left < 0


def train(
    log: Log,
    make: Callable[[tuple[SeedRun, ...]], Job],
    run: Callable[[int], SeedRun],
    what: str,
    seeds: list[int],
) -> None:
    """One variant of a job from each seed, as long as there is time."""
    runs: tuple[SeedRun, ...] = ()
    for seed in seeds:
        if log.out_of_time(f"{what}, seed {seed}"):
            return
        # The compiler gives up on a function that it has compiled for many models.
        torch.compiler.reset()
        runs += (run(seed),)
        job = make(runs)
        log.put(job)
        say(f"{what}: mean {job.mean:.2%} of {len(runs)}, {job.epoch_s:.2f} s an epoch")


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


def measure_images(asked: argparse.Namespace, log: Log) -> None:
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

    def variant(name: str, recipe: Recipe, seeds: list[int]) -> None:
        settings = ("images", asked.data, "test accuracy", name, str(recipe))
        make = partial(Job, *settings, len(training), options)

        def run(seed: int) -> SeedRun:
            return images.run(recipe, training, test, seed, options, report=say).kept(seed)

        train(log, make, run, f"images, {name}", seeds)

    variant("recipe", recipe, asked.seeds)
    beside(log, "images", lambda: over_plain(training, recipe, options, asked.profile))
    for part in images.TRAINED:
        variant(f"without {part}", images.without(recipe, part), asked.seeds[: asked.ablations])


def beside(log: Log, name: str, measure: Callable[[], Ratio]) -> None:
    """The book's loop beside a plain one, into the job that was trained by the recipe."""
    job = log.jobs.get((name, "recipe"))
    if job is None or log.out_of_time(f"{name}, beside a plain loop"):
        return
    ratio = measure()
    log.put(replace(job, over_plain=ratio))
    say(f"{name}: time over the plain loop's: {ratio}")


def plain_text_pass(
    sentences: Sentences, recipe: text.Recipe, options: Options, seed: int = 0
) -> Callable[[], None]:
    """One pass of the same work in a loop written for nothing else."""
    torch.manual_seed(seed)
    device = sentences.ids.device
    model = BertForSequenceClassification(bert.configuration(recipe.size)).to(device)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        text.decayed(model, recipe.weight_decay), 1e-6, fused=options.fused or None
    )
    dtype = getattr(torch, options.autocast) if options.autocast else torch.bfloat16
    generator = torch.Generator().manual_seed(seed)
    bounds = sentences.lengths, recipe.batch_size, recipe.padding, sentences.longest

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            logits = model(input_ids=x, attention_mask=(x != PAD)[:, None, None, :]).logits
        return F.cross_entropy(logits.float(), y)

    if options.compiled:
        loss_of = torch.compile(loss_of, mode=options.compiled)

    def one_pass() -> None:
        plan = plan_batches(*bounds, generator)
        order = torch.cat([part for part, _ in plan]).to(device)
        start = 0
        for part, width in plan:
            chosen = order[start : start + len(part)]
            start += len(part)
            optimizer.zero_grad(set_to_none=True)
            loss_of(sentences.ids[chosen, :width], sentences.labels[chosen]).backward()
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
            for group in optimizer.param_groups:
                group["lr"] = 1e-6 * (1 - start / len(order))
            optimizer.step()

    return one_pass


def text_over_plain(
    sentences: Sentences, recipe: text.Recipe, options: Options, profile: str
) -> Ratio:
    """As :func:`over_plain`, for BERT."""
    torch.compiler.reset()
    few = sentences.first(FEW_SENTENCES[profile])
    # So many epochs that the schedule does not end while it is timed.
    book = text.prepare(replace(recipe, epochs=10**6), few, options=options)
    plain = plain_text_pass(few, recipe, options)
    return compare_steps(book.epoch, plain, few.ids.device, EFFORTS[profile])


def measure_text(asked: argparse.Namespace, log: Log) -> None:
    training, test = snippets.load()
    if asked.profile == "smoke":
        training, test = training.first(64), test.first(32)
    options = text.options_for(log.device)
    if log.device.type == "cuda":
        options = replace(options, compiled="default")
    recipe = TEXT[asked.profile]
    if asked.epochs:
        recipe = replace(recipe, epochs=asked.epochs)
    tokenizer = text.tokenizer(recipe, training.texts)
    training, test = (
        encode(tokenizer, part.texts, part.labels, recipe.longest).to(log.device)
        for part in (training, test)
    )

    def variant(name: str, recipe: text.Recipe, seeds: list[int]) -> None:
        settings = ("text", "movie-snippets", "test accuracy", name, str(recipe))
        make = partial(Job, *settings, len(training), options)

        def run(seed: int) -> SeedRun:
            return text.run(recipe, training, test, seed, options, report=say).kept(seed)

        train(log, make, run, f"text, {name}", seeds)

    variant("recipe", recipe, asked.seeds)
    beside(log, "text", lambda: text_over_plain(training, recipe, options, asked.profile))
    measure_lengths(log, recipe.size, options)
    for part in text.PARTS:
        variant(f"without {part}", text.without(recipe, part), asked.seeds[: asked.ablations])


def measure_lengths(log: Log, size: str, options: Options) -> None:
    """The memory of a step by the length of its sentences, predicted and measured."""
    torch.compiler.reset()
    sizes, block_s = (MEMORY_BATCH[log.profile],), EFFORTS[log.profile].block_s
    for length in LENGTHS[log.profile]:
        if log.out_of_time(f"text, memory at length {length}"):
            return
        case = bert.case(size, length)
        log.footprints += footprint.sweep(
            case, case.build(), log.device, sizes, options.autocast, False, block_s
        )
        log.write()
        say(str(log.footprints[-1]))


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seconds", type=float, default=540, help="start no run after so long")
    parser.add_argument("--profile", default="full", choices=RECIPES)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument(
        "--data", default="fashion-mnist", choices=images.NAMES, help="of the images"
    )
    parser.add_argument("--folder", type=Path, default=Path("datasets"), help="of the full sets")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--ablations", type=int, default=3, help="seeds of a recipe less a part")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    parts = tuple(part for part in PARTS if part in asked.parts)
    device = pick("auto")
    if device.type != "cuda" and asked.profile == "full":
        say("no NVIDIA card here: the full size is for one (--profile smoke tries it anyway)")
        return
    say(f"{device.type}, {describe(device)}, torch {torch.__version__}")
    log = Log(device, asked.profile, parts, asked.out, end)
    try:
        for part in parts:
            {"images": measure_images, "text": measure_text}[part](asked, log)
    except DataError as error:
        sys.exit(f"{error}")
    say(str(log.written))


if __name__ == "__main__":
    main()
