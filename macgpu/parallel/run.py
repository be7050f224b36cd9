"""The program of chapter 10, which torchrun starts in every process.

    python -m torch.distributed.run --nproc-per-node 2 -m macgpu.parallel.run exact --json out.json

The first rank writes the result. A fault ends every rank with one line, and the status is not 0.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

import psutil

from macgpu.errors import BookError
from macgpu.parallel.checks import require
from macgpu.parallel.launch import HEADS, WIDTH

TASKS = ("layer", "exact", "train", "time")
"""The modules of :mod:`macgpu.parallel.tasks`."""
BAD_INPUT, FAILED = 2, 1
"""Exit statuses."""


def main() -> None:
    asked = parse()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    try:
        sides = {"width": asked.width, "heads": asked.heads}
        require(asked.device, ranks, asked.degree or ranks, sides)
        # Heavy, and of no use to a run that is refused.
        from macgpu.parallel.ranks import joined

        task = importlib.import_module(f"macgpu.parallel.tasks.{asked.task}")
        with joined(asked.device, asked.timeout) as joint:
            result = task.run(joint, asked)
    except BookError as error:
        if rank == 0:
            print(f"macgpu: {error}", file=sys.stderr, flush=True)
        sys.exit(BAD_INPUT)
    except BaseException as error:
        # Not all of torch.distributed's own are an Exception. A rank that is gone is a RuntimeError
        # of gloo's, about a connection that was closed; of anything else the reader of the output
        # may want the place.
        if not isinstance(error, RuntimeError):
            traceback.print_exc()
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        print(f"macgpu: rank {rank} failed: {first_line}", file=sys.stderr, flush=True)
        # Without leaving the group: the other ranks may never come to meet.
        os._exit(FAILED)
    if rank == 0:
        asked.json.write_text(json.dumps(result), encoding="utf-8")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="macgpu.parallel.run", description=__doc__.splitlines()[0]
    )
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--json", type=Path, required=True, help="where the result goes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--degree", type=int, help="all ranks unless given")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for a rank")
    parser.add_argument("--file", type=Path, help="layer: the functions to try")
    parser.add_argument("--steps", type=int, default=20, help="train: until this step")
    parser.add_argument("--save-every", type=int, default=0, help="train: steps between saves")
    parser.add_argument("--folder", type=Path, help="train: of the checkpoints")
    parser.add_argument("--resume", action="store_true", help="train: from the newest checkpoint")
    parser.add_argument("--profile", default="quick", choices=("smoke", "quick", "full"))
    parser.add_argument("--tokens", type=int, default=256, help="time")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128], help="time")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 65536], help="time: bytes")
    parser.add_argument("--cores", type=int, default=psutil.cpu_count(logical=False) or 1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
