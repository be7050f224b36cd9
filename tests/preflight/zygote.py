"""Runs watched processes as forks of one that has imported torch already: a second each, not five.

The fork runs the very function that the real process runs; that the real process starts and is
read rightly is tested apart, in test_command.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from macgpu.preflight import SETTINGS

SERVE = "from tests.preflight.zygote import serve; serve()"


class Zygote:
    """Stands in for ``macgpu.preflight._run``."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            env={**environment, **SETTINGS, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, options: dict, *_unused: object) -> str | None:
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        status = json.loads(self._process.stdout.readline())
        return None if status == 0 else f"its process ended with status {status}"

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """Fork a watched process for each line of options, and answer with its status."""
    import torch._dynamo  # noqa: F401 - what the optimizers import

    from macgpu.operators import operators
    from macgpu.preflight.child import main

    operators()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            main(json.loads(line))
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
