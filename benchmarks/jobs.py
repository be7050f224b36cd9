"""Whole jobs on the device, over several seeds, into one record.

    PYTHONPATH=. python benchmarks/jobs.py --out results --seconds 540 --folder FOLDER

``images`` trains ResNet-18, ``text`` BERT and ``generation`` a DCGAN: see :mod:`job_parts`. Each
is timed beside a plain loop. The record is written anew after each run, so that a benchmark that is
cut off loses nothing of what it has measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from job_parts import generation, images, text
from job_parts.log import Log, say

from macgpu.data import DataError
from macgpu.device import describe, pick
from macgpu.jobs.images import NAMES
from macgpu.measure.timing import EFFORTS

PARTS = {"images": images.measure, "text": text.measure, "generation": generation.measure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seconds", type=float, default=540, help="start no run after so long")
    parser.add_argument("--profile", default="full", choices=EFFORTS)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", default="fashion-mnist", choices=NAMES, help="of the pictures")
    parser.add_argument("--folder", type=Path, default=Path("datasets"), help="of the full sets")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--ablations", type=int, default=3, help="seeds of all but the recipes")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    parts = tuple(part for part in PARTS if part in asked.parts)
    device = pick("auto")
    if device.type != "cuda" and asked.profile == "full":
        say("no NVIDIA card here: the full size is for one (--profile smoke tries it anyway)")
        return
    say(f"{device.type}, {describe(device)}, torch {torch.__version__}")
    log = Log(device, asked.profile, parts, asked.out, end)
    try:
        for part in parts:
            PARTS[part](asked, log)
    except DataError as error:
        sys.exit(f"{error}")
    say(str(log.written))


if __name__ == "__main__":
    main()
