"""Compiles the device, once for each torch and each state of the sources.

The compiled files lie in the user's cache: `$XDG_CACHE_HOME/macgpu/softmps/torch-VERSION-HASH/`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from macgpu.softmps import SoftMPSUnavailableError

SOURCES = Path(__file__).parent / "csrc"
# The first torch with all that the sources use, and the first that nobody has tried.
OLDEST, TOO_NEW = (2, 11), (2, 15)
# No warnings: they would be about torch's headers. -O1: what takes time is in torch's kernels.
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-w"]


@dataclass(frozen=True)
class Build:
    """The compiled device."""

    device: Path  # loaded into torch
    accelerator: Path  # preloaded into the process
    operators: Path  # JSON: the operators to register


@dataclass(frozen=True)
class Torch:
    """The installed torch, known without importing it."""

    folder: Path
    version: str


def installed_torch() -> Torch:
    """Raises SoftMPSUnavailableError where there is no torch, or none that the device knows."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SoftMPSUnavailableError(
            "The software MPS device needs torch, which is not installed."
        )
    folder = Path(spec.origin).parent
    version = runpy.run_path(str(folder / "version.py"))["__version__"]
    if not OLDEST <= tuple(int(part) for part in version.split(".")[:2]) < TOO_NEW:
        raise SoftMPSUnavailableError(
            "The software MPS device supports torch "
            f"{OLDEST[0]}.{OLDEST[1]} to {TOO_NEW[0]}.{TOO_NEW[1] - 1}, not {version}."
        )
    return Torch(folder, version)


def ensure_built() -> Build:
    """The compiled device for the installed torch, compiled now if it was not before.

    Raises SoftMPSUnavailableError: not on Linux, no g++, an unsupported torch, a cache that cannot
    be written, failed compilation.
    """
    if sys.platform != "linux":
        raise SoftMPSUnavailableError(
            f"The software MPS device runs on Linux, not on {sys.platform}."
        )
    import fcntl  # not to be had on Windows

    torch = installed_torch()
    folder = _cache() / f"torch-{torch.version}-{_digest(torch)}"
    build = Build(folder / "device.so", folder / "accelerator.so", folder / "operators.json")
    try:
        if not folder.exists():
            _cache().mkdir(parents=True, exist_ok=True)
            # Of two processes that find nothing, the second waits for the first.
            with (_cache() / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not folder.exists():
                    _compile_into(folder, torch)
    except OSError as error:
        raise SoftMPSUnavailableError(
            f"The software MPS device cannot write to its cache {_cache()} ({error.strerror}): "
            "set XDG_CACHE_HOME to a folder that can be written to."
        ) from error
    return build


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "macgpu" / "softmps"


def _digest(torch: Torch) -> str:
    digest = hashlib.sha256()
    table = Path(__file__).parents[1] / "operators.py"
    for path in [*sorted(SOURCES.iterdir()), table, torch.folder / "version.py"]:
        digest.update(path.read_bytes())
    digest.update(repr((FLAGS, platform.machine())).encode())
    return digest.hexdigest()[:16]


def _compile_into(folder: Path, torch: Torch) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        raise SoftMPSUnavailableError("The software MPS device needs g++ to compile itself.")
    print(
        f"Compiling the software MPS device for torch {torch.version} (once, up to a minute) ...",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        work = Path(temporary) / "build"
        work.mkdir()
        # Warnings name the source line that they come from: without the path of this machine.
        sources = f"-ffile-prefix-map={SOURCES.parent}=macgpu/softmps"
        compile_ = [compiler, *FLAGS, sources, f"-I{torch.folder / 'include'}", "-shared"]
        libraries = [f"-L{torch.folder / 'lib'}", "-ltorch_cpu", "-ltorch", "-lc10"]
        hidden = ["-fvisibility=hidden", "-Wl,-z,defs"]
        device = [str(SOURCES / "all.cpp"), *libraries, "-o", str(work / "device.so")]
        _run([*compile_, *hidden, *device])
        # Its symbols have to be seen, to come before torch's.
        _run([*compile_, str(SOURCES / "accelerator.cpp"), "-o", str(work / "accelerator.so")])
        _write_operators(work / "operators.json")
        # In place in one step, so that no process sees half of it.
        work.rename(folder)


def _write_operators(path: Path) -> None:
    # Read here and not when the device is loaded: parsing the list takes half a second.
    from macgpu.operators import native_names, operators

    names = sorted(native_names())
    elementwise = [name for name in names if operators()[name].elementwise]
    path.write_text(json.dumps({"names": names, "elementwise": elementwise}))


def _run(command: list[str]) -> None:
    # Not into the compiler: it needs no accelerator.
    variables = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        reason = errors[0] if errors else done.stderr.strip().split("\n")[-1]
        raise SoftMPSUnavailableError(f"The software MPS device does not compile: {reason}")
