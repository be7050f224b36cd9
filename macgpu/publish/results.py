"""The tables of the results page, made from the records: each machine, its headline figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from macgpu.errors import BookError
from macgpu.measure import records
from macgpu.measure.ceilings import bandwidth, peak_flops
from macgpu.measure.jobs import Job
from macgpu.measure.loading import Loading
from macgpu.measure.records import Comparison, Footprint, Label, Record, RecordError, Result
from macgpu.measure.suites import CURVE_WITHIN
from macgpu.parallel.scaling import Speedup
from macgpu.words import flop_rate, gib, percent

EMPTY = "There is no record yet.\n"


def results_tables(folder: Path) -> str:
    """What stands below the page's introduction, in MyST Markdown: all records, then each.

    Raises:
        BookError: where a record is refused, with the file, the field and the reason.
    """
    try:
        found = [(path.name, records.read(path)) for path in records.paths(folder)]
    except RecordError as error:
        raise BookError(f"results: {error}") from None
    if not found:
        return EMPTY
    heading = ("Device", "Date (UTC)", "Provenance", "Profile", "torch", "Record")
    rows = [
        f"| {record.device.name} ({record.device.type}) | {record.finished[:10]} "
        f"| {record.provenance} | {record.profile} | {record.software['torch']} | `{name}` |"
        for name, record in found
    ]
    sections = [_section(record) for _, record in found]
    parts = [_table(heading, rows), *_curve_words([record for _, record in found]), *sections]
    return "\n\n".join(parts)


def _curve_words(found: list[Record]) -> list[str]:
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


def _section(record: Record) -> str:
    moment = record.finished[:16].replace("T", " ")
    parts = [f"## {record.device.name}, {moment}, {record.profile}", record.caption]
    ceilings = [
        f"{dtype} matrix product {flop_rate(peak)}"
        for dtype in dict.fromkeys(cell.dtype for cell in record.ceilings)
        if (peak := peak_flops(record.ceilings, dtype))
    ]
    rate = bandwidth(record.ceilings)
    ceilings += [f"copy {rate / 1e9:,.0f} GB/s"] if rate else []
    if ceilings:
        parts.append("Measured ceilings: " + ", ".join(ceilings) + ".")
    timed = [result for result in record.results if result.energy is None]
    if timed:
        heading = ("Training step", "Batch", "Samples/s", "Time of a step", "Peak memory")
        parts.append(_table(heading, map(_timed_row, timed)))
    if record.comparisons:
        heading = ("In one run, in turn", "Beside", "Its time over the other's", "Verdict")
        parts.append(_table(heading, map(_comparison_row, record.comparisons)))
    if record.scaling and record.scaling.speedups:
        heading = ("Split over several", "Over", "How", "Speed-up over one of them")
        parts.append(_table(heading, map(_speedup_row, record.scaling.speedups)))
    energies = [result for result in record.results if result.energy is not None]
    if energies:
        heading = ("Energy of", "Batch", "Gross", "Net", "Idle", "Meter")
        parts.append(_table(heading, map(_energy_row, energies)))
    if record.loading:
        heading = ("Loader", "Workers", "Images/s", "Step alone", "Step with loader", "Waiting")
        parts.append(_table(heading, map(_loading_row, record.loading)))
    if record.footprints:
        heading = ("Memory of", "Batch", "Predicted", "Measured", "Reserved", "Samples/s")
        parts.append(_table(heading, map(_footprint_row, record.footprints)))
    if record.jobs:
        heading = ("Job", "Seeds", "Score", "An epoch", "Samples/s", "Time over a plain loop's")
        parts.append(_table(heading, map(_job_row, record.jobs)))
    return "\n\n".join(parts) + "\n"


def _table(heading: tuple[str, ...], rows: Iterable[str]) -> str:
    return "\n".join([f"| {' | '.join(heading)} |", "|" + "---|" * len(heading), *rows])


def _name(label: Label) -> str:
    code = "" if label.code == "macgpu" else f"{label.code}'s "
    return f"{code}{label.model}, {label.options}"


def _comparison_row(comparison: Comparison) -> str:
    ratio = comparison.ratio
    return (
        f"| {_name(comparison.a)} ({comparison.a.step}) "
        f"| {_name(comparison.b)} ({comparison.b.step}) "
        f"| {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] | {ratio.verdict} |"
    )


def _timed_row(result: Result) -> str:
    start = f"| {_name(result.label)} | {result.label.batch_size} |"
    if result.timing is None:
        return f"{start} not timed: {_cell(result.failure)} | – | – |"
    memory = gib(result.peak_memory_bytes, 2)
    return f"{start} {result.samples_per_s:,.1f} | {result.timing} | {memory} |"


def _speedup_row(speedup: Speedup) -> str:
    ratio = speedup.ratio
    return (
        f"| {speedup.case} | {speedup.case.degree} | {speedup.setting} "
        f"| {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] |"
    )


def _energy_row(result: Result) -> str:
    measured = result.energy
    start = f"| {_name(result.label)} | {result.label.batch_size} |"
    if measured.reason or measured.gross_j_per_sample is None:
        return f"{start} not measured: {_cell(measured.reason)} | – | – | – |"
    return (
        f"{start} {measured.gross_j_per_sample:.3g} J/sample "
        f"| {measured.net_j_per_sample:.3g} J/sample | {measured.idle_w:.0f} W "
        f"| {_cell(measured.source)} |"
    )


def _loading_row(entry: Loading) -> str:
    workers = "–" if entry.loader == "resident" else entry.workers
    start = f"| {entry.loader}, {entry.model}, batch {entry.batch_size} | {workers} |"
    if entry.timing is None:
        return f"{start} not timed: {_cell(entry.failure)} | – | – | – |"
    timing = entry.timing
    return (
        f"{start} {entry.images_per_s:,.0f} | {1e3 * timing.model_s:.4g} ms "
        f"| {1e3 * timing.both_s:.4g} ms | {percent(max(0.0, timing.wait_share), 1)} |"
    )


def _footprint_row(point: Footprint) -> str:
    predicted = gib(point.predicted_bytes, 2)
    start = f"| {point.model}, {point.way} | {point.batch_size} | {predicted} |"
    if point.failure:
        return f"{start} {_cell(point.failure)} | – | – |"
    measured = f"{gib(point.peak_bytes, 2)} | {gib(point.reserved_bytes, 2)}"
    return f"{start} {measured} | {point.samples_per_s:,.1f} |"


def _job_row(job: Job) -> str:
    spread = "" if job.spread is None else f" ± {100 * job.spread:.2f}"
    ratio = job.over_plain
    beside = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "–"
    return (
        f"| {job.name}, {job.data}, {job.variant}; {_cell(job.settings)}; {job.options} "
        f"| {len(job.runs)} | {job.metric} {100 * job.mean:.2f}{spread} % | {job.epoch_s:.3g} s "
        f"| {job.samples_per_s:,.0f} | {beside} |"
    )


def _cell(text: str | None) -> str:
    """Text of a record inside of a table: a bar would end the cell."""
    return (text or "not known").replace("|", "/")
