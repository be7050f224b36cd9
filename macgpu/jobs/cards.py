"""A network in a file with its card: the plain values that it takes to build it again.

The file is a checkpoint's: tensors and plain values, read with ``weights_only=True``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from macgpu import checkpoints
from macgpu.checkpoints import CheckpointError

Card = TypeVar("Card")


def save(path: Path, kind: str, model: nn.Module, card: Any) -> None:
    """Write weights and card, a dataclass of plain values, whole or not at all.

    Raises:
        CheckpointError: where it cannot be written.
    """
    checkpoints.save_model(path, model, {kind: asdict(card)})


def load(
    path: Path, kind: str, of: type[Card], build: Callable[[Card], nn.Module]
) -> tuple[nn.Module, Card]:
    """Read a file of :func:`save`: the network in evaluation mode on the CPU, and its card.

    Args:
        path: the file.
        kind: what it must hold, such as ``"classifier"``.
        of: the card's dataclass.
        build: makes the network that a card describes.

    Raises:
        CheckpointError: where it is damaged, or holds nothing of this kind; one line.
    """
    path = Path(path)
    progress = checkpoints.read(path).get("progress")
    described = progress.get(kind) if isinstance(progress, dict) else None
    if not isinstance(described, dict) or set(described) != {f.name for f in fields(of)}:
        raise CheckpointError(f"{path.name}: holds no {kind}'s card")
    card = of(**described)
    try:
        model = build(card)
    except Exception as error:
        # A card of strange values fails in as many ways as there are values.
        raise CheckpointError(f"{path.name}: its card describes no network: {error}") from None
    checkpoints.load_model(path, model)
    return model.eval(), card
