"""Records: one JSON file a machine and run, validated when written and when read.

A record names hardware and software, and nobody: a field that the schema does not know, such as a
host or user name, is refused.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from macgpu.device import Hardware, hardware
from macgpu.machine import Machine, Power, read_machine, read_power
from macgpu.measure.ceilings import Cell
from macgpu.measure.energy import Energy
from macgpu.measure.fields import unfit
from macgpu.measure.flops import Floor, Work
from macgpu.measure.generation import Generation
from macgpu.measure.jobs import Job
from macgpu.measure.loading import Loading
from macgpu.measure.parity import Parity
from macgpu.measure.problems import problems, unfit_values
from macgpu.measure.steps import Options
from macgpu.measure.timing import Ratio, Timing
from macgpu.parallel.scaling import Scaling

RESULTS = Path(__file__).resolve().parents[2] / "results"
"""Where the book keeps its records."""

VERSION = 1
"""Of the schema. A record of a newer version is refused, since it may mean something else."""

PACKAGES = ("torch", "torchvision", "transformers", "timm")

_NAME = Field(pattern=r"^[\w.+-]+$")
# A validator reads the annotations of the parts too, so it applies to them: no unknown field,
# no infinite number, no text where a number belongs.
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

_PROFILE_IN_NAME = re.compile(r"-(smoke|quick|full)-\d{4}-\d\d-\d\d-")
"""As :func:`write` names a file; under another name, a record may be of any profile."""

PRECISION = "precision: "
"""Begins the names of the steps of the suite "precision"."""


class RecordError(ValueError):
    """A record is refused; the message gives the file, the field and the reason."""


@dataclass(frozen=True, config=_STRICT)
class Label:
    """What was measured: a training step of a model, by whose code, and how."""

    model: Annotated[str, _NAME]
    batch_size: Annotated[int, Field(ge=1)]
    options: Options
    step: str = "float32"
    """The name of the rung, such as ``"fused optimizer"``."""
    code: Literal["macgpu", "timm", "transformers"] = "macgpu"

    @property
    def is_rung(self) -> bool:
        """Whether it is a step of a ladder, and none of the suite "precision"."""
        return not self.step.startswith(PRECISION)

    def __str__(self) -> str:
        code = "" if self.code == "macgpu" else f"{self.code}'s "
        return f"{code}{self.model}, batch {self.batch_size}, {self.options}"


@dataclass(frozen=True, config=_STRICT)
class Result:
    """One case. Where it failed, ``failure`` says why and there is no time."""

    label: Label
    timing: Timing | None
    failure: str | None
    parity: Parity | None
    work: Work | None
    floor: Floor | None
    peak_memory_bytes: Annotated[int, Field(gt=0)] | None
    energy: Energy | None = None

    @property
    def samples_per_s(self) -> float | None:
        return self.label.batch_size / self.timing.median_s if self.timing else None

    @property
    def flops_per_s(self) -> float | None:
        """Model FLOPs per second: those of the model, not those of the kernels."""
        return self.work.flops / self.timing.median_s if self.timing and self.work else None

    @property
    def times_floor(self) -> float | None:
        """How many times the least possible time the step took."""
        return self.timing.median_s / self.floor.seconds if self.timing and self.floor else None


@dataclass(frozen=True, config=_STRICT)
class Comparison:
    """Two cases in turn, in one run."""

    a: Label
    b: Label
    ratio: Ratio


@dataclass(frozen=True, config=_STRICT)
class Footprint:
    """The memory of a training step, predicted and measured. Where it failed, ``failure`` says why.

    The optimizer is a fused AdamW. Bytes are ``None`` where there is no counter.
    """

    model: Annotated[str, _NAME]
    batch_size: Annotated[int, Field(ge=1)]
    autocast: Literal["bfloat16", "float16"] | None
    checkpointed: bool
    """Whether the activations within each block were computed anew in backward."""
    predicted_bytes: Annotated[int, Field(gt=0)]
    """The planner's peak, cuBLAS's workspaces included."""
    peak_bytes: Annotated[int, Field(gt=0)] | None = None
    """The most that tensors held in a step that is not the first."""
    reserved_bytes: Annotated[int, Field(gt=0)] | None = None
    """What the allocator held after it, its cache included."""
    samples_per_s: Annotated[float, Field(gt=0)] | None = None
    failure: str | None = None

    @property
    def way(self) -> str:
        """The data type, and whether checkpointed: ``"bfloat16, checkpointed"``."""
        return (self.autocast or "float32") + ", checkpointed" * self.checkpointed

    @property
    def error(self) -> float | None:
        """The prediction over the measurement, less one."""
        return self.predicted_bytes / self.peak_bytes - 1 if self.peak_bytes else None


@dataclass(frozen=True, config=_STRICT)
class Record:
    """One run of one or more suites on one device."""

    version: Literal[1]
    provenance: Literal["ci", "maintainer", "reader", "reported"]
    suites: tuple[str, ...]
    profile: Literal["smoke", "quick", "full"]
    finished: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]
    """UTC."""
    device: Hardware
    machine: Machine
    power: Power
    software: dict[Literal[PACKAGES + ("cuda", "cudnn")], str]
    ceilings: tuple[Cell, ...] = ()
    results: tuple[Result, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    loading: tuple[Loading, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    scaling: Scaling | None = None
    """Of a model split over several devices of this kind."""
    jobs: tuple[Job, ...] = ()
    generations: tuple[Generation, ...] = ()

    @property
    def caption(self) -> str:
        """What stands below a figure drawn from this record."""
        machine = "" if self.device.type == "cpu" else f" in {self.machine.describe()}"
        name = self.machine.describe() if self.device.type == "cpu" else self.device.name
        return (
            f"Measured on {self.device.type}, {name}{machine}; torch {self.software['torch']}, "
            f"profile {self.profile}, {self.finished[:10]}."
        )

    def find(self, model: str, step: str = "float32", code: str = "macgpu") -> Result | None:
        """The result of a model's step, or ``None``."""
        for result in self.results:
            label = result.label
            if (label.model, label.step, label.code) == (model, step, code):
                return result
        return None


