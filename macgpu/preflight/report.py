"""The report: text for people, JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from macgpu.preflight.kinds import FAILS, HURTS, NOTE, Finding
from macgpu.preflight.source import CELL, describe

COLOURS = {FAILS: "bold red", HURTS: "yellow", NOTE: "cyan"}


@dataclass(frozen=True)
class Report:
    """What preflight found.

    Attributes:
        script: the path as it was given.
        ran_on: ``"mps"``, ``"software mps"`` or ``"trace on the CPU"``.
        why_trace: why it was only traced although it need not have been; else ``None``.
        steps: optimizer steps that were watched.
        ended: how the run ended, in words.
        seconds: wall clock of the run.
        findings: the worst first.
    """

    script: str
    ran_on: str
    why_trace: str | None
    steps: int
    ended: str
    seconds: float
    findings: list[Finding]

    def of(self, severity: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == severity]

    def exit_status(self, strict: bool) -> int:
        """1 where it would fail on a Mac, 2 where it would hurt and ``strict``, else 0."""
        if self.of(FAILS):
            return 1
        return 2 if strict and self.of(HURTS) else 0

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def show(self, console: Console) -> None:
        """Print the findings, those of one kind together with its remedy, and a verdict."""
        console.print(
            f"[bold]{escape(self.script)}[/] on {self.ran_on}: {_count(self.steps, 'step')} in "
            f"{self.seconds:.0f} s; {self.ended}",
            highlight=False,
        )
        if self.why_trace:
            console.print(f"No software MPS device here: {self.why_trace}", highlight=False)
        for kind, group in groupby(self.findings, key=lambda finding: finding.kind):
            same = list(group)
            colour = COLOURS[same[0].severity]
            console.print(f"\n[{colour}]{same[0].severity}[/]  [bold]{kind}[/]")
            for one in same:
                _print_item(console, "", _line(one))
            _print_item(console, "[green]→[/] ", same[0].remedy)
            _print_item(console, "", f"book: {same[0].book}")
        console.print("\n" + self._verdict(), highlight=False)

    def _verdict(self) -> str:
        fails, hurts = len(self.of(FAILS)), len(self.of(HURTS))
        if self.steps == 0 and not fails:
            return "[yellow]Nothing was examined: no training step was seen.[/]"
        unseen = {"untraceable", "no-training-step", "script-error", "skipped-cell"}
        if unseen & {finding.kind for finding in self.findings} and not fails:
            return "[yellow]Not all of it could be examined.[/]"
        if fails:
            more = f" {hurts} more would hurt." if hurts else ""
            return f"[bold red]It would fail on a Mac[/]: {_count(fails, 'fault')}.{more}"
        if hurts:
            return f"[yellow]It would run on a Mac; {_count(hurts, 'fault')} would hurt.[/]"
        return "[green]Nothing found that would fail or hurt on a Mac.[/]"


def _print_item(console: Console, mark: str, text: str) -> None:
    """Print the text two columns in, and whatever does not fit into its first line under it."""
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("  " + mark, escape(text))
    console.print(grid, highlight=False)


def _line(finding: Finding) -> str:
    often = f" (×{finding.count})" if finding.count and finding.count > 1 else ""
    if finding.file is None:
        return finding.message + often
    cell = f"{CELL}{finding.cell}" if finding.cell else ""
    return f"{describe(str(Path(finding.file)) + cell, finding.line)}  {finding.message}{often}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
