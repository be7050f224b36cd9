"""What machine this is: facts that the device choice, the doctor and the records rest on.

Nothing here names a person or a computer: no host name, user name, address or serial number.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from macgpu.words import counted

DEVICES = ("mps", "cuda", "cpu")
"""The kinds of device that the book knows, best first."""

RUN_MIME = "application/vnd.macgpu.run+json"
"""The media type under which a chapter displays what it ran on, for the status page to read."""

MINIMUM_MACOS = (14, 0)
"""What torch 2.9 and newer ask for at run time."""


@dataclass(frozen=True)
class Machine:
    """Facts about the computer and the Python that runs on it; ``None`` where not known."""

    system: str
    """``"Darwin"`` for macOS, ``"Linux"``, …, as ``platform.system()`` says."""
    os_version: str
    os_build: str | None
    architecture: str
    """Of the running Python, not of the chip: ``"x86_64"`` on a Mac may be Rosetta."""
    chip: str
    apple_silicon: bool
    translated: bool
    """True where macOS runs this Python through Rosetta."""
    virtual: bool | None
    cores: int
    performance_cores: int | None
    efficiency_cores: int | None
    memory_bytes: int
    python: str

    @property
    def is_mac(self) -> bool:
        return self.system == "Darwin"

    @property
    def memory_gib(self) -> float:
        return self.memory_bytes / 2**30

    def describe(self) -> str:
        """One line: chip, cores, memory, operating system."""
        kinds = (
            f"{self.performance_cores} performance and {self.efficiency_cores} efficiency cores"
            if self.performance_cores and self.efficiency_cores
            else counted(self.cores, "core")
        )
        name = "macOS" if self.is_mac else self.system
        return f"{self.chip}, {kinds}, {self.memory_gib:.0f} GiB memory, {name} {self.os_version}"


def read_machine() -> Machine:
    """Read the facts of this machine. Commands that are missing leave ``None``, never an error."""
    system = platform.system()
    architecture = platform.machine()
    if system == "Darwin":
        translated = _sysctl("sysctl.proc_translated") == "1"
        return Machine(
            system=system,
            os_version=_output("sw_vers", "-productVersion") or platform.mac_ver()[0],
            os_build=_output("sw_vers", "-buildVersion"),
            architecture=architecture,
            chip=_sysctl("machdep.cpu.brand_string") or "unknown chip",
            apple_silicon=_sysctl("hw.optional.arm64") == "1" or architecture == "arm64",
            translated=translated,
            virtual=_sysctl("kern.hv_vmm_present") == "1",
            performance_cores=_as_int(_sysctl("hw.perflevel0.physicalcpu")),
            efficiency_cores=_as_int(_sysctl("hw.perflevel1.physicalcpu")),
            **_common(),
        )
    return Machine(
        system=system,
        os_version=platform.release().split("-")[0],
        os_build=None,
        architecture=architecture,
        chip=_linux_chip() or platform.processor() or architecture,
        apple_silicon=False,
        translated=False,
        virtual=_linux_virtual(),
        performance_cores=None,
        efficiency_cores=None,
        **_common(),
    )


@dataclass(frozen=True)
class Power:
    """What a machine runs on now; ``None`` where nothing tells."""

    source: str | None
    """``"mains"`` or ``"battery"``."""
    low_power_mode: bool | None


def read_power() -> Power:
    """The power source and, on macOS, whether low-power mode is on."""
    if platform.system() == "Darwin":
        return Power(
            _power_source(_output("pmset", "-g", "batt")),
            _low_power_mode(_output("pmset", "-g")),
        )
    # psutil has no such function on systems without the notion of a battery.
    battery = getattr(psutil, "sensors_battery", lambda: None)()
    if battery is None or battery.power_plugged is None:
        return Power(None, None)
    return Power("mains" if battery.power_plugged else "battery", None)


def explain_missing_mps(machine: Machine, built: bool, wrong: str | None) -> str:
    """Why mps cannot be used on this machine, and the remedy, in one line.

    Args:
        machine: the machine's facts.
        built: whether this torch contains the MPS backend.
        wrong: what a computation on the device showed to be wrong, where it was present.
    """
    if not machine.is_mac:
        return f"mps is the GPU of a Mac, and this is {machine.system}. Use device auto."
    if machine.translated:
        return (
            "this Python is an x86-64 build that runs under Rosetta, and current torch has no "
            "build for it. Install a native arm64 Python and make the environment anew."
        )
    if not machine.apple_silicon:
        return (
            "this Mac has an Intel processor; the last torch for it was 2.2.2, and current "
            "torch needs Apple silicon. Use device cpu."
        )
    if version_tuple(machine.os_version) < MINIMUM_MACOS:
        return (
            f"macOS {machine.os_version} is too old: current torch needs macOS 14.0 or newer "
            "for MPS. Update macOS."
        )
    if not built:
        return "this torch was built without MPS. Install the plain wheel: pip install torch"
    if wrong and machine.virtual:
        return (
            f"mps is present in this virtual machine but computes nothing useful: {wrong}. "
            "Run on the Mac itself, or use device cpu."
        )
    if wrong:
        return f"mps is present but computes wrongly: {wrong}. Update macOS and torch."
    if machine.virtual:
        return "this virtual machine offers no usable GPU. Run on the Mac itself."
    return "torch finds no Metal device. Restart the Mac; if that does not help, reinstall torch."


def version_tuple(text: str) -> tuple[int, ...]:
    """``"14.6.1"`` as ``(14, 6, 1)``, to compare; parts that are no numbers end it."""
    parts = []
    for part in text.split("."):
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def environment_at_start() -> dict[str, str]:
    """The variables this process was started with, before Python could change any.

    Empty where the operating system does not tell (psutil raises then).
    """
    try:
        return psutil.Process().environ()
    except (psutil.Error, OSError):
        return {}


def _common() -> dict:
    return {
        "cores": psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _linux_chip() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _linux_virtual() -> bool | None:
    try:
        return " hypervisor" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None


def _power_source(pmset: str | None) -> str | None:
    """From ``pmset -g batt``, whose first line names what the Mac draws from."""
    if pmset and "'AC Power'" in pmset:
        return "mains"
    return "battery" if pmset and "'Battery Power'" in pmset else None


def _low_power_mode(pmset: str | None) -> bool | None:
    """From ``pmset -g``: ``lowpowermode 1``, or ``powermode 1`` on Macs that also have a high."""
    for line in (pmset or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if name in ("lowpowermode", "powermode"):
            return value.strip() == "1"
    return None


def _sysctl(name: str) -> str | None:
    return _output("sysctl", "-n", name)


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _as_int(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
