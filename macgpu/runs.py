"""The same training step in several runs of one device: how far apart its times are."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from macgpu.measure import records
from macgpu.measure.records import Label, Record, Result
from macgpu.words import percent


@dataclass(frozen=True)
class Repeated:
    """One step, timed in two runs or more."""

    label: Label
    """As the ladder has it, where a ladder does."""
    results: tuple[Result, ...]
    """One of each run, the slowest first."""

    @property
    def spread(self) -> float:
        """The rate of the fastest run over that of the slowest, less one."""
        return self.results[-1].samples_per_s / self.results[0].samples_per_s - 1

    @property
    def flagged(self) -> bool:
        """Whether a run of it was noisy or not warm."""
        return any(result.timing.flags for result in self.results)

    def __str__(self) -> str:
        slowest, fastest = (self.results[i].samples_per_s for i in (0, -1))
        return (
            f"{self.label.model}, {self.label.step}, {slowest:,.0f} to {fastest:,.0f} "
            f"({len(self.results)} runs)"
        )


def repeated(like: Record, models: Iterable[str]) -> list[Repeated]:
    """The book's own steps of these models that several runs timed, the widest spread first.

    The runs are those on a device of the same name as that of ``like``, with the same torch.
    """
    found: dict[tuple[object, ...], dict[str, Result]] = {}
    for record in records.read_all():
        if _setting(record) == _setting(like):
            for result in record.results:
                label = result.label
                if result.timing and label.model in models and label.code == "macgpu":
                    step = label.model, label.batch_size, label.options
                    found.setdefault(step, {}).setdefault(record.finished, result)
    several = []
    for runs in found.values():
        if len(runs) > 1:
            slowest_first = sorted(runs.values(), key=lambda result: result.samples_per_s)
            labels = sorted((r.label for r in slowest_first), key=lambda label: not label.is_rung)
            several.append(Repeated(labels[0], tuple(slowest_first)))
    return sorted(several, key=lambda one: one.spread, reverse=True)


def spread_words(steps: list[Repeated], wide: float) -> str:
    """How far apart the runs are, and how many steps are further apart than ``wide``, a share."""
    if not steps:
        return "No step has been timed in more than one run of this device yet."
    median = statistics.median(step.spread for step in steps)
    words = (
        f"Of {len(steps)} steps that more than one run has timed, the fastest run is "
        f"{percent(median, 1)} faster than the slowest in the median, and "
        f"{percent(steps[0].spread, 1)} at most."
    )
    far = [step for step in steps if step.spread > wide]
    if far:
        flagged = sum(step.flagged for step in far)
        words += (
            f" More than {percent(wide)} apart: {len(far)} of them; with a flag for noise or a "
            "warm-up that did not settle in one of their runs: "
            f"{'all' if flagged == len(far) else flagged} of these."
        )
    return words + " What differed between the runs was not looked for."


def _setting(record: Record) -> tuple[str, str]:
    return record.device.name, record.software["torch"]
