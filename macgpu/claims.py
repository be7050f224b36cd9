"""What two articles claim, and what was found: ``data/claims.csv``."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from macgpu.data import DATA

CLAIMS = DATA / "claims.csv"

VERDICTS = {
    "true": "right, if only under a condition that the evidence names",
    "outdated": "was right for an older version, and is not for today's",
    "wrong": "the code fails or does something else, or the statement is not so",
    "depends": "right for one machine, model or batch and not for another: measure",
    "unknown": "cannot be known without the setup, which is not given",
}
ARTICLES = {
    "1": "PyTorch on Mac GPUs: training and benchmarks in depth, with torch 2.0.1",
    "2": "PyTorch on the Mac M2: the truth about MPS, with torch 2.5.1",
}
"""By number: its title, translated and shortened, and the version that it says it used."""


@dataclass(frozen=True)
class Claim:
    article: str
    """Which of :data:`ARTICLES`."""
    claim: str
    """In our words; code as Markdown."""
    verdict: str
    """One of :data:`VERDICTS`."""
    evidence: str
    chapter: str
    """The chapter that shows it, as its file is named."""


def claims(path: Path = CLAIMS) -> list[Claim]:
    """All claims, by article and then by chapter."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Claim(**row) for row in csv.DictReader(file)]
