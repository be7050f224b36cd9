"""The pictures that the book trains on: a shipped subset, and the full sets for those online.

The shipped file of pictures is the test file of Fashion-MNIST, split 8,000/2,000. A score on the
2,000 is a score on this subset, never a Fashion-MNIST result. Every file that is shipped to be
trained on, pictures or not, is checked here.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

DATA = Path(__file__).resolve().parent.parent / "data"

Prepare = Callable[[Tensor], Tensor]
"""What makes a network's inputs of uint8 pictures, one or a batch of them."""

CLASSES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

SNIPPETS = "movie-snippets/movieReviewSnippets_GroundTruth.txt.gz"
SHA256 = {
    "fashion-mnist/t10k-images-idx3-ubyte.gz": (
        "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"
    ),
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": (
        "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"
    ),
    "fashion-mnist/held-out.txt": (
        "8712874d75e9763bae84127ff95381433b1789ff294633dda28fdba5894a5bde"
    ),
    SNIPPETS: "16e79baf732ee3a22f789114fe87f6457f0dcb1903d5ff4a863b8951be71e2e3",
}
"""Of every shipped file that is trained on, by its place in ``data``."""

MEAN, STD = 0.2871, 0.3524
"""Of the 8,000 training pictures, on the scale 0 to 1; a test recomputes them."""


class DataError(RuntimeError):
    """A data file is missing, damaged or out of reach; the message says which and what to do."""


