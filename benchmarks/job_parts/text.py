"""BERT on sentences: the full recipe, beside a plain loop, memory by length, and less a part."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForSequenceClassification

from job_parts.log import Log, beside, say, train
from macgpu.jobs import bert, snippets, text
from macgpu.jobs.tokens import PAD, Sentences, encode, plan_batches
from macgpu.measure import footprint
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.steps import Options
from macgpu.measure.timing import EFFORTS, Ratio, compare_steps

RECIPES = {
    "smoke": text.Recipe("tiny", epochs=1, batch_size=16, longest=16),
    "quick": text.Recipe("tiny", epochs=5, batch_size=32, peak_rate=1e-3),
    "full": text.Recipe(peak_rate=5e-5),
}
FEW = {"smoke": 32, "quick": 256, "full": 2048}
"""Sentences in a pass of the two loops that are timed in turn."""
LENGTHS = {"smoke": (16,), "quick": (32, 64), "full": (32, 64, 128, 256, 512)}
"""Of the sentences whose memory is measured, at a batch of :data:`MEMORY_BATCH`."""
MEMORY_BATCH = {"smoke": 2, "quick": 8, "full": 64}


def measure(asked: argparse.Namespace, log: Log) -> None:
    training, test = snippets.load()
    if asked.profile == "smoke":
        training, test = training.first(64), test.first(32)
    options = text.options_for(log.device)
    if log.device.type == "cuda":
        # With CUDA graphs: launching kernel by kernel took an H200's host longer than computing.
        options = replace(options, compiled="reduce-overhead")
    recipe = RECIPES[asked.profile]
    if asked.epochs:
        recipe = replace(recipe, epochs=asked.epochs)
    tokenizer = text.tokenizer(recipe, training.texts)
    training, test = (
        encode(tokenizer, part.texts, part.labels, recipe.longest).to(log.device)
        for part in (training, test)
    )

    def variant(name: str, recipe: text.Recipe, seeds: list[int]) -> Job | None:
        settings = ("text", "movie-snippets", "test accuracy", name, str(recipe))
        make = partial(Job, *settings, len(training), options)

        def run(seed: int) -> SeedRun:
            return text.run(recipe, training, test, seed, options, report=say).kept(seed)

        return train(log, make, run, f"text, {name}", seeds)

    done = variant("recipe", recipe, asked.seeds)
    beside(log, done, "text", lambda: over_plain(training, recipe, options, asked.profile))
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


def over_plain(sentences: Sentences, recipe: text.Recipe, options: Options, profile: str) -> Ratio:
    """The time of the book's pass over that of the plain one's, in turn."""
    few = sentences.first(FEW[profile])
    # So many epochs that the schedule does not end while it is timed.
    book = text.prepare(replace(recipe, epochs=10**6), few, options=options)
    plain = plain_pass(few, recipe, options)
    return compare_steps(book.epoch, plain, few.ids.device, EFFORTS[profile])


def plain_pass(
    sentences: Sentences, recipe: text.Recipe, options: Options, seed: int = 0
) -> Callable[[], tuple[float, int]]:
    """One pass of the same work in a loop written for nothing else.

    The mean loss and the hits are read at the end, as the book's loop does.
    """
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

    def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(device.type, dtype, enabled=options.autocast is not None):
            logits = model(input_ids=x, attention_mask=(x != PAD)[:, None, None, :]).logits
        return F.cross_entropy(logits.float(), y), (logits.detach().argmax(1) == y).sum()

    if options.compiled:
        loss_of = torch.compile(loss_of, mode=options.compiled, dynamic=True)

    def one_pass() -> tuple[float, int]:
        total, hits = torch.zeros((), device=device), torch.zeros((), device=device)
        plan = plan_batches(*bounds, generator)
        order = torch.cat([part for part, _ in plan]).to(device)
        start = 0
        for part, width in plan:
            chosen = order[start : start + len(part)]
            start += len(part)
            optimizer.zero_grad(set_to_none=True)
            loss, hit = loss_of(sentences.ids[chosen, :width], sentences.labels[chosen])
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
            for group in optimizer.param_groups:
                group["lr"] = 1e-6 * (1 - start / len(order))
            optimizer.step()
            total.add_(loss.detach(), alpha=len(chosen))
            hits += hit
        return total.item() / len(order), int(hits.item())

    return one_pass
