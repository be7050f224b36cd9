"""A long run in small: the program that chapter 09 starts, kills and starts again.

``python -m macgpu.long_run FOLDER`` trains the book's small network on the shipped pictures. It
keeps checkpoints and the best model, stops by itself, and logs its speed and memory. Started again
with the same settings, it goes on where it was.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from macgpu import checkpoints, data, softmps, train
from macgpu.checkpoints import CheckpointError, Checkpoints, Stateful
from macgpu.device import DeviceUnavailableError, memory, pick, seed_everything, synchronize
from macgpu.errors import BookError
from macgpu.lock import locked

BEST = "best.pt"
LOG = "log.jsonl"

SHIFT = 2
"""Pixels by which a batch is moved at most, as augmentation."""


@dataclass(frozen=True)
class Settings:
    """What decides the course of a run; a run goes on only with those it was started with."""

    steps: int = 600
    every: int = 50
    """Steps between two checks: held-out loss, log line, best model, checkpoint."""
    batch_size: int = 128
    learning_rate: float = 3e-3
    """Of the first step; it falls to zero in a straight line."""
    patience: int | None = None
    """Checks in a row without a better held-out loss after which the run stops."""
    seed: int = 0


class Stream:
    """Shuffled batches without end, whose position is two whole numbers.

    The order of an epoch is drawn from the seed and the number of the epoch, so it need not be
    kept. Batches are those of :class:`macgpu.data.Batches`: inputs (batch, 1, 28, 28), labels
    (batch,).
    """

    def __init__(self, pictures: data.Pictures, batch_size: int, seed: int) -> None:
        self.pictures = pictures
        self.batch_size = batch_size
        self.seed = seed
        self._begin(epoch=0, batch=0)

    def next(self) -> tuple[Tensor, Tensor]:
        if self.batch == len(self._batches):
            self._begin(self.epoch + 1, batch=0)
        indices = self._batches[self.batch]
        self.batch += 1
        return data.normalise(self.pictures.images[indices]), self.pictures.labels[indices]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._begin(**state)

    def _begin(self, epoch: int, batch: int) -> None:
        self.epoch, self.batch = epoch, batch
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.pictures))
        on_device = torch.from_numpy(order).to(self.pictures.labels.device)
        self._batches = on_device.split(self.batch_size)


def make_model() -> nn.Module:
    """The network of chapter 02, with dropout: then the device's random numbers matter too."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 10),
    )


def make_parts(
    settings: Settings, pictures: data.Pictures, device: torch.device
) -> dict[str, Stateful]:
    """All that a run consists of, as at its start: model, optimizer, scheduler, scaler, loader.

    The scaler works on the CPU too, where the run is in float32: its scale is a power of two and
    changes no digit there.
    """
    seed_everything(settings.seed)
    model = make_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, settings.steps),
        # A hundredth of the usual interval between two doublings, for a run in small.
        "scaler": torch.amp.GradScaler(device.type, init_scale=1024, growth_interval=20),
        "loader": Stream(pictures, settings.batch_size, settings.seed),
    }


