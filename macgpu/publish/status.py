"""The status page, made from the runs themselves: what each chapter was executed on, and when."""

from __future__ import annotations

from macgpu.publish.book import Chapter
from macgpu.publish.execute import Run

INTRODUCTION = """# Status

Every page of this site was executed before it was rendered. This table is made by those runs:
no row is written by hand.

"""


def status_page(runs: list[tuple[Chapter, Run | None]]) -> str:
    """The page in MyST Markdown: a table of all chapters, then the machines and versions."""
    lines = [
        "| Chapter | Result | Time | Device | Profile | Date (UTC) |",
        "|---|---|---|---|---|---|",
    ]
    machines = {}
    for chapter, run in runs:
        link = f"[{chapter.number} {chapter.title}](../notebooks/{chapter.path.name})"
        if run is None:
            lines.append(f"| {link} | not executed | – | – | – | – |")
            continue
        lines.append(
            f"| {link} | passed | {run.seconds:.0f} s | {run.device} | {run.profile} "
            f"| {run.finished[:16].replace('T', ' ')} |"
        )
        # A processor is named by its machine already.
        name = "" if run.device == "cpu" else f" ({run.device_name})"
        machine = f"- {run.device}{name} on {run.machine}; Python {run.python}; torch {run.torch}"
        machines.setdefault(machine)
    heading = "\n\n## Machines and versions\n\n" if machines else "\n"
    return INTRODUCTION + "\n".join(lines) + heading + "\n".join(machines) + "\n"
