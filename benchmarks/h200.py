"""All that is measured on an NVIDIA machine, in one run of a few minutes, its CPU included.

    PYTHONPATH=. python benchmarks/h200.py --out results --seconds 540

Beside the book's steps it runs timm's and transformers' own, interleaved with the book's, at the
same batch, optimizer and data. The record is written anew after each figure, so that a run that is
cut off loses nothing of what it has measured.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from macgpu.device import empty_cache, pick
from macgpu.measure import ceilings, footprint, loading, records, suites
from macgpu.measure.ceilings import SWEEPS, Cell
from macgpu.measure.flops import count_step
from macgpu.measure.loading import Loading
from macgpu.measure.memory import OUT_OF_MEMORY, ran_out
from macgpu.measure.records import Comparison, Footprint, Label, Result
from macgpu.measure.steps import Options, TrainStep, ladder
from macgpu.measure.timing import EFFORTS, compare_steps, time_step
from macgpu.models import ARTICLE, CASES, NVIDIA, BertClassifier, Case

PARTS = (*suites.SUITES, "beside", "cpu")
COMPILED = ("default", "reduce-overhead")
"""Modes of the compiler that a rival is given; the second one replays CUDA graphs."""
SMALLER = "quick"
"""The profile whose batches the large models get on the CPU of a GPU's machine: at the card's, one
step takes seconds."""


def timm_model(name: str) -> Callable[[], nn.Module]:
    """timm's own model of this name, its weights drawn at random."""

    def make() -> nn.Module:
        import timm

        return timm.create_model(name)

    return make


def hf_bert() -> nn.Module:
    """transformers' BERT as it comes, with no dropout, as in the book's."""
    return BertClassifier(packed=False)


RIVALS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "resnet50": ("timm", timm_model("resnet50")),
    "vit-b-16": ("timm", timm_model("vit_base_patch16_224")),
    "bert-128": ("transformers", hf_bert),
    "bert-512": ("transformers", hf_bert),
}
"""By case: whose code stands beside the book's, and how its model is made."""


@dataclass
class Run:
    """What has been measured so far, and where it is written."""

    device: torch.device
    profile: str
    models: tuple[str, ...]
    suites: tuple[str, ...]
    out: Path
    end: float
    cells: tuple[Cell, ...] = ()
    results: list[Result] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    loading: list[Loading] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)
    written: Path | None = None

    def attempt(self, name: str, part: Callable[[], None]) -> None:
        """Run a part, say how long it took, and write the record; keep going if it fails."""
        left = self.end - time.monotonic()
        if left <= 0:
            say(f"== {name}: skipped, no time left")
            return
        say(f"== {name} ({left:.0f} s left)")
        start = time.monotonic()
        try:
            part()
        except Exception:
            # Whatever it was, the other parts are still worth their minutes.
            say(traceback.format_exc())
        empty_cache(self.device)
        torch.compiler.reset()
        self.write()
        say(f"== {name}: {time.monotonic() - start:.0f} s")

    def write(self) -> None:
        record = records.make(
            self.device,
            self.suites,
            self.profile,
            "maintainer",
            self.cells,
            tuple(self.results),
            tuple(self.comparisons),
            tuple(self.loading),
            tuple(self.footprints),
        )
        path = records.write(record, self.out)
        if self.written not in (None, path):
            self.written.unlink()
        self.written = path

    def measure_ceilings(self) -> None:
        self.cells = ceilings.measure(self.device, SWEEPS[self.profile], EFFORTS[self.profile], say)

    def measure_model(self, case: Case) -> None:
        # One at a time: what is measured stays, whatever comes after it.
        for result in suites.measure_case(case, self.device, self.profile, self.cells, say):
            self.results.append(result)
            self.write()

    def measure_energy(self) -> None:
        case = CASES[suites.ENERGY_CASE]
        self.results += suites.measure_energy(case, self.device, self.profile, say)

    def measure_precision(self) -> None:
        case = CASES[suites.PRECISION_CASE]
        self.results += suites.measure_precision(case, self.device, self.profile, say)

    def measure_loading(self) -> None:
        for measured in loading.measure(self.device, self.profile, say):
            self.loading.append(measured)
            self.write()

    def measure_memory(self) -> None:
        self.comparisons += footprint.emptying(self.device)
        for measured in footprint.measure(self.device, self.profile, say, models=self.models):
            self.footprints.append(measured)
            self.write()

    def measure_beside(self, case: Case) -> None:
        """The book's most tuned step in turn with the rival's, eager and compiled in two ways."""
        code, make = RIVALS[case.name]
        rival = replace(case, make=make)
        batch_size = case.batches[self.profile]
        work = count_step(case, batch_size)
        name, tuned = ladder(case, self.device)[-1]
        ours = Label(case.name, batch_size, tuned, name)
        book = TrainStep(case, self.device, tuned, batch_size)
        for theirs, options in rival_steps(tuned):
            label = Label(case.name, batch_size, options, theirs, code)
            try:
                step = TrainStep(rival, self.device, options, batch_size)
                timing = time_step(step, self.device, EFFORTS[self.profile])
                ratio = compare_steps(step, book, self.device, EFFORTS[self.profile])
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error, self.device):
                    raise
                self.results.append(Result(label, None, OUT_OF_MEMORY, None, None, None, None))
                continue
            self.results.append(Result(label, timing, None, None, work, None, None))
            self.comparisons.append(Comparison(label, ours, ratio))
            say(f"{label}: {timing}, {batch_size / timing.median_s:,.0f} samples/s")
            say(f"  its time over the book's: {ratio}")


