"""The commands ``macgpu bench`` and ``macgpu results``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macgpu.words import counted

if TYPE_CHECKING:
    from macgpu.measure.records import Label, Result

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
    for path in records.paths(folder):
        record = _read(path)
        timed = sum(result.timing is not None for result in record.results)
        print(
            f"{path.name}: {record.device.name}, {record.profile}, {record.finished[:10]}, "
            f"{record.provenance}; {counted(len(record.ceilings), 'ceiling')}, "
            f"{timed} of {counted(len(record.results), 'case')} timed, "
            f"{counted(len(record.loading), 'loader')}, "
            f"{counted(len(record.footprints), 'footprint')}"
            + (f"; blocks split over {record.scaling.ranks}" if record.scaling else "")
        )


@results.command()
def compare(a: Path, b: Path) -> None:
    """The time of each case in A over its time in B, with an interval."""
    from macgpu.measure.timing import ratio_of_timings

    one, other = _read(a), _read(b)
    print(f"A: {one.caption}\nB: {other.caption}")
    timings = {_case(result): result.timing for result in other.results if result.timing}
    shared = [r for r in one.results if r.timing and _case(r) in timings]
    if not shared:
        _fail("the two records share no case of the same model, batch and options")
    for result in shared:
        ratio = ratio_of_timings(result.timing, timings[_case(result)])
        print(f"{result.label} ({result.label.step}): A takes {ratio}")


@results.command()
def check(folder: Folder = Path("results")) -> None:
    """Validate every record; the status is 1 where one is refused."""
    from macgpu.measure import records

    _require_folder(folder)
    refused = 0
    paths = records.paths(folder)
    for path in paths:
        try:
            records.read(path)
        except records.RecordError as error:
            refused += 1
            print(error)
    print(f"{counted(len(paths), 'record')}, {refused} refused")
    if refused:
        raise typer.Exit(1)


def _case(result: Result) -> tuple[Label, bool]:
    """What two results must share to be the same measurement."""
    return result.label, result.energy is not None


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        _fail(f"no folder {folder}")


def _read(path: Path):
    from macgpu.measure import records

    try:
        return records.read(path)
    except records.RecordError as error:
        _fail(str(error))


def _fail(message: str) -> None:
    print(f"macgpu: {message}", file=sys.stderr)
    raise typer.Exit(1)
