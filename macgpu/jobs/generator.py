"""A trained generator as one file that can be given away, and the pictures that it makes.

The file is a checkpoint's: tensors and plain values, read with ``weights_only=True``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from macgpu.data import DataError
from macgpu.jobs import cards, gan

MOST = 10_000
"""Pictures at once."""


@dataclass(frozen=True)
class Card:
    """What must be known of a generator to use it, and what should be.

    Attributes:
        channels: of a picture: 1 for grey, 3 for colour.
        side: height and width of a picture in pixels.
        width: of the networks.
        latent: numbers that a picture is made of.
        about: what it was trained on, how well it did, and what it is not for.
    """

    channels: int
    side: int
    width: int
    latent: int
    about: str


@dataclass
class Generator:
    """A network with its card."""

    model: nn.Module
    card: Card

    def pictures(self, numbers: Tensor) -> Tensor:
        """Of latent numbers (N, latent), uint8 (N, channels, side, side), on the CPU.

        Raises:
            DataError: where they are no such numbers; one line.
        """
        latent = self.card.latent
        if numbers.dim() != 2 or numbers.shape[1] != latent or not len(numbers):
            raise DataError(
                f"latent numbers of shape {tuple(numbers.shape)}: the generator takes rows of "
                f"{latent}"
            )
        if not numbers.is_floating_point() or not numbers.isfinite().all():
            raise DataError("latent numbers must be finite and floating-point")
        return gan.sample(self.model, numbers.float())

    def of_seed(self, seed: int, count: int = 1) -> Tensor:
        """``count`` pictures of a seed, the same on every device: uint8, as :meth:`pictures`.

        Raises:
            DataError: for a seed or a count that is none.
        """
        if not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise DataError(f"seed {seed!r}: it must be a whole number from 0 to 2**63 - 1")
        if not isinstance(count, int) or not 1 <= count <= MOST:
            raise DataError(f"{count!r} pictures: it must be a whole number from 1 to {MOST:,}")
        return self.pictures(gan.latents(count, self.card.latent, seed))


def save(path: Path, model: nn.Module, card: Card) -> None:
    """Write weights and card, whole or not at all.

    Raises:
        CheckpointError: where it cannot be written.
    """
    cards.save(path, "generator", model, card)


def load(path: Path, device: torch.device = torch.device("cpu")) -> Generator:  # noqa: B008
    """Read a file of :func:`save`; any device's, onto this one.

    Raises:
        CheckpointError: where it is damaged, or holds no generator; one line.
    """
    model, card = cards.load(path, "generator", Card, _network)
    return Generator(model.to(device), card)


def _network(card: Card) -> nn.Module:
    return gan.generator(card.channels, card.side, card.width, card.latent)


def sheet(pictures: Tensor, columns: int = 8) -> Image.Image:
    """Pictures uint8 (N, channels, side, side) side by side in rows, as one image."""
    count, channels, height, width = pictures.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    empty = pictures.new_zeros(rows * columns - count, channels, height, width)
    cells = torch.cat([pictures, empty]).view(rows, columns, channels, height, width)
    whole = cells.permute(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)
    return Image.fromarray(whole.squeeze(2).numpy())
