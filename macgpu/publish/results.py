"""The tables of the results page, made from the records: each machine, its headline figures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from macgpu.measure import records
from macgpu.measure.ceilings import bandwidth, peak_flops
from macgpu.measure.generation import Generation
from macgpu.measure.jobs import Job
from macgpu.measure.loading import Loading
from macgpu.measure.records import Comparison, Footprint, Label, Record, Result
from macgpu.measure.suites import CURVE_WITHIN
from macgpu.measure.timing import LEVEL, RATIO_LEVEL, Ratio
from macgpu.parallel.scaling import Speedup
from macgpu.words import flop_rate, gib, percent

EMPTY = "There is no record yet.\n"

KEY = f"""## How to read the tables

A dash stands where there is no figure: nothing was measured, or there is no meter or counter.

Provenance, profile
: *maintainer* was measured by the project, *reader* by a reader. *smoke*, *quick* and *full* are
  the sizes of {{term}}`profile`; compare records of one profile only.

Training step, batch, samples/s
: A model of the book's (after `bert-` stands the length in tokens), its data type, and what is
  tuned: {{term}}`channels_last`, the {{term}}`fused optimizer`, `torch.compile` with its mode.
  *timm's* and *transformers's* are those libraries' own steps. A batch is pictures or sentences a
  step; the rate is the batch over the time of a step.

Time of a step
: The median, and in brackets its interval, of {percent(LEVEL)}. *Not warm*: the times had not
  settled when the timing began; *noisy*: the blocks of steps scatter widely.

Its time over the other's, time over a plain loop's, speed-up
: Ratios of two programs that ran in turn, with an interval of {percent(RATIO_LEVEL)}. For a time,
  above 1 is slower; for a speed-up, above 1 is faster. *Over* says over how many devices a layer
  was split.

Measured ceilings
: The best rate of a matrix product, in operations a second, with the side of the square matrices;
  and of a copy, in bytes a second, reads and writes counted. A giga (G) is a thousand million, a
  tera (T) a thousand giga.

Predicted, measured, reserved, peak memory
: In GiB, of 2³⁰ bytes. *Predicted* is the planner's {{term}}`peak <peak memory>`, *measured* the
  most that tensors held, *reserved* what the allocator held, its cache included. *checkpointed*
  steps compute activations again ({{term}}`gradient checkpointing`).

Gross, net, idle
: Energy in joules a sample (J), power in watts (W). *Gross* is all that the meter saw, *net* the
  same less what the machine draws at rest ({{term}}`idle power`).

Loader, waiting
: *pictures*, *jpeg*, *mapped* and *resident* are the loaders of
  [data loading](../notebooks/05_data_loading.ipynb). *Waiting* is the share of a step with the
  loader that the step alone does not take. Each pass over the data times both, and the median of
  the passes' shares is shown. The two times beside it are medians of their own, so they may give a
  slightly different share.

Job, score
: A training from the data to a file: the data set, what was changed, and the recipe's numbers. The
  score is the mean over the seeds, ± its standard deviation.

Fréchet distance, precision, recall
: How near made pictures are to real ones: a distance, where less is nearer, with its bounds in
  parentheses (real against other real ones, and noise); and two shares, from 0 to 1. See
  [generation](../notebooks/17_generation_dcgan.ipynb).
"""


@dataclass(frozen=True)
class Link:
    """A cell that leads to a place on the page."""

    text: str
    target: str


def results_tables(folder: Path) -> str:
    """What stands below the page's introduction, in MyST Markdown: all records, then each.

    One that is refused is left out; the page and a line on standard error say why.
    """
    found, refused = records.sort_out(folder)
    records.say_refused(refused)
    left_out = [f"Left out: {_text(str(error))}." for error in refused]
    if not found:
        return "\n\n".join([*left_out, EMPTY])
    heading = ("Device", "Finished (UTC)", "Holds", "Profile", "Provenance", "torch")
    rows = [
        (
            f"{record.device.name} ({record.device.type})",
            Link(_moment(record), f"#{_anchor(name)}"),
            ", ".join(["ceilings"] * bool(record.ceilings) + list(_tables(record))),
            record.profile,
            record.provenance,
            record.software["torch"],
        )
        for name, record in found.items()
    ]
    words = [*left_out, KEY, *_curve_words(found.values()), "## The records"]
    sections = (_section(name, record) for name, record in found.items())
    return "\n\n".join([_table(heading, rows), *words, *sections])


def _curve_words(found: Iterable[Record]) -> list[str]:
    """What a row of a step that left the plain step's losses means, where there is one."""
    failures = [result.failure or "" for record in found for result in record.results]
    if not any(failure.startswith("wrong: curve") for failure in failures):
        return []
    return [
        'A step with "wrong: curve off by …" was not timed: its first losses left those of the '
        "plain step by more than the share of the first loss that was allowed when it was "
        "measured. After the first records the learning rate of the steps was lowered, and the "
        f"share for half-precision types set to {CURVE_WITHIN['bfloat16']:.2f}: ResNet-50 in "
        "bfloat16 had been off by more than the share before, on the benchmark's random labels."
    ]


