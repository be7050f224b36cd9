"""What the records say, laid side by side for the chapters: rates, gains, utilisation, energy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace

import pandas as pd
import torch

from macgpu.measure import records
from macgpu.measure.ceilings import peak_flops
from macgpu.measure.footprint import EMPTIED, SIZES
from macgpu.measure.jobs import Job
from macgpu.measure.records import Comparison, Footprint, Label, Record, Result
from macgpu.measure.steps import ladder
from macgpu.measure.timing import Ratio, ratio_of_timings
from macgpu.models import CASES
from macgpu.words import gib, percent


def newest(wanted: Callable[[Record], bool]) -> Record | None:
    """The newest of the records that are wanted; ``None`` where there is none."""
    return max(filter(wanted, records.read_all()), key=lambda r: r.finished, default=None)


def newest_of_each(models: Iterable[str], device_type: str) -> dict[str, Record]:
    """For each model, the record of its training steps on such a device.

    It is the newest of those with the most steps: a run that was cut off has fewer. One run need
    not have held all the models; a model that no run has timed is left out.
    """
    measured = [
        record
        for record in records.read_all()
        if record.device.type == device_type and "models" in record.suites
    ]
    found = {
        model: max(
            (record for record in measured if timed_steps(record, model)),
            key=lambda record, model=model: (len(steps(record, model)), record.finished),
            default=None,
        )
        for model in models
    }
    return {model: record for model, record in found.items() if record}


def captions(kept: dict[str, Record]) -> str:
    """What stands below a table or figure of these records: each machine and day once."""
    return " ".join(dict.fromkeys(record.caption for record in kept.values()))


def steps(record: Record | None, model: str) -> list[Result]:
    """The book's own training steps of a model, from plain to tuned, failed ones included."""
    return [
        result
        for result in (record.results if record else ())
        if result.energy is None
        and (result.label.model, result.label.code) == (model, "macgpu")
        and result.label.is_rung
    ]


def timed_steps(record: Record | None, model: str) -> list[Result]:
    """Those of :func:`steps` that have a time."""
    return [result for result in steps(record, model) if result.timing]


def precisions(record: Record | None, model: str) -> dict[str, Result]:
    """The timed results of a model's plain step by data type: of the suite "precision" where the
    record has it, else of the ladder, which has no float16."""
    plain = [
        result
        for result in (record.results if record else ())
        if result.timing
        and result.energy is None
        and (result.label.model, result.label.code) == (model, "macgpu")
        and not result.label.options.tuned
    ]
    own = [result for result in plain if not result.label.is_rung]
    return {result.label.options.peak: result for result in own or plain}


def rates(kept: dict[str, Record]) -> pd.DataFrame:
    """Samples per second: a row for each model, a column for each step; a failure in its words.

    ``kept`` is a record for each model, as :func:`newest_of_each` gives.
    """
    return _wide(
        (
            f"{model}, batch {result.label.batch_size}",
            result.label.step,
            f"{result.samples_per_s:,.0f}" if result.timing else result.failure,
        )
        for model, record in kept.items()
        for result in steps(record, model)
    )


def window_words(measured: Result, ladder_run: Record | None) -> str:
    """Why the rate of an energy's window is not that of the timing: what is known, and what not.

    ``measured`` has an energy and a timing; ``ladder_run`` is the record of the model's ladder.
    """
    energy, label = measured.energy, measured.label
    blocks = len(energy.trace_s) - 1
    steps_per_block = energy.samples / label.batch_size / blocks
    gap_s = energy.window_s / blocks - steps_per_block * measured.timing.median_s
    words = (
        f"{label.model}, batch {label.batch_size}, {label.step}: "
        f"{energy.samples / energy.window_s:,.0f} samples a second within the window of the "
        f"energy, {measured.samples_per_s:,.0f} timed in the same run before it. In the window the "
        "meter is read after each block, while the device waits; per block the window takes "
        f"{1e3 * gap_s:.1f} ms more than its steps do by the timing. Whether the card also ran at "
        "a lower clock there was not recorded."
    )
    for other in timed_steps(ladder_run, label.model):
        if other.label == label:
            words += (
                f" The newest ladder has {other.samples_per_s:,.0f} for the same step: another "
                f"run, of {_minute(ladder_run)}. Why two runs differ was not looked into."
            )
    return words


