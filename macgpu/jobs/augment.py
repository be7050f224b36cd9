"""Augmentation of whole batches where they lie, and the scale that a network takes.

The random numbers of an epoch are drawn on the CPU and moved in one piece: they are the same for
every device, and no step waits for a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from macgpu.data import Batches, Pictures


@dataclass(frozen=True)
class Normalise:
    """Makes float32 of about zero mean and unit variance of uint8 pictures, channel by channel.

    Attributes:
        mean, std: of each channel, on the scale 0 to 1.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, pictures: Pictures) -> Normalise:
        """With the mean and the standard deviation of these pictures."""
        mean, std = [], []
        for channel in pictures.images.cpu().transpose(0, 1):
            # From the histogram: exact, and without a float copy of all pixels.
            counts = channel.flatten().int().bincount(minlength=256).double()
            levels = torch.arange(256) / 255
            centre = (counts * levels).sum() / counts.sum()
            mean.append(centre.item())
            std.append(((counts * (levels - centre) ** 2).sum() / counts.sum()).sqrt().item())
        return cls(tuple(mean), tuple(std))

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 (N, channels, height, width) to float32 of the same shape."""
        scaled = images.float()
        for number, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            # In place, with plain numbers: nothing is copied to the device.
            scaled[:, number].sub_(255 * mean).div_(255 * std)
        return scaled


@dataclass(frozen=True)
class Augmentation:
    """What is done to a training picture at random.

    Attributes:
        padding: it is moved by up to so many pixels in both directions; black comes in.
        flip: half of the pictures are mirrored, left to right.
        cutout: side in pixels of a square set to the mean, its centre anywhere (DeVries and
            Taylor, 2017); 0 for none.
    """

    padding: int = 2
    flip: bool = True
    cutout: int = 0

    def draw(self, count: int, side: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Random numbers for ``count`` pictures of height and width ``side``: int16 (count, 5),
        the shift down and right (0 to twice the padding), mirrored or not, the square's centre."""
        highest = (2 * self.padding + 1, 2 * self.padding + 1, 2 if self.flip else 1, *side)
        drawn = [
            torch.randint(high, (count,), generator=generator, dtype=torch.int16)
            for high in highest
        ]
        return torch.stack(drawn, 1)

    def shift(self, images: Tensor, draws: Tensor) -> Tensor:
        """Pictures (N, channels, height, width) moved and mirrored, in the channels-last layout."""
        height, width = images.shape[2:]
        padded = F.pad(images, (self.padding,) * 4)
        down, right, mirrored = draws[:, 0, None], draws[:, 1, None], draws[:, 2, None]
        columns = torch.arange(width, device=images.device)
        columns = torch.where(mirrored == 1, width - 1 - columns, columns) + right
        rows = torch.arange(height, device=images.device) + down
        numbers = torch.arange(len(images), device=images.device)
        # One gather for the whole batch: (N, height, width, channels).
        moved = padded[numbers[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return moved.permute(0, 3, 1, 2)

    def cut(self, scaled: Tensor, draws: Tensor) -> Tensor:
        """Set a square of each scaled picture to zero, which is the mean."""
        inside = []
        for dimension, column in ((2, 3), (3, 4)):
            places = torch.arange(scaled.shape[dimension], device=scaled.device)
            places = places - draws[:, column, None] + self.cutout // 2
            inside.append((places >= 0) & (places < self.cutout))
        square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        return scaled.masked_fill(square, 0.0)


class Augmented:
    """Shuffled, augmented, scaled batches of pictures that lie on the device.

    Iterating yields float32 (batch, channels, height, width) and int64 (batch,). The seed decides
    the order and what is drawn, pass by pass, the same on every device.
    """

    def __init__(
        self,
        pictures: Pictures,
        batch_size: int,
        seed: int,
        normalise: Normalise,
        augmentation: Augmentation,
        compiled: bool = False,
    ) -> None:
        """With ``compiled``, what is done to a batch becomes one or two kernels."""
        self.batches = Batches(pictures, batch_size, shuffle_seed=seed, prepare=lambda x: x)
        self.normalise = normalise
        self.augmentation = augmentation
        self.generator = torch.Generator().manual_seed(seed)
        self._ahead: Tensor | None = None
        self.change = torch.compile(self._change, dynamic=False) if compiled else self._change

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        draws, self._ahead = self._draw() if self._ahead is None else self._ahead, None
        parts = draws.to(self.batches.pictures.images.device).split(self.batches.batch_size)
        for (batch, labels), part in zip(self.batches, parts, strict=True):
            yield self.change(batch, part), labels
        # The next pass's, while the device still works on this one.
        self._ahead = self._draw()

    def _draw(self) -> Tensor:
        images = self.batches.pictures.images
        return self.augmentation.draw(len(images), tuple(images.shape[2:]), self.generator)

    def _change(self, images: Tensor, draws: Tensor) -> Tensor:
        scaled = self.normalise(self.augmentation.shift(images, draws))
        return self.augmentation.cut(scaled, draws) if self.augmentation.cutout else scaled
