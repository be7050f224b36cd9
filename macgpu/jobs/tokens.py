"""Sentences as a network takes them: tokens, padding, and batches of few shapes.

A batch is one tensor, so its sentences are filled up to one length. Filling is work for nothing,
and each new length is a new shape, for which a Mac's graphs and a compiler begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import Tensor

PAD, UNKNOWN = 0, 1
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""By their numbers: filling, what the vocabulary does not cover, begin, end, and a gap to guess."""

Padding = Literal["fixed", "longest", "buckets"]
"""To the longest that is allowed; to the longest of a batch of any sentences; or to the next
multiple of :data:`WIDTH`, in batches of about equal lengths."""
PADDINGS: tuple[Padding, ...] = ("fixed", "longest", "buckets")
WIDTH = 8

Plan = list[tuple[Tensor, int]]
"""Of each batch which sentences it has, int64 (batch,), and the length they are filled up to."""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """WordPiece as BERT has it, in lower case, with a vocabulary from these texts.

    Args:
        texts: to train on; the same texts give the same tokenizer.
        vocabulary: at most so many tokens.
    """
    texts = list(texts)
    tokenizer = _word_piece({})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        # Left to itself, it numbers the letters within words in another order each time, and
        # with them all that is made of them.
        special_tokens=[*SPECIAL, *_letters_within(tokenizer, texts)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Of the special tokens of the training, only BERT's stay special.
    tokenizer = _word_piece(tokenizer.get_vocab())
    tokenizer.add_special_tokens(list(SPECIAL))
    begin, end = ((name, tokenizer.token_to_id(name)) for name in SPECIAL[2:4])
    tokenizer.post_processor = processors.BertProcessing(end, begin)
    return tokenizer


def _word_piece(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _letters_within(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """The letters that do not begin a word, as WordPiece writes them: ``##a``."""
    found: set[str] = set()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text)
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            found.update(word[1:])
    return [f"##{letter}" for letter in sorted(found)]


@dataclass(frozen=True)
class Sentences:
    """Sentences in tokens, with their labels.

    Attributes:
        ids: int64 (N, longest), filled up with :data:`PAD`; on any device.
        lengths: int64 (N,), on the CPU: to plan a batch, nobody waits for the device.
        labels: int64 (N,), where the ids are.
        cut: how many sentences were longer.
    """

    ids: Tensor
    lengths: Tensor
    labels: Tensor
    cut: int

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def longest(self) -> int:
        return self.ids.shape[1]

    def to(self, device: torch.device) -> Sentences:
        return Sentences(self.ids.to(device), self.lengths, self.labels.to(device), self.cut)

    def first(self, count: int) -> Sentences:
        return Sentences(self.ids[:count], self.lengths[:count], self.labels[:count], self.cut)


def encode(tokenizer: Tokenizer, texts: Sequence[str], labels: Tensor, longest: int) -> Sentences:
    """Sentences in tokens, begin and end included; of a longer one, the end of the text is cut.

    Args:
        tokenizer: with the numbers of :data:`SPECIAL`.
        texts: N of them.
        labels: (N,).
        longest: tokens of a sentence, 3 and more.
    """
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    cut = [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]
    ids = torch.full((len(rows), longest), PAD)
    for number, row in enumerate(cut):
        ids[number, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in cut])
    return Sentences(ids, lengths, labels, sum(len(row) > longest for row in rows))


def plan_batches(
    lengths: Tensor,
    batch_size: int,
    padding: Padding,
    longest: int,
    generator: torch.Generator | None = None,
) -> Plan:
    """Put sentences into batches, and say how long each batch is.

    Args:
        lengths: int64 (N,), each at most ``longest``.
        batch_size: of all batches but the last; with buckets, any batch may be the smaller one.
        padding: see :data:`Padding`.
        longest: a sentence may be.
        generator: draws the order; without one, it is that of the sentences, and with buckets
            from short to long.
    """
    order = torch.arange(len(lengths))
    if generator is not None:
        order = torch.randperm(len(lengths), generator=generator)
    if padding == "buckets":
        return _buckets(order, lengths, batch_size, longest, generator)
    parts = order.split(batch_size)
    if padding == "fixed":
        return [(part, longest) for part in parts]
    return [(part, int(lengths[part].max())) for part in parts]


def _buckets(
    order: Tensor,
    lengths: Tensor,
    batch_size: int,
    longest: int,
    generator: torch.Generator | None,
) -> Plan:
    """Full batches of one length each; what is left of a length joins the next longer one."""
    rounded = (-(-lengths // WIDTH) * WIDTH).clamp_max(longest)[order]
    plan, left = [], order[:0]
    for width in rounded.unique().tolist():
        here = torch.cat([left, order[rounded == width]])
        full = len(here) - len(here) % batch_size
        plan += [(part, width) for part in here[:full].split(batch_size) if len(part)]
        left = here[full:]
    plan += [(left, width)] if len(left) else []
    if generator is not None:
        plan = [plan[i] for i in torch.randperm(len(plan), generator=generator)]
    return plan


def waste(plan: Plan, lengths: Tensor) -> float:
    """The share of a plan's places that are filled up and mean nothing, 0 to 1."""
    places = sum(len(part) * width for part, width in plan)
    return 1 - sum(int(lengths[part].sum()) for part, _ in plan) / places


def shapes(plan: Plan) -> set[tuple[int, int]]:
    """The shapes (batch, length) that the network gets to see."""
    return {(len(part), width) for part, width in plan}


class SentenceBatches:
    """Batches of sentences that lie on the device: one gather a batch, nothing is copied in a pass.

    Iterating yields int64 ids (batch, length) and int64 labels (batch,). With a seed, each pass
    has a new order, the same on every device; without, see :func:`plan_batches`.
    """

    def __init__(
        self, sentences: Sentences, batch_size: int, padding: Padding, seed: int | None = None
    ) -> None:
        self.sentences = sentences
        self.batch_size = batch_size
        self.padding = padding
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.sentences) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        sentences = self.sentences
        plan = plan_batches(
            sentences.lengths, self.batch_size, self.padding, sentences.longest, self.generator
        )
        order = torch.cat([part for part, _ in plan]).to(sentences.ids.device)
        parts = order.split([len(part) for part, _ in plan])
        for part, (_, width) in zip(parts, plan, strict=True):
            ids = sentences.ids[:, :width].index_select(0, part)
            yield ids, sentences.labels.index_select(0, part)
