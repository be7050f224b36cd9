"""The arguments of the chapter's program, and what each of its tasks splits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import psutil

from macgpu.errors import BookError
from macgpu.parallel.shape import Shape, block_split

TASKS = ("layer", "exact", "train", "time")
"""The modules of :mod:`macgpu.parallel.tasks`."""
WIDTH, HEADS = 32, 8
"""What the program takes where nothing else is asked for."""
BLOCK_TOKENS = 64
"""Of the blocks whose exactness is checked."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise BookError(message)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, by default those of this process.

    Raises:
        BookError: where they cannot be meant so; the message is one line.
    """
    parser = _Parser(
        prog="macgpu.parallel.run",
        description="The program of chapter 10, which torchrun starts in every process.",
    )
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--json", type=Path, required=True, help="where the result goes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--degree", type=int, help="all ranks unless given")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for a rank")
    parser.add_argument("--file", type=Path, help="layer: the functions to try")
    parser.add_argument("--steps", type=natural, default=20, help="train: until this step")
    parser.add_argument("--save-every", type=natural, default=0, help="train: steps between saves")
    parser.add_argument("--folder", type=Path, help="train: of the checkpoints")
    parser.add_argument("--resume", action="store_true", help="train: from the newest checkpoint")
    parser.add_argument("--profile", default="quick", choices=("smoke", "quick", "full"))
    parser.add_argument("--tokens", type=positive, default=256, help="time")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128], help="time")
    parser.add_argument(
        "--sizes", type=positive, nargs="+", default=[1024, 65536], help="time: bytes"
    )
    parser.add_argument("--cores", type=positive, default=psutil.cpu_count(logical=False) or 1)
    asked = parser.parse_args(arguments)
    if asked.task == "layer" and asked.file is None:
        parser.error("layer needs --file: the functions to try")
    if asked.folder is None and (asked.resume or asked.save_every):
        option = "--resume" if asked.resume else "--save-every"
        parser.error(f"{option} needs --folder: where the checkpoints are")
    return asked


def natural(text: str) -> int:
    """A whole number that is not negative."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A whole number above 0."""
    return _at_least(1, text)


def _at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is below {least}")
    return number


def splits(asked: argparse.Namespace) -> list[tuple[str, dict[str, int]]]:
    """What the task divides among the ranks: whose sides, and each side by its name."""
    if asked.task == "layer":
        return [("", {"width": asked.width})]
    if asked.task == "time":
        return [("", {"width": width}) for width in asked.widths]
    model = ("", Shape(width=asked.width, heads=asked.heads).split)
    if asked.task == "train":
        return [model]
    return [model, ("the hand-written block", block_split(asked.width, BLOCK_TOKENS))]
