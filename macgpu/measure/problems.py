"""What is wrong with a record whose fields are each of the right type."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from macgpu.machine import DEVICES
from macgpu.measure.fields import unfit
from macgpu.measure.timing import EFFORTS

if TYPE_CHECKING:
    from macgpu.measure.records import Record
    from macgpu.measure.timing import Ratio, Timing
    from macgpu.parallel.scaling import Scaling

BEGUN = datetime(2026, 11, 30, tzinfo=timezone.utc)
"""When the first record was made: a clock that says less is wrong, and no date is judged by it."""

MOST_FLOPS = 1e17
MOST_BYTES = 1e15
"""A second, of one device: many times what any has. More is a slip, or made up."""
LARGEST = 10**24
"""Of a whole number: what is larger counts nothing here."""


def unfit_values(value: object, field: str = "") -> Iterator[tuple[str, str]]:
    """Each text and whole number anywhere in a record that none may hold: its field, and why."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from unfit_values(key, field)
            yield from unfit_values(part, f"{field}.{key}".lstrip("."))
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from unfit_values(part, f"{field}.{number}")
    elif isinstance(value, str) and (odd := unfit(value)):
        yield field, f"holds {ascii(odd)}, which no text of a record does"
    elif isinstance(value, int) and abs(value) > LARGEST:
        yield field, "is too large a number"


def problems(record: Record) -> Iterator[tuple[str, str]]:
    """What no field shows by itself: the field, and what is wrong."""
    if record.device.type == "cuda" and record.machine.is_mac:
        yield "device.type", "is cuda, which no Mac has"
    if record.device.type == "cpu" and record.device.name != record.machine.chip:
        yield "device.name", f"is not the machine's processor, {record.machine.chip}"
    if problem := _date_problem(record.finished):
        yield "finished", problem
    if "torch" not in record.software:
        yield "software.torch", "is missing"
    if record.device.type not in DEVICES:
        yield "device.type", f"is none of {', '.join(DEVICES)}"
    for part in ("machine", "device"):
        for field in ("cores", "memory_bytes"):
            value = getattr(getattr(record, part), field)
            if value is not None and value < 1:
                yield f"{part}.{field}", "is less than 1"
    for field, samples, median in _medians(record):
        if not math.isclose(statistics.median(samples), median, rel_tol=1e-6):
            yield field, "is not the median of its samples"
    for field, low, median, high in _intervals(record):
        if not low <= median <= high:
            yield field, "is outside of its interval"
    for number, job in enumerate(record.jobs):
        for place, run in enumerate(job.runs):
            if len(run.scores) != len(run.seconds):
                yield f"jobs.{number}.runs.{place}", "not each epoch has a score and a time"
    for number, generation in enumerate(record.generations):
        for place, run in enumerate(generation.runs):
            ends = [look.iterations for look in run.looks]
            if len(ends) != len(run.seconds):
                yield f"generations.{number}.runs.{place}", "not each look has a time"
            if ends != sorted(set(ends)):
                yield f"generations.{number}.runs.{place}", "the looks are not in order"
    for field, measured, failure in _outcomes(record):
        if (measured is None) == (failure is None):
            yield f"{field}.failure", "there must be a measurement or a failure, not both"
    if problem := _profile_problem(record):
        yield "profile", problem
    for field, error, allowed in _passed(record):
        if error > allowed:
            yield field, f"is {error:.2g}, {allowed:.2g} is allowed, and it is marked as passed"
    for field, rate, most in _rates(record):
        if rate > most:
            yield field, f"{rate:.3g} a second is more than any device does"
    for field in _repeated(record):
        yield field, "is there twice"


def _date_problem(finished: str) -> str | None:
    try:
        moment = datetime.fromisoformat(finished)
    except ValueError:
        return "is no date that there is"
    # A day is more than two clocks differ by.
    latest = max(datetime.now(timezone.utc), BEGUN) + timedelta(days=1)
    return "lies in the future" if moment > latest else None


def _profile_problem(record: Record) -> str | None:
    """That times were taken with the effort of another profile, or ``None``."""
    timings = [entry.timing for entry in (*record.ceilings, *record.results) if entry.timing]
    for profile, effort in EFFORTS.items():
        if profile != record.profile and effort.blocks in (len(t.block_seconds) for t in timings):
            return f"is {record.profile}, and a time of {effort.blocks} blocks is of {profile}"
    return None


def _passed(record: Record) -> Iterator[tuple[str, float, float]]:
    """Each error of a comparison that is marked as passed: its field, and what was allowed."""
    for number, result in enumerate(record.results):
        if result.parity is not None and result.parity.passed:
            for name, allowed in asdict(result.parity.tolerance).items():
                error = getattr(result.parity, name)
                if error is not None:
                    yield f"results.{number}.parity.{name}", error, allowed


