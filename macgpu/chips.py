"""The chips of Apple silicon Macs, each value with its source, from ``data/chips``.

How to read the marks of the sources: ``data/chips/README.md``.
"""

from __future__ import annotations

import csv
import html
from dataclasses import dataclass
from pathlib import Path

CHIPS = Path(__file__).resolve().parent.parent / "data" / "chips"

COLUMNS = {
    "announced": "Announced",
    "cpu_cores": "CPU cores",
    "gpu_cores": "GPU cores",
    "bandwidth_gb_s": "Bandwidth (GB/s)",
    "memory_gb": "Memory, at most (GB)",
    "fp32_tflops": "Float32 (TFLOPS)",
}
"""The columns of ``chips.csv`` that hold values, with their headings."""

MARKS = {
    "A": "Apple's own text, read in a copy",
    "C": "cited: somebody names Apple's page, which was not read",
    "R": "press report",
    "T": "third party",
    "D": "derived",
}

SEPARATOR = " / "
LONG = 8
"""Letters of a value from which on each variant has a line of its own: a phone is narrow."""


class ChipsError(ValueError):
    """A cell has no source, or one that is not listed; the message names the chip and column."""


@dataclass(frozen=True)
class Source:
    """Where values come from."""

    key: str
    text: str
    url: str

    @property
    def mark(self) -> str:
        """A letter of :data:`MARKS`."""
        return self.key[0]


@dataclass(frozen=True)
class Value:
    """One value of a cell, and the keys of its sources."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Chip:
    """A chip in all of its variants."""

    name: str
    cells: dict[str, tuple[Value, ...]]
    """By column; a value for each variant, or none where no source is known."""

    def numbers(self, column: str) -> list[float]:
        """The values of a column of plain numbers, smallest variant first."""
        return [float(value.text) for value in self.cells[column]]


def read_sources(folder: Path = CHIPS) -> dict[str, Source]:
    """All sources by key.

    Raises:
        ChipsError: for a key with an unknown mark, or a source without a text.
    """
    sources = {row["key"]: Source(**row) for row in _rows(folder / "sources.csv")}
    for source in sources.values():
        if source.mark not in MARKS or not source.text.strip():
            raise ChipsError(f"sources.csv: {source.key}: no text, or a mark that is not known")
    return sources


def read_chips(folder: Path = CHIPS) -> tuple[Chip, ...]:
    """All chips, oldest family first.

    Raises:
        ChipsError: where a value has no source, or one that ``sources.csv`` does not list.
    """
    known = read_sources(folder)
    return tuple(
        Chip(
            row["chip"],
            {
                column: _cell(row[column], row[f"{column}_source"], known, row["chip"], column)
                for column in COLUMNS
            },
        )
        for row in _rows(folder / "chips.csv")
    )


def chips_html(chips: tuple[Chip, ...], columns: tuple[str, ...] = tuple(COLUMNS)) -> str:
    """The chips as a table; the small keys lead to the list of :func:`sources_html`."""
    head = "".join(f"<th>{html.escape(COLUMNS[column])}</th>" for column in columns)
    rows = "".join(
        f"<tr><th>{html.escape(chip.name)}</th>"
        + "".join(f"<td>{_cell_html(chip.cells[column])}</td>" for column in columns)
        + "</tr>"
        for chip in chips
    )
    return (
        f'<table class="book-table"><thead><tr><th>Chip</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def sources_html(sources: dict[str, Source]) -> str:
    """The sources as a list to unfold, each under its key; a link to one unfolds it."""
    items = "".join(
        f'<li id="source-{source.key}"><strong>{source.key}</strong> {_linked(source)} '
        f"({html.escape(MARKS[source.mark])})</li>"
        for source in sources.values()
    )
    return f'<details class="book-table"><summary>The sources</summary><ul>{items}</ul></details>'


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _cell(
    values: str, sources: str, known: dict[str, Source], chip: str, column: str
) -> tuple[Value, ...]:
    if not values and not sources:
        return ()
    texts, keys = values.split(SEPARATOR), sources.split(SEPARATOR)
    if len(keys) == 1:
        keys *= len(texts)
    if len(keys) != len(texts):
        raise ChipsError(f"{chip}, {column}: {len(texts)} values and {len(keys)} sources")
    cell = tuple(Value(text, tuple(k.split())) for text, k in zip(texts, keys, strict=True))
    for value in cell:
        missing = [key for key in value.sources if key not in known]
        if not value.text.strip() or not value.sources or missing:
            raise ChipsError(f"{chip}, {column}: {value.text!r} has no source that is listed")
    return cell


def _cell_html(cell: tuple[Value, ...]) -> str:
    """The values; sources that all of them share stand once, at the end."""
    shared = len({value.sources for value in cell}) == 1
    parts = [
        html.escape(value.text)
        + ("" if shared and value is not cell[-1] else _keys_html(value.sources))
        for value in cell
    ]
    long = any(len(value.text) >= LONG for value in cell)
    return (" /<br>" if long else SEPARATOR).join(parts) or "–"


def _keys_html(keys: tuple[str, ...]) -> str:
    links = " ".join(f'<a href="#source-{key}">{key}</a>' for key in keys)
    return f"<sup>{links}</sup>"


def _linked(source: Source) -> str:
    text = html.escape(source.text)
    return f'<a href="{html.escape(source.url)}">{text}</a>' if source.url else text
