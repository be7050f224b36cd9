"""How many times faster an accelerator takes a training step than the CPU beside it."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from macgpu.measure.ceilings import peak_flops
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
    cpu: Timing
    accelerator: Timing

    @property
    def intensity(self) -> float:
        """Operations per byte of the step, both counted (:mod:`macgpu.measure.flops`)."""
        return self.work.flops / self.work.bytes


@dataclass(frozen=True)
class Pair:
    """The records of an accelerator with those of the CPU of the same machine.

    A machine may have several of each, since one run need not hold all the models. Those of the
    profile "full" come last, each kind oldest first, and of one step the last counts.
    """

    cpu: tuple[Record, ...]
    accelerator: tuple[Record, ...]

    @property
    def name(self) -> str:
        """The accelerator's."""
        return self.accelerator[-1].device.name

    @property
    def caption(self) -> str:
        """What stands below the speed-ups: the records that they come from, of both devices."""
        return " ".join(
            dict.fromkeys(
                record.caption for side in zip(*self._shared(), strict=True) for record, _ in side
            )
        )

    def speedups(self) -> list[Speedup]:
        """Of every step that both have timed with the same model, batch and options."""
        return [
            speedup(result.label, result.work, on_cpu.timing, result.timing)
            for (_, result), (_, on_cpu) in self._shared()
        ]

    def shares_of_peak(self, found: Speedup) -> tuple[float, float] | None:
        """What the step reaches on the CPU, and on the accelerator, of its best matrix product.

        In the data type of the step, over all records of the device, from 0 to 1. ``None`` where
        a peak was not measured.
        """
        peaks = self.peaks(found.label.options.peak)
        if peaks is None:
            return None
        cpu, accelerator = (
            found.work.flops / timing.median_s / peak
            for timing, peak in zip((found.cpu, found.accelerator), peaks, strict=True)
        )
        return cpu, accelerator

    def peaks(self, dtype: str) -> tuple[float, float] | None:
        """The best matrix product of the CPU and of the accelerator, in operations per second."""
        cpu, accelerator = (
            max(filter(None, (peak_flops(r.ceilings, dtype) for r in kept)), default=None)
            for kept in (self.cpu, self.accelerator)
        )
        return (cpu, accelerator) if cpu and accelerator else None

    def _shared(self) -> list[tuple[tuple[Record, Result], tuple[Record, Result]]]:
        """The accelerator's and the CPU's record and result of every step that both have."""
        on_cpu, on_accelerator = _newest_timed(self.cpu), _newest_timed(self.accelerator)
        return [
            ((record, result), on_cpu[label])
            for label, (record, result) in on_accelerator.items()
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
    return Speedup(label, work, ratio_of_timings(cpu, accelerator), cpu, accelerator)


def in_order(recorded: Iterable[Record]) -> list[Record]:
    """Those of the profile "full" last, each kind oldest first: of one step the last counts."""
    return sorted(recorded, key=lambda record: (record.profile == "full", record.finished))


def pairs(recorded: Iterable[Record]) -> list[Pair]:
    """Accelerators whose own machine's CPU was recorded too, with the same torch."""
    found: dict[tuple, dict[str, list[Record]]] = {}
    for record in in_order(recorded):
        devices = found.setdefault((_machine(record), record.software["torch"]), {})
        devices.setdefault(record.device.type, []).append(record)
    return [
        Pair(tuple(devices["cpu"]), tuple(accelerator))
        for devices in found.values()
        for device, accelerator in devices.items()
        if device != "cpu" and "cpu" in devices
    ]


def held_words(pair: Pair) -> str:
    """Which steps the records hold on both sides, in a sentence."""
    labels = [found.label for found in pair.speedups()]
    sweep = len({label.model for label in labels}) < len(labels)
    return (
        f"Of the {pair.name} and the CPU beside it, the book's records hold these steps on both "
        f"sides: {'; '.join(map(str, labels))}."
        + ("" if sweep else " Each model is there once, which is no sweep.")
    )


def order_words(pair: Pair) -> str:
    """Where a step of higher intensity gains less, and what each side makes of its peak there."""
    sentences = []
    peaks = pair.peaks("float32")
    if peaks:
        sentences.append(
            f"In float32 the best product of the {pair.name} is {peaks[1] / peaks[0]:.0f} times "
            "that of the CPU beside it."
        )
    by_intensity = sorted(pair.speedups(), key=lambda found: found.intensity)
    for less, more in itertools.combinations(by_intensity, 2):
        shares = pair.shares_of_peak(less), pair.shares_of_peak(more)
        if less.ratio.median <= more.ratio.median or not all(shares):
            continue
        (less_cpu, less_card), (more_cpu, more_card) = shares
        overlap = "" if less.ratio.low > more.ratio.high else ", with intervals that overlap"
        sentences.append(
            f"{less.label.model} gains {less.ratio.median:.1f}-fold and {more.label.model} "
            f"{more.ratio.median:.1f}-fold{overlap}, although the intensity of "
            f"{more.label.model} is {more.intensity / less.intensity:.1f} times as high: the "
            f"accelerator's share over the CPU's is {less_card / less_cpu:.2f} for "
            f"{less.label.model} and {more_card / more_cpu:.2f} for {more.label.model}."
        )
    return " ".join(sentences)


def article(folder: Path = ARTICLE) -> list[Reported]:
    """The three rows of the second article."""
    with (folder / "training-times.csv").open(encoding="utf-8", newline="") as file:
        return [
            Reported(**{**row, "cpu_s": float(row["cpu_s"]), "mps_s": float(row["mps_s"])})
            for row in csv.DictReader(file)
        ]


def _newest_timed(kept: tuple[Record, ...]) -> dict[str, tuple[Record, Result]]:
    """The timed steps by their label, with their record; of several with one label, the last."""
    return {
        str(result.label): (record, result)
        for record in kept
        for result in record.results
        if result.timing is not None and result.energy is None and result.label.is_rung
    }


def _machine(record: Record) -> tuple:
    """What tells one machine from another: a few bytes of memory may come and go."""
    machine = record.machine
    return machine.system, machine.chip, machine.cores, round(machine.memory_gib)
