"""Transformer blocks split over the GPUs of one machine, or over processes of its CPU.

    PYTHONPATH=. python benchmarks/tensor_parallel.py --out results --seconds 420

It starts itself by torchrun, once for each part, with one process a GPU. The record is written
anew after each part, so that a part that fails, or that time no longer suffices for, loses
nothing of the others. A part whose ranks disagree, so that some wait for ever, is ended.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from pydantic import TypeAdapter

from macgpu.errors import BookError
from macgpu.measure import records
from macgpu.parallel import measure
from macgpu.parallel.checks import require
from macgpu.parallel.launch import torchrun
from macgpu.parallel.ranks import Ranks, joined
from macgpu.parallel.scaling import Case, Scaling
from macgpu.parallel.shape import block_split

BLOCKS = ("mlp", "attention")
PARTS = ("mlp", "checks", "attention", "fused")
LEAST_S = 20
"""No part is started with less time left."""
WAIT_S = 60
"""For another rank, before a rank gives up."""
RESERVE_S = 15
"""Kept from a part's time for its processes to end."""


@dataclass(frozen=True)
class Size:
    """What is measured on a profile."""

    widths: tuple[int, ...]
    tokens: int
    dtype: str
    all_reduce: tuple[int, ...]
    """Bytes."""
    exact: tuple[int, int] = (128, 64)
    """Width and tokens in float64."""


SIZES = {
    "smoke": Size((64, 128), 64, "float32", (1 << 10, 1 << 16)),
    "quick": Size((256, 512), 512, "float32", tuple(4**k << 10 for k in range(7))),
    "full": Size(
        (4096, 8192, 16384), 8192, "bfloat16", tuple(4**k << 10 for k in range(10)) + (128 << 20,)
    ),
}
SCALING = TypeAdapter(Scaling)


@dataclass
class Part:
    """The work of one launch, on one rank: what it has found is written after every step."""

    ranks: Ranks
    out: Path
    end: float
    found: Scaling

    def attempt(self, name: str, work: Callable[[], dict[str, list]]) -> None:
        """Do some work that all ranks do; what fails on all of them is noted, and passed over."""
        # The ranks must not decide this each by its own clock.
        if self.ranks.largest(time.time()) > self.end:
            self.say(f"== {name}: skipped, no time left")
            self.add({"failures": [f"{name}: no time left"]})
            return
        self.say(f"== {name}")
        start = time.monotonic()
        try:
            self.add(work())
        except Exception as error:
            self.say(traceback.format_exc())
            self.add({"failures": [f"{name}: {type(error).__name__}"]})
        measure.empty_cache(self.ranks.device)
        self.say(f"== {name}: {time.monotonic() - start:.1f} s")

    def add(self, more: dict[str, list]) -> None:
        self.found = merged(self.found, more)
        if self.ranks.first:
            whole = self.out.with_suffix(".whole")
            whole.write_bytes(SCALING.dump_json(self.found))
            whole.replace(self.out)

    def say(self, line: str) -> None:
        if self.ranks.first:
            print(line, flush=True)


def merged(found: Scaling, more: dict[str, list]) -> Scaling:
    """What was found and more of it."""
    return replace(found, **{name: (*getattr(found, name), *new) for name, new in more.items()})


def work(name: str, asked: argparse.Namespace) -> None:
    """One rank's share of one part."""
    size = SIZES[asked.profile]
    with joined(asked.device, WAIT_S) as ranks:
        # All ranks first: PyTorch's engine has them agree on random numbers when it first starts.
        degrees = (ranks.count, *(2**k for k in range(10, 0, -1) if 2**k < ranks.count))
        groups = measure.Groups(ranks, degrees, WAIT_S)
        backend = "nccl" if asked.device == "cuda" else "gloo"
        part = Part(ranks, asked.json, asked.end, Scaling(backend, ranks.count, versions(backend)))
        part.add({})
        if name == "checks":
            check(part, size, degrees, groups, asked.profile)
            return
        fused = name == "fused"
        for block in BLOCKS if fused else (name,):
            if fused:
                exact(part, block, size, degrees, groups, (measure.FUSED,))
            for width in size.widths:
                for degree in degrees:
                    case = Case(block, width, size.tokens, size.dtype, degree)
                    part.attempt(
                        f"{case}, degree {degree}{', fused' if fused else ''}",
                        lambda case=case: sweep(part, case, groups, asked.profile, fused),
                    )


def check(part: Part, size: Size, degrees: tuple[int, ...], groups, profile: str) -> None:
    """Exactness, the memory of each rank, and the all-reduce alone."""
    for block in BLOCKS:
        exact(part, block, size, degrees, groups, (None, *measure.WAYS))
    for block in BLOCKS:
        for width in size.widths:
            for degree in degrees:
                case = Case(block, width, size.tokens, size.dtype, degree)
                part.attempt(
                    f"memory of {case}, degree {degree}", lambda case=case: hold(part, case, groups)
                )
    for degree in degrees:
        part.attempt(
            f"all-reduce, degree {degree}",
            lambda degree=degree: reduce(part, size, degree, groups, profile),
        )


