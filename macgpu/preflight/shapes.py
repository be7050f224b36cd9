"""Watches for shapes that keep changing: MPS compiles and keeps a graph for each."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from macgpu.preflight.ledger import Ledger


class Shapes:
    """The shapes that each line of the user's code has met."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._seen: dict[tuple, set[tuple]] = {}

    def see(self, operation: str, tensors: Iterable[Tensor]) -> None:
        """Note the line if this operation has not met these shapes there before."""
        place = self.ledger.place()
        if place is None:
            return
        seen = self._seen.setdefault((place, operation), set())
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        if shapes not in seen:
            seen.add(shapes)
            self.ledger.note("changing-shapes", operation, place)
