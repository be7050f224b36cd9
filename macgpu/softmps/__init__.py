"""A software MPS device for Linux: `torch.device("mps")` computed by the CPU's kernels.

It lets the code path of a Mac run, and its errors be met, where there is no Mac. README.md in this
folder says what it does not tell. Importing this package imports neither torch nor the device.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

SWITCH = "MACGPU_SOFTMPS"


class SoftMPSUnavailableError(RuntimeError):
    """The software MPS device cannot be used here; the message says why, in one line."""


def is_active() -> bool:
    """Whether "mps" in this process is the software device: not a Mac, nothing to measure."""
    return sys.platform == "linux" and os.environ.get(SWITCH) == "1"


def environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`base` with what makes a process, and the processes that it starts, use the device.

    Compiles the device where this torch has not been compiled for yet (under a minute).
    Raises SoftMPSUnavailableError.
    """
    from macgpu.softmps.build import ensure_built

    if not any(entry.name == "macgpu_softmps" for entry in entry_points(group="torch.backends")):
        raise SoftMPSUnavailableError(
            "The software MPS device needs macgpu to be installed: pip install -e ."
        )
    shim = str(ensure_built().accelerator)
    preloaded = [path for path in base.get("LD_PRELOAD", "").split(":") if path and path != shim]
    return {
        **base,
        SWITCH: "1",
        "LD_PRELOAD": ":".join([shim, *preloaded]),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
        # `python` in a command means the Python that has macgpu.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), base.get("PATH", "")]),
    }


def run(command: Sequence[str]) -> int:
    """Runs `command` on the software MPS device and returns its exit status.

    A command that begins with an option is one for Python: `-m pytest`.
    Raises SoftMPSUnavailableError, and FileNotFoundError for a command that does not exist.
    """
    if command[0].startswith("-"):
        command = [sys.executable, *command]
    variables = environment()
    return subprocess.run(command, env=variables, check=False).returncode