@dataclass(frozen=True)
class Pictures:
    """Grey or colour pictures with their labels, in memory, on one device.

    Attributes:
        images: uint8, shape (N, channels, height, width), 0 to 255.
        labels: int64, shape (N,).
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Pictures:
        return Pictures(self.images.to(device), self.labels.to(device))

    def first(self, count: int) -> Pictures:
        return Pictures(self.images[:count], self.labels[:count])


def normalise(images: Tensor) -> Tensor:
    """uint8 0 to 255 as float32 with about zero mean and unit variance, same shape."""
    return images.float().sub_(255 * MEAN).div_(255 * STD)


class PictureDataset(Dataset):
    """The same pictures one at a time, for a ``DataLoader``.

    A picture is prepared when it is asked for; with ``prepare=None`` it stays uint8.

    It lives in a module because worker processes on a Mac are spawned: they import the class by
    name, and cannot find one that was defined in a notebook cell.
    """

    def __init__(self, pictures: Pictures, prepare: Prepare | None = normalise) -> None:
        self.pictures = pictures
        self.prepare = prepare

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.pictures.images[index]
        return image if self.prepare is None else self.prepare(image), self.pictures.labels[index]


class Batches:
    """Batches of pictures that already lie on the device: one gather a batch, no worker.

    Iterating yields ``(inputs, labels)`` on the pictures' device: what ``prepare`` makes of the
    pictures, by default normalised float32 of shape (batch, channels, height, width), and int64 of
    shape (batch,). Each pass over a shuffled set has a new order, which the seed decides; two
    objects with the same seed go through the same batches. The last batch may be smaller.
    """

    def __init__(
        self,
        pictures: Pictures,
        batch_size: int,
        shuffle_seed: int | None = None,
        prepare: Prepare = normalise,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.pictures = pictures
        self.batch_size = batch_size
        self.prepare = prepare
        self.generator = None
        if shuffle_seed is not None:
            # The order is drawn on the CPU, so that it is the same for every device.
            self.generator = torch.Generator().manual_seed(shuffle_seed)

    def __len__(self) -> int:
        return -(-len(self.pictures) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.pictures.images, self.pictures.labels
        if self.generator is None:
            order = torch.arange(len(labels))
        else:
            order = torch.randperm(len(labels), generator=self.generator)
        for indices in order.to(labels.device).split(self.batch_size):
            # index_select copies whole pictures; images[indices] goes pixel by pixel on the CPU.
            yield self.prepare(images.index_select(0, indices)), labels.index_select(0, indices)


def fashion_subset() -> tuple[Pictures, Pictures]:
    """The shipped pictures: 8,000 to train on, 2,000 held out. Images are (N, 1, 28, 28).

    Raises:
        DataError: where a file is missing or differs from the one that was shipped.
    """
    images = _parse_idx(shipped("fashion-mnist/t10k-images-idx3-ubyte.gz"))[:, None]
    labels = _parse_idx(shipped("fashion-mnist/t10k-labels-idx1-ubyte.gz")).astype(np.int64)
    held_out = np.array(shipped("fashion-mnist/held-out.txt").split(), dtype=np.int64)
    train = np.setdiff1d(np.arange(len(labels)), held_out)
    return _pictures(images, labels, train), _pictures(images, labels, held_out)


def fashion_mnist(folder: Path, download: bool = False) -> tuple[Pictures, Pictures]:
    """All of Fashion-MNIST, 60,000 and 10,000 pictures.

    Args:
        folder: holds the four files of the set, gzipped, as Debian's package
            ``dataset-fashion-mnist`` puts them in ``/usr/share/datasets/fashion-mnist``; or is a
            folder of torchvision's.
        download: fetch it into ``folder``, as torchvision does, where it is not there.

    Raises:
        DataError: where it is not there and ``download`` is off or did not succeed, or where a
            file is damaged.
    """
    folder = Path(folder)
    if (folder / "train-images-idx3-ubyte.gz").exists():
        return tuple(_idx_pictures(folder, part) for part in ("train", "t10k"))
    from torchvision.datasets import FashionMNIST

    train, test = _torchvision(FashionMNIST, folder, download)
    return (
        Pictures(train.data[:, None], train.targets.long()),
        Pictures(test.data[:, None], test.targets.long()),
    )


def cifar10(folder: Path, download: bool = False) -> tuple[Pictures, Pictures]:
    """CIFAR-10, 50,000 and 10,000 colour pictures of (3, 32, 32), as torchvision keeps it.

    Raises:
        DataError: where it is not there and ``download`` is off or did not succeed.
    """
    from torchvision.datasets import CIFAR10

    train, test = _torchvision(CIFAR10, folder, download)
    return tuple(
        Pictures(
            torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(),
            torch.tensor(part.targets),
        )
        for part in (train, test)
    )


def _torchvision(dataset: type, folder: Path, download: bool) -> tuple:
    """Both parts of a torchvision dataset; a download lands whole in ``folder`` or not at all."""
    name = dataset.__name__
    folder = Path(folder)
    try:
        return dataset(folder, train=True), dataset(folder, train=False)
    except RuntimeError:
        if not download:
            raise DataError(f"{name} is not in {folder}; download=True fetches it") from None
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as half:
        try:
            for train in (True, False):
                dataset(half, train=train, download=True)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{name} could not be downloaded ({error}). Check the network, or use the "
                "shipped subset: macgpu.data.fashion_subset()"
            ) from error
        for part in Path(half).iterdir():
            # What an earlier, broken download may have left.
            shutil.rmtree(folder / part.name, ignore_errors=True)
            (folder / part.name).unlink(missing_ok=True)
            part.replace(folder / part.name)
    return dataset(folder, train=True), dataset(folder, train=False)


def _pictures(images: np.ndarray, labels: np.ndarray, indices: np.ndarray) -> Pictures:
    return Pictures(torch.from_numpy(images[indices]), torch.from_numpy(labels[indices]))


def check_files() -> None:
    """Compare every shipped file with its hash.

    Raises:
        DataError: naming the first file that is missing or differs.
    """
    for name in SHA256:
        shipped(name)


def shipped(name: str) -> bytes:
    """The content of one of the files of :data:`SHA256`.

    Raises:
        DataError: where it is missing, or differs from the one that was shipped.
    """
    shown = f"data/{name}"
    try:
        content = (DATA / name).read_bytes()
    except OSError as error:
        raise DataError(
            f"{shown} cannot be read ({error.strerror}); `git checkout -- {shown}` restores it"
        ) from None
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise DataError(
            f"{shown} is not the file that was shipped (its SHA-256 differs); "
            f"`git checkout -- {shown}` restores it"
        )
    return content


def _idx_pictures(folder: Path, part: str) -> Pictures:
    """One part of a set that is not shipped, so that no hash is known."""
    arrays = []
    for kind in ("images-idx3", "labels-idx1"):
        path = folder / f"{part}-{kind}-ubyte.gz"
        try:
            arrays.append(_parse_idx(path.read_bytes()))
        except FileNotFoundError:
            raise DataError(f"{path} is missing") from None
        except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
            raise DataError(f"{path} is not a whole file of the set: {error}") from None
    images, labels = arrays
    return Pictures(
        torch.from_numpy(images[:, None].copy()), torch.from_numpy(labels.astype(np.int64))
    )


def _parse_idx(zipped: bytes) -> np.ndarray:
    """An IDX file of unsigned bytes, gzipped: two zeros, type 8, the rank, then the shape."""
    content = gzip.decompress(zipped)
    rank = content[3]
    shape = np.frombuffer(content, ">i4", rank, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)
