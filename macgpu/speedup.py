"""How many times faster an accelerator takes a training step than the CPU beside it."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from macgpu.measure.flops import Work
from macgpu.measure.records import Label, Record, Result
from macgpu.measure.timing import Ratio, Timing, ratio_of_timings

ARTICLE = Path(__file__).resolve().parent.parent / "data" / "m2-article"


@dataclass(frozen=True)
class Speedup:
    """One training step on the CPU and on an accelerator of the same machine."""

    label: Label
    work: Work
    ratio: Ratio
    """The CPU's time over the accelerator's: above 1 the accelerator is faster."""

    @property
    def intensity(self) -> float:
        """Operations per byte of the step, both counted (:mod:`macgpu.measure.flops`)."""
        return self.work.flops / self.work.bytes


@dataclass(frozen=True)
class Pair:
    """The records of an accelerator with those of the CPU of the same machine, oldest first.

    A machine may have several of each, since one run need not hold all the models.
    """

    cpu: tuple[Record, ...]
    accelerator: tuple[Record, ...]

    @property
    def name(self) -> str:
        """The accelerator's."""
        return self.accelerator[-1].device.name

    @property
    def caption(self) -> str:
        return self.accelerator[-1].caption

    def speedups(self) -> list[Speedup]:
        """Of every step that both have timed with the same model, batch and options."""
        on_cpu, on_accelerator = _newest_timed(self.cpu), _newest_timed(self.accelerator)
        return [
            speedup(result.label, result.work, on_cpu[label].timing, result.timing)
            for label, result in on_accelerator.items()
            if result.work and label in on_cpu
        ]


@dataclass(frozen=True)
class Reported:
    """A row of the second article: seconds, as reported there, not measured."""

    model: str
    description: str
    cpu_s: float
    mps_s: float
    hardware: str
    software: str

    @property
    def speedup(self) -> float:
        return self.cpu_s / self.mps_s


def speedup(label: Label, work: Work, cpu: Timing, accelerator: Timing) -> Speedup:
    """The speed-up of a step from two timings that were not interleaved."""
    return Speedup(label, work, ratio_of_timings(cpu, accelerator))


def pairs(recorded: Iterable[Record]) -> list[Pair]:
    """Accelerators whose own machine's CPU was recorded too, with the same torch."""
    found: dict[tuple, dict[str, list[Record]]] = {}
    for record in sorted(recorded, key=lambda record: record.finished):
        devices = found.setdefault((_machine(record), record.software["torch"]), {})
        devices.setdefault(record.device.type, []).append(record)
    return [
        Pair(tuple(devices["cpu"]), tuple(accelerator))
        for devices in found.values()
        for device, accelerator in devices.items()
        if device != "cpu" and "cpu" in devices
    ]


def article(folder: Path = ARTICLE) -> list[Reported]:
    """The three rows of the second article."""
    with (folder / "training-times.csv").open(encoding="utf-8", newline="") as file:
        return [
            Reported(**{**row, "cpu_s": float(row["cpu_s"]), "mps_s": float(row["mps_s"])})
            for row in csv.DictReader(file)
        ]


def _newest_timed(kept: tuple[Record, ...]) -> dict[str, Result]:
    """The timed steps by their label; of several with one label, the newest."""
    return {
        str(result.label): result
        for record in kept
        for result in record.results
        if result.timing is not None and result.energy is None and result.label.is_rung
    }


def _machine(record: Record) -> tuple:
    """What tells one machine from another: a few bytes of memory may come and go."""
    machine = record.machine
    return machine.system, machine.chip, machine.cores, round(machine.memory_gib)
