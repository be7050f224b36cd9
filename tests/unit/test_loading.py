"""Pictures on disk: what is written is loaded again, by workers too, and faults are named."""

import pickle

import numpy as np
import pytest
import torch

from macgpu import data, loading
from macgpu.data import DataError
from macgpu.loading import JpegDataset, MappedDataset, OnDevice, spawn_loader

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pictures():
    return loading.enlarged(data.fashion_subset()[0].first(24), 64)


@pytest.fixture
def jpegs(pictures, tmp_path):
    loading.write_jpegs(pictures, tmp_path)
    return tmp_path


def test_enlarging_keeps_the_picture_and_its_brightness(pictures):
    original = data.fashion_subset()[0].first(24)
    assert pictures.images.shape == (24, 3, 64, 64)
    assert torch.equal(pictures.images[:, 0], pictures.images[:, 2])
    assert torch.equal(pictures.labels, original.labels)
    means = (p.images.double().mean((1, 2, 3)) for p in (pictures, original))
    assert torch.allclose(*means, rtol=0.05)


def test_jpeg_files_hold_the_pictures_and_their_labels(pictures, jpegs):
    dataset = JpegDataset(jpegs)
    assert len(dataset) == 24
    by_number = sorted(range(24), key=lambda index: dataset.paths[index].name)
    for number, index in enumerate(by_number):
        image, label = dataset[index]
        assert label == pictures.labels[number]
        difference = image.double() - pictures.images[number].double()
        assert image.dtype == torch.uint8 and difference.abs().mean() < 4


def test_a_label_is_the_place_of_its_folder_whatever_the_name(pictures, jpegs):
    for label, name in enumerate(("ant", "bee", "cat")):
        (jpegs / f"{label:03d}").rename(jpegs / name)
    dataset = JpegDataset(jpegs)
    for index, path in enumerate(dataset.paths):
        # Names sort after numbers: the first three classes are the last three now.
        number = int(path.stem)
        assert dataset[index][1] == (pictures.labels[number] - 3) % len(dataset.classes)


def test_labels_of_four_digits_are_read_back_as_they_were_written(tmp_path):
    labels = torch.tensor([0, 101, 999, 1000])
    colours = data.Pictures(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), labels)
    loading.write_jpegs(colours, tmp_path)
    dataset = JpegDataset(tmp_path)
    assert [dataset[index][1] for index in range(4)] == labels.tolist()


def test_pictures_are_not_written_among_others(pictures, jpegs, tmp_path):
    before = JpegDataset(jpegs).paths
    with pytest.raises(DataError, match=f"{jpegs.name} is not empty"):
        loading.write_jpegs(pictures.first(4), jpegs)
    assert JpegDataset(jpegs).paths == before
    looked_at = tmp_path / "looked-at"
    looked_at.mkdir()
    (looked_at / ".DS_Store").write_bytes(b"of a Mac's Finder")
    assert len(loading.write_jpegs(pictures.first(4), looked_at)) == 4


