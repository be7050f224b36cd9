"""The records of tensor parallelism, as tables for the chapter."""

from __future__ import annotations

import pandas as pd

from macgpu.measure import records
from macgpu.measure.records import Record
from macgpu.parallel.scaling import Case, Scaling
from macgpu.parallel.traffic import Line, fit

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


def newest(backend: str = "nccl") -> list[Record]:
    """For each number of devices, the newest record of the MLP block; fewest devices first.

    Raises:
        RecordError: where a record is refused.
    """
    found: dict[int, Record] = {}
    for record in sorted(records.read_all(), key=lambda record: record.finished):
        scaling = record.scaling
        if scaling is None or scaling.backend != backend:
            continue
        if any(one.case.block == "mlp" for one in scaling.speedups):
            found[scaling.ranks] = record
    return [found[ranks] for ranks in sorted(found)]


def speedups(record: Record) -> pd.DataFrame:
    """The compared ways: block, width, degree, way, speed-up with its interval, and the alpha-beta
    model's prediction of a block whose sums are not overlapped."""
    scaling = record.scaling
    return pd.DataFrame(
        {
            "block": one.case.block,
            "width": one.case.width,
            "degree": one.case.degree,
            "way": str(one.setting),
            "speed-up": one.ratio.median,
            "low": one.ratio.low,
            "high": one.ratio.high,
            "predicted": predicted(scaling, one.case),
        }
        for one in scaling.speedups
    )


def fastest(table: pd.DataFrame) -> pd.DataFrame:
    """Of each block, width and degree, the way with the largest speed-up."""
    kept = table.groupby(["block", "width", "degree"])["speed-up"].idxmax()
    return table.loc[kept].reset_index(drop=True)


def ways(record: Record, block: str, degree: int) -> pd.DataFrame:
    """Speed-up of each way (rows) by width (columns) over the fastest whole block of the same part
    of the run, which is timed just before; failures in their words.

    A part times some ways once more, as its own reference: the first timing of a way counts.
    """
    whole: dict[int, float] = {}
    cells: dict[str, dict[str, str]] = {}
    after_whole = False
    for step in record.scaling.steps:
        if step.case.block != block:
            continue
        width = step.case.width
        if step.case.degree == 1 and step.timing:
            seconds = step.timing.median_s
            whole[width] = min(seconds, whole[width]) if after_whole else seconds
        if step.case.degree == degree:
            shown = step.failure
            if step.timing and width in whole:
                shown = f"{whole[width] / step.timing.median_s:.3f}"
            cells.setdefault(str(step.setting), {}).setdefault(f"{width:,}", shown)
        after_whole = step.case.degree == 1
    return pd.DataFrame(cells.values(), index=list(cells)).fillna("–")


def line(scaling: Scaling, degree: int) -> Line | None:
    """Alpha and beta of the all-reduce at a degree; ``None`` where it was not measured."""
    measured = [one for one in scaling.collectives if one.degree == degree and one.max_ctas is None]
    if len(measured) < 2:
        return None
    return fit([one.bytes for one in measured], [one.timing.median_s for one in measured])


def predicted(scaling: Scaling, case: Case) -> float | None:
    """The speed-up if the work divided evenly and two all-reduces came on top."""
    alone = [
        step.timing.median_s
        for step in scaling.steps
        if step.timing and step.case.degree == 1 and _same(step.case, case)
    ]
    wire = line(scaling, case.degree)
    if not alone or wire is None:
        return None
    whole = min(alone)
    summed = case.tokens * case.width * BYTES[case.dtype]
    return whole / (whole / case.degree + 2 * wire.seconds(summed))


def shares(record: Record) -> pd.DataFrame:
    """The peak memory of the fullest rank over that of the whole block, by block and width."""
    whole, rows = {}, []
    for one in record.scaling.footprints:
        peaks = [peak for peak in one.peak_bytes if peak]
        key = (one.case.block, one.case.width)
        if one.case.degree == 1:
            whole[key] = max(peaks, default=None)
        elif peaks and whole.get(key):
            rows.append((*key, one.case.degree, one.way, max(peaks) / whole[key]))
    return pd.DataFrame(rows, columns=["block", "width", "degree", "way", "share of memory"])


def bandwidths(record: Record, degree: int) -> pd.DataFrame:
    """Bytes a second on the wire of the all-reduce, by the tensor's size."""
    return pd.DataFrame(
        {"bytes": one.bytes, "bytes a second": one.bus_bytes_per_s}
        for one in sorted(record.scaling.collectives, key=lambda one: one.bytes)
        if one.degree == degree and one.max_ctas is None
    )


def _same(one: Case, other: Case) -> bool:
    return (one.block, one.width, one.tokens, one.dtype) == (
        other.block,
        other.width,
        other.tokens,
        other.dtype,
    )
