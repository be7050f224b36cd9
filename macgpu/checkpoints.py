"""Checkpoints that survive a kill at any moment, and refuse what does not fit.

A checkpoint is one file of ``torch.save``: tensors and plain values, read with
``weights_only=True``. It is written beside its place, brought to the disk, and renamed, so that a
file of its final name is whole. Each file has a number of its own, and the one before is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from macgpu.errors import BookError

FORMAT = "macgpu checkpoint"
VERSION = 1
"""Of what a checkpoint holds. A newer one is refused, since it may mean something else."""

KEPT = 2
"""How many checkpoints of a run stay: the newest and the one before."""


class CheckpointError(BookError):
    """A checkpoint is refused; the message is one line: the file and the reason."""


class Stateful(Protocol):
    """What has a state to keep: a model, an optimizer, a scheduler, a scaler, a loader."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


class Checkpoints:
    """The checkpoints of one run, in one folder, which is made if need be."""

    def __init__(
        self,
        folder: Path,
        parts: Mapping[str, Stateful],
        device: torch.device,
        report: Callable[[str], None] = print,
    ) -> None:
        """
        Args:
            folder: of this run alone.
            parts: by name, all that has a state: model, optimizer, scheduler, scaler, loader.
            device: whose random numbers are kept beside those of Python, NumPy and the CPU.
            report: is given a line where a checkpoint is passed over, or cannot be followed to
                the last digit.
        """
        self.folder = Path(folder)
        self.parts = parts
        self.device = device
        self.report = report
        self.folder.mkdir(parents=True, exist_ok=True)

    def paths(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return paths(self.folder)

    def save(self, step: int, progress: dict[str, Any]) -> Path:
        """Write a checkpoint, then delete those before the one before it.

        Args:
            step: names the file; larger than that of every checkpoint so far.
            progress: plain values: numbers, text, lists and dictionaries of them.

        Raises:
            ValueError: where there is a checkpoint of this step or a later one.
            CheckpointError: where it cannot be written, or not be read again.
        """
        path = self.folder / f"step-{step:09}.pt"
        newest = max(self.paths(), default=None)
        if newest is not None and path <= newest:
            raise ValueError(
                f"step {step} does not come after {newest.name}, the newest checkpoint of the run; "
                "resume from that, or start in an empty folder"
            )
        content = {
            "kinds": {name: type(part).__name__ for name, part in self.parts.items()},
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "random": random_state(self.device),
            "progress": progress,
        }
        write(path, content)
        for old in self.paths()[:-KEPT]:
            old.unlink()
        return path

    def resume(self) -> dict[str, Any] | None:
        """Restore all parts from the newest checkpoint that is good, and return its progress.

        A newer one that was refused is renamed, so that it is never taken for a good one again.
        ``None`` where there is no checkpoint.

        Raises:
            CheckpointError: where there are some and none is good; the files stay as they are.
        """
        for left in self.folder.glob("*.partial"):
            if left.is_dir():
                self.report(f"{left.name}: a folder, so no rest of a kill; it is left as it is.")
            else:
                left.unlink()
        refused: dict[Path, CheckpointError] = {}
        for path in reversed(self.paths()):
            try:
                progress = self._restore(path)
            except CheckpointError as error:
                refused[path] = error
                continue
            for bad, error in refused.items():
                bad.rename(bad.with_name(bad.name + ".refused"))
                self.report(f"{error}. Going on from {path.name}.")
            return progress
        if refused:
            raise next(iter(refused.values()))
        return None

    def _restore(self, path: Path) -> dict[str, Any]:
        content = read(path)
        for name in ("kinds", "parts", "random", "progress"):
            _require_dictionary(path, content, name)
        kinds, states = content["kinds"], content["parts"]
        generators, progress = content["random"], content["progress"]
        for name in {**self.parts, **kinds}:
            here = type(self.parts[name]).__name__ if name in self.parts else "none"
            there = kinds.get(name, "none")
            if here != there:
                raise CheckpointError(f"{path.name}: its {name} is {there}, and here it is {here}")
        for name, part in self.parts.items():
            _require_dictionary(path, states, name)
            if isinstance(part, nn.Module):
                _require_same_model(path, states[name], part)
        for name, part in self.parts.items():
            _load(path, name, part, states[name])
        try:
            restore_random_state(generators, self.device)
        except Exception as error:
            raise CheckpointError(
                f"{path.name}: its random numbers cannot be restored: {_in_a_line(error)}"
            ) from None
        there = next((kind for kind in ("mps", "cuda") if kind in generators), "cpu")
        if there != self.device.type:
            self.report(
                f"{path.name} was written on {there}: on {self.device.type}, random numbers, such "
                "as dropout's, and rounding go on differently."
            )
        return progress


def paths(folder: Path | str) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(Path(folder).glob("step-*.pt"))


def save_model(path: Path | str, model: nn.Module, progress: dict[str, Any]) -> None:
    """Write the weights of a model alone, whole or not at all."""
    write(path, {"parts": {"model": model.state_dict()}, "progress": progress})


def load_model(path: Path | str, model: nn.Module) -> dict[str, Any]:
    """Load the weights from a file of :func:`save_model`, or from a checkpoint; any device's.

    Returns:
        the progress that was saved with them.

    Raises:
        CheckpointError: where the file is damaged, newer, or of another model.
    """
    path = Path(path)
    content = read(path)
    for name in ("parts", "progress"):
        _require_dictionary(path, content, name)
    _require_dictionary(path, content["parts"], "model")
    weights = content["parts"]["model"]
    _require_same_model(path, weights, model)
    _load(path, "model", model, weights)
    return content["progress"]


def write(path: Path | str, content: dict[str, Any]) -> None:
    """Write a file of tensors and plain values that is there whole or not at all.

    A kill leaves the old file, or none, and a rest that ends in ``.partial``.

    Raises:
        CheckpointError: where the content is not of tensors and plain values, or the file cannot
            be written, as on a full disk.
    """
    path = Path(path)
    try:
        with replacing(path) as file:
            torch.save({"format": FORMAT, "version": VERSION, **content}, file)
            file.flush()
            # Better to learn now than after the kill that it holds what cannot be read.
            read(Path(file.name))
    except CheckpointError:
        raise
    except (OSError, RuntimeError) as error:
        # At a full disk torch has an error of its own, and the system's is behind it.
        cause = error if isinstance(error, OSError) else error.__context__
        why = cause.strerror if isinstance(cause, OSError) else _in_a_line(error)
        raise CheckpointError(f"{path.name}: cannot be written: {why}") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes this place when it is whole and on the disk; else the old one stays."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            yield file
            to_disk(file)
    except BaseException:
        # Such as a full disk, or Ctrl-C.
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    # The new name, too, is on the disk only when the folder is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def to_disk(file: IO[Any]) -> None:
    """Wait until the disk has what was written to the file, so that it outlives a power cut."""
    file.flush()
    os.fsync(file.fileno())
    if hasattr(fcntl, "F_FULLFSYNC"):
        # On macOS, fsync leaves the data in the drive's own cache (fsync(2)). Not every file
        # system there can do more.
        with contextlib.suppress(OSError):
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)


