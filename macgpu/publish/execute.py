"""Execute chapters with papermill, check what came out, and keep only what is whole."""

from __future__ import annotations

import ast
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from macgpu.errors import BookError
from macgpu.machine import RUN_MIME
from macgpu.publish.book import UNREADABLE, Book, Chapter
from macgpu.publish.freshness import fingerprint, modules_used

CELL_TIMEOUT_S = 1800
"""No cell of the book runs for longer than this, on any profile."""


@dataclass(frozen=True)
class Run:
    """How an executed chapter came about; kept in its own notebook, so that both are one file."""

    fingerprint: str
    profile: str
    parameters: dict
    seconds: float
    finished: str
    """UTC, ISO 8601."""
    device: str
    device_name: str
    machine: str
    python: str
    torch: str


@dataclass(frozen=True)
class Outcome:
    """What became of one chapter in this call."""

    chapter: Chapter
    result: str
    """``"executed"``, ``"fresh"`` (nothing changed since) or ``"failed"``."""
    run: Run | None
    failure: str = ""


def run_chapters(
    book: Book, chapters: Iterable[Chapter], profile: str, device: str, console: Console
) -> list[Outcome]:
    """Execute the chapters that are not fresh, one after another, and say how each went.

    A chapter that fails does not keep the others from running, and leaves what an earlier run
    made of it untouched.
    """
    outcomes = []
    for chapter in chapters:
        try:
            parameters = {"device": device, **book.parameters(chapter, profile)}
            outcome = _run_chapter(book, chapter, profile, parameters, console)
        except BookError as error:
            outcome = Outcome(chapter, "failed", None, str(error))
        seconds = "" if outcome.run is None else f"{outcome.run.seconds:.0f} s"
        console.print(f"{chapter.number}  {chapter.name[3:]}: {outcome.result} {seconds}".rstrip())
        if outcome.failure:
            console.print(outcome.failure, markup=False, highlight=False, soft_wrap=True)
        outcomes.append(outcome)
    return outcomes


def print_table(outcomes: list[Outcome], console: Console) -> None:
    """The table at the end of a run: chapter, device, time, result."""
    table = Table("chapter", "device", "time", "result", box=None, pad_edge=False)
    for outcome in outcomes:
        run = outcome.run
        device, seconds = (run.device, f"{run.seconds:.0f} s") if run else ("–", "–")
        table.add_row(outcome.chapter.name, device, seconds, outcome.result)
    console.print(table)


def executed_run(path: Path) -> Run | None:
    """How this executed notebook came about; ``None`` where it is missing or not ours."""
    try:
        notebook = nbformat.read(path, as_version=4)
        return Run(**notebook.metadata["macgpu"])
    except (OSError, *UNREADABLE):
        return None


def is_current(run: Run, chapter: Chapter) -> bool:
    """Whether nothing that the chapter depends on has changed since this run."""
    try:
        return run.fingerprint == fingerprint(chapter, run.parameters)
    except BookError:
        return False


def declared_parameters(notebook: NotebookNode) -> dict:
    """The names and values of the cell tagged ``parameters``.

    Raises:
        BookError: where there is not exactly one such cell, or it holds anything but literals.
    """
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise BookError(f"expected one cell tagged parameters, found {len(cells)}")
    declared = {}
    try:
        for statement in ast.parse(cells[0].source).body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                raise ValueError
            declared[statement.targets[0].id] = ast.literal_eval(statement.value)
    except (SyntaxError, ValueError, AttributeError):
        raise BookError("the parameters cell must hold assignments of literals only") from None
    return declared


def problems_of(notebook: NotebookNode) -> list[str]:
    """What shows that an executed notebook did not run from start to end."""
    problems = []
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        if cell.execution_count is None:
            problems.append(f"cell {cell.id!r} was not executed")
        for output in cell.outputs:
            if output.output_type == "error":
                problems.append(f"cell {cell.id!r} holds an error: {output.ename}")
    if _displayed_run(notebook) is None:
        problems.append("it does not say what it was executed on (macgpu.page.executed_on)")
    return problems


def without_colour(text: str) -> str:
    """Text of a program without the codes that colour it on a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _run_chapter(
    book: Book, chapter: Chapter, profile: str, parameters: dict, console: Console
) -> Outcome:
    unknown = set(parameters) - set(declared_parameters(chapter.read()))
    if unknown:
        raise BookError(
            f"{chapter.name} has no parameter {', '.join(sorted(unknown))}: "
            f"see its parameters cell and profiles/{profile}.yml"
        )
    expected = fingerprint(chapter, parameters)
    target = book.executed(profile) / chapter.path.name
    previous = executed_run(target)
    if previous and previous.fingerprint == expected:
        return Outcome(chapter, "fresh", previous)
    _check_data(chapter)

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        progress.add_task(f"{chapter.number}  {chapter.title}")
        start = time.perf_counter()
        notebook = _execute(book, chapter, parameters)
        seconds = time.perf_counter() - start

    problems = problems_of(notebook)
    if problems:
        raise BookError("\n".join(problems))
    displayed = {k: v for k, v in _displayed_run(notebook).items() if k != "date"}
    run = Run(
        fingerprint=expected,
        profile=profile,
        parameters=parameters,
        seconds=round(seconds, 1),
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **displayed,
    )
    notebook.metadata["macgpu"] = asdict(run)
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = target.with_suffix(".whole")
    nbformat.write(notebook, whole)
    whole.replace(target)
    return Outcome(chapter, "executed", run)


def _check_data(chapter: Chapter) -> None:
    """Stop before a chapter runs on a data file that is not the one that was shipped."""
    if "macgpu.data" not in modules_used(chapter.read(), chapter.path.name):
        return
    from macgpu.data import DataError, check_files

    try:
        check_files()
    except DataError as error:
        raise BookError(str(error)) from None


def _execute(book: Book, chapter: Chapter, parameters: dict) -> NotebookNode:
    """The executed notebook; what the chapter writes goes into a folder of its own."""
    scratch = book.build / "scratch" / chapter.name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        return papermill.execute_notebook(
            str(chapter.path),
            None,
            parameters=parameters,
            kernel_name="python3",
            language="python",
            cwd=str(scratch),
            progress_bar=False,
            start_timeout=120,
            execution_timeout=CELL_TIMEOUT_S,
            # A kernel logs to our own terminal: a warning at each start, a traceback at Ctrl-C.
            extra_arguments=["--log-level=CRITICAL"],
        )
    except PapermillExecutionError as error:
        raise BookError(_describe_failure(error)) from None
    except CellTimeoutError:
        raise BookError(f"a cell ran for longer than {CELL_TIMEOUT_S} s") from None
    except DeadKernelError:
        raise BookError("its kernel died (out of memory, or a crash in compiled code)") from None
    except RuntimeError as error:
        raise BookError(f"its kernel did not start: {error}") from None


def _describe_failure(error: PapermillExecutionError) -> str:
    """The failing cell's source and the end of its traceback; of our own errors their one line."""
    if error.ename == BookError.__name__:
        return f"  cell {error.exec_count}: {error.evalue}"
    traceback = without_colour("\n".join(error.traceback)).splitlines()
    source = "\n".join(f"    {line}" for line in error.source.splitlines())
    end = "\n".join(f"    {line}" for line in traceback[-12:])
    return f"  cell {error.exec_count}:\n{source}\n  failed with:\n{end}"


def _displayed_run(notebook: NotebookNode) -> dict | None:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if RUN_MIME in output.get("data", {}):
                return output["data"][RUN_MIME]
    return None