def dash_words(kept: dict[str, Record]) -> str:
    """Why a table of :func:`rates` has a dash where it has one; empty where it has none."""
    taken = {model: [result.label.step for result in steps(r, model)] for model, r in kept.items()}
    columns = dict.fromkeys(step for found in taken.values() for step in found)
    sentences = []
    for step in columns:
        without = [model for model in kept if step not in taken[model]]
        possible = [
            model
            for model in without
            if step in dict(ladder(CASES[model], torch.device(kept[model].device.type)))
        ]
        idle = [model for model in without if model not in possible]
        if idle:
            sentences.append(f"{step} changes nothing for {' and '.join(idle)}.")
        sentences += [
            f"{model} has no {step}: its row is from the run of {_minute(kept[model])}, which "
            "holds more of the model's ladder than any newer one, but not this rung."
            for model in possible
        ]
    return " ".join(sentences)


def gains(kept: dict[str, Record]) -> pd.DataFrame:
    """How many times faster each step is than the timed one before it.

    Columns: model, step, gain; the gain is NaN where the interval of the ratio includes 1.
    """
    rows = []
    for model, record in kept.items():
        timed = timed_steps(record, model)
        for before, after in zip(timed, timed[1:], strict=False):
            ratio = ratio_of_timings(before.timing, after.timing)
            shown = ratio.verdict != "no difference shown"
            rows.append((model, after.label.step, ratio.median if shown else None))
    return pd.DataFrame(rows, columns=["model", "step", "gain"]).astype({"gain": float})


def gain_table(gained: pd.DataFrame) -> pd.DataFrame:
    """:func:`gains` to be read: a row for each model, a column for each step."""
    return _wide(
        (row.model, row.step, "none" if pd.isna(row.gain) else f"×\u00a0{row.gain:.2f}")
        for row in gained.itertuples()
    )


def utilisation(result: Result, record: Record) -> float | None:
    """Model FLOPs utilisation against the record's own peak of the step's data type, from 0 to 1.

    Chowdhery et al., PaLM (2022), appendix B. ``None`` where one of the two was not measured.
    """
    peak = peak_flops(record.ceilings, result.label.options.peak)
    if peak is None or result.flops_per_s is None:
        return None
    return result.flops_per_s / peak


def energies(record: Record | None) -> list[Result]:
    """The results whose energy was measured, in the record's order."""
    return [
        result
        for result in (record.results if record else ())
        if result.energy is not None and result.energy.reason is None
    ]


def energy_table(results: list[Result]) -> pd.DataFrame:
    """Speed, power and energy of each result that has an energy, as numbers.

    The rate is that of the energy's own window.
    """
    return pd.DataFrame(
        {
            "step": result.label.step,
            "batch": result.label.batch_size,
            "samples/s": result.energy.samples / result.energy.window_s,
            "idle (W)": result.energy.idle_w,
            "mean (W)": result.energy.gross_j / result.energy.window_s,
            "gross (J/sample)": result.energy.gross_j_per_sample,
            "net (J/sample)": result.energy.net_j_per_sample,
        }
        for result in results
    )


def energy_shown(results: list[Result]) -> pd.DataFrame:
    """:func:`energy_table` to be read: rates and watts with one decimal, joules with three."""
    table = energy_table(results)
    for column in table:
        if column not in ("step", "batch"):
            form = "{:.3f}" if column.endswith("(J/sample)") else "{:,.1f}"
            table[column] = table[column].map(form.format)
    return table


