"""Pictures on disk and their way to the device: JPEG files, memory-mapped arrays, loaders.

Datasets and collate functions stand here, in a module, because a Mac starts the workers of a
``DataLoader`` by spawn: they import these by name, and find nothing that a notebook defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from macgpu.data import DataError, Pictures, Prepare
from macgpu.errors import BookError

JPEG_QUALITY = 90
SUFFIXES = (".jpg", ".jpeg")
"""Of a JPEG file's name, in small letters or capitals."""


def enlarged(pictures: Pictures, side: int) -> Pictures:
    """Grey pictures as colour ones of (3, side, side), the size and form of photographs."""
    large = F.interpolate(pictures.images.float(), (side, side), mode="bilinear")
    images = large.round().to(torch.uint8).expand(-1, 3, -1, -1).contiguous()
    return Pictures(images, pictures.labels)


def write_jpegs(pictures: Pictures, folder: Path) -> list[Path]:
    """Write colour pictures as JPEG files, one folder a class, and return the files by name.

    The folders are named by the class's number, all with as many digits, so that they sort as the
    numbers do, and are there for a class without pictures too.

    Raises:
        DataError: for pictures that are not as :class:`~macgpu.data.Pictures` says, or not colour
            ones, or none, and where the folder holds something already.
    """
    folder = Path(folder)
    _check_colour(pictures)
    if any(_visible(folder, "*")):
        raise DataError(f"{folder} is not empty: its pictures and these would be taken together")
    last = int(pictures.labels.max())
    digits = max(3, len(str(last)))
    for label in range(last + 1):
        (folder / f"{label:0{digits}d}").mkdir(parents=True, exist_ok=True)
    paths = []
    for number, (image, label) in enumerate(zip(pictures.images, pictures.labels, strict=True)):
        path = folder / f"{int(label):0{digits}d}" / f"{number:06d}.jpg"
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path, quality=JPEG_QUALITY)
        paths.append(path)
    return sorted(paths)


def _check_colour(pictures: Pictures) -> None:
    images, labels = pictures.images, pictures.labels
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise DataError(
            f"pictures of {images.dtype} {tuple(images.shape)}: uint8 (N, 3, height, width) are "
            "expected; enlarged() makes colour pictures of grey ones"
        )
    if images.numel() == 0:
        raise DataError(f"pictures of {tuple(images.shape)}: there is nothing to write")
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise DataError(
            f"labels of {labels.dtype} {tuple(labels.shape)}: int64 ({len(images)},) are expected, "
            "one a picture"
        )
    if labels.min() < 0:
        raise DataError(f"a label of {int(labels.min())}: labels count from 0")


