"""The command line: ``macgpu run``, ``macgpu site``, ``macgpu doctor``."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run the book, build its site, examine this machine.",
)

INTERRUPTED = 130
"""The exit status of a shell command that Ctrl-C ended."""


def main() -> None:
    """Run the command line; errors that a reader can mend are one line, not a traceback."""
    try:
        app(prog_name="macgpu")
    except KeyboardInterrupt:
        _complain("interrupted; what was finished is kept")
        sys.exit(INTERRUPTED)
    except PermissionError as error:
        _complain(f"no permission to write {error.filename}")
        sys.exit(1)


@app.command()
def run(
    chapter: Annotated[str, typer.Option(help="One chapter, by number or name.")] = "",
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    device: Annotated[str, typer.Option(help="auto, mps, cuda or cpu.")] = "auto",
) -> None:
    """Execute the chapters that changed, with papermill, and check them."""
    from macgpu.machine import DEVICES
    from macgpu.publish.book import PROFILES, BookError, find_book
    from macgpu.publish.execute import print_table, run_chapters

    console = Console()
    try:
        if profile not in PROFILES:
            raise BookError(f"no profile {profile!r}: choose {', '.join(PROFILES)}")
        if device not in ("auto", *DEVICES):
            raise BookError(f"no device {device!r}: choose auto, {', '.join(DEVICES)}")
        book = find_book()
        chapters = [book.chapter(chapter)] if chapter else book.chapters()
        if device != "auto":
            _require_device(device)
        if not os.access(_nearest_existing(book.build), os.W_OK):
            raise BookError(f"no permission to write {book.build.name}")
    except BookError as error:
        _complain(str(error))
        raise typer.Exit(1) from None
    outcomes = run_chapters(book, chapters, profile, device, console)
    print_table(outcomes, console)
    if any(outcome.result == "failed" for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def site() -> None:
    """Build the site from the executed chapters."""
    from macgpu.publish.book import BookError, find_book
    from macgpu.publish.site import build_site

    try:
        book = find_book()
        built = build_site(book)
    except BookError as error:
        _complain(str(error))
        raise typer.Exit(1) from None
    print("the site is built:" if built else "the site is up to date:")
    print(book.html / "index.html")


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
) -> None:
    """Examine this machine: is it set up to train, and if not, what to do."""
    from macgpu import doctor

    facts = doctor.collect()
    checks = doctor.examine(facts)
    print(doctor.as_json(facts, checks) if as_json else doctor.as_text(checks))
    if not doctor.can_train(checks):
        raise typer.Exit(1)


def _require_device(name: str) -> None:
    from macgpu.device import why_not
    from macgpu.publish.book import BookError

    problem = why_not(name)
    if problem:
        raise BookError(f"device {name} cannot be used: {problem}")


def _nearest_existing(path):
    while not path.exists():
        path = path.parent
    return path


def _complain(message: str) -> None:
    print(f"macgpu: {message}", file=sys.stderr)
