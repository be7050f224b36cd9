"""Records: one JSON file a machine and run, validated when written and when read.

A record names hardware and software, and nobody: a field that the schema does not know, such as a
host or user name, is refused.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from macgpu.device import Hardware, hardware
from macgpu.machine import DEVICES, Machine, Power, read_machine, read_power
from macgpu.measure.ceilings import Cell
from macgpu.measure.energy import Energy
from macgpu.measure.flops import Floor, Work
from macgpu.measure.jobs import Job
from macgpu.measure.loading import Loading
from macgpu.measure.parity import Parity
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
        RecordError: where it is damaged, cut off, unlabelled, of a newer version, or of the
            software device.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path.name}: cannot be read: {error.strerror}") from None
    return _validate(content, path.name)


def paths(folder: Path = RESULTS) -> list[Path]:
    """The files of all records in a folder, by name."""
    return sorted(Path(folder).glob("*.json"))


def read_all(folder: Path = RESULTS) -> Iterator[Record]:
    """All records of a folder.

    Raises:
        RecordError: at the first that is refused.
    """
    for path in paths(folder):
        yield read(path)


def _validate(content: bytes, name: str) -> Record:
    try:
        version = json.loads(content)["version"]
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name}: not whole JSON, damaged or cut off: {error}") from None
    except (KeyError, TypeError):
        raise RecordError(f"{name}: version: is missing, so this is no record") from None
    if isinstance(version, int) and version > VERSION:
        raise RecordError(
            f"{name}: version: {version} is newer than {VERSION}, the newest known here; "
            "update macgpu"
        )
    try:
        record = _SCHEMA.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{name}: {field}: {first['msg'].lower()}") from None
    problem = why_not_measured(record.device.type, record.machine)
    if problem:
        raise RecordError(f"{name}: device.type: {problem}")
    for field, problem in _problems(record):
        raise RecordError(f"{name}: {field}: {problem}")
    return record


def _problems(record: Record) -> Iterator[tuple[str, str]]:
    """What no field shows by itself: the field, and what is wrong."""
    if "torch" not in record.software:
        yield "software.torch", "is missing"
    if record.device.type not in DEVICES:
        yield "device.type", f"is none of {', '.join(DEVICES)}"
    for field in ("cores", "memory_bytes"):
        if getattr(record.machine, field) < 1:
            yield f"machine.{field}", "is less than 1"
    for field, samples, median in _medians(record):
        if not math.isclose(statistics.median(samples), median, rel_tol=1e-6):
            yield field, "is not the median of its samples"
    for field, low, median, high in _intervals(record):
        if not low <= median <= high:
            yield field, "is outside of its interval"
    for number, job in enumerate(record.jobs):
        for place, run in enumerate(job.runs):
            if len(run.scores) != len(run.seconds):
                yield f"jobs.{number}.runs.{place}", "not each epoch has a score and a time"
    for field, measured, failure in _outcomes(record):
        if (measured is None) == (failure is None):
            yield f"{field}.failure", "there must be a measurement or a failure, not both"


def _outcomes(record: Record) -> Iterator[tuple[str, object, str | None]]:
    """Of each case its field, what was measured, and why nothing was."""
    for part in ("ceilings", "results", "loading"):
        for number, entry in enumerate(getattr(record, part)):
            energy = getattr(entry, "energy", None)
            # Without a meter there is neither a time nor a failure: the energy says why.
            yield f"{part}.{number}", entry.timing or energy, entry.failure
    for number, footprint in enumerate(record.footprints):
        yield f"footprints.{number}", footprint.samples_per_s, footprint.failure


def _intervals(record: Record) -> Iterator[tuple[str, float, float, float]]:
    """Each stated median with its field, between the bounds of its interval."""
    for part in ("ceilings", "results"):
        for number, entry in enumerate(getattr(record, part)):
            if (timing := entry.timing) is not None:
                field = f"{part}.{number}.timing.median_s"
                yield field, timing.low_s, timing.median_s, timing.high_s
    for number, comparison in enumerate(record.comparisons):
        ratio = comparison.ratio
        yield f"comparisons.{number}.ratio.median", ratio.low, ratio.median, ratio.high
    for number, job in enumerate(record.jobs):
        if job.over_plain is not None:
            ratio = job.over_plain
            yield f"jobs.{number}.over_plain.median", ratio.low, ratio.median, ratio.high


def _medians(record: Record) -> Iterator[tuple[str, Sequence[float], float]]:
    """Each stated median with its field and the raw samples that it must come from."""
    for part in ("ceilings", "results"):
        for number, entry in enumerate(getattr(record, part)):
            timing = entry.timing
            if timing is not None:
                samples = [block / timing.steps_per_block for block in timing.block_seconds]
                yield f"{part}.{number}.timing.median_s", samples, timing.median_s
    for number, comparison in enumerate(record.comparisons):
        ratio = comparison.ratio
        yield f"comparisons.{number}.ratio.median", ratio.pairs, ratio.median
    for number, entry in enumerate(record.loading):
        timing = entry.timing
        for part in ("loader", "model", "both") if timing else ():
            samples = [getattr(one, part) / timing.steps for one in timing.passes]
            yield f"loading.{number}.timing.{part}_s", samples, getattr(timing, f"{part}_s")
    for field, timing in _scaling_timings(record.scaling):
        samples = [block / timing.steps_per_block for block in timing.block_seconds]
        yield f"{field}.timing.median_s", samples, timing.median_s
    for number, speedup in enumerate(record.scaling.speedups if record.scaling else ()):
        ratio = speedup.ratio
        yield f"scaling.speedups.{number}.ratio.median", ratio.pairs, ratio.median
    for number, job in enumerate(record.jobs):
        if job.over_plain is not None:
            ratio = job.over_plain
            yield f"jobs.{number}.over_plain.median", ratio.pairs, ratio.median


def _scaling_timings(scaling: Scaling | None) -> Iterator[tuple[str, Timing]]:
    for part in ("collectives", "steps") if scaling else ():
        for number, entry in enumerate(getattr(scaling, part)):
            if entry.timing is not None:
                yield f"scaling.{part}.{number}", entry.timing


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