def read_jpeg(path: Path) -> Tensor:
    """One JPEG file as uint8 (3, height, width).

    Raises:
        DataError: naming the file, where it is missing, cut off or no JPEG.
    """
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            pixels = np.array(image.convert("RGB"))
    except UnidentifiedImageError:
        raise DataError(f"{path} is no JPEG file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # What Pillow raises for a file that it took for a JPEG and that is none, or not whole.
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read as a JPEG file: {why}") from None
    return torch.from_numpy(pixels).permute(2, 0, 1)


class JpegDataset(Dataset):
    """JPEG files in one folder a class, decoded when they are asked for.

    An item is uint8 (3, height, width) and its label, the place of its folder among all by name.
    Names with a leading dot, such as ``.ipynb_checkpoints`` or a Mac's ``._NAME.jpg``, are no
    classes and no pictures.

    Raises:
        DataError: where the folder holds no ``CLASS/NAME.jpg``; for an item, as :func:`read_jpeg`.
    """

    def __init__(self, folder: Path) -> None:
        folder = Path(folder)
        self.classes = sorted(path.name for path in _visible(folder, "*") if path.is_dir())
        self.paths = sorted(
            path
            for path in _visible(folder, "*/*")
            if path.suffix.lower() in SUFFIXES and path.is_file()
        )
        if not self.paths:
            raise DataError(f"{folder} holds no picture: files named CLASS/NAME.jpg are expected")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        return read_jpeg(path), self.classes.index(path.parent.name)


def write_arrays(pictures: Pictures, folder: Path) -> None:
    """Write pictures as two NumPy files, for :class:`MappedDataset`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "images.npy", pictures.images.numpy())
    np.save(folder / "labels.npy", pictures.labels.numpy())


class MappedDataset(Dataset):
    """Decoded pictures in a file that is mapped into memory: only what is used is read.

    A ``DataLoader`` asks it for a whole batch at once, so its collate function is
    :func:`as_batch`. An item is uint8 (channels, height, width) and an int64 label.

    Raises:
        DataError: naming the file that is missing or damaged, or holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.images = _mapped(self.folder / "images.npy", "uint8", 4)
        self.labels = _mapped(self.folder / "labels.npy", "int64", 1)
        if len(self.images) != len(self.labels):
            raise DataError(
                f"{folder}: {len(self.images)} pictures and {len(self.labels)} labels do not fit"
            )

    def __reduce__(self) -> tuple:
        # A mapped array is pickled as all its content; each worker opens the file instead.
        return MappedDataset, (self.folder,)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """A batch: uint8 (batch, channels, height, width) and int64 (batch,), both copies."""
        images, labels = (np.take(part, indices, axis=0) for part in (self.images, self.labels))
        return torch.from_numpy(np.asarray(images)), torch.from_numpy(np.asarray(labels))


def as_batch(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The collate function of a dataset that gives whole batches: nothing is left to do."""
    return batch


def spawn_loader(
    dataset: Dataset, batch_size: int, workers: int = 0, persistent: bool = True
) -> DataLoader:
    """A shuffling ``DataLoader`` with spawned workers, as a Mac has them, on every system.

    The order is drawn from a generator of its own, so that it does not depend on what else is.
    """
    return DataLoader(
        dataset,
        batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
        num_workers=workers,
        collate_fn=as_batch if hasattr(dataset, "__getitems__") else None,
        multiprocessing_context="spawn" if workers else None,
        persistent_workers=persistent and workers > 0,
    )


def require_worker_runs(worker_runs: object) -> None:
    """Refuse what is no list of pairs: a number of workers, and whether they persist.

    The runs are compared, so one without workers and one whose workers persist must be there.

    Raises:
        BookError: with what was given and what it must be, in one line.
    """
    runs = worker_runs if isinstance(worker_runs, list) else []
    paired = all(
        isinstance(run, list) and [type(part) for part in run] == [int, bool] and run[0] >= 0
        for run in runs
    )
    if not paired or [0, False] not in runs or not any(all(run) for run in runs):
        raise BookError(
            f"worker_runs = {worker_runs!r}: it must be a list of [number of workers, whether they "
            "persist], with [0, False] and one whose workers persist"
        )


class OnDevice:
    """The batches of a loader, moved to the device whole, and prepared there.

    Pictures travel as uint8, a quarter of the bytes of float32.
    """

    def __init__(
        self,
        loader: Iterable[tuple[Tensor, Tensor]],
        device: torch.device,
        prepare: Prepare | None = None,
    ) -> None:
        self.loader = loader
        self.device = device
        self.prepare = prepare

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self.loader:
            # The default, a copy that is waited for: see the chapter on data loading.
            images, labels = images.to(self.device), labels.to(self.device)
            yield images if self.prepare is None else self.prepare(images), labels


def _visible(folder: Path, pattern: str) -> Iterator[Path]:
    """What matches, but for names with a leading dot."""
    for path in folder.glob(pattern):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _mapped(path: Path, dtype: str, dimensions: int) -> np.ndarray:
    try:
        # Unlike np.load, it opens nothing but a single array.
        array = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:
        # Of a damaged header, NumPy raises whatever its parser meets.
        raise DataError(f"{path} is no whole NumPy array: {error}") from None
    if array.dtype != dtype or array.ndim != dimensions:
        raise DataError(
            f"{path} holds {array.dtype.str} of shape {array.shape}: {dtype} "
            f"({np.dtype(dtype).str}) of {dimensions} dimension(s) is expected"
        )
    return array