_SCHEMA = TypeAdapter(Record)


def make(
    device: torch.device,
    suites: tuple[str, ...],
    profile: str,
    provenance: str = "reader",
    ceilings: tuple[Cell, ...] = (),
    results: tuple[Result, ...] = (),
    comparisons: tuple[Comparison, ...] = (),
    loading: tuple[Loading, ...] = (),
    footprints: tuple[Footprint, ...] = (),
    scaling: Scaling | None = None,
    jobs: tuple[Job, ...] = (),
    generations: tuple[Generation, ...] = (),
) -> Record:
    """A record of what was measured on this machine, dated now."""
    return Record(
        version=VERSION,
        provenance=provenance,
        suites=suites,
        profile=profile,
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device=hardware(device),
        machine=read_machine(),
        power=read_power(),
        software=_software(device),
        ceilings=ceilings,
        results=results,
        comparisons=comparisons,
        loading=loading,
        footprints=footprints,
        scaling=scaling,
        jobs=jobs,
        generations=generations,
    )


def why_not_measured(device_type: str, machine: Machine) -> str | None:
    """Why nothing that this device does is a measurement, or ``None``.

    The software MPS device computes with the CPU's kernels: its times, memory and energy are
    nobody's. It is the only mps device outside of macOS.
    """
    if device_type == "mps" and not machine.is_mac:
        return f"mps on {machine.system} is the software device, and measures nothing"
    return None


def write(record: Record, folder: Path) -> Path:
    """Write a record whole or not at all; the file is named after device, profile and time.

    Raises:
        RecordError: where it does not validate.
    """
    content = _SCHEMA.dump_json(record, indent=1)
    chip = "-".join(record.device.name.lower().replace("(r)", "").split()[:4])
    chip = "".join(letter for letter in chip if letter.isalnum() or letter == "-")
    stamp = record.finished[:19].replace(":", "").replace("T", "-")
    path = Path(folder) / f"{record.device.type}-{chip}-{record.profile}-{stamp}.json"
    _validate(content, path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".whole")
    whole.write_bytes(content)
    whole.replace(path)
    return path


