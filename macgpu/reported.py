"""Figures that others reported, each with its source, hardware and software.

They are never measured ones: chapters draw them apart, and say "reported". The files lie in
``data/reported``; its README says how the samples of a time were counted.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

FOLDER = Path(__file__).resolve().parent.parent / "data" / "reported"

_CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, str_min_length=1)

Kind = Literal["Mac GPU", "Mac CPU", "NVIDIA"]
_Positive = Annotated[float, Field(gt=0)]
_Count = Annotated[int, Field(gt=0)]


class ReportedError(ValueError):
    """A row is refused; the message gives the file, the line and the reason."""


@dataclass(frozen=True, config=_CHECKED)
class Source:
    """Where a figure comes from."""

    name: str
    url: Annotated[str, Field(pattern="^https://")]
    software: str
    """What was run, with its version where the source states one."""
    year: Annotated[int, Field(ge=2020)]


@dataclass(frozen=True, config=_CHECKED)
class Training:
    """A training time; ``samples`` were trained on in ``seconds``."""

    source: Source
    workload: str
    input: str
    """The size of one sample, such as ``"128 tokens"``."""
    batch: _Count
    hardware: str
    kind: Kind
    seconds: _Positive
    samples: _Count

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def step_s(self) -> float:
        """Seconds of one step of this batch size."""
        return self.batch / self.samples_per_s

    def cells(self) -> dict[str, object]:
        return {
            "hardware": self.hardware,
            "workload": f"{self.workload}, {self.input}",
            "batch": self.batch,
            "samples/s": f"{self.samples_per_s:,.1f}",
        }


@dataclass(frozen=True, config=_CHECKED)
class Power:
    """A training rate beside the power that was drawn, by the source's meter."""

    source: Source
    workload: str
    batch: _Count
    hardware: str
    kind: Kind
    samples_per_s: _Positive
    watts: _Positive
    meter: str

    @property
    def joules_per_sample(self) -> float:
        return self.watts / self.samples_per_s

    def cells(self) -> dict[str, object]:
        return {
            "hardware": self.hardware,
            "batch": self.batch,
            "samples/s": f"{self.samples_per_s:,.1f}",
            "power (W)": f"{self.watts:g}",
            "J/sample": f"{self.joules_per_sample:.3f}",
            "samples/J": f"{1 / self.joules_per_sample:.2f}",
            "meter": self.meter,
        }


@dataclass(frozen=True, config=_CHECKED)
class Wall:
    """Power of a whole computer at the wall, in watts, as its maker states it."""

    source: Source
    hardware: str
    idle_watts: _Positive
    max_watts: _Positive

    def cells(self) -> dict[str, object]:
        return {
            "computer": self.hardware,
            "idle (W)": f"{self.idle_watts:g}",
            "at most (W)": f"{self.max_watts:g}",
        }


def training(folder: Path = FOLDER) -> list[Training]:
    """All reported training times.

    Raises:
        ReportedError: where a row lacks its source, hardware or a number.
    """
    return _rows(folder, "training.csv", Training)


def power(folder: Path = FOLDER) -> list[Power]:
    """All reported rates with a power; raises as :func:`training` does."""
    return _rows(folder, "power.csv", Power)


def sources(folder: Path = FOLDER) -> list[Source]:
    """All sources, whether a row names them or not."""
    return TypeAdapter(list[Source]).validate_python(_read(folder / "sources.csv"))


def find(
    rows: list[Training], source: str, hardware: str, workload: str, size: str, batch: int
) -> Training:
    """The one row with these; ``size`` is its input.

    Raises:
        LookupError: where there is none, or more than one.
    """
    wanted = (source, hardware, workload, size, batch)
    found = [
        row
        for row in rows
        if (row.source.name, row.hardware, row.workload, row.input, row.batch) == wanted
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows are {wanted}")
    return found[0]


def wall(folder: Path = FOLDER) -> list[Wall]:
    """Reported power at the wall; raises as :func:`training` does."""
    return _rows(folder, "wall.csv", Wall)


def article(folder: Path = FOLDER) -> dict[tuple[str, str, str], float]:
    """The first article's figures, by workload, hardware and the article's own unit."""
    return {
        (row["workload"], row["hardware"], row["unit"]): float(row["value"])
        for row in _read(folder / "article.csv")
    }


def table(rows: list[Training] | list[Power] | list[Wall]) -> pd.DataFrame:
    """Rows as a table for readers: what is compared, then the software, the year and the source."""
    return pd.DataFrame(
        row.cells()
        | {
            "software": row.source.software,
            "year": row.source.year,
            "reported by": row.source.name,
        }
        for row in rows
    )


def _rows(folder: Path, name: str, row_type: type) -> list:
    sources = {row["name"]: row for row in _read(folder / "sources.csv")}
    schema = TypeAdapter(row_type)
    rows = []
    # The first line of a file is its heading.
    for line, row in enumerate(_read(folder / name), start=2):
        if row["source"] not in sources:
            raise ReportedError(f"{name}, line {line}: source: {row['source']!r} is not listed")
        row["source"] = sources[row["source"]]
        try:
            rows.append(schema.validate_python(row))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise ReportedError(f"{name}, line {line}: {field}: {first['msg'].lower()}") from None
    return rows


def _read(path: Path) -> list[dict]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
