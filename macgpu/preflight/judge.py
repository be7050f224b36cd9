"""Turns what was read and what was seen into findings, each cause once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from macgpu.preflight.kinds import FAILS, HURTS, KINDS, NOTE, Finding, finding
from macgpu.preflight.ledger import Event
from macgpu.preflight.source import split_name
from macgpu.preflight.static import Spot

ONE_PER_DETAIL = (
    "missing-operator",
    "fallback-operator",
    "invented-variable",
    "late-variable",
    "worker-cannot-load",
)
"""Kinds of which one line can have several."""

ENDS_THE_RUN = ("half-parameters", "distributed", "sparse-tensor")
"""Kinds whose error the run meets itself."""

SAYS_CUDA = ("CUDA", "NVIDIA")

LIMITS = (
    "not linked with support for mps",
    "with arguments from the 'CPU' backend",
    "with arguments from the 'SparseMPS' backend",
)
"""Errors of a stand-in for mps, not of a script."""


@dataclass
class Run:
    """What the ledger says of the run. ``ended`` is ``"steps"``, ``"finished"``, ``"exit"``,
    ``"error"``, ``"apart"`` (stopped where the devices are mixed), or ``None`` where the process
    was ended from outside."""

    events: list[Event] = field(default_factory=list)
    steps: int = 0
    pretends: bool = False
    gpu_used: bool = False
    fallback: bool = False
    ended: str | None = None
    status: int = 0
    said: str | None = None
    error: str = ""
    file: str | None = None
    line: int | None = None


def read_ledger(path: Path) -> Run:
    """Read a ledger; a last line that was cut off by the process's end is left out."""
    facts: dict = {}
    events: dict[int, Event] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if "event" in content:
            event = Event(**content["event"])
            events[event.order] = event
        else:
            facts |= content
    return Run(events=list(events.values()), **facts)


def judge(run: Run, spots: list[Spot], how_it_ended: str | None, on_a_mac: bool) -> list[Finding]:
    """All findings, the worst first, then by place.

    Args:
        run: what the run saw.
        spots: what the text shows.
        how_it_ended: why the process was ended from outside, or ``None``.
        on_a_mac: whether mps was a Mac's own, and no stand-in.
    """
    events = _real_faults(run, spots)
    found: dict[tuple, list] = {}
    for spot in spots:
        found.setdefault(_key(spot.kind, spot.name, spot.line, spot.detail), [spot.detail, None])
    for event in events:
        line = event.line
        for spot in spots:
            if (spot.kind, spot.name) == (event.kind, event.file) and (
                spot.line <= event.line <= spot.end_line
            ):
                line = spot.line
        entry = found.setdefault(
            _key(event.kind, event.file, line, event.detail), [event.detail, None]
        )
        entry[1] = (entry[1] or 0) + event.count
    findings = [
        _finding(kind, detail, name, line, count)
        for (kind, name, line, _), (detail, count) in found.items()
    ]
    findings += _of_the_run(run, findings, how_it_ended, on_a_mac)
    return sorted(findings, key=_rank)


def repeated(event: Event, steps: int) -> bool:
    """Whether it happened in step after step, and not once an epoch or every many steps."""
    possible = steps - event.first + 1
    return event.hits >= max(2, min(3, steps)) and event.hits > 0.6 * possible


def _real_faults(run: Run, spots: list[Spot]) -> list[Event]:
    events = []
    named = any(spot.kind in ("hardcoded-cuda", "cuda-or-cpu") for spot in spots)
    shapes = [e for e in run.events if e.kind == "changing-shapes" and repeated(e, run.steps)]
    for event in run.events:
        if event.kind == "sync-in-step" and not repeated(event, run.steps):
            continue
        # Where one operation meets new shapes, all that follow it do; the first is the cause.
        if event.kind == "changing-shapes" and event is not min(
            shapes, key=lambda e: e.order, default=None
        ):
            continue
        # Where a device arrives that the text names elsewhere, that place is the cause.
        if event.kind == "hardcoded-cuda" and named and not _is_in(event, spots):
            continue
        if event.kind == "missing-operator" and run.fallback:
            event.kind = "fallback-operator"
        events.append(event)
    return events


def _is_in(event: Event, spots: list[Spot]) -> bool:
    return any(
        (spot.kind, spot.name) == (event.kind, event.file)
        and spot.line <= event.line <= spot.end_line
        for spot in spots
    )


def _of_the_run(
    run: Run, findings: list[Finding], how_it_ended: str | None, on_a_mac: bool
) -> list[Finding]:
    kinds = {f.kind for f in findings}
    more = []
    if run.ended == "error":
        explained = any(
            f.kind in ENDS_THE_RUN and (f.file, f.line) == (run.file, run.line) for f in findings
        )
        # torch lists every backend that has an operator, CUDA among them, in errors of any device.
        about = run.error.partition("these backends")[0]
        asks_for_cuda = not explained and any(word in about for word in SAYS_CUDA)
        limit = asks_for_cuda or (not on_a_mac and any(text in run.error for text in LIMITS))
        if asks_for_cuda and not any(
            f.kind == "hardcoded-cuda" and f.file and (f.file, f.line) == (run.file, run.line)
            for f in findings
        ):
            more.append(_finding("hardcoded-cuda", f": {run.error}", run.file, run.line))
        if not explained:
            kind = "untraceable" if limit else "script-error"
            more.append(_finding(kind, run.error, run.file, run.line))
    elif run.ended == "exit" and run.status:
        said = f": {run.said}" if run.said else ""
        more.append(finding("script-error", f"it exited with status {run.status}{said}"))
    elif run.ended is None and how_it_ended and not how_it_ended.startswith("after"):
        more.append(finding("script-error", how_it_ended))
    elif run.steps == 0 and run.ended != "apart":
        more.append(finding("no-training-step", f" {how_it_ended}" if how_it_ended else ""))
    if run.steps and not run.gpu_used and "cuda-or-cpu" not in kinds:
        more.append(finding("gpu-unused"))
    return more


def _key(kind: str, name: str | None, line: int | None, detail: str) -> tuple:
    return kind, name, line, detail if kind in ONE_PER_DETAIL else None


def _finding(
    kind: str, detail: str, name: str | None, line: int | None, count: int | None = None
) -> Finding:
    file, cell = split_name(name) if name else (None, None)
    return finding(kind, detail, file, line, cell, count)


def _rank(item: Finding) -> tuple:
    severity = (FAILS, HURTS, NOTE).index(item.severity)
    return severity, list(KINDS).index(item.kind), item.file or "", item.cell or 0, item.line or 0
