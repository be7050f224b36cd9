"""A rank's part of a weight, drawn without any rank ever holding the whole."""

from __future__ import annotations

import torch

PIECE = 1 << 22
"""Elements that are drawn at a time."""


def draw(
    shape: tuple[int, int],
    dim: int,
    degree: int = 1,
    rank: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Part ``rank`` of ``degree`` of a normal matrix of this shape (out, in), split along ``dim``.

    Every rank draws the same stream in pieces of some rows and keeps what is its own, so the parts
    are those of one matrix at any degree. The deviation is ``in ** -0.5``. Devices draw different
    numbers from one seed.

    Raises:
        ValueError: where the side does not divide by the degree.
    """
    rows, columns = shape
    mine = part(shape[dim], degree, rank)
    kept = [mine.stop - mine.start, columns] if dim == 0 else [rows, mine.stop - mine.start]
    weight = torch.empty(kept, device=device, dtype=dtype)
    generator = torch.Generator(device).manual_seed(seed)
    height = max(1, PIECE // columns)
    for top in range(0, rows, height):
        bottom = min(rows, top + height)
        # Drawn in one type, so that a seed gives the same numbers in all of them.
        piece = torch.randn(bottom - top, columns, generator=generator, device=device)
        piece = piece.mul_(columns**-0.5).to(dtype)
        if dim == 1:
            weight[top:bottom] = piece[:, mine]
            continue
        first, last = max(top, mine.start), min(bottom, mine.stop)
        if first < last:
            weight[first - mine.start : last - mine.start] = piece[first - top : last - top]
    return weight


def part(size: int, degree: int, rank: int) -> slice:
    """Where part ``rank`` of ``degree`` equal parts lies.

    Raises:
        ValueError: where the size does not divide by the degree.
    """
    if size % degree:
        raise ValueError(f"{size} does not divide by the degree {degree}")
    width = size // degree
    return slice(rank * width, (rank + 1) * width)
