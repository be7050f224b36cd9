"""A classifier's file: the same outputs in another process, and what is refused."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from macgpu import checkpoints, cli
from macgpu.checkpoints import CheckpointError
from macgpu.data import DataError
from macgpu.jobs import classifier
from macgpu.jobs.classifier import Card
from macgpu.jobs.resnet import resnet18_small

GREY = Card(["cat", "dog", "eel"], 1, 28, 8, [0.3], [0.4], True, "drawn at random")
COLOUR = replace(GREY, channels=3, side=32, mean=[0.3] * 3, std=[0.4] * 3)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = resnet18_small(1, 3, 8)
    # Statistics that differ from those of a new network, as after training.
    model.train()(torch.randn(16, 1, 28, 28))
    return model


@pytest.fixture
def file(model, tmp_path):
    classifier.save(tmp_path / "model.pt", model, GREY)
    return tmp_path / "model.pt"


def picture(path, size=(28, 28), mode="L", **options):
    pixels = np.arange(size[0] * size[1] * len(mode)) % 251
    shape = size[::-1] if mode == "L" else (*size[::-1], len(mode))
    Image.fromarray(pixels.astype(np.uint8).reshape(shape), mode).save(path, **options)
    return path


def test_another_process_computes_the_same(file, model, tmp_path):
    images = torch.randint(256, (5, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    np.save(tmp_path / "images.npy", images.to(torch.uint8).numpy())
    program = (
        "import sys, numpy, torch; from macgpu.jobs import classifier; "
        "images = torch.from_numpy(numpy.load(sys.argv[2])); "
        "numpy.save(sys.argv[3], classifier.load(sys.argv[1]).logits(images).numpy())"
    )
    out = tmp_path / "logits.npy"
    subprocess.run(
        [sys.executable, "-c", program, str(file), str(tmp_path / "images.npy"), str(out)],
        check=True,
    )
    here = classifier.Classifier(model, GREY).logits(images.to(torch.uint8))
    assert np.array_equal(np.load(out), here.numpy())


def test_the_card_travels_with_the_weights(file):
    assert classifier.load(file).card == GREY


def test_probabilities_are_named_and_sorted(file, tmp_path):
    loaded = classifier.load(file)
    image = classifier.read_picture(picture(tmp_path / "a.png"), GREY)
    shares = loaded.probabilities(image)
    assert set(shares) == set(GREY.classes)
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    best = loaded.logits(image[None])[0].argmax()
    assert next(iter(shares)) == GREY.classes[best]


def test_a_picture_that_fits_is_read_pixel_by_pixel(tmp_path):
    grey = classifier.read_picture(picture(tmp_path / "grey.png"), GREY)
    assert grey.flatten().tolist() == [i % 251 for i in range(784)]
    colour = classifier.read_picture(picture(tmp_path / "c.png", (32, 32), "RGB"), COLOUR)
    assert colour.shape == (3, 32, 32)
    assert colour[:, 0, 1].tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("size", "mode", "card", "said"),
    [
        ((40, 28), "L", GREY, "40×28 pixels, grey"),
        ((28, 28), "RGB", GREY, "28×28 pixels, colour"),
        ((32, 32), "L", COLOUR, "32×32 pixels, grey"),
    ],
)
def test_a_picture_of_another_form_is_refused_or_made_to_fit(tmp_path, size, mode, card, said):
    path = picture(tmp_path / "photo.png", size, mode)
    with pytest.raises(DataError, match=f"photo.png has {said}.*--fit") as raised:
        classifier.read_picture(path, card)
    assert "\n" not in str(raised.value) and str(tmp_path) not in str(raised.value)
    fitted = classifier.read_picture(path, card, fit=True)
    assert fitted.shape == (card.channels, card.side, card.side) and fitted.dtype == torch.uint8


def test_a_photo_held_upright_is_turned(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter, clockwise
    path = picture(tmp_path / "photo.png", (28, 20), exif=exif)
    with pytest.raises(DataError, match="20×28"):
        classifier.read_picture(path, GREY)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), (b"no picture", "no picture"), (b"", "no picture")],
)
def test_a_file_that_is_no_picture_is_named(tmp_path, content, said):
    path = tmp_path / "note.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=f"note.png.*{said}") as raised:
        classifier.read_picture(path, GREY)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("points", [np.uint16, np.int32, np.float32])
def test_more_than_eight_bits_a_point_are_refused_and_not_cut_off(tmp_path, points):
    path = tmp_path / "deep.tiff"
    Image.fromarray((np.arange(28 * 28).reshape(28, 28) * 80).astype(points)).save(path)
    with pytest.raises(DataError, match="deep.tiff has more than 8 bits a point"):
        classifier.read_picture(path, GREY, fit=True)


def test_half_a_picture_is_refused(tmp_path):
    path = picture(tmp_path / "half.jpg", (200, 200), quality=95)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match="half.jpg cannot be read"):
        classifier.read_picture(path, GREY)


def card_without_about(card):
    card.pop("about")


def card_of_no_width(card):
    card["width"] = "wide"


def card_of_another_width(card):
    card["width"] = 16


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (card_without_about, "no classifier's card"),
        (card_of_no_width, "describes no network"),
        (card_of_another_width, "of another model"),
    ],
)
def test_a_file_whose_card_does_not_fit_is_refused(file, change, said):
    content = checkpoints.read(file)
    change(content["progress"]["classifier"])
    checkpoints.write(file, {key: content[key] for key in ("parts", "progress")})
    with pytest.raises(CheckpointError, match=f"model.pt: .*{said}") as raised:
        classifier.load(file)
    assert "\n" not in str(raised.value)


def test_a_checkpoint_of_something_else_is_no_classifier(tmp_path, model):
    checkpoints.save_model(tmp_path / "other.pt", model, {"step": 3})
    with pytest.raises(CheckpointError, match="other.pt: holds no classifier's card"):
        classifier.load(tmp_path / "other.pt")


def run(capsys, *arguments):
    """The exit status of ``macgpu`` with these arguments, and what it says on stderr."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["macgpu", *map(str, arguments)])
        cli.main()
    return ended.value.code, capsys.readouterr().err


def test_the_command_names_three_classes(file, tmp_path):
    path = picture(tmp_path / "a.png")
    done = CliRunner().invoke(cli.app, ["classify", str(file), str(path)])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and len(lines) == 3
    assert {line.split(":")[0] for line in lines} == set(GREY.classes)
    assert all(line.endswith("%") for line in lines)


def test_the_command_refuses_in_one_line(file, tmp_path, capsys):
    path = picture(tmp_path / "big.png", (100, 50), "RGB")
    status, said = run(capsys, "classify", file, path)
    assert status == 1 and said.count("\n") == 1 and "100×50" in said
    status, said = run(capsys, "classify", file, tmp_path / "none.png")
    assert status == 1 and said.count("\n") == 1 and "none.png" in said
    status, said = run(capsys, "classify", path, path)
    assert status == 1 and said.count("\n") == 1 and "big.png" in said