def _section(name: str, record: Record) -> str:
    """A record: what can be read in passing, and its tables folded."""
    title = f"{record.device.name}, {_moment(record)}, {record.profile}"
    parts = [f"({_anchor(name)})=\n### {_text(title)}", _text(f"{record.caption} File: {name}")]
    ceilings = [
        f"{dtype} matrix product {_product(record, dtype, peak)}"
        for dtype in dict.fromkeys(cell.dtype for cell in record.ceilings)
        if (peak := peak_flops(record.ceilings, dtype))
    ]
    rate = bandwidth(record.ceilings)
    ceilings += [f"copy {rate / 1e9:,.0f} GB/s"] if rate else []
    if ceilings:
        parts.append(f"Measured ceilings: {_text(', '.join(ceilings))}.")
    tables = _tables(record)
    if tables:
        *others, last = tables
        shown = " and ".join(filter(None, (", ".join(others), last)))
        summary = f"<details><summary>Show {shown}</summary>"
        parts += [summary, *tables.values(), "</details>"]
    return "\n\n".join(parts) + "\n"


def _tables(record: Record) -> dict[str, str]:
    """The tables of a record by what they hold, in the order of the page; none that is empty."""
    timed = [result for result in record.results if result.energy is None]
    energies = [result for result in record.results if result.energy is not None]
    speedups = record.scaling.speedups if record.scaling else ()
    tables = {
        "training steps": (
            ("Training step", "Batch", "Samples/s", "Time of a step", "Peak memory"),
            map(_timed_row, timed),
        ),
        "comparisons": (
            ("In one run, in turn", "Beside", "Its time over the other's", "Verdict"),
            map(_comparison_row, record.comparisons),
        ),
        "split models": (
            ("Split over several", "Over", "How", "Speed-up over one of them"),
            map(_speedup_row, speedups),
        ),
        "energy": (
            ("Energy of", "Batch", "Gross", "Net", "Idle", "Meter"),
            map(_energy_row, energies),
        ),
        "loaders": (
            ("Loader", "Workers", "Images/s", "Step alone", "Step with loader", "Waiting"),
            map(_loading_row, record.loading),
        ),
        "memory": (
            ("Memory of", "Batch", "Predicted", "Measured", "Reserved", "Samples/s"),
            map(_footprint_row, record.footprints),
        ),
        "jobs": (
            ("Job", "Seeds", "Score", "An epoch", "Samples/s", "Time over a plain loop's"),
            map(_job_row, record.jobs),
        ),
        "generators": (
            (
                "Generator",
                "Seeds",
                "Fréchet distance (bounds)",
                "Precision, recall",
                "An iteration",
                "Samples/s",
                "Time over a plain loop's",
            ),
            map(_generation_row, record.generations),
        ),
    }
    filled = {name: (heading, list(rows)) for name, (heading, rows) in tables.items()}
    return {name: _table(heading, rows) for name, (heading, rows) in filled.items() if rows}


def _moment(record: Record) -> str:
    return record.finished[:16].replace("T", " ")


def _anchor(name: str) -> str:
    """Of a record on the page, from the name of its file."""
    return "record-" + re.sub(r"[^a-z0-9]+", "-", Path(name).stem.lower()).strip("-")


