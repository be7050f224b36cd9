"""A software MPS device for Linux: `torch.device("mps")` computed by the CPU's kernels.

It lets the code path of a Mac run, and its errors be met, where there is no Mac. README.md in this
folder says what it does not tell. Importing this package imports neither torch nor the device.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

SWITCH = "MACGPU_SOFTMPS"

NAME = "Software MPS device (Linux, CPU kernels)"
"""What the device says of itself, so that nothing computed on it passes for a Mac's."""


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


def run_code(code: str, **variables: str) -> str:
    """What a fresh Python prints that runs `code` on mps: a Mac's GPU, else the software device.

    `variables` are set in its environment. Where it fails, the last line of the error ends the
    text; where there is no device, the text says so. Lines are broken to the width of a page.
    """
    try:
        surroundings = dict(os.environ) if sys.platform == "darwin" else environment()
    except SoftMPSUnavailableError as error:
        return f"(not shown here: {error})"
    # The end of Python would race with autograd's threads.
    code += "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=surroundings | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return "\n".join(textwrap.fill(line, 76) for line in [*done.stdout.splitlines(), *last])
