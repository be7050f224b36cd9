"""Results for the landing page: figures of executed chapters, each with the way to its chapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import nbformat

from macgpu.publish.book import UNREADABLE, title_of

MARK = "<!-- gallery -->"
"""Where the landing page shows them."""


@dataclass(frozen=True)
class Result:
    """One figure: where it is drawn, and what question it answers."""

    chapter: str
    cell: str
    question: str


RESULTS = (
    Result("02_first_training_run", "compare-figure", "Does the device train as the CPU does?"),
    Result("03_know_your_gpu", "chips-figure", "What could each chip of Apple's reach?"),
    Result("03_know_your_gpu", "launch-figure", "From what size on is a GPU worth its start?"),
    Result("04_mixed_precision", "underflow-figure", "Which gradients do sixteen bits lose?"),
    Result("06_memory_and_batch_size", "timeline-figure", "When does a step need the most memory?"),
    Result("17_generation_dcgan", "time-figure", "How does a generator learn?"),
    Result("15_images_resnet18", "confusion-figure", "Which classes are confused, and how often?"),
    Result("13_against_nvidia", "reported-figure-draw", "What did others measure on a Mac?"),
)


def gallery(executed: Path, current: set[str]) -> str:
    """The figures in MyST, in a grid; of chapters in ``current`` only, and none that is missing.

    Args:
        executed: the folder of the executed chapters.
        current: names of the chapters that were executed and are shown.
    """
    cards = []
    for result in RESULTS:
        path = executed / f"{result.chapter}.ipynb"
        if result.chapter not in current or (figure := figure_of(path, result.cell)) is None:
            continue
        title = title_of(nbformat.read(path, 4))
        cards.append(
            ":::{grid-item-card}\n"
            f"**{result.question}** [{title}](../notebooks/{path.name})\n\n"
            f"```{{raw}} html\n{figure}\n```\n:::\n"
        )
    if not cards:
        return ""
    return "::::{grid} 1 1 2 2\n:gutter: 3\n\n" + "\n".join(cards) + "::::\n"


def figure_of(path: Path, cell_id: str) -> str | None:
    """The HTML of the figure that this cell of an executed chapter showed; None without one."""
    try:
        cells = nbformat.read(path, 4).cells
    except (OSError, *UNREADABLE):
        return None
    for cell in cells:
        for output in cell.get("outputs", []) if cell.id == cell_id else []:
            html = output.get("data", {}).get("text/html", "")
            if 'class="book-figure"' in html:
                return html
    return None
