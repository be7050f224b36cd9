"""What the harness costs and finds, as ``benchmarks/harness.py`` measured it: ``data/harness``."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

CHECKS = Path(__file__).resolve().parents[2] / "data" / "harness" / "checks.csv"


@dataclass(frozen=True)
class Check:
    """One run of the benchmark; see the README of the folder."""

    date: str
    machine: str
    state: str
    """Of the machine meanwhile, such as ``"idle cores"``."""
    step_ms: float
    cost_percent: float
    trials: int
    false_alarms: int
    slow_down_percent: float
    found: int

    def __str__(self) -> str:
        return (
            f"On {self.state} ({self.machine}; {self.date}), timing costs "
            f"{self.cost_percent:g} % of a step of {self.step_ms:g} ms. Of {self.trials} "
            f"comparisons of a step with itself, {self.false_alarms} came out as a difference. A "
            f"slow-down of {self.slow_down_percent:g} % that was planted was found in "
            f"{self.found} of {self.trials}."
        )


def checks(path: Path = CHECKS) -> list[Check]:
    """All runs, oldest first."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Check(
            row["date"],
            row["machine"],
            row["state"],
            float(row["step_ms"]),
            float(row["cost_percent"]),
            int(row["trials"]),
            int(row["false_alarms"]),
            float(row["slow_down_percent"]),
            int(row["found"]),
        )
        for row in sorted(rows, key=lambda row: row["date"])
    ]