COLOUR, LABELS = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (COLOUR[:0], LABELS[:0], "nothing to write"),
        (COLOUR[..., :0], LABELS, "nothing to write"),
        (COLOUR[:, :1], LABELS, r"uint8 \(4, 1, 8, 8\)"),
        (COLOUR[0], LABELS, r"uint8 \(3, 8, 8\)"),
        (COLOUR.float(), LABELS, "float32"),
        (COLOUR, LABELS - 1, "a label of -1"),
        (COLOUR, LABELS.float(), "labels of torch.float32"),
        (COLOUR, LABELS[:3], r"int64 \(3,\)"),
        (COLOUR, LABELS[:, None], r"int64 \(4, 1\)"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_file_is(images, labels, words, tmp_path):
    with pytest.raises(DataError, match=words):
        loading.write_jpegs(data.Pictures(images, labels), tmp_path)
    assert not list(tmp_path.iterdir())


def test_names_with_a_leading_dot_are_no_classes_and_no_pictures(pictures, jpegs):
    before = JpegDataset(jpegs)
    (jpegs / ".ipynb_checkpoints").mkdir()
    (jpegs / ".ipynb_checkpoints" / "000000-checkpoint.jpg").write_bytes(b"no class")
    beside = before.paths[0]
    beside.with_name(f"._{beside.name}").write_bytes(b"what a Mac puts beside a file")
    after = JpegDataset(jpegs)
    assert (after.classes, after.paths) == (before.classes, before.paths)
    labels = [after[index][1] for index in range(24)]
    assert labels == [pictures.labels[int(path.stem)] for path in after.paths]


def test_a_folder_below_a_hidden_one_is_read(pictures, tmp_path):
    loading.write_jpegs(pictures, tmp_path / ".cache" / "set")
    assert len(JpegDataset(tmp_path / ".cache" / "set")) == 24


def test_jpeg_files_are_known_by_their_suffix_in_any_case_and_folders_are_none(jpegs):
    paths = JpegDataset(jpegs).paths
    paths[0].rename(paths[0].with_suffix(".JPG"))
    paths[1].rename(paths[1].with_suffix(".jpeg"))
    paths[2].with_suffix(".txt").write_text("about the picture")
    (paths[3].parent / "folder.jpg").mkdir()
    dataset = JpegDataset(jpegs)
    assert [path.stem for path in dataset.paths] == [path.stem for path in paths]
    assert all(dataset[index][0].shape == (3, 64, 64) for index in range(24))


@pytest.mark.parametrize(
    ("content", "reason", "workers"),
    [
        (b"GIF89a, or some text", "is no JPEG file", 0),
        (b"GIF89a, or some text", "is no JPEG file", 1),
        (b"", "is no JPEG file", 0),
        (None, "cannot be read as a JPEG file: .*[Tt]runcated", 0),
    ],
)
def test_a_file_that_is_no_whole_jpeg_is_named(jpegs, content, reason, workers):
    dataset = JpegDataset(jpegs)
    path = dataset.paths[5]
    path.write_bytes(path.read_bytes()[:600] if content is None else content)
    with pytest.raises(DataError, match=f"{path.name} {reason}"):
        list(spawn_loader(dataset, 8, workers))


def test_a_file_that_is_gone_and_a_folder_without_pictures_are_named(jpegs, tmp_path):
    dataset = JpegDataset(jpegs)
    dataset.paths[0].unlink()
    with pytest.raises(DataError, match=f"{dataset.paths[0].name} .*No such file"):
        dataset[0]
    with pytest.raises(DataError, match="nothing-here holds no picture"):
        JpegDataset(tmp_path / "nothing-here")


def test_a_mapped_array_gives_the_pictures_and_whole_batches(pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    dataset = MappedDataset(tmp_path)
    assert len(dataset) == 24
    for index in (0, 23):
        image, label = dataset[index]
        assert torch.equal(image, pictures.images[index]) and label == pictures.labels[index]
    images, labels = dataset.__getitems__([7, 3, 7])
    assert torch.equal(images, pictures.images[[7, 3, 7]])
    assert torch.equal(labels, pictures.labels[[7, 3, 7]])
    images.zero_()
    assert dataset[7][0].any(), "a batch is a copy: the file stays as it is"


def test_a_worker_is_sent_the_name_of_a_mapped_file_and_not_its_content(pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    sent = pickle.dumps(MappedDataset(tmp_path))
    assert len(sent) < 1000 < pictures.images.nbytes
    assert torch.equal(pickle.loads(sent)[5][0], pictures.images[5])


@pytest.mark.parametrize("kind", ["pictures", "jpeg", "mapped"])
def test_spawned_workers_give_what_the_main_process_gives(kind, pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path / "arrays")
    loading.write_jpegs(pictures, tmp_path / "jpegs")
    dataset = {
        "pictures": data.PictureDataset(pictures, prepare=None),
        "jpeg": JpegDataset(tmp_path / "jpegs"),
        "mapped": MappedDataset(tmp_path / "arrays"),
    }[kind]
    alone, spawned = spawn_loader(dataset, 10), spawn_loader(dataset, 10, workers=1)
    for one, other in zip(alone, spawned, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    # Workers that persist have another order in the second pass, and the same pictures.
    again = torch.cat([labels for _, labels in spawned])
    assert torch.equal(again.sort().values, pictures.labels.sort().values)


def test_damaged_and_unfitting_arrays_are_named(pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    np.save(tmp_path / "labels.npy", pictures.labels[:5].numpy())
    with pytest.raises(DataError, match="24 pictures and 5 labels"):
        MappedDataset(tmp_path)
    whole = (tmp_path / "images.npy").read_bytes()
    for damaged in (whole[:1000], b"no array", b""):
        (tmp_path / "images.npy").write_bytes(damaged)
        with pytest.raises(DataError, match="images.npy is no whole NumPy array"):
            MappedDataset(tmp_path)
    (tmp_path / "images.npy").unlink()
    with pytest.raises(DataError, match="images.npy cannot be read: No such file"):
        MappedDataset(tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("labels", np.zeros(24, np.int32)),
        ("labels", np.zeros(24, np.float64)),
        ("labels", np.zeros(24, ">i8")),
        ("labels", np.zeros((24, 1), np.int64)),
        ("labels", np.int64(24)),
        ("labels", np.array(["coat"] * 24)),
        ("images", np.zeros((24, 3, 8, 8), np.float32)),
        ("images", np.zeros((24, 8, 8), np.uint8)),
        ("images", np.uint8(24)),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.dtype.str}{value.shape}",
)
def test_arrays_of_another_kind_are_named_with_what_they_hold(name, array, pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(DataError) as caught:
        MappedDataset(tmp_path)
    assert f"{name}.npy holds {array.dtype.str} of shape {array.shape}: " in str(caught.value)


def test_an_archive_under_an_arrays_name_is_named(pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    with (tmp_path / "images.npy").open("wb") as file:
        np.savez(file, images=pictures.images.numpy())
    with pytest.raises(DataError, match="images.npy is no whole NumPy array"):
        MappedDataset(tmp_path)


@pytest.mark.parametrize(
    ("part", "damaged"),
    [
        (b"(24, 3, 64, 64)", b"(24, 3, 64, 64("),
        (b"(24, 3, 64, 64), }        ", b"(99999999999999999999,), }"),
    ],
)
def test_a_damaged_header_is_named(part, damaged, pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    path = tmp_path / "images.npy"
    whole = path.read_bytes()
    assert part in whole
    path.write_bytes(whole.replace(part, damaged, 1))
    with pytest.raises(DataError, match="images.npy is no whole NumPy array"):
        MappedDataset(tmp_path)


def test_a_file_of_pickled_objects_is_refused(pictures, tmp_path):
    loading.write_arrays(pictures, tmp_path)
    np.save(tmp_path / "labels.npy", np.array([{}] * 24), allow_pickle=True)
    with pytest.raises(DataError, match="labels.npy"):
        MappedDataset(tmp_path)


def test_batches_are_prepared_on_the_device(pictures):
    dataset = data.PictureDataset(pictures, prepare=None)
    plain = OnDevice(spawn_loader(dataset, 10), CPU)
    prepared = OnDevice(spawn_loader(dataset, 10), CPU, data.normalise)
    for (raw, labels), (inputs, same) in zip(plain, prepared, strict=True):
        assert raw.dtype == torch.uint8
        assert torch.equal(inputs, data.normalise(raw)) and torch.equal(labels, same)


def test_resident_batches_prepare_as_they_are_told(pictures):
    doubled = data.Batches(pictures, 10, prepare=lambda images: images.float() * 2)
    inputs, _ = next(iter(doubled))
    assert torch.equal(inputs, pictures.images[:10].float() * 2)


@pytest.mark.parametrize(("batch_size", "workers"), [(0, 0), (-1, 0), (8, -1)])
def test_a_loader_refuses_a_batch_of_nothing_and_less_than_no_worker(pictures, batch_size, workers):
    with pytest.raises(ValueError, match="batch_size|num_workers"):
        spawn_loader(data.PictureDataset(pictures), batch_size, workers)
