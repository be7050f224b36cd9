"""The commands ``macgpu bench`` and ``macgpu results``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macgpu.words import counted

if TYPE_CHECKING:
    from macgpu.measure.records import Record
    from macgpu.measure.timing import Timing

ALL = "all"
SUITE_HELP = "ceilings, models, precision, energy, loading, memory or all."

results = typer.Typer(no_args_is_help=True, help="List, compare and check measured records.")

Folder = Annotated[Path, typer.Option("--in", help="The folder of the records.")]


def bench(
    suite: Annotated[str, typer.Argument(help=SUITE_HELP)] = ALL,
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    device: Annotated[str, typer.Option(help="auto, mps, cuda or cpu.")] = "auto",
    out: Annotated[Path, typer.Option(help="The folder for the record.")] = Path("results"),
) -> None:
    """Measure this machine and write one record."""
    from macgpu.measure.suites import SUITES
    from macgpu.measure.timing import EFFORTS

    if suite not in (ALL, *SUITES):
        _fail(f"no suite {suite!r}: choose {ALL}, {', '.join(SUITES)}")
    if profile not in EFFORTS:
        _fail(f"no profile {profile!r}: choose {', '.join(EFFORTS)}")

    from macgpu.device import DeviceUnavailableError, pick
    from macgpu.machine import read_machine
    from macgpu.measure import records, suites

    try:
        chosen = pick(device)
    except (DeviceUnavailableError, ValueError) as error:
        _fail(str(error))
    problem = records.why_not_measured(chosen.type, read_machine())
    if problem:
        _fail(problem)
    try:
        # Before the minutes of measuring, not after them.
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        _fail(f"{out} cannot be written to: {error.strerror}")
    record = suites.run(SUITES if suite == ALL else (suite,), chosen, profile)
    print(record.caption)
    print(records.write(record, out))


@results.command("list")
def list_records(folder: Folder = Path("results")) -> None:
    """One line a record: file, device, profile, date, what it holds."""
    from macgpu.measure import records

    _require_folder(folder)
    found, refused = records.sort_out(folder)
    records.say_refused(refused)
    if not found:
        _fail(f"no record in {folder}")
    for name, record in found.items():
        timed = sum(result.timing is not None for result in record.results)
        print(
            f"{name}: {record.device.name}, {record.profile}, {record.finished[:10]}, "
            f"{record.provenance}; {counted(len(record.ceilings), 'ceiling')}, "
            f"{timed} of {counted(len(record.results), 'case')} timed, "
            f"{counted(len(record.loading), 'loader')}, "
            f"{counted(len(record.footprints), 'footprint')}"
            + (f"; blocks split over {record.scaling.ranks}" if record.scaling else "")
        )


@results.command()
def compare(
    a: Annotated[Path, typer.Argument(help="A record's file.")],
    b: Annotated[Path, typer.Argument(help="The file of the record that it is set against.")],
) -> None:
    """The time of each ceiling and case in A over its time in B, with an interval."""
    from macgpu.measure.timing import ratio_of_timings

    one, other = _read(a), _read(b)
    if one == other:
        _fail("A and B are the same record")
    print(f"A: {one.caption}\nB: {other.caption}")
    timings = _timings(other)
    shared = {what: timing for what, timing in _timings(one).items() if what in timings}
    if not shared:
        _fail("the two records share no ceiling, and no case of the same model, batch and options")
    for what, timing in shared.items():
        print(f"{what}: A takes {ratio_of_timings(timing, timings[what])}")


@results.command()
def check(folder: Folder = Path("results")) -> None:
    """Validate every record; the status is 1 where one is refused."""
    from macgpu.measure import records

    _require_folder(folder)
    found, refused = records.sort_out(folder)
    for error in refused:
        print(error)
    for name in records.other_files(folder):
        print(f"{name}: was not looked at, since its name does not end in .json")
    print(f"{counted(len(found) + len(refused), 'record')}, {len(refused)} refused")
    if refused:
        raise typer.Exit(1)


def _timings(record: Record) -> dict[str, Timing]:
    """What was timed in a record, by words that two records share only for the same thing."""
    from macgpu.measure.ceilings import what

    found = {what(cell): cell.timing for cell in record.ceilings if cell.timing}
    for result in record.results:
        if result.timing:
            run = ", while its energy was measured" if result.energy else ""
            found[f"{result.label} ({result.label.step}){run}"] = result.timing
    return found


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        _fail(f"{folder} is no folder" if folder.exists() else f"no folder {folder}")


def _read(path: Path) -> Record:
    from macgpu.measure import records

    try:
        return records.read(path)
    except records.RecordError as error:
        _fail(str(error))


def _fail(message: str) -> None:
    print(f"macgpu: {message}", file=sys.stderr)
    raise typer.Exit(1)