def _table(heading: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    cells = ([_cell(cell) for cell in row] for row in (heading, *rows))
    first, *others = (f"| {' | '.join(row)} |" for row in cells)
    return "\n".join([first, "|" + "---|" * len(heading), *others])


def _cell(cell: object) -> str:
    if isinstance(cell, Link):
        return f"[{_text(cell.text)}]({cell.target})"
    return _text(str(cell))


def _name(label: Label) -> str:
    code = "" if label.code == "macgpu" else f"{label.code}'s "
    return f"{code}{label.model}, {label.options}"


def _comparison_row(comparison: Comparison) -> tuple[object, ...]:
    a, b, ratio = comparison.a, comparison.b, comparison.ratio
    return (
        f"{_name(a)} ({a.step})",
        f"{_name(b)} ({b.step})",
        f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
        ratio.verdict,
    )


def _product(record: Record, dtype: str, peak: float) -> str:
    """The best rate with the side it was reached at, and the larger sides that were not timed."""
    cells = [c for c in record.ceilings if c.kind == "matmul" and c.dtype == dtype]
    side = next(cell.size for cell in cells if cell.flops_per_s == peak)
    untimed = [f"{cell.size:,}" for cell in cells if cell.size > side and cell.timing is None]
    note = f"; not timed at {', '.join(untimed)}" if untimed else ""
    return f"{flop_rate(peak)} (side {side:,}{note})"


def _timed_row(result: Result) -> tuple[object, ...]:
    start = _name(result.label), result.label.batch_size
    if result.timing is None:
        return *start, f"not timed: {result.failure}", "–", "–"
    memory = gib(result.peak_memory_bytes, 2)
    return *start, f"{result.samples_per_s:,.1f}", result.timing, memory


def _speedup_row(speedup: Speedup) -> tuple[object, ...]:
    ratio = speedup.ratio
    times = f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    return speedup.case, speedup.case.degree, speedup.setting, times


def _energy_row(result: Result) -> tuple[object, ...]:
    measured = result.energy
    start = _name(result.label), result.label.batch_size
    if measured.reason or measured.gross_j_per_sample is None:
        return *start, f"not measured: {measured.reason or 'not known why'}", "–", "–", "–"
    return (
        *start,
        f"{measured.gross_j_per_sample:.3g} J/sample",
        f"{measured.net_j_per_sample:.3g} J/sample",
        f"{measured.idle_w:.0f} W",
        measured.source or "not known",
    )


def _loading_row(entry: Loading) -> tuple[object, ...]:
    workers = "–" if entry.loader == "resident" else entry.workers
    start = f"{entry.loader}, {entry.model}, batch {entry.batch_size}", workers
    if entry.timing is None:
        return *start, f"not timed: {entry.failure}", "–", "–", "–"
    timing = entry.timing
    return (
        *start,
        f"{entry.images_per_s:,.0f}",
        f"{1e3 * timing.model_s:.4g} ms",
        f"{1e3 * timing.both_s:.4g} ms",
        percent(max(0.0, timing.wait_share), 1),
    )


def _footprint_row(point: Footprint) -> tuple[object, ...]:
    start = f"{point.model}, {point.way}", point.batch_size, gib(point.predicted_bytes, 2)
    if point.failure:
        return *start, point.failure, "–", "–"
    measured = gib(point.peak_bytes, 2), gib(point.reserved_bytes, 2)
    return *start, *measured, f"{point.samples_per_s:,.1f}"


def _job_row(job: Job) -> tuple[object, ...]:
    spread = "" if job.spread is None else f" ± {100 * job.spread:.2f}"
    return (
        f"{job.name}, {job.data}, {job.variant}; {job.settings}; {job.options}",
        len(job.runs),
        f"{job.metric} {100 * job.mean:.2f}{spread} %",
        f"{job.epoch_s:.3g} s" if job.epoch_s else "–",
        f"{job.samples_per_s:,.0f}" if job.samples_per_s else "–",
        _beside(job.over_plain),
    )


def _generation_row(made: Generation) -> tuple[object, ...]:
    return (
        f"{made.data}, {made.variant}; {made.settings}; {made.options}; {made.features}",
        len(made.runs),
        f"{made.distance:.3g} ({made.real.distance:.3g} to {made.noise.distance:.3g})",
        f"{made.precision:.2f}, {made.recall:.2f}",
        f"{1e3 * made.iteration_s:.3g} ms",
        f"{made.samples_per_s:,.0f}",
        _beside(made.over_plain),
    )


def _beside(ratio: Ratio | None) -> str:
    """The time over another's, in turn."""
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "–"


def _text(text: str) -> str:
    """Text of a record as text of a page, whatever it holds: no markup, no end of a cell.

    A bracket is markup only where a link's address follows it.
    """
    return re.sub(r"([\\`*_{}<>|$~^&#]|(?<=\])\()", r"\\\1", " ".join(text.splitlines()))
