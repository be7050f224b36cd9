"""What limits a training run: the loading of its data, or its steps. And the suite "loading"."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from macgpu.data import Batches, PictureDataset, Pictures, fashion_subset, normalise
from macgpu.device import synchronize
from macgpu.loading import (
    JpegDataset,
    MappedDataset,
    OnDevice,
    enlarged,
    spawn_loader,
    write_arrays,
    write_jpegs,
)
from macgpu.measure.fields import Count, Positive
from macgpu.measure.memory import OUT_OF_MEMORY, ran_out
from macgpu.measure.steps import Options, TrainStep
from macgpu.measure.timing import Clock
from macgpu.models import CASES
from macgpu.words import counted, percent

Batch = tuple[Tensor, Tensor]
Loader = Iterable[Batch]


@dataclass(frozen=True)
class Pass:
    """Wall clock in seconds, the device idle at both ends, of one pass over the data."""

    loader: Positive
    """Batches drawn and dropped."""
    model: Positive
    """As many steps, each on the same batch."""
    both: Positive
    """Training: each batch drawn, and a step on it."""


@dataclass(frozen=True)
class ThreeWay:
    """The loader alone, the model alone, and both together. Medians are per step, in seconds."""

    steps: Count
    """In a pass."""
    first_pass_s: Positive
    """The loader alone for the first time: with it, its workers start."""
    passes: Annotated[tuple[Pass, ...], Field(min_length=1)]
    """The raw samples of the later passes."""
    loader_s: Positive
    model_s: Positive
    both_s: Positive

    @property
    def wait_share(self) -> float:
        """Share of a step of training that the model alone does not take: waiting for data.

        The median over the passes, 1 at most. Noise may take it a little below 0.
        """
        return statistics.median(1 - one.model / one.both for one in self.passes)

    @property
    def bottleneck(self) -> str:
        """``"loader"`` or ``"model"``: which alone takes longer."""
        return "loader" if self.loader_s > self.model_s else "model"

    def __str__(self) -> str:
        loader, model, both = (1e3 * s for s in (self.loader_s, self.model_s, self.both_s))
        return (
            f"loader {loader:.4g} ms, model {model:.4g} ms, both {both:.4g} ms a step, "
            f"waiting {percent(max(0.0, self.wait_share), 1)}"
        )


def three_way(
    loader: Loader,
    step: Callable[[Tensor, Tensor], object],
    device: torch.device,
    passes: int = 3,
    clock: Clock = time.perf_counter,
) -> ThreeWay:
    """Find out whether the loader or the model limits a training run.

    Args:
        loader: yields (inputs, labels) on the device; each pass iterates it once, and gets as many
            batches as the first did.
        step: one training step on such a batch; nothing in it waits for the device.
        device: what to wait for at the ends of a pass.
        passes: over the data, of each of the three, after a first one. They take turns, so that
            what slows the machine for a while slows all three.

    The step on a fixed batch, the largest of the first pass, is cut to the sizes of the loader's
    own batches, so that all three see as many pictures.

    Raises:
        ValueError: for a loader without a batch or with another number of them in a later pass,
            and for less than one pass.
    """
    if passes < 1:
        raise ValueError(f"passes must be at least 1, not {passes}")
    loader = _Repeatable(loader)
    fixed: Batch | None = None
    sizes: list[int] = []

    def look() -> None:
        nonlocal fixed
        for batch in loader:
            if fixed is None or len(batch[1]) > len(fixed[1]):
                fixed = batch
            sizes.append(len(batch[1]))

    def compute() -> None:
        for size in sizes:
            step(inputs[:size], labels[:size])

    def train() -> None:
        for batch in loader:
            step(*batch)

    first_pass_s = _seconds(look, device, clock)
    if fixed is None:
        raise ValueError("the loader gave no batch")
    inputs, labels = fixed
    # What is compiled or chosen at a first call belongs to none of the three.
    for size in set(sizes):
        step(inputs[:size], labels[:size])
    work = {"loader": lambda: _draw(loader), "model": compute, "both": train}
    taken = []
    for number in range(passes):
        # Forwards and backwards, so that none of them always comes last.
        order = list(work) if number % 2 else list(reversed(work))
        taken.append(Pass(**{part: _seconds(work[part], device, clock) for part in order}))
    medians = (statistics.median(getattr(one, part) for one in taken) / len(sizes) for part in work)
    return ThreeWay(len(sizes), first_pass_s, tuple(taken), *medians)


class _Repeatable:
    """A loader that must give as many batches in every pass as in the first."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.count: int | None = None

    def __iter__(self) -> Iterator[Batch]:
        count = 0
        for batch in self.loader:
            count += 1
            yield batch
        if self.count is None:
            self.count = count
        if count != self.count:
            raise ValueError(
                f"the loader gave {self.count} batches in the first pass and {count} in a later "
                "one; a generator, for example, can be passed over only once"
            )


def time_passes(
    loader: Loader, device: torch.device, count: int, clock: Clock = time.perf_counter
) -> list[float]:
    """Seconds of each of ``count`` passes over a loader alone, the first included.

    Raises:
        ValueError: for a loader with another number of batches in a later pass.
    """
    loader = _Repeatable(loader)
    return [_seconds(lambda: _draw(loader), device, clock) for _ in range(count)]