def read(path: Path) -> Record:
    """Read one record.

    Raises:
        RecordError: where it is damaged, cut off, unlabelled, of a newer version, of the software
            device, or holds what cannot be.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _refusal(path.name, f"cannot be read: {error.strerror}") from None
    return _validate(content, path.name)


def paths(folder: Path = RESULTS) -> list[Path]:
    """The files of all records in a folder, by name; not those that a file manager hides there."""
    return sorted(path for path in Path(folder).glob("*.json") if path.name[0] != ".")


def other_files(folder: Path = RESULTS) -> list[str]:
    """The names of the files in a folder that are read as no record, since they do not end so.

    A name is given as it prints; those that a file manager hides are left out.
    """
    others = (path.name for path in Path(folder).iterdir() if path.is_file())
    return sorted(_printable(n) for n in others if n[0] != "." and not n.endswith(".json"))


def sort_out(folder: Path = RESULTS) -> tuple[dict[str, Record], list[RecordError]]:
    """The records of a folder by the name of their file, and why each other file is refused."""
    found: dict[str, Record] = {}
    refused = []
    for path in paths(folder):
        try:
            record = read(path)
            same = next((name for name, other in found.items() if other == record), None)
            if same:
                raise _refusal(path.name, f"is the same record as {same}")
            found[path.name] = record
        except RecordError as error:
            refused.append(error)
    return found, refused


def read_all(folder: Path = RESULTS) -> Iterator[Record]:
    """All records of a folder but those that are refused, which :func:`say_refused` names."""
    found, refused = sort_out(folder)
    say_refused(refused)
    yield from found.values()


def say_refused(refused: Iterable[RecordError]) -> None:
    """A line on standard error for each record that is left out, once in a process."""
    for error in refused:
        _say_once(f"macgpu: a record is left out: {error}")


@functools.cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)


def _refusal(*parts: str) -> RecordError:
    """Of file, field and reason; empty ones are left out, and nothing in it moves a terminal."""
    return RecordError(_printable(": ".join(filter(None, parts))))


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _unique(name: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON whose keys are each there once: a reader sees the first, json the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _refusal(name, next(key for key in keys if keys.count(key) > 1), "is there twice")
    return found


def _validate(content: bytes, name: str) -> Record:
    try:
        # json would guess the encoding of bytes, and so take what the schema does not.
        unique = functools.partial(_unique, name)
        version = json.loads(content.decode(), object_pairs_hook=unique)["version"]
    except RecordError:
        raise
    except (ValueError, RecursionError) as error:
        raise _refusal(name, f"not whole JSON, damaged or cut off: {error}") from None
    except (KeyError, TypeError):
        raise _refusal(name, "version", "is missing, so this is no record") from None
    if type(version) is not int:
        raise _refusal(name, "version", f"should be {VERSION}, a whole number")
    if version > VERSION:
        newer = f"{version} is newer than {VERSION}, the newest known here; update macgpu"
        raise _refusal(name, "version", newer)
    try:
        record = _SCHEMA.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        # Only its first letter: what it quotes, such as the T in a date, stays as it is.
        raise _refusal(name, field, first["msg"][:1].lower() + first["msg"][1:]) from None
    if odd := unfit(name):
        raise _refusal(name, f"the file's name holds {ascii(odd)}")
    named = _PROFILE_IN_NAME.search(name)
    if named and named[1] != record.profile:
        raise _refusal(name, "profile", f"is {record.profile}, and the file's name says {named[1]}")
    for field, problem in unfit_values(_SCHEMA.dump_python(record)):
        raise _refusal(name, field, problem)
    if problem := why_not_measured(record.device.type, record.machine):
        raise _refusal(name, "device.type", problem)
    for field, problem in problems(record):
        raise _refusal(name, field, problem)
    return record


def _software(device: torch.device) -> dict[str, str]:
    software = {"torch": torch.__version__}
    for package in PACKAGES[1:]:
        try:
            software[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if device.type == "cuda":
        software["cuda"] = torch.version.cuda
        software["cudnn"] = str(torch.backends.cudnn.version())
    return software
