"""The shipped pictures, their split, and what happens when something is missing."""

import gzip
import shutil
import urllib.request
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from macgpu import data


@pytest.fixture(scope="module")
def subset():
    return data.fashion_subset()


def test_the_split_is_whole_and_balanced(subset):
    train, held_out = subset
    assert train.images.shape == (8000, 1, 28, 28)
    assert held_out.images.shape == (2000, 1, 28, 28)
    assert held_out.labels.bincount().tolist() == [200] * 10
    assert train.labels.bincount().tolist() == [800] * 10
    # Few pictures of the file repeat; most of all 10,000 must be there once.
    together = torch.cat([train.images, held_out.images]).flatten(1)
    assert len(together.unique(dim=0)) > 9990


def test_normalisation_uses_the_training_pictures_own_statistics(subset):
    pixels = subset[0].images.double() / 255
    assert pytest.approx(pixels.mean().item(), abs=5e-4) == data.MEAN
    assert pytest.approx(pixels.std().item(), abs=5e-4) == data.STD
    normal = data.normalise(subset[0].images)
    assert normal.dtype == torch.float32
    assert abs(normal.mean()) < 0.01
    assert normal.std() == pytest.approx(1, abs=0.01)


def test_one_changed_byte_is_found_and_named(tmp_path, monkeypatch):
    shutil.copytree(data.DATA, tmp_path / "data")
    path = tmp_path / "data" / "fashion-mnist" / "t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(data, "DATA", tmp_path / "data")
    with pytest.raises(data.DataError, match="t10k-images.*git checkout") as raised:
        data.fashion_subset()
    assert "\n" not in str(raised.value)
    path.unlink()
    with pytest.raises(data.DataError, match="t10k-images.*cannot be read"):
        data.check_files()


def test_batches_cover_every_picture_once_in_an_order_the_seed_decides():
    pictures = data.Pictures(
        torch.arange(10, dtype=torch.uint8).reshape(10, 1, 1, 1), torch.arange(10)
    )

    def epoch(batches):
        return torch.cat([labels for _, labels in batches]).tolist()

    plain = data.Batches(pictures, 4)
    assert [len(labels) for _, labels in plain] == [4, 4, 2]
    assert len(plain) == 3
    assert epoch(plain) == list(range(10))
    first, again, other = (data.Batches(pictures, 4, shuffle_seed=s) for s in (1, 1, 2))
    one, two = epoch(first), epoch(first)
    assert sorted(one) == sorted(two) == list(range(10))
    assert one != two, "each pass over a shuffled set has a new order"
    assert [epoch(again), epoch(again)] == [one, two]
    assert epoch(other) != one


def test_batches_refuse_a_size_of_zero(subset):
    with pytest.raises(ValueError, match="at least 1"):
        data.Batches(subset[0], 0)


def test_spawned_workers_load_the_same_pictures(subset):
    pictures = subset[1].first(64)
    loader = DataLoader(
        data.PictureDataset(pictures),
        batch_size=32,
        num_workers=2,
        multiprocessing_context="spawn",
    )
    images = torch.cat([inputs for inputs, _ in loader])
    expected = torch.cat([inputs for inputs, _ in data.Batches(pictures, 32)])
    assert torch.equal(images, expected)


@pytest.mark.parametrize("load", [data.fashion_mnist, data.cifar10])
def test_a_full_set_that_is_not_there_says_so(load, tmp_path):
    with pytest.raises(data.DataError, match="download=True"):
        load(tmp_path)


def test_a_download_replaces_what_a_broken_one_left(tmp_path):
    class Set:
        """Stands for a torchvision dataset: its files, whole or not there."""

        def __init__(self, root, train, download=False):
            path = Path(root) / "Set" / f"{train}.txt"
            if download:
                path.parent.mkdir(exist_ok=True)
                path.write_text("whole")
            if not path.exists() or path.read_text() != "whole":
                raise RuntimeError("Dataset not found")

    (tmp_path / "Set").mkdir()
    (tmp_path / "Set" / "True.txt").write_text("half")
    data._torchvision(Set, tmp_path, download=True)
    assert sorted(path.name for path in (tmp_path / "Set").iterdir()) == ["False.txt", "True.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["Set"]


def test_a_colour_set_on_disk_is_read(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    def from_memory(self, root, train):
        self.data = np.zeros((4, 32, 32, 3), dtype=np.uint8)
        self.data[0, 5, 7] = (1, 2, 3)
        self.targets = [0, 1, 2, 9]

    monkeypatch.setattr(CIFAR10, "__init__", from_memory)
    train, test = data.cifar10(tmp_path)
    assert train.images.shape == test.images.shape == (4, 3, 32, 32)
    assert train.images[0, :, 5, 7].tolist() == [1, 2, 3], "channels come first"
    assert train.labels.tolist() == [0, 1, 2, 9]


def test_a_download_without_a_network_leaves_nothing_behind(tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(data.DataError, match="Check the network"):
        data.fashion_mnist(tmp_path / "sets", download=True)
    assert list((tmp_path / "sets").iterdir()) == []


def test_a_full_set_on_disk_is_read(tmp_path):
    # The files of a full set, as torchvision keeps them, made from the shipped ones.
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for kind in ("images-idx3", "labels-idx1"):
        content = gzip.decompress(
            (data.DATA / "fashion-mnist" / f"t10k-{kind}-ubyte.gz").read_bytes()
        )
        for part in ("t10k", "train"):
            (raw / f"{part}-{kind}-ubyte").write_bytes(content)
    train, test = data.fashion_mnist(tmp_path)
    assert train.images.shape == test.images.shape == (10000, 1, 28, 28)
    assert test.labels.dtype == torch.int64
    assert np.array_equal(test.labels.bincount(), [1000] * 10)


@pytest.fixture
def idx_folder(tmp_path):
    """The four files of a full set, gzipped, as Debian's package has them."""
    for kind in ("images-idx3", "labels-idx1"):
        source = data.DATA / "fashion-mnist" / f"t10k-{kind}-ubyte.gz"
        for part in ("t10k", "train"):
            shutil.copy(source, tmp_path / f"{part}-{kind}-ubyte.gz")
    return tmp_path


def test_a_folder_of_the_sets_own_files_is_read(idx_folder):
    train, test = data.fashion_mnist(idx_folder)
    assert train.images.shape == test.images.shape == (10000, 1, 28, 28)
    assert train.images.dtype == torch.uint8 and train.labels.dtype == torch.int64
    # The shipped test file is the same one, in its own order.
    shipped = torch.cat([part.images for part in data.fashion_subset()]).double().sum()
    assert test.images.double().sum() == shipped
    train.images[0] = 0  # its own memory, and writable


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "missing"), (b"no gzip", "not a whole"), (gzip.compress(b"\0\0"), "not a whole")],
)
def test_a_damaged_file_of_a_full_set_is_named(idx_folder, content, said):
    path = idx_folder / "t10k-labels-idx1-ubyte.gz"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(data.DataError, match=f"t10k-labels-idx1-ubyte.gz is {said}"):
        data.fashion_mnist(idx_folder)


def test_a_full_set_cut_off_is_named(idx_folder):
    path = idx_folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(data.DataError, match="train-images-idx3-ubyte.gz is not a whole file"):
        data.fashion_mnist(idx_folder)
