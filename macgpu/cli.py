"""The command line: ``macgpu run``, ``site``, ``doctor``, ``preflight``, ``softmps run``,
``bench``, ``results``, ``classify``, ``judge`` and ``generate``.

What takes long to import is imported by the command that needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from macgpu import preflight
from macgpu.errors import BookError
from macgpu.measure import commands as measuring

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run the book, build its site, examine and measure this machine.",
)
app.command()(measuring.bench)
app.add_typer(measuring.results, name="results")

BuildFolder = Annotated[
    Path | None, typer.Option("--build", help="The folder to build in; _build by default.")
]

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended."""


def main() -> None:
    """Run the command line; an error that a reader can mend is one line, not a traceback."""
    try:
        app(prog_name="macgpu")
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _interrupted()
        raise
    except BookError as error:
        _complain(str(error))
        sys.exit(1)
    except OSError as error:
        # No permission, no space, a file where a folder should be.
        _complain(": ".join(filter(None, (error.strerror or str(error), error.filename))))
        sys.exit(1)


@app.command()
def run(
    chapter: Annotated[str, typer.Option(help="One chapter, by number or name.")] = "",
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    device: Annotated[str, typer.Option(help="auto, mps, cuda or cpu.")] = "auto",
    build: BuildFolder = None,
) -> None:
    """Execute the chapters that changed, with papermill, and check them."""
    from macgpu.lock import locked
    from macgpu.machine import DEVICES
    from macgpu.publish.book import find_book

    _require_profile(profile)
    if device not in ("auto", *DEVICES):
        raise BookError(f"no device {device!r}: choose auto, {', '.join(DEVICES)}")
    book = find_book(build=build)
    chapters = [book.chapter(chapter)] if chapter else book.chapters()
    book.require_writable()
    if device != "auto":
        _require_device(device)

    from rich.console import Console

    from macgpu.measure import records
    from macgpu.publish.execute import print_table, run_chapters

    # A chapter says so only on its own page.
    records.say_refused(records.sort_out(book.root / "results")[1])
    console = Console()
    with locked(book.build):
        outcomes = run_chapters(book, chapters, profile, device, console)
    print_table(outcomes, console)
    if any(outcome.result == "failed" for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def site(
    profile: Annotated[str, typer.Option(help="The run to show: smoke, quick or full.")] = "quick",
    build: BuildFolder = None,
) -> None:
    """Build the site from the chapters that were executed on one profile."""
    from macgpu.lock import locked
    from macgpu.publish.book import find_book
    from macgpu.publish.site import build_site

    _require_profile(profile)
    book = find_book(build=build)
    book.require_writable()
    with locked(book.build):
        built = build_site(book, profile)
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


@app.command()
def classify(
    model: Annotated[Path, typer.Argument(help="A classifier's file, as chapter 15 saves it.")],
    picture: Annotated[Path, typer.Argument(help="A picture of any common format.")],
    fit: Annotated[bool, typer.Option("--fit", help="Cut, scale and recolour it to fit.")] = False,
) -> None:
    """Say what a picture shows: the three likeliest classes, each with its probability."""
    from macgpu.data import DataError
    from macgpu.jobs import classifier

    loaded = classifier.load(model)
    try:
        image = classifier.read_picture(picture, loaded.card, fit)
    except DataError as error:
        raise BookError(str(error)) from None
    for name, share in list(loaded.probabilities(image).items())[:3]:
        print(f"{name}: {share:.1%}")


@app.command()
def judge(
    model: Annotated[Path, typer.Argument(help="A judge's file, as chapter 16 saves it.")],
    sentence: Annotated[list[str], typer.Argument(help="A sentence, in quotes.")],
) -> None:
    """Say whether a sentence is positive or negative, each with its probability."""
    if len(sentence) > 1:
        raise BookError(f"{len(sentence)} words, each by itself: put the sentence in quotes")

    from macgpu.data import DataError
    from macgpu.jobs import sentiment

    loaded = sentiment.load(model)
    try:
        print(loaded.judge(sentence[0]))
    except DataError as error:
        raise BookError(str(error)) from None


@app.command()
def generate(
    model: Annotated[Path, typer.Argument(help="A generator's file, as chapter 17 saves it.")],
    out: Annotated[Path, typer.Argument(help="The picture file to write, such as out.png.")],
    seed: Annotated[int, typer.Option(help="The same seed makes the same pictures.")] = 0,
    count: Annotated[int, typer.Option(help="How many pictures, side by side.")] = 16,
) -> None:
    """Make pictures of a seed, and write them side by side into one file."""
    if not out.parent.is_dir():
        raise BookError(f"there is no folder {out.parent} to write {out.name} into")

    from macgpu.data import DataError
    from macgpu.jobs import generator

    loaded = generator.load(model)
    try:
        image = generator.sheet(loaded.of_seed(seed, count))
        image.save(out)
    except DataError as error:
        raise BookError(str(error)) from None
    except ValueError:
        raise BookError(f"{out.name}: no format of pictures has such an ending") from None
    print(f"{out.name}: {count} pictures of seed {seed}, {image.width}×{image.height} pixels")


app.command("preflight", context_settings=preflight.CONTEXT_SETTINGS)(preflight.command)

softmps_app = typer.Typer(no_args_is_help=True, help="The software MPS device, on Linux.")
app.add_typer(softmps_app, name="softmps")


@softmps_app.command("run", context_settings=preflight.CONTEXT_SETTINGS)
def softmps_run(
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
) -> None:
    """Run a command with "mps" being the software device: it checks, and measures nothing."""
    from macgpu import softmps

    try:
        status = softmps.run(command)
    except softmps.SoftMPSUnavailableError as error:
        raise BookError(str(error)) from None
    raise typer.Exit(status)


def _require_profile(name: str) -> None:
    from macgpu.publish.book import PROFILES

    if name not in PROFILES:
        raise BookError(f"no profile {name!r}: choose {', '.join(PROFILES)}")


def _require_device(name: str) -> None:
    from macgpu.device import why_not

    problem = why_not(name)
    if problem:
        raise BookError(f"device {name} cannot be used: {problem}")


def _interrupted() -> None:
    _complain("interrupted; what was finished is kept")
    sys.exit(INTERRUPTED)


def _complain(message: str) -> None:
    print(f"macgpu: {message}", file=sys.stderr)
