"""The sizes of what is split (plain numbers, no torch)."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_WIDTH, LEAST_HEADS = 128, 8


def heads_of(width: int) -> int:
    """The heads of a hand-written attention block."""
    return max(LEAST_HEADS, width // HEAD_WIDTH)


def block_split(width: int, tokens: int) -> dict[str, int]:
    """What is divided among the ranks of the hand-written blocks."""
    return {"width": width, "heads": heads_of(width), "tokens": tokens}


@dataclass(frozen=True)
class Shape:
    """The language model's sizes, and those of a batch."""

    vocabulary: int = 64
    width: int = 32
    heads: int = 4
    layers: int = 2
    sequence: int = 16
    batch: int = 4

    @property
    def split(self) -> dict[str, int]:
        """What is divided among the ranks."""
        return {
            "width": self.width,
            "heads": self.heads,
            "vocabulary": self.vocabulary,
            "tokens": self.batch * self.sequence,
        }