def read(path: Path | str) -> dict[str, Any]:
    """What a file of :func:`write` holds, every tensor on the CPU, wherever it was.

    Raises:
        CheckpointError: where it is truncated, damaged, none of ours, or of a newer version.
    """
    path = Path(path)
    try:
        # torch.load notices a missing end, and no changed byte; the archive has a sum of each part.
        with zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None
    except OSError as error:
        raise CheckpointError(f"{path.name}: cannot be read: {error.strerror}") from None
    except Exception:
        # A damaged archive meets zipfile in many ways: BadZipFile, but also struct.error, EOFError.
        whole = False
    if not whole:
        raise CheckpointError(f"{path.name}: truncated or damaged")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        # UnpicklingError and RuntimeError, but a strange pickle has other ways too.
        raise CheckpointError(f"{path.name}: no file of tensors and plain values") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path.name}: no checkpoint of macgpu")
    _require_version(path, content.get("version"))
    return content


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of all generators that training draws from, as tensors and plain values."""
    numpy_state = np.random.get_state(legacy=False)
    numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()
    state = {"python": random.getstate(), "numpy": numpy_state, "cpu": torch.get_rng_state()}
    if device.type == "mps":
        state["mps"] = torch.mps.get_rng_state()
    elif device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what :func:`random_state` gave; a device that was not in it is left as it is."""
    random.setstate(state["python"])
    numpy_state = {**state["numpy"]}
    key = np.array(numpy_state["state"]["key"], dtype=np.uint32)
    np.random.set_state({**numpy_state, "state": {**numpy_state["state"], "key": key}})
    torch.set_rng_state(state["cpu"])
    if device.type == "mps" and "mps" in state:
        torch.mps.set_rng_state(state["mps"])
    elif device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def _require_version(path: Path, version: object) -> None:
    if not isinstance(version, int):
        raise CheckpointError(f"{path.name}: its version is {version!r}, and should be a number")
    if version > VERSION:
        raise CheckpointError(
            f"{path.name}: version {version} is newer than {VERSION}, the newest known here; "
            "update macgpu"
        )


def _require_dictionary(path: Path, content: dict[str, Any], name: str) -> None:
    if name not in content:
        raise CheckpointError(f"{path.name}: holds no {name!r}")
    if not isinstance(content[name], dict):
        kind = type(content[name]).__name__
        raise CheckpointError(f"{path.name}: its {name} is {kind}, and should be a dictionary")


def _load(path: Path, name: str, part: Stateful, state: dict[str, Any]) -> None:
    try:
        part.load_state_dict(state)
    except Exception as error:
        # Each part meets a state that is not its own in its own way.
        raise CheckpointError(
            f"{path.name}: its {name} does not fit: {_in_a_line(error)}"
        ) from None


def _require_same_model(path: Path, weights: dict[str, Any], model: nn.Module) -> None:
    """Compare names, shapes and data types, and name the first that differs."""
    own = model.state_dict()
    for name in {**own, **weights}:
        here, there = _form(own.get(name)), _form(weights.get(name))
        if here != there:
            raise CheckpointError(
                f"{path.name}: of another model: {name} is {there} there, and {here} here"
            )


def _form(value: object) -> str:
    if not isinstance(value, Tensor):
        return "missing" if value is None else "no tensor"
    shape = "×".join(str(size) for size in value.shape) or "one number"
    return f"{shape} {str(value.dtype).removeprefix('torch.')}"


def _in_a_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
