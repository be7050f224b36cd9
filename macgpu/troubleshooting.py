"""What goes wrong, why, and what to do: ``data/troubleshooting.yml``.

The doctor and preflight point to its entries by their anchors, also where torch cannot be imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

ENTRIES = Path(__file__).resolve().parent.parent / "data" / "troubleshooting.yml"


@dataclass(frozen=True)
class Entry:
    """One cause. The texts are Markdown; the check may hold a block of code."""

    group: str
    """The heading that it stands under."""
    anchor: str
    """Its place on the page. Stable: programs print it."""
    title: str
    cause: str
    check: str
    remedy: str
    changed: str = ""
    """The version in which it changed; empty where nothing is known."""
    messages: tuple[str, ...] = ()
    """What people see, word for word; … stands for what is left out or differs."""
    chapters: tuple[str, ...] = ()
    """The chapters that show it, as their files are named."""
    sources: tuple[str, ...] = ()
    """Public reports, as ``pytorch#1``."""


def entries(path: Path = ENTRIES) -> list[Entry]:
    """All entries, in the order of the page."""
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [
        Entry(
            group=group,
            **{
                name: tuple(value) if isinstance(value, list) else value.strip()
                for name, value in entry.items()
            },
        )
        for group, listed in groups.items()
        for entry in listed
    ]


def link(anchor: str) -> str:
    """Where the book explains it, as the command line prints it."""
    return f"troubleshooting.html#{anchor}"
