"""The doctor: is this machine set up to train, and if not, what to do.

Facts are collected first (:func:`collect`), then judged (:func:`examine`): the judging touches
neither the machine nor torch, so that every case can be tested on any machine.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from macgpu import troubleshooting, variables
from macgpu.machine import (
    MINIMUM_MACOS,
    Machine,
    environment_at_start,
    explain_missing_mps,
    read_machine,
    version_tuple,
)

OK, WARN, FAIL = "OK", "WARN", "FAIL"

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 8)
"""The first with ``torch.amp.GradScaler("mps")``."""


@dataclass(frozen=True)
class Torch:
    """What torch says of itself, and what a product computed on each device said of it."""

    version: str
    installer: str | None
    """``"pip"``, ``"uv"``, ``"conda"``; ``None`` where nothing tells."""
    mps_built: bool
    mps_available: bool
    mps_problem: str | None
    """What the probe found wrong, where mps is available."""
    gpu_cores: int | None
    cuda_name: str | None
    cuda_problem: str | None


@dataclass(frozen=True)
class Facts:
    """All that the doctor judges."""

    machine: Machine
    torch: Torch | None
    torch_error: str | None
    """Why torch could not be imported."""
    environment: Mapping[str, str]
    """The variables whose names say PYTORCH, as they are now."""
    late: tuple[str, ...]
    """Those of them that torch may not have seen."""
    start_method: str
    free_bytes: int
    data_problem: str | None


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    level: str
    topic: str
    found: str
    anchor: str = ""
    """The entry of the troubleshooting page, where something is to be done."""
    remedy: str = ""

    @property
    def book(self) -> str:
        """Where the book explains it."""
        return troubleshooting.link(self.anchor) if self.anchor else ""


def collect() -> Facts:
    """Read the facts of this machine, this Python and its torch."""
    torch_was_loaded = "torch" in sys.modules
    now = {name: value for name, value in os.environ.items() if name.startswith("PYTORCH_")}
    at_start = environment_at_start()
    late = tuple(
        name for name in now if not variables.set_in_time(name, now, at_start, torch_was_loaded)
    )
    try:
        torch_facts, torch_error = _read_torch(), None
    except (ImportError, OSError) as error:
        torch_facts, torch_error = None, str(error).splitlines()[0]
    return Facts(
        machine=read_machine(),
        torch=torch_facts,
        torch_error=torch_error,
        environment=now,
        late=late,
        start_method=multiprocessing.get_start_method(),
        free_bytes=shutil.disk_usage(Path(__file__).parent).free,
        data_problem=_data_problem() if torch_facts else None,
    )


def examine(facts: Facts) -> list[Check]:
    """Judge the facts, one check after another."""
    checks = [_platform(facts.machine), _python(facts.machine)]
    checks += _torch(facts)
    checks += _variables(facts)
    checks += [_start_method(facts), _disk(facts)]
    if facts.torch:
        checks.append(_data(facts))
    return checks


def can_train(checks: list[Check]) -> bool:
    """False where a check failed."""
    return all(check.level != FAIL for check in checks)


def as_text(checks: list[Check]) -> str:
    """The report for people: a line a check, below it the remedy and where the book explains it."""
    width = max(len(check.topic) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.level:<4}  {check.topic:<{width}}  {check.found}")
        if check.remedy:
            lines.append(f"{'':<4}  {'':<{width}}  → {check.remedy}")
        if check.book:
            lines.append(f"{'':<4}  {'':<{width}}  book: {check.book}")
    return "\n".join(lines)


def as_json(facts: Facts, checks: list[Check]) -> str:
    """The report for programs: the machine, torch, and the checks."""
    report = {
        "machine": asdict(facts.machine),
        "torch": asdict(facts.torch) if facts.torch else None,
        "checks": [asdict(check) | {"book": check.book} for check in checks],
        "can_train": can_train(checks),
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def _platform(machine: Machine) -> Check:
    described = machine.describe()
    if machine.os_build:
        described += f" (build {machine.os_build})"
    if not machine.is_mac:
        return Check(
            WARN,
            "machine",
            f"{described}: this is no Mac",
            "no-mac",
            "what can be checked here is checked below; MPS itself only a Mac can show",
        )
    if not machine.apple_silicon and not machine.translated:
        return Check(
            FAIL,
            "machine",
            f"{described}: an Intel Mac",
            "intel-mac",
            "current torch has no build for it (2.2.2 was the last); the book needs Apple silicon",
        )
    if version_tuple(machine.os_version) < MINIMUM_MACOS:
        return Check(
            FAIL,
            "machine",
            f"{described}: too old for current torch",
            "old-macos",
            "update to macOS 14.0 or newer",
        )
    if machine.virtual:
        return Check(
            WARN,
            "machine",
            f"{described}, virtual",
            "virtual-mac",
            "a virtual Mac often has no usable GPU; believe the line of the probe",
        )
    return Check(OK, "machine", described)


def _python(machine: Machine) -> Check:
    found = f"Python {machine.python}, {machine.architecture}"
    if machine.translated:
        return Check(
            FAIL,
            "python",
            f"{found}, translated by Rosetta",
            "rosetta",
            "install a native arm64 Python and make the environment anew",
        )
    if version_tuple(machine.python) < OLDEST_PYTHON:
        needed = "current torch needs Python 3.10 or newer"
        return Check(FAIL, "python", found, "old-python", needed)
    return Check(OK, "python", found + (", native" if machine.is_mac else ""))


def _torch(facts: Facts) -> list[Check]:
    torch = facts.torch
    if torch is None:
        return [
            Check(
                FAIL,
                "torch",
                f"cannot be imported: {facts.torch_error}",
                "no-torch",
                "pip install torch torchvision",
            )
        ]
    found = f"torch {torch.version}" + (
        f", installed by {torch.installer}" if torch.installer else ""
    )
    checks = [Check(OK, "torch", found)]
    if version_tuple(torch.version.partition("+")[0])[:2] < OLDEST_TORCH:
        checks = [
            Check(
                WARN,
                "torch",
                found,
                "old-torch",
                "mixed precision on MPS needs 2.8 or newer: pip install --upgrade torch",
            )
        ]
    if facts.machine.is_mac:
        usable = torch.mps_available and torch.mps_problem is None
        if usable:
            cores = f", {torch.gpu_cores} GPU cores" if torch.gpu_cores else ""
            checks.append(Check(OK, "mps", f"built, available, computes as the CPU does{cores}"))
        else:
            state = "built" if torch.mps_built else "not built"
            state += ", available" if torch.mps_available else ", not available"
            why = explain_missing_mps(facts.machine, torch.mps_built, torch.mps_problem)
            anchor = "mps-computes-wrongly" if torch.mps_problem else "mps-unavailable"
            checks.append(Check(FAIL, "mps", state, anchor, why))
    elif torch.cuda_name and torch.cuda_problem is None:
        checks.append(Check(OK, "cuda", f"{torch.cuda_name}, computes as the CPU does"))
    elif torch.cuda_name:
        found = f"{torch.cuda_name}: {torch.cuda_problem}"
        checks.append(Check(FAIL, "cuda", found, "cuda-broken", "run nvidia-smi"))
    else:
        remedy = "the book runs on the CPU, more slowly"
        checks.append(Check(WARN, "gpu", "none that torch can use", "no-mac", remedy))
    return checks


def _variables(facts: Facts) -> list[Check]:
    checks = []
    problem = variables.watermark_problem(facts.environment)
    if problem:
        # Only the MPS backend reads them.
        level = FAIL if facts.machine.is_mac else WARN
        remedy = "correct it before `import torch`"
        checks.append(Check(level, "variables", problem, "bad-watermark", remedy))
    for name, value in facts.environment.items():
        if problem and name in (variables.HIGH, variables.LOW):
            continue
        if name in variables.INVENTED:
            found = f"{name} is set, but torch never reads it"
            checks.append(Check(WARN, "variables", found, "invented-variable", "unset it"))
        elif name in facts.late:
            checks.append(
                Check(
                    WARN,
                    "variables",
                    f"{name}={value} was set after this process began, and may be too late",
                    "late-variable",
                    "set it before `import torch`: restart the kernel, or set it in the shell",
                )
            )
        elif name in variables.REAL:
            checks.append(Check(OK, "variables", f"{name}={value}, set in time"))
    if not checks:
        checks.append(Check(OK, "variables", "no MPS variable is set: the defaults hold"))
    return checks


def _start_method(facts: Facts) -> Check:
    found = f"worker processes start by {facts.start_method}"
    if facts.machine.is_mac and facts.start_method == "fork":
        remedy = "fork is unsafe with Metal; use spawn, the default"
        return Check(WARN, "workers", found, "fork", remedy)
    return Check(OK, "workers", found)


def _disk(facts: Facts) -> Check:
    free = facts.free_bytes / 1e9
    found = f"{free:.0f} GB free"
    if free < 1:
        remedy = "free at least 1 GB: checkpoints could not be written"
        return Check(FAIL, "disk", found, "disk-full", remedy)
    if free < 10:
        remedy = "an environment with torch takes 1 to 7 GB"
        return Check(WARN, "disk", found, "disk-full", remedy)
    return Check(OK, "disk", found)


def _data(facts: Facts) -> Check:
    if facts.data_problem:
        return Check(FAIL, "data", facts.data_problem, "damaged-data")
    return Check(OK, "data", "the shipped pictures are in place and undamaged")


def _read_torch() -> Torch:
    import torch

    from macgpu.device import probe

    built, available = torch.backends.mps.is_built(), torch.backends.mps.is_available()
    cuda = torch.cuda.is_available()
    return Torch(
        version=torch.__version__,
        installer=_installer(),
        mps_built=built,
        mps_available=available,
        mps_problem=probe("mps") if available else None,
        gpu_cores=_gpu_cores() if available else None,
        cuda_name=torch.cuda.get_device_name(0) if cuda else None,
        cuda_problem=probe("cuda") if cuda else None,
    )


def _gpu_cores() -> int | None:
    import torch

    # Newer than the oldest torch that the book runs on.
    count = getattr(torch.backends.mps, "get_core_count", None)
    return count() if count else None


def _installer() -> str | None:
    if (Path(sys.prefix) / "conda-meta").is_dir():
        conda = list((Path(sys.prefix) / "conda-meta").glob("pytorch-[0-9]*.json"))
        if conda:
            return "conda"
    try:
        installer = metadata.distribution("torch").read_text("INSTALLER")
    except metadata.PackageNotFoundError:
        return None
    return installer.strip() if installer else None


def _data_problem() -> str | None:
    from macgpu.data import DataError, check_files

    try:
        check_files()
    except DataError as error:
        return str(error)
    return None