def read_rate(paths: Sequence[Path], clock: Clock = time.perf_counter) -> float:
    """Bytes per second that files give when they are read whole, one after the other.

    Each is dropped from the system's cache first, so that the disk has to give it. Where a system
    offers no way to that (macOS), the figure is the cache's.
    """
    for path in paths:
        _drop_from_cache(path)
    start = clock()
    count = sum(len(path.read_bytes()) for path in paths)
    return count / (clock() - start)


def _drop_from_cache(path: Path) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    with path.open("rb") as file:
        # Only what has been written to the disk can be dropped.
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _draw(loader: Loader) -> None:
    for _ in loader:
        pass


def _seconds(work: Callable[[], None], device: torch.device, clock: Clock) -> float:
    synchronize(device)
    start = clock()
    work()
    synchronize(device)
    return clock() - start


@dataclass(frozen=True)
class Loading:
    """One loader of a record, with a model behind it. Where it failed, there is no timing."""

    loader: Literal["pictures", "jpeg", "mapped", "resident"]
    """In memory one at a time; decoded from files; from a mapped array; resident on the device."""
    workers: Annotated[int, Field(ge=0)]
    """Spawned and persistent."""
    images: Count
    """In a pass."""
    side: Count
    """Of a picture (3, side, side), in pixels."""
    bytes_per_image: Positive
    """As the loader finds it: of a JPEG file on average, else of the pixels."""
    model: Annotated[str, Field(pattern=r"^[\w.+-]+$")]
    batch_size: Count
    options: Options
    timing: ThreeWay | None
    failure: str | None = None

    @property
    def images_per_s(self) -> float | None:
        """Of the loader alone, after its first pass."""
        return self.images / (self.timing.loader_s * self.timing.steps) if self.timing else None

    def __str__(self) -> str:
        workers = "" if self.loader == "resident" else f", {counted(self.workers, 'worker')}"
        return f"{self.loader}{workers}, {self.model}, batch {self.batch_size}"


@dataclass(frozen=True)
class Plan:
    """The size of the suite on one profile."""

    model: str
    side: int
    images: int
    batch_size: int
    passes: int
    workers: tuple[int, ...]


PLANS = {
    "smoke": Plan("cnn", 32, 16, 8, 1, (0, 2)),
    "quick": Plan("cnn", 32, 1024, 64, 3, (0, 2, 4)),
    "full": Plan("resnet18", 224, 2048, 64, 3, (0, 2, 4)),
}

MOST_WORKERS = 8
"""Their batches on the way lie in shared memory, which is small on many machines."""


def measure(
    device: torch.device, profile: str, report: Callable[[str], None] = print
) -> Iterator[Loading]:
    """Every kind of loader in front of one model: rate, step time, and the share of waiting.

    On full, half of the logical cores is tried as a number of workers too, up to
    :data:`MOST_WORKERS`: a rule in use.
    """
    plan = PLANS[profile]
    workers = set(plan.workers)
    if profile == "full":
        workers.add(min((os.cpu_count() or 2) // 2, MOST_WORKERS))
    options = Options(autocast="bfloat16", fused=True) if device.type == "cuda" else Options()
    train = TrainStep(CASES[plan.model], device, options, plan.batch_size)

    def step(inputs: Tensor, labels: Tensor) -> None:
        train.batch = inputs, labels
        train()

    pictures = enlarged(fashion_subset()[0].first(plan.images), plan.side)
    with tempfile.TemporaryDirectory() as folder:
        for kind, count, bytes_per_image, loader in _loaders(
            pictures, Path(folder), plan.batch_size, sorted(workers), device
        ):
            timing, failure = None, None
            try:
                timing = three_way(loader(), step, device, plan.passes)
            except (RuntimeError, MemoryError, OSError) as error:
                failure = f"failed: {type(error).__name__}"
                if ran_out(error, device):
                    failure = OUT_OF_MEMORY
                report(str(error))
            result = Loading(
                kind,
                count,
                len(pictures),
                plan.side,
                bytes_per_image,
                plan.model,
                plan.batch_size,
                options,
                timing,
                failure,
            )
            report(f"{result}: {timing or failure}")
            yield result


def _loaders(
    pictures: Pictures, folder: Path, batch_size: int, workers: list[int], device: torch.device
) -> Iterator[tuple[str, int, float, Callable[[], Loader]]]:
    """Kind, workers, bytes a picture, and what makes the loader, so that one lives at a time."""
    jpegs = write_jpegs(pictures, folder / "jpeg")
    write_arrays(pictures, folder / "mapped")
    pixels = pictures.images[0].nbytes
    compressed = sum(path.stat().st_size for path in jpegs) / len(jpegs)
    datasets = {
        "pictures": (pixels, PictureDataset(pictures, prepare=None)),
        "jpeg": (compressed, JpegDataset(folder / "jpeg")),
        "mapped": (pixels, MappedDataset(folder / "mapped")),
    }
    for kind, (size, dataset) in datasets.items():
        for count in workers:
            yield (
                kind,
                count,
                size,
                lambda dataset=dataset, count=count: OnDevice(
                    spawn_loader(dataset, batch_size, count), device, normalise
                ),
            )
    yield "resident", 0, pixels, lambda: Batches(pictures.to(device), batch_size, shuffle_seed=0)