def _minute(record: Record) -> str:
    return f"{record.finished[:16].replace('T', ' ')} UTC"


def _wide(cells: Iterable[tuple[str, str, str]]) -> pd.DataFrame:
    """A table of (row, column, text), both in their order of appearance; a dash where empty."""
    rows: dict[str, dict[str, str]] = {}
    for row, column, text in cells:
        rows.setdefault(row, {})[column] = text
    columns = dict.fromkeys(column for row in rows.values() for column in row)
    return pd.DataFrame(rows.values(), index=list(rows), columns=list(columns)).fillna("–")


def newest_footprints(device_type: str) -> Record | None:
    """The newest record of such a device that holds footprints, completed by older runs of it.

    One run need not hold all the models. Of the same step, the newest counts; of the comparisons
    with an emptied cache, all are there.
    """
    found = newest(lambda record: record.device.type == device_type and bool(record.footprints))
    if found is None:
        return None
    points: dict[tuple[object, ...], Footprint] = {}
    emptied: list[Comparison] = []
    for record in sorted(records.read_all(), key=lambda record: record.finished):
        if (record.device.name, record.software["torch"]) == (
            found.device.name,
            found.software["torch"],
        ):
            for point in record.footprints:
                key = point.model, point.batch_size, point.autocast, point.checkpointed
                points[key] = point
            emptied += [pair for pair in record.comparisons if pair.a.step == EMPTIED]
    return replace(found, footprints=tuple(points.values()), comparisons=tuple(emptied))


def footprints(record: Record | None) -> list[Footprint]:
    """The footprints of a record that have a measured peak."""
    return [point for point in (record.footprints if record else ()) if point.peak_bytes]


def footprint_table(record: Record | None) -> pd.DataFrame:
    """Of each model and way, the largest batch that ran, and the one that did not.

    One that ran nowhere is a row with its failure in place of the rate.
    """
    points = record.footprints if record else ()
    rows: dict[tuple[str, str], dict[str, object]] = {(p.model, p.way): {} for p in points}
    for point in sorted(points, key=lambda point: point.batch_size):
        row = rows[point.model, point.way]
        if point.failure and row:
            row["beyond"] = f"{point.batch_size}: {point.failure}"
            continue
        row |= {
            "model": point.model,
            "step": point.way,
            "batch": point.batch_size,
            "predicted": gib(point.predicted_bytes),
            "measured": gib(point.peak_bytes),
            "reserved": gib(point.reserved_bytes),
            "samples/s": point.failure or f"{point.samples_per_s:,.0f}",
            "beyond": "",
        }
    return pd.DataFrame(rows.values())


def prediction_words(record: Record | None, tolerance: float) -> str:
    """How many predictions came within ``tolerance`` (a share) of the measured peak, which did not.

    And which models of the suite's largest profile no run has measured yet.
    """
    points = footprints(record)
    errors = [abs(point.error) for point in points]
    if not errors:
        return (
            "There is no record yet that predicts and measures step by step; "
            "the suite memory of macgpu bench makes one."
        )
    within = sum(error <= tolerance for error in errors)
    worst = max(points, key=lambda point: abs(point.error))
    models = dict.fromkeys(point.model for point in points)
    twice = {point.model for point in points if point.checkpointed}
    absent = [model for model in SIZES["full"] if model not in models]
    once = [model for model in models if model not in twice]
    words = (
        f"On {record.device.name}, in its records, {len(errors)} steps of the book's models were "
        f"predicted and then measured, each after its warm-up ({', '.join(models)}). "
        f"The prediction was within {percent(tolerance)} of the measured peak for "
        f"{'all' if within == len(errors) else within} of them; the largest error was "
        f"{percent(max(errors), 1)}: {worst.model}, {worst.way}, at batch {worst.batch_size}, "
        f"{gib(worst.predicted_bytes, 2)} predicted and {gib(worst.peak_bytes, 2)} measured."
    )
    outside = [point for point in points if abs(point.error) > tolerance]
    if outside:
        ways = dict.fromkeys(f"{point.model} ({point.way})" for point in outside)
        words += f" Those further off are of {', '.join(ways)}."
    if absent:
        words += f" Not measured there yet: {', '.join(absent)}."
    if once:
        words += f" With checkpointing, not yet: {', '.join(once)}."
    return words


