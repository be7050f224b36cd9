"""The command line: ``macgpu run``, ``site``, ``doctor``, ``bench`` and ``results``.

What takes long to import is imported by the command that needs it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from macgpu.machine import DEVICES
from macgpu.measure import commands as measuring
from macgpu.publish.book import PROFILES, BookError, find_book

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run the book, build its site, examine and measure this machine.",
)
app.command()(measuring.bench)
app.add_typer(measuring.results, name="results")

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended."""


def main() -> None:
    """Run the command line; an error that a reader can mend is one line, not a traceback."""
    try:
        app(prog_name="macgpu")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _complain("interrupted; what was finished is kept")
        raise
    except BookError as error:
        _complain(str(error))
        sys.exit(1)
    except OSError as error:
        # No permission, no space, a file where a folder should be.
        _complain(f"{error.strerror or error}: {error.filename}")
        sys.exit(1)


@app.command()
def run(
    chapter: Annotated[str, typer.Option(help="One chapter, by number or name.")] = "",
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    device: Annotated[str, typer.Option(help="auto, mps, cuda or cpu.")] = "auto",
) -> None:
    """Execute the chapters that changed, with papermill, and check them."""
    if profile not in PROFILES:
        raise BookError(f"no profile {profile!r}: choose {', '.join(PROFILES)}")
    if device not in ("auto", *DEVICES):
        raise BookError(f"no device {device!r}: choose auto, {', '.join(DEVICES)}")
    book = find_book()
    chapters = [book.chapter(chapter)] if chapter else book.chapters()
    book.require_writable()
    if device != "auto":
        _require_device(device)

    from rich.console import Console

    from macgpu.publish.execute import print_table, run_chapters

    console = Console()
    outcomes = run_chapters(book, chapters, profile, device, console)
    print_table(outcomes, console)
    if any(outcome.result == "failed" for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def site() -> None:
    """Build the site from the executed chapters."""
    from macgpu.publish.site import build_site

    book = find_book()
    book.require_writable()
    built = build_site(book)
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

    problem = why_not(name)
    if problem:
        raise BookError(f"device {name} cannot be used: {problem}")


def _complain(message: str) -> None:
    print(f"macgpu: {message}", file=sys.stderr)
