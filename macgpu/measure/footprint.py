"""Predicted and measured memory of the book's models by batch size, up to out of memory."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from macgpu import planner
from macgpu.device import empty_cache, memory
from macgpu.machine import read_machine
from macgpu.measure.memory import OUT_OF_MEMORY, library_bytes, peak_bytes, ran_out, reset_peak
from macgpu.measure.records import Comparison, Footprint, Label
from macgpu.measure.steps import Options, TrainStep
from macgpu.measure.timing import EFFORTS, compare_steps, time_block
from macgpu.models import CASES, Case, checkpointed
from macgpu.words import gib

WAYS = ((None, False), ("bfloat16", False), (None, True), ("bfloat16", True))
"""The autocast type, and whether the blocks are checkpointed."""

SIZES = {
    "smoke": {"encoder": (1, 2)},
    "quick": {"encoder": (1, 4, 16), "resnet18": (1, 4, 16)},
    "full": {
        "vit-b-16": (32, 128, 512, 2048),
        "resnet50": (32, 128, 512, 2048),
        "resnet18": (32, 128, 512, 2048),
        "bert-128": (32, 128, 512, 2048, 8192),
        "bert-512": (8, 32, 128, 512, 2048),
    },
}
"""Batch sizes by profile and model; the first that does not fit is the last that is tried."""

DRAWN = 32
"""So many samples are drawn; a larger batch repeats them."""
SHARE = 0.5
"""Of a machine's memory, where no counter or no wall stops a step: beyond it, it would swap."""

EMPTIED = "cache emptied"
"""The name of the step that empties the cache."""

Report = Callable[[str], None]


def measure(
    device: torch.device,
    profile: str,
    report: Report = print,
    seconds: float = 200.0,
    models: Collection[str] = tuple(CASES),
) -> Iterator[Footprint]:
    """The footprint of each model, way and batch size of the profile.

    Args:
        seconds: no further model and way is begun after so long.
        models: of the profile's models only these.
    """
    end = time.monotonic() + seconds
    for name, sizes in SIZES[profile].items():
        if name not in models:
            continue
        model = CASES[name].build()
        # The CPU has the float32 step alone, as in the other suites.
        for autocast, recompute in [w for w in WAYS if device.type != "cpu" or w[0] is None]:
            if time.monotonic() > end:
                report(f"{name}: skipped, no time left")
                continue
            for footprint in sweep(
                CASES[name], model, device, sizes, autocast, recompute, EFFORTS[profile].block_s
            ):
                report(_shown(footprint))
                yield footprint


def emptying(device: torch.device) -> Iterator[Comparison]:
    """The time of a step that empties the allocator's cache, over one that does not.

    Nothing on the CPU, which has no such cache.
    """
    if device.type == "cpu":
        return
    case, size, options = CASES["resnet18"], 64, Options(autocast="bfloat16", fused=True)
    step = TrainStep(case, device, options, size)

    def emptied() -> None:
        step()
        empty_cache(device)

    ratio = compare_steps(emptied, step, device, EFFORTS["quick"])
    yield Comparison(
        Label(case.name, size, options, EMPTIED),
        Label(case.name, size, options, "cache kept"),
        ratio,
    )


def sweep(
    case: Case,
    model: nn.Module,
    device: torch.device,
    sizes: Iterable[int],
    autocast: str | None,
    recompute: bool,
    block_s: float,
) -> Iterator[Footprint]:
    """One model's batch sizes in turn, until one does not fit."""

    def make() -> nn.Module:
        new = copy.deepcopy(model)
        return checkpointed(new) if recompute else new

    def inputs(size: int, generator: torch.Generator) -> Tensor:
        some = case.make_inputs(min(size, DRAWN), generator).to(device)
        repeats = -(-size // len(some))
        return some.repeat(repeats, *[1] * (some.dim() - 1))[:size]

    prepared = replace(case, make=make, make_inputs=inputs)
    line = planner.plan_line(
        make(),
        case.batch,
        case.loss,
        autocast=autocast,
        optimizer=planner.fused_adamw,
        attention="math" if device.type == "mps" else "fused",
    )
    for size in sizes:
        predicted = line.at(size).peak_bytes + library_bytes(device)
        label = {
            "model": case.name,
            "batch_size": size,
            "autocast": autocast,
            "checkpointed": recompute,
            "predicted_bytes": predicted,
        }
        footprint = _run(prepared, device, label, block_s)
        yield footprint
        if footprint.failure:
            return


def _run(case: Case, device: torch.device, label: dict[str, object], block_s: float) -> Footprint:
    """A few steps of one batch size: the peak after warm-up, and the rate."""
    if device.type != "cuda" and label["predicted_bytes"] > SHARE * read_machine().memory_bytes:
        return Footprint(**label, failure="not tried: it would take most of the memory")
    # A checkpointed model is a cycle of references: the one before it is still there.
    gc.collect()
    options = Options(autocast=label["autocast"], fused=True)
    try:
        step = TrainStep(case, device, options, label["batch_size"])
        return _measure(step, device, label, block_s)
    except (RuntimeError, MemoryError) as error:
        failure = OUT_OF_MEMORY if ran_out(error, device) else f"failed: {type(error).__name__}"
    # Only now is what the error held on to free. A device that is lost frees nothing any more.
    gc.collect()
    with suppress(RuntimeError):
        empty_cache(device)
    return Footprint(**label, failure=failure)


def _measure(
    step: TrainStep, device: torch.device, label: dict[str, object], block_s: float
) -> Footprint:
    # In the first step cuDNN tries its algorithms, some with large workspaces; a second is warm.
    time_block(step, 1, device)
    seconds = time_block(step, 1, device)
    empty_cache(device)
    reset_peak(device)
    time_block(step, 1, device)
    count = max(1, min(50, round(block_s / seconds)))
    seconds = time_block(step, count, device) / count
    return Footprint(
        **label,
        peak_bytes=peak_bytes(device),
        reserved_bytes=memory(device).reserved,
        samples_per_s=step.batch_size / seconds,
    )


def _shown(footprint: Footprint) -> str:
    shown = (
        f"{footprint.model}, batch {footprint.batch_size}, {footprint.way}: "
        f"predicted {gib(footprint.predicted_bytes, 2)}"
    )
    if footprint.failure:
        return f"{shown}, {footprint.failure}"
    if footprint.peak_bytes:
        shown += f", measured {gib(footprint.peak_bytes, 2)}"
    return f"{shown}, {footprint.samples_per_s:,.1f} samples/s"
