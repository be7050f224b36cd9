"""The status page, made from the runs themselves: what each chapter was executed on, and when."""

from __future__ import annotations

from dataclasses import dataclass

from macgpu.publish.book import Chapter
from macgpu.publish.execute import Run

INTRODUCTION = """# Status

Each chapter is executed before its page is rendered. This table is made by those runs: no row is
written by hand.

"""


@dataclass(frozen=True)
class Row:
    """One chapter of the page."""

    chapter: Chapter
    title: str
    """Of the page as rendered, which may be older than the chapter."""
    run: Run | None
    current: bool
    """Whether nothing that the chapter depends on has changed since the run."""


def status_page(rows: list[Row]) -> str:
    """The page in MyST Markdown: a table of all chapters, then the machines and versions."""
    lines = [
        "| Chapter | Result | Time | Device | Profile | Date (UTC) |",
        "|---|---|---|---|---|---|",
    ]
    machines = {}
    for row in rows:
        link = f"[{row.chapter.number} {row.title}](../notebooks/{row.chapter.path.name})"
        run = row.run
        if run is None:
            lines.append(f"| {link} | not executed | – | – | – | – |")
            continue
        result = "passed" if row.current else "passed, and changed since"
        lines.append(
            f"| {link} | {result} | {run.seconds:.0f} s | {run.device} | {run.profile} "
            f"| {run.finished[:16].replace('T', ' ')} |"
        )
        # A processor is named by its machine already.
        name = "" if run.device == "cpu" else f" ({run.device_name})"
        machine = f"- {run.device}{name} on {run.machine}; Python {run.python}; torch {run.torch}"
        machines.setdefault(machine)
    heading = "\n\n## Machines and versions\n\n" if machines else "\n"
    return INTRODUCTION + "\n".join(lines) + heading + "\n".join(machines) + "\n"
