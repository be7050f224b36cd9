"""The sentences that chapter 16 trains on: of film reviews, rated by people, labelled by sign.

Hutto and Gilbert, 2014; the sentences come from Pang and Lee's reviews. See
``data/movie-snippets/README.md``.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from macgpu.data import SNIPPETS, shipped

CLASSES = ("negative", "positive")
CLEAR = 0.5
"""A mean rating nearer to zero than this is no label."""
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Snippets:
    """Sentences with their labels.

    Attributes:
        texts: the sentences.
        labels: int64 (N,), the place in :data:`CLASSES`.
    """

    texts: list[str]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, count: int) -> Snippets:
        """The first so many: a fair sample, since the order is that of a hash."""
        return Snippets(self.texts[:count], self.labels[:count])


def rated() -> list[tuple[float, str]]:
    """All sentences as shipped, each after its mean rating, -4 to 4.

    Raises:
        DataError: where the file is missing or differs from the one that was shipped.
    """
    lines = gzip.decompress(shipped(SNIPPETS)).decode("utf-8").split("\r\n")
    rows = (line.split("\t") for line in lines)
    return [(float(rating), text) for _, rating, text in rows]


def load() -> tuple[Snippets, Snippets]:
    """The sentences with a clear rating: those to train on, and those to test on.

    A hash of its words decides a sentence's side and place, so that sentences of the same words
    are on one side, and nothing has to be drawn.

    Raises:
        DataError: as :func:`rated`.
    """
    clear = [(rating, text) for rating, text in rated() if abs(rating) >= CLEAR]
    clear.sort(key=lambda pair: _place(pair[1]))
    tested = sum(_place(text) < TEST_SHARE for _, text in clear)
    return _snippets(clear[tested:]), _snippets(clear[:tested])


def words(text: str) -> list[str]:
    """Its words in lower case, without punctuation."""
    return re.findall(r"\w+", text.lower())


def _place(text: str) -> float:
    """From 0 to 1, as good as drawn, and the same for the same words."""
    digest = hashlib.sha256(" ".join(words(text)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _snippets(pairs: list[tuple[float, str]]) -> Snippets:
    labels = torch.tensor([int(rating > 0) for rating, _ in pairs])
    return Snippets([text for _, text in pairs], labels)