def _checkpointed_pairs(record: Record | None) -> list[tuple[list[Footprint], list[Footprint]]]:
    """Of each model and data type that has both, the footprints without checkpointing and with."""
    found: dict[tuple[str, str | None], tuple[list[Footprint], list[Footprint]]] = {}
    for point in footprints(record):
        both = found.setdefault((point.model, point.autocast), ([], []))
        both[point.checkpointed].append(point)
    return [both for both in found.values() if all(both)]


def checkpointing_table(record: Record | None) -> pd.DataFrame:
    """What checkpointing takes of memory and rate, at the largest batch that ran both ways.

    Numeric shares ``memory`` and ``rate``, 1 for those without it, and ``best rate``: the same of
    each way's own best batch.
    """
    rows = []
    for without, again in _checkpointed_pairs(record):
        sizes = {point.batch_size: point for point in without}
        shared = [point for point in again if point.batch_size in sizes]
        if not shared:
            continue
        on = max(shared, key=lambda point: point.batch_size)
        off = sizes[on.batch_size]
        best_off, best_on = (max(p.samples_per_s for p in side) for side in (without, again))
        rows.append(
            {
                "model": on.model,
                "type": on.autocast or "float32",
                "batch": on.batch_size,
                "without": gib(off.peak_bytes),
                "with it": gib(on.peak_bytes),
                "memory": on.peak_bytes / off.peak_bytes,
                "rate": on.samples_per_s / off.samples_per_s,
                "best rate": best_on / best_off,
            }
        )
    return pd.DataFrame(rows)


def checkpointing_words(record: Record | None) -> str:
    """What checkpointing saved and cost, and whether a larger batch paid; empty without pairs."""
    table = checkpointing_table(record)
    if table.empty:
        return ""

    def span(column: str) -> str:
        low, high = table[column].min(), table[column].max()
        several = percent(low) != percent(high)
        return f"{100 * low:.0f} to {percent(high)}" if several else percent(high)

    words = (
        f"On the card in the record, a step with checkpointing takes {span('memory')} of the "
        f"memory, and trains at {span('rate')} of the rate, at the same batch."
    )
    gained = table[table["best rate"] > 1]
    if gained.empty:
        return words + (
            " The larger batch that it makes room for does not make up for that there: at the "
            f"best batch of each, it trains at {span('best rate')} of the rate."
        )
    return words + (
        " With the best batch of each, it is the faster one for "
        f"{', '.join(gained['model'] + ' in ' + gained['type'])}."
    )


def emptying_words(record: Record | None) -> str:
    """What emptying the cache in each step costs, over all runs; empty where none compared it."""
    runs: dict[Label, list[Ratio]] = {}
    for pair in record.comparisons if record else ():
        if pair.a.step == EMPTIED:
            runs.setdefault(pair.a, []).append(pair.ratio)
    sentences = []
    for label, ratios in runs.items():
        medians = [ratio.median for ratio in ratios]
        shown = dict.fromkeys(f"{median:.2f}" for median in (min(medians), max(medians)))
        bounds = f"{min(r.low for r in ratios):.2f} to {max(r.high for r in ratios):.2f}"
        several = f"in {len(ratios)} runs, intervals from " if len(ratios) > 1 else ""
        sentences.append(
            f"On the card in the record, {label.model} at batch {label.batch_size} takes "
            f"{' to '.join(shown)} times as long ({several}{bounds})."
        )
    return " ".join(sentences)