def exact(part: Part, block: str, size: Size, degrees, groups, ways) -> None:
    for degree in degrees:
        part.attempt(
            f"float64 {block}, degree {degree}",
            lambda degree=degree: compare(part, block, size, degree, ways, groups),
        )


def compare(part: Part, block: str, size: Size, degree: int, ways, groups) -> dict[str, list]:
    found = measure.exactness(block, *size.exact, degree, ways, groups)
    for one in found:
        part.say(f"  {one}")
    return {"exact": found}


def hold(part: Part, case: Case, groups) -> dict[str, list]:
    ways = (measure.PLAIN, measure.WAYS[-1])
    found = measure.footprints(case, ways, groups)
    whole, *others = found
    for one in others:
        share = max(one.parameters) / max(whole.parameters)
        text = f"  {one.way}: weights {share:.3f} of the whole block's"
        if max(peak or 0 for peak in one.peak_bytes):
            text += f", peak {max(one.peak_bytes) / max(whole.peak_bytes):.3f}"
        part.say(text)
    return {"footprints": found}


def reduce(part: Part, size: Size, degree: int, groups, profile: str) -> dict[str, list]:
    dtype = getattr(torch, size.dtype)
    found = []
    for one in measure.collectives(size.all_reduce, degree, dtype, profile, groups):
        found.append(one)
        part.say(
            f"  {one.bytes:,} B, {one.max_ctas or 'any'} CTAs: {one.timing}, "
            f"{one.bus_bytes_per_s / 1e9:.4g} GB/s"
        )
    return {"collectives": found}


def sweep(part: Part, case: Case, groups, profile: str, fused: bool) -> dict[str, list]:
    steps, speedups = measure.sweep(case, groups, profile, part.say, fused)
    return {"steps": steps, "speedups": speedups}


def versions(backend: str) -> dict[str, str]:
    if backend != "nccl":
        return {}
    return {"nccl": ".".join(map(str, torch.cuda.nccl.version()))}


def start(asked: argparse.Namespace) -> int:
    """Start the parts one after the other, and write the record after each; the exit status."""
    device = torch.device(asked.device, 0) if asked.device == "cuda" else torch.device("cpu")
    end = time.monotonic() + asked.seconds
    found = Scaling("nccl" if asked.device == "cuda" else "gloo", asked.ranks)
    written: Path | None = None
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(asked.parts):
            if name == "fused" and asked.device != "cuda":
                continue
            left = end - time.monotonic()
            if left < LEAST_S:
                print(f"== part {name}: skipped, no time left", flush=True)
                continue
            print(f"== part {name} ({left:.0f} s left)", flush=True)
            path = Path(folder) / f"{number}.json"
            options = ["--work", name, "--json", str(path), "--profile", asked.profile]
            options += ["--device", asked.device, "--end", str(time.time() + left - RESERVE_S)]
            outcome = torchrun(
                [str(Path(__file__).resolve()), *options], asked.ranks, left, report=say
            )
            found = take_in(found, path, name, outcome.status, outcome.timed_out)
            record = records.make(device, ("parallel",), asked.profile, "maintainer", scaling=found)
            new = records.write(record, asked.out)
            if written not in (None, new):
                written.unlink()
            written = new
            print(f"== part {name}: {outcome.seconds:.0f} s, {new}", flush=True)
    return int(written is None or bool(found.failures))


def take_in(found: Scaling, path: Path, name: str, status: int, timed_out: bool) -> Scaling:
    """What was found before, what this part has written, and whether it ended well."""
    if path.exists():
        new = SCALING.validate_json(path.read_bytes())
        found = merged(
            replace(found, versions=new.versions),
            {
                field.name: getattr(new, field.name)
                for field in fields(Scaling)
                if isinstance(getattr(new, field.name), tuple)
            },
        )
    if status or timed_out:
        reason = "out of time" if timed_out else f"status {status}"
        found = merged(found, {"failures": [f"part {name}: {reason}"]})
    return found


def check_input(asked: argparse.Namespace) -> None:
    """Refuse ranks that cannot share every block.

    Raises:
        BookError: with the reason, in one line.
    """
    if asked.ranks < 2:
        raise BookError(f"--ranks {asked.ranks}: a block is split over at least 2")
    cards = torch.cuda.device_count()
    if asked.device == "cuda" and asked.ranks > cards:
        raise BookError(f"--ranks {asked.ranks}: there are {cards} NVIDIA cards here")
    size = SIZES[asked.profile]
    for width, tokens in (size.exact, *((width, size.tokens) for width in size.widths)):
        sides = block_split(width, tokens)
        require(asked.device, asked.ranks, asked.ranks, sides, of="a measured block")


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seconds", type=float, default=420, help="end everything after so long")
    parser.add_argument("--profile", default="full", choices=SIZES)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--ranks", type=int, help="processes; all GPUs unless given")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(asked.work, asked)
        return
    if asked.device == "cuda" and torch.cuda.device_count() < 2:
        say("fewer than two NVIDIA cards here (--device cpu --profile smoke --ranks 2 tries it)")
        return
    if asked.ranks is None:
        asked.ranks = torch.cuda.device_count() if asked.device == "cuda" else 2
    try:
        check_input(asked)
    except BookError as error:
        sys.exit(f"macgpu: {error}")
    sys.exit(start(asked))


if __name__ == "__main__":
    main()