def _rates(record: Record) -> Iterator[tuple[str, float, float]]:
    """Each rate of operations or bytes with its field, and the most that there is."""
    for part in ("ceilings", "results"):
        for number, entry in enumerate(getattr(record, part)):
            yield f"{part}.{number}.flops", entry.flops_per_s or 0.0, MOST_FLOPS
    for number, cell in enumerate(record.ceilings):
        yield f"ceilings.{number}.bytes", cell.bytes_per_s or 0.0, MOST_BYTES


def _repeated(record: Record) -> Iterator[str]:
    """The field of each entry about the very thing that an entry before it was about."""
    about = {
        "ceilings": lambda e: (e.kind, e.dtype, e.size),
        "results": lambda e: (e.label, e.energy is not None),
        "comparisons": lambda e: (e.a, e.b),
        "loading": lambda e: replace(e, timing=None, failure=None),
        "jobs": lambda e: (e.name, e.data, e.variant, e.settings),
        "generations": lambda e: (e.data, e.variant, e.settings),
        "footprints": lambda e: (e.model, e.batch_size, e.way),
    }
    for part, subject in about.items():
        subjects = [subject(entry) for entry in getattr(record, part)]
        for number, one in enumerate(subjects):
            if one in subjects[:number]:
                yield f"{part}.{number}"


def _outcomes(record: Record) -> Iterator[tuple[str, object, str | None]]:
    """Of each case its field, what was measured, and why nothing was."""
    for part in ("ceilings", "results", "loading"):
        for number, entry in enumerate(getattr(record, part)):
            energy = getattr(entry, "energy", None)
            # Without a meter there is neither a time nor a failure: the energy says why.
            yield f"{part}.{number}", entry.timing or energy, entry.failure
    for number, footprint in enumerate(record.footprints):
        yield f"footprints.{number}", footprint.samples_per_s, footprint.failure


def _intervals(record: Record) -> Iterator[tuple[str, float, float, float]]:
    """Each stated median with its field, between the bounds of its interval."""
    for part in ("ceilings", "results"):
        for number, entry in enumerate(getattr(record, part)):
            if (timing := entry.timing) is not None:
                field = f"{part}.{number}.timing.median_s"
                yield field, timing.low_s, timing.median_s, timing.high_s
    for number, comparison in enumerate(record.comparisons):
        ratio = comparison.ratio
        yield f"comparisons.{number}.ratio.median", ratio.low, ratio.median, ratio.high
    for field, ratio in _over_plain(record):
        yield f"{field}.median", ratio.low, ratio.median, ratio.high


def _medians(record: Record) -> Iterator[tuple[str, Sequence[float], float]]:
    """Each stated median with its field and the raw samples that it must come from."""
    for part in ("ceilings", "results"):
        for number, entry in enumerate(getattr(record, part)):
            timing = entry.timing
            if timing is not None:
                samples = [block / timing.steps_per_block for block in timing.block_seconds]
                yield f"{part}.{number}.timing.median_s", samples, timing.median_s
    for number, comparison in enumerate(record.comparisons):
        ratio = comparison.ratio
        yield f"comparisons.{number}.ratio.median", ratio.pairs, ratio.median
    for number, entry in enumerate(record.loading):
        timing = entry.timing
        for part in ("loader", "model", "both") if timing else ():
            samples = [getattr(one, part) / timing.steps for one in timing.passes]
            yield f"loading.{number}.timing.{part}_s", samples, getattr(timing, f"{part}_s")
    for field, timing in _scaling_timings(record.scaling):
        samples = [block / timing.steps_per_block for block in timing.block_seconds]
        yield f"{field}.timing.median_s", samples, timing.median_s
    for number, speedup in enumerate(record.scaling.speedups if record.scaling else ()):
        ratio = speedup.ratio
        yield f"scaling.speedups.{number}.ratio.median", ratio.pairs, ratio.median
    for field, ratio in _over_plain(record):
        yield f"{field}.median", ratio.pairs, ratio.median


def _over_plain(record: Record) -> Iterator[tuple[str, Ratio]]:
    """Each comparison with a plain loop, with its field."""
    for part in ("jobs", "generations"):
        for number, entry in enumerate(getattr(record, part)):
            if entry.over_plain is not None:
                yield f"{part}.{number}.over_plain", entry.over_plain


def _scaling_timings(scaling: Scaling | None) -> Iterator[tuple[str, Timing]]:
    for part in ("collectives", "steps") if scaling else ():
        for number, entry in enumerate(getattr(scaling, part)):
            if entry.timing is not None:
                yield f"scaling.{part}.{number}", entry.timing