def jobs_of(name: str) -> list[tuple[Record, Job]]:
    """What the records hold of a job's recipe, each with its record, from old to new."""
    found = [
        (record, job)
        for record in records.read_all()
        for job in record.jobs
        if (job.name, job.variant) == (name, "recipe")
    ]
    return sorted(found, key=lambda pair: pair[0].finished)


def fullest_job(name: str) -> Record | None:
    """The record that trained the job's recipe from the most seeds; of several, the newest.

    One epoch is no training: a record may hold it for the sake of its speed.
    """
    found = [(record, job) for record, job in jobs_of(name) if job.epoch_s]
    best = max(found, key=lambda p: (len(p[1].runs), p[0].finished), default=None)
    return best[0] if best else None


def ways_table(name: str) -> pd.DataFrame:
    """How fast a job's recipe was trained, one row a device and way of computing, in words.

    Of equal ways the newest counts, for the time of an epoch and for the last column each: a pass
    may have been timed beside a plain loop's, computed in the same way, in another record.
    """
    ways: dict[tuple[str, str], dict[str, object]] = {}
    for record, job in jobs_of(name):
        device = record.device.name
        row = ways.setdefault((device, str(job.options)), {"device": device})
        row["compiled"] = job.options.compiled or "no"
        if job.epoch_s:
            row["seconds an epoch"] = f"{job.epoch_s:.2f}"
            row["samples a second"] = f"{job.samples_per_s:,.0f}"
        if job.over_plain:
            row["time over a plain loop's"] = str(job.over_plain)
    columns = ["device", "compiled", "seconds an epoch", "samples a second"]
    columns.append("time over a plain loop's")
    table = pd.DataFrame(ways.values(), columns=columns, dtype=object)
    return table.fillna("not measured").set_index("device")


def job_table(record: Record, name: str) -> pd.DataFrame:
    """The variants of a job that a record holds, one row each, scores in per cent.

    A part that leaves the training as it is has its row from the recipe's own runs, so its gain is
    paired by seed there; elsewhere the gain is the difference of the means.
    """
    jobs = [job for job in record.jobs if job.name == name]
    rows = [(job.variant, job.final, job.epoch_s) for job in jobs]
    for job in jobs:
        if job.variant == "recipe":
            for part in job.runs[0].without:
                rows.append((f"without {part}", [run.without[part] for run in job.runs], None))
    table = pd.DataFrame(
        {
            "variant": variant,
            "seeds": len(scores),
            "mean": 100 * statistics.mean(scores),
            "lowest": 100 * min(scores),
            "highest": 100 * max(scores),
            "seconds an epoch": f"{seconds:.2f}" if seconds else "–",
        }
        for variant, scores, seconds in rows
    )
    return table.set_index("variant")


def generation_table(record: Record) -> pd.DataFrame:
    """The generators that a record holds and both bounds of their quality, one row each, in words.

    Of several seeds the median is shown, with the number of them.
    """
    made = {each.variant: each for each in record.generations}
    bounds = {name: getattr(record.generations[0], name) for name in ("real", "noise")}
    rows = [
        {
            "pictures": name,
            "iterations": f"{each.runs[0].looks[-1].iterations:,}",
            "seeds": f"{len(each.runs)}",
            "distance": f"{each.distance:.3g}",
            "precision": f"{each.precision:.2f}",
            "recall": f"{each.recall:.2f}",
            "ms an iteration": f"{1e3 * each.iteration_s:.2f}",
            "time over a plain loop's": str(each.over_plain or "not measured"),
        }
        for name, each in made.items()
    ]
    rows += [
        {
            "pictures": name,
            "distance": f"{bound.distance:.3g}",
            "precision": f"{bound.precision:.2f}",
            "recall": f"{bound.recall:.2f}",
        }
        for name, bound in bounds.items()
    ]
    return pd.DataFrame(rows).fillna("–").set_index("pictures")