def advance(
    parts: dict[str, Any], count: int, device: torch.device
) -> tuple[list[float], int, float]:
    """Take so many steps: the loss of each, the pictures in all, and the seconds, synchronised."""
    model, optimizer, scheduler = parts["model"], parts["optimizer"], parts["scheduler"]
    scaler, loader = parts["scaler"], parts["loader"]
    model.train()
    losses, pictures = [], 0
    synchronize(device)
    start = time.perf_counter()
    for _ in range(count):
        inputs, labels = loader.next()
        shifts = (random.randint(-SHIFT, SHIFT), random.randint(-SHIFT, SHIFT))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.float16, enabled=device.type != "cpu"):
            loss = F.cross_entropy(model(inputs.roll(shifts, (2, 3))), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        losses.append(loss.detach())
        pictures += len(labels)
    synchronize(device)
    seconds = time.perf_counter() - start
    return torch.stack(losses).tolist(), pictures, seconds


def run(
    folder: Path,
    settings: Settings,
    device: torch.device,
    time_limit_s: float | None = None,
    pictures: tuple[data.Pictures, data.Pictures] | None = None,
    clock: Callable[[], float] = time.time,
    report: Callable[[str], None] = print,
) -> str:
    """Train, from the newest good checkpoint in the folder if there is one.

    Args:
        folder: of this run alone: checkpoints, the best model, the log.
        settings: must be those that the run in the folder was started with.
        device: where to train: in float16 with a loss scale, on the CPU in float32.
        time_limit_s: stops at the first check after so many seconds since this call, to go on
            another time. Of the wall clock, so that sleep counts.
        pictures: to train on and held out; the shipped ones by default.
        clock: the wall clock, in seconds.
        report: is given one line of plain text a check.

    Returns:
        why it ended: ``"finished"``, ``"time limit"``, or ``"no improvement"``.

    Raises:
        CheckpointError: where the folder holds checkpoints and none can be used, or one cannot be
            written.
        BookError: where the run in the folder has other settings, its log is damaged, or another
            process is at it.
    """
    start = clock()
    folder = Path(folder)
    with locked(folder):
        training, held_out = (part.to(device) for part in pictures or data.fashion_subset())
        parts = make_parts(settings, training, device)
        kept = Checkpoints(folder, parts, device, report)
        beginning = {
            "settings": asdict(settings),
            "step": 0,
            "best_loss": float("inf"),
            "best_step": 0,
            "checks_without_gain": 0,
        }
        progress = kept.resume()
        if progress is None:
            progress = beginning
        elif progress.keys() != beginning.keys():
            raise BookError("the checkpoint in this folder is of another program")
        _require_same_settings(progress["settings"], asdict(settings))
        log = kept.folder / LOG
        _cut(log, progress["step"])
        test_batches = data.Batches(held_out, 500)
        while (why := _reason_to_stop(progress, settings)) is None:
            count = min(settings.every, settings.steps - progress["step"])
            losses, pictures_seen, seconds = advance(parts, count, device)
            logits, labels = train.predict(parts["model"], test_batches)
            line = {
                "step": progress["step"] + count,
                "held_out_loss": F.cross_entropy(logits, labels).item(),
                "held_out_accuracy": (logits.argmax(1) == labels).double().mean().item(),
                "losses": losses,
                "learning_rate": parts["scheduler"].get_last_lr()[0],
                "loss_scale": parts["scaler"].get_scale(),
                **_measured(device, pictures_seen, seconds),
            }
            progress |= _judged(progress, line["step"], line["held_out_loss"])
            if progress["best_step"] == line["step"]:
                checkpoints.save_model(kept.folder / BEST, parts["model"], progress)
            # The line first: what is in the log and in no checkpoint is cut when the run goes on.
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                checkpoints.to_disk(file)
            kept.save(line["step"], progress)
            report(_shown(line))
            if time_limit_s is not None and clock() - start >= time_limit_s:
                why = _reason_to_stop(progress, settings) or "time limit"
                break
        report(f"ended at step {progress['step']}: {why}")
        return why


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log, one a check, without a last one that a kill cut off.

    Raises:
        BookError: where a line is none of a log; the message names the file and the line.
    """
    path = Path(folder) / LOG
    try:
        *whole, _cut_off = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [_read_line(path, number, text) for number, text in enumerate(whole, start=1)]


def differences(one: Path, other: Path) -> list[str]:
    """What differs, to the last bit, between two runs' ends; empty where nothing does.

    Compared are the newest checkpoints (weights, optimizer, scheduler, scaler, loader, random
    numbers, progress), the best models, and the losses of every step in the logs. Where a run has
    no checkpoint, it has no end either, and ``["checkpoint"]`` is what differs.
    """
    if not (checkpoints.paths(one) and checkpoints.paths(other)):
        return ["checkpoint"]
    first, second = (_everything(Path(folder)) for folder in (one, other))
    return [name for name in {**first, **second} if not _same(first.get(name), second.get(name))]


def _judged(progress: dict[str, Any], step: int, held_out_loss: float) -> dict[str, Any]:
    """The progress after a check; a loss that is no number is no gain."""
    if held_out_loss < progress["best_loss"]:
        return {
            "step": step,
            "best_loss": held_out_loss,
            "best_step": step,
            "checks_without_gain": 0,
        }
    return {"step": step, "checks_without_gain": progress["checks_without_gain"] + 1}


def _reason_to_stop(progress: dict[str, Any], settings: Settings) -> str | None:
    if progress["step"] >= settings.steps:
        return "finished"
    if settings.patience is not None and progress["checks_without_gain"] >= settings.patience:
        return "no improvement"
    return None


def _measured(device: torch.device, pictures: int, seconds: float) -> dict[str, Any]:
    """Speed and memory now; ``None`` for what has no counter, and for the software device."""
    measured = not softmps.is_active()
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "seconds": seconds if measured else None,
        "images_per_s": pictures / seconds if measured else None,
        "process_bytes": psutil.Process().memory_info().rss if measured else None,
        "device_bytes": memory(device).allocated if measured else None,
    }


def _require_same_settings(there: dict[str, Any], here: dict[str, Any]) -> None:
    for name, value in here.items():
        if there.get(name) != value:
            raise BookError(
                f"this run was started with {name} {there.get(name)}, not {value}; go on with "
                "that, or start another in an empty folder"
            )


def _read_line(path: Path, number: int, text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        raise BookError(f"{path}: line {number} is no line of a log; remove it to go on")
    return line


def _cut(log: Path, step: int) -> None:
    """Drop what was logged after the checkpoint that the run goes on from; it comes again."""
    lines = [json.dumps(line) + "\n" for line in read_log(log.parent) if line["step"] <= step]
    with checkpoints.replacing(log) as file:
        file.write("".join(lines).encode())


def _shown(line: dict[str, Any]) -> str:
    mean = sum(line["losses"]) / len(line["losses"])
    rate = line["images_per_s"]
    speed = "" if rate is None else f", {rate:,.0f} images/s"
    return f"step {line['step']}: loss {mean:.3f}, held out {line['held_out_loss']:.3f}{speed}"


def _everything(folder: Path) -> dict[str, Any]:
    """All that two equal runs must share, by name."""
    newest = checkpoints.read(checkpoints.paths(folder)[-1])
    # A run whose loss was never a number has no best model.
    best = checkpoints.read(folder / BEST) if (folder / BEST).exists() else None
    keys = ("step", "losses", "held_out_loss", "learning_rate", "loss_scale")
    return {
        **newest["parts"],
        "random numbers": newest["random"],
        "progress": newest["progress"],
        "best model": best,
        "log": [[line[key] for key in keys] for line in read_log(folder)],
    }


def _same(one: object, other: object) -> bool:
    """Equal to the last bit, through dictionaries, lists and tuples; two NaN are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other or (one != one and other != other)


def main(
    folder: Annotated[Path, typer.Argument(help="The run's own folder.")],
    device: Annotated[str, typer.Option(help="auto, mps, cuda or cpu.")] = "auto",
    steps: Annotated[int, typer.Option(min=1)] = Settings.steps,
    every: Annotated[int, typer.Option(min=1, help="Steps between checks.")] = Settings.every,
    batch_size: Annotated[int, typer.Option(min=1)] = Settings.batch_size,
    learning_rate: float = Settings.learning_rate,
    patience: Annotated[int | None, typer.Option(min=1, help="Checks without gain.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds, then stop.")] = None,
    seed: int = Settings.seed,
) -> None:
    """Train the book's small network; started again, go on where it was."""
    settings = Settings(steps, every, batch_size, learning_rate, patience, seed)
    try:
        # A line at a time, so that whoever started the program can follow it.
        sys.stdout.reconfigure(line_buffering=True)
        run(folder, settings, pick(device), time_limit)
    except CheckpointError as error:
        why = f"{folder}: {error}"
    except OSError as error:
        why = f"{error.filename or folder}: {error.strerror}"
    except (BookError, DeviceUnavailableError, ValueError) as error:
        why = str(error)
    else:
        return
    print(f"macgpu: {why}", file=sys.stderr)
    raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
