"""Kill a run at random moments, let it go on, and compare its end with that of one left alone.

Each trial is a run of its own, killed once and resumed. The runs are forks of one process that has
imported torch and started no thread, so a trial costs a second and not ten. Kills come in three
ways in turn, their moments drawn from a seed:

- *call*: SIGKILL at any of the calls that the run makes, in Python or into C, chosen uniformly;
- *clock*: the kernel ends the process when a timer runs out, wherever it is, in C code too;
- *byte*: the kernel ends it while it writes, at any byte of any of its files of weights.

`make bench` runs it; the tests run it with fewer kills.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401 - what the optimizers import

from macgpu import checkpoints, data, long_run

CPU = torch.device("cpu")
SETTINGS = long_run.Settings(steps=24, every=4, batch_size=16)
"""Smoke. Six checkpoints, and a loss scale that doubles on the way."""


class Runs:
    """The same run in forked processes, on pictures that were read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        training, held_out = data.fashion_subset()
        self.pictures = training.first(256), held_out.first(256)

    def fork(
        self,
        name: str,
        prepare: Callable[[], None] = lambda: None,
        finish: Callable[[], None] = lambda: None,
    ) -> int:
        """Run in a fork, up to its end or its death; the status as ``os.waitpid`` gives it."""
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                prepare()
                options = {"pictures": self.pictures, "report": require_whole}
                long_run.run(self.folder / name, SETTINGS, CPU, **options)
                finish()
                os._exit(0)
            os._exit(1)
        return os.waitpid(child, 0)[1]


def require_whole(line: str) -> None:
    """Fail where a checkpoint was passed over: a kill must not leave a damaged one at all."""
    if "Going on from" in line:
        raise ValueError(line)


def count_calls(runs: Runs) -> int:
    """How many calls and returns a run makes, in Python or into C."""
    read, write = os.pipe()
    counter = itertools.count()

    def prepare() -> None:
        sys.setprofile(lambda *_: next(counter))

    def finish() -> None:
        sys.setprofile(None)
        os.write(write, str(next(counter)).encode())

    if runs.fork("counted", prepare, finish) != 0:
        raise SystemExit("the run whose calls are counted failed")
    return int(os.read(read, 100))


def at_call(number: int) -> Callable[[], None]:
    """SIGKILL at this call."""

    def prepare() -> None:
        counter = itertools.count(1)

        def count(*_: object) -> None:
            if next(counter) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)

    return prepare


def at_clock(seconds: float) -> Callable[[], None]:
    """The kernel's timer, whose signal nothing handles."""

    def prepare() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    return prepare


def at_byte(number: int, written: int) -> Callable[[], None]:
    """No file may grow beyond so many bytes, from so many files on; Python's handler is off."""

    def prepare() -> None:
        write, files = checkpoints.write, itertools.count()

        def limited(path: Path, content: dict) -> None:
            if next(files) == written:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))
            write(path, content)

        checkpoints.write = limited

    return prepare


def kill_once(runs: Runs, name: str, kill: Callable[[], Callable[[], None]]) -> None:
    """Start the run afresh until a kill hits it: a timer may run out after the run has."""
    while not os.WIFSIGNALED(runs.fork(name, kill())):
        shutil.rmtree(runs.folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    # The signal that ends a process at a byte would leave a core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rng = random.Random(asked.seed)
    exact, ways, steps = 0, collections.Counter(), collections.Counter()

    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        start = time.perf_counter()
        if runs.fork("alone") != 0:
            raise SystemExit("the run that is left alone failed")
        seconds = time.perf_counter() - start
        calls = count_calls(runs)
        size = max(path.stat().st_size for path in checkpoints.paths(runs.folder / "alone"))
        # A checkpoint at every check, and the best model at most of them.
        files = 2 * SETTINGS.steps // SETTINGS.every
        kills = {
            "call": lambda: at_call(rng.randint(1, calls)),
            "clock": lambda: at_clock(rng.uniform(1e-6, seconds)),
            "byte": lambda: at_byte(rng.randrange(size), rng.randrange(files)),
        }
        for trial, way in zip(range(asked.kills), itertools.cycle(kills), strict=False):
            name = f"run-{trial}"
            kill_once(runs, name, kills[way])
            ways[way] += 1
            logged = [line["step"] for line in long_run.read_log(runs.folder / name)]
            steps[max(logged, default=0)] += 1
            status = runs.fork(name)
            differs = long_run.differences(runs.folder / "alone", runs.folder / name)
            exact += status == 0 and not differs
            if status != 0 or differs:
                print(f"trial {trial}, {way}: status {status}; differs: {', '.join(differs)}")
            shutil.rmtree(runs.folder / name)

    print("ways of the kill:", ", ".join(f"{way} {count}" for way, count in ways.items()))
    print("last logged step:", ", ".join(f"{step}: {steps[step]}" for step in sorted(steps)))
    print(f"resumed to the last bit: {exact} of {asked.kills} random kills")
    if exact < asked.kills:
        sys.exit(1)


if __name__ == "__main__":
    main()
