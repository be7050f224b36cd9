"""The watched process: runs the user's program with every watch in place, and writes a ledger."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from macgpu.preflight import cuda, loaders, pretend
from macgpu.preflight.devices import Devices
from macgpu.preflight.environment import Environment
from macgpu.preflight.gpu import PRETENDED, REAL
from macgpu.preflight.ledger import Ledger
from macgpu.preflight.shapes import Shapes
from macgpu.preflight.source import Program, read_program
from macgpu.preflight.watch import DevicesApart, Watch


class EnoughSteps(BaseException):
    """Ends the script after the steps that were asked for; ``except Exception`` lets it pass."""


def main(options: dict) -> None:
    """Run the program and end this process.

    Args:
        options: ``script`` and ``arguments`` of the user; ``ledger``, a path; ``steps``, how many
            optimizer steps; ``pretend``, whether mps is pretended, ``None`` to do so where it is
            not there; ``environment``, the values that variables had before preflight changed
            them, ``None`` for unset.
    """
    program = read_program(Path(options["script"]))
    ledger = Ledger(Path(options["ledger"]), program.path)
    for name, value in options["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # The start method of a Mac; the script may still choose another.
    context = multiprocessing.context._default_context
    context._default_context = multiprocessing.get_context("spawn")
    context._actual_context = None

    pretends = options["pretend"]
    if pretends is None:
        pretends = not torch.backends.mps.is_available()
    gpu = PRETENDED if pretends else REAL
    ledger.record(pretends=pretends)
    shapes = Shapes(ledger)
    environment = Environment(ledger)
    if gpu.pretends:
        pretend.install()
    cuda.install(ledger, gpu, cuda_is_there=not program.knows_mps)
    Devices(ledger, gpu, shapes).install()
    loaders.install(ledger, gpu, program)
    _count_steps(ledger, environment, options["steps"])
    # Compiled code would hide its operators from the watch.
    torch.compile = _leave_uncompiled
    torch.nn.Module.compile = lambda *_args, **_named: None

    sys.argv = [options["script"], *options["arguments"]]
    sys.path[0] = str(program.path.parent)
    environment.install()
    sys.stderr = stderr = _LastLine(sys.stderr)
    ended: dict[str, object] = {"ended": "finished"}
    try:
        with Watch(ledger, gpu, shapes):
            _run(program)
    except EnoughSteps:
        ended = {"ended": "steps"}
    except DevicesApart:
        ended = {"ended": "apart"}
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        said = error.code if isinstance(error.code, str) else stderr.last_line
        ended = {"ended": "exit", "status": status, "said": said}
    except BaseException as error:  # noqa: BLE001 - whatever ends the script is the report's
        ended = {"ended": "error", **_describe(error, ledger)}
    if ledger.step == 0:
        environment.check_ratios()
    ledger.flush()
    ledger.record(**ended)
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of the script have had their say


def _run(program: Program) -> None:
    if not program.is_notebook:
        runpy.run_path(str(program.path), run_name="__main__")
        return
    namespace = sys.modules["__main__"].__dict__
    kept = {"__name__", "__builtins__", "__doc__", "__spec__", "__loader__"}
    for name in set(namespace) - kept:
        del namespace[name]
    namespace["get_ipython"] = lambda: _Shell()
    namespace["display"] = print
    for part in program.parts:
        exec(compile(part.tree, part.name, "exec"), namespace)


class _LastLine:
    """Stands for a stream: passes text on, and remembers the last line of it that is not empty."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._unfinished = ""
        self._last: str | None = None

    @property
    def last_line(self) -> str | None:
        return self._unfinished.strip() or self._last

    def write(self, text: str) -> int:
        *finished, self._unfinished = (self._unfinished + text).split("\n")
        self._last = next((line.strip() for line in finished[::-1] if line.strip()), self._last)
        return self._stream.write(text)

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


class _Shell:
    """The part of IPython that matters here: ``%env`` and ``%set_env``; the rest does nothing."""

    def run_line_magic(self, name: str, line: str, *_args: object) -> None:
        variable, _, value = line.replace("=", " ", 1).partition(" ")
        if name in ("env", "set_env") and value:
            os.environ[variable] = value.strip()

    def __getattr__(self, _name: str):
        return lambda *_args, **_named: None


def _leave_uncompiled(model: Callable | None = None, **_named: object) -> Callable:
    return (lambda function: function) if model is None else model


def _count_steps(ledger: Ledger, environment: Environment, wanted: int) -> None:
    """One step is one round of all optimizers: a GAN's two make one step together.

    Where there is no optimizer, and the parameters are updated by hand, it is one backward pass.
    """
    taken: dict[int, int] = {}
    asked_to_stop = False
    has_optimizer = False
    original_init, original_backward = torch.optim.Optimizer.__init__, torch.autograd.backward

    def stop_after(steps: int) -> None:
        nonlocal asked_to_stop
        if steps >= wanted:
            if asked_to_stop:  # the script swallowed the exception
                ledger.flush()
                ledger.record(ended="steps")
                os._exit(0)
            asked_to_stop = True
            raise EnoughSteps

    def end_step() -> None:
        ledger.end_step()
        if ledger.step == 1:
            environment.check_ratios()

    def before(optimizer: torch.optim.Optimizer, *_args: object) -> None:
        stop_after(taken.get(id(optimizer), 0))

    def after(optimizer: torch.optim.Optimizer, *_args: object) -> None:
        taken[id(optimizer)] = taken.get(id(optimizer), 0) + 1
        if taken[id(optimizer)] > ledger.step:
            end_step()

    def init(self: torch.optim.Optimizer, *args: object, **named: object) -> None:
        nonlocal has_optimizer
        has_optimizer = True
        original_init(self, *args, **named)

    def backward(*args: object, **named: object) -> None:
        if not has_optimizer:
            stop_after(ledger.step)
        original_backward(*args, **named)
        if not has_optimizer:
            end_step()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    torch.optim.Optimizer.__init__ = init
    torch.autograd.backward = backward


def _describe(error: BaseException, ledger: Ledger) -> dict:
    """The error in one line, and the innermost line of the user's code that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if ledger.is_user(frame.filename)]
    text = (str(error).strip() or "no message").splitlines()[0]
    return {
        "error": f"{type(error).__name__}: {text}",
        "file": mine[-1].filename if mine else None,
        "line": mine[-1].lineno if mine else None,
    }
