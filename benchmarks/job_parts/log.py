"""What the jobs have measured so far, kept in a record that is written after each run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from macgpu.measure import records
from macgpu.measure.generation import Generation, MadeBy
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.records import Footprint
from macgpu.measure.timing import Ratio

Run = TypeVar("Run", SeedRun, MadeBy)


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
    generations: dict[str, Generation] = field(default_factory=dict)
    footprints: list[Footprint] = field(default_factory=list)
    written: Path | None = None

    def put(self, done: Job | Generation) -> None:
        if isinstance(done, Job):
            self.jobs[done.name, done.variant] = done
        else:
            self.generations[done.variant] = done
        self.write()

    def write(self) -> None:
        record = records.make(
            self.device,
            self.parts,
            self.profile,
            "maintainer",
            footprints=tuple(self.footprints),
            jobs=tuple(self.jobs.values()),
            generations=tuple(self.generations.values()),
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
    make: Callable[[tuple[Run, ...]], Job | Generation],
    run: Callable[[int], Run],
    what: str,
    seeds: list[int],
) -> Job | Generation | None:
    """One variant of a job from each seed, as long as there is time; ``None`` without a run."""
    runs: tuple[Run, ...] = ()
    done = None
    for seed in seeds:
        if log.out_of_time(f"{what}, seed {seed}"):
            break
        # The compiler gives up on a function that it has compiled for many models.
        torch.compiler.reset()
        runs += (run(seed),)
        done = make(runs)
        log.put(done)
        say(f"{what}: {done}")
    return done


def beside(
    log: Log, done: Job | Generation | None, what: str, measure: Callable[[], Ratio]
) -> None:
    """The book's loop beside a plain one, into the job that was trained by the recipe."""
    if done is None or log.out_of_time(f"{what}, beside a plain loop"):
        return
    torch.compiler.reset()
    ratio = measure()
    log.put(replace(done, over_plain=ratio))
    say(f"{what}: time over the plain loop's: {ratio}")


def say(line: str) -> None:
    print(line, flush=True)
