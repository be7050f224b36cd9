"""A trained classifier as one file that can be given away, and what it says of one picture.

The file is a checkpoint's: tensors and plain values, read with ``weights_only=True``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor, nn

from macgpu.data import DataError
from macgpu.jobs import cards
from macgpu.jobs.augment import Normalise
from macgpu.jobs.images import WithMirror
from macgpu.jobs.resnet import resnet18_small


@dataclass(frozen=True)
class Card:
    """What must be known of a classifier to use it, and what should be.

    Attributes:
        classes: their names, in the order of the logits.
        channels: of a picture: 1 for grey, 3 for colour.
        side: height and width of a picture in pixels.
        width: of the network.
        mean, std: of each channel of the training pictures, on the scale 0 to 1.
        flip: whether the logits are the mean of those of a picture and of its mirror image.
        about: what it was trained on, how well it did, and what it is not for.
    """

    classes: list[str]
    channels: int
    side: int
    width: int
    mean: list[float]
    std: list[float]
    flip: bool
    about: str

    @property
    def pictures(self) -> str:
        """What it takes, in words."""
        return f"{self.side}×{self.side} pixels, {'grey' if self.channels == 1 else 'colour'}"


@dataclass
class Classifier:
    """A network with its card; :meth:`logits` is all that it does."""

    model: nn.Module
    card: Card

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Of uint8 pictures (N, channels, side, side), float32 (N, classes), on the CPU."""
        device = next(self.model.parameters()).device
        scaled = Normalise(tuple(self.card.mean), tuple(self.card.std))(images.to(device))
        model = WithMirror(self.model) if self.card.flip else self.model
        return model.eval()(scaled).cpu()

    def probabilities(self, image: Tensor) -> dict[str, float]:
        """Of one picture (channels, side, side), each class with its probability, largest first."""
        shares = self.logits(image[None])[0].softmax(0).tolist()
        named = zip(self.card.classes, shares, strict=True)
        return dict(sorted(named, key=lambda pair: -pair[1]))


def save(path: Path, model: nn.Module, card: Card) -> None:
    """Write weights and card, whole or not at all.

    Raises:
        CheckpointError: where it cannot be written.
    """
    cards.save(path, "classifier", model, card)


def load(path: Path, device: torch.device = torch.device("cpu")) -> Classifier:  # noqa: B008
    """Read a file of :func:`save`; any device's, onto this one.

    Raises:
        CheckpointError: where it is damaged, or holds no classifier; one line.
    """
    model, card = cards.load(path, "classifier", Card, _network)
    return Classifier(model.to(device), card)


def _network(card: Card) -> nn.Module:
    return resnet18_small(card.channels, len(card.classes), card.width)


def read_picture(path: Path, card: Card, fit: bool = False) -> Tensor:
    """A picture file as the classifier takes it: uint8 (channels, side, side).

    Args:
        path: of any format that Pillow reads.
        card: says what the classifier takes.
        fit: make another picture fit: cut its middle square out, scale it, change its colours to
            grey or grey to colour.

    Raises:
        DataError: where there is no picture, or one of another size or kind and ``fit`` is off.
    """
    path = Path(path)
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened)
            image.load()
    except UnidentifiedImageError:
        raise DataError(f"{path.name} is no picture that can be read") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # What Pillow raises for a file that is missing, or not whole.
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path.name} cannot be read as a picture: {why}") from None
    if image.mode[0] in "IF":
        # Pillow would cut off what is brighter than 255.
        raise DataError(f"{path.name} has more than 8 bits a point: save it with 8")
    channels = 1 if image.mode in ("1", "L", "LA") else 3
    if not fit and (image.size != (card.side, card.side) or channels != card.channels):
        kind = "grey" if channels == 1 else "colour"
        raise DataError(
            f"{path.name} has {image.width}×{image.height} pixels, {kind}; the classifier takes "
            f"{card.pictures}: ask for it to be made to fit (--fit)"
        )
    image = ImageOps.fit(image.convert("L" if card.channels == 1 else "RGB"), (card.side,) * 2)
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if card.channels == 1 else pixels.permute(2, 0, 1)