def rival_steps(tuned: Options) -> list[tuple[str, Options]]:
    """The rival at its best: all the book's options, without the compiler and in its modes."""
    steps = [("eager", replace(tuned, compiled=None))]
    for mode in COMPILED if tuned.compiled else ():
        steps.append((f"compiled ({mode})", replace(tuned, compiled=mode)))
    return steps


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seconds", type=float, default=540, help="start no part after so long")
    parser.add_argument("--profile", default="full", choices=EFFORTS)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--models", nargs="+", default=NVIDIA, choices=CASES)
    asked = parser.parse_args()

    end = time.monotonic() + asked.seconds
    device = pick("auto")
    if device.type != "cuda" and asked.profile != "smoke":
        say("no NVIDIA card here: this benchmark is of one (--profile smoke tries it anyway)")
        return
    suites_asked = tuple(part for part in suites.SUITES if part in asked.parts)
    run = Run(device, asked.profile, tuple(asked.models), suites_asked, asked.out, end)
    models = [CASES[name] for name in asked.models]
    if "ceilings" in asked.parts:
        run.attempt("ceilings", run.measure_ceilings)
    if "models" in asked.parts:
        for case in models:
            run.attempt(case.name, lambda case=case: run.measure_model(case))
    for part in ("precision", "energy", "loading", "memory"):
        if part in asked.parts:
            run.attempt(part, getattr(run, f"measure_{part}"))
    if "beside" in asked.parts:
        for case in models:
            if case.name in RIVALS:
                run.attempt(
                    f"{case.name} beside {RIVALS[case.name][0]}",
                    lambda case=case: run.measure_beside(case),
                )
    if "cpu" in asked.parts and device.type != "cpu":
        cpu = Run(
            torch.device("cpu"), asked.profile, run.models, ("ceilings", "models"), asked.out, end
        )
        cpu.attempt("the machine's CPU: ceilings", cpu.measure_ceilings)
        for case in [CASES[name] for name in ARTICLE] + models:
            # The card's batch for the small models, so that the two can be compared.
            batch_size = case.batches[asked.profile if case.name in ARTICLE else SMALLER]
            sized = replace(case, batches={asked.profile: batch_size})
            cpu.attempt(
                f"the machine's CPU: {case.name}", lambda case=sized: cpu.measure_model(case)
            )
    for path in sorted(asked.out.glob("*.json")):
        say(str(path))
    sys.exit(run.written is None)


if __name__ == "__main__":
    main()
