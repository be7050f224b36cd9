"""A trained judge of sentences as one file that can be given away, and what it says of a sentence.

The file is of safetensors: weights, and beside them text: the network's configuration, the
tokenizer and the card. Reading it runs no code.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertConfig

from macgpu.checkpoints import CheckpointError, replacing
from macgpu.data import DataError
from macgpu.jobs.bert import Bert
from macgpu.jobs.text import EVALUATED
from macgpu.jobs.tokens import UNKNOWN, SentenceBatches, encode
from macgpu.train import predict
from macgpu.words import counted


@dataclass(frozen=True)
class Card:
    """What must be known of a judge to use it, and what should be.

    Attributes:
        classes: their names, in the order of the logits.
        longest: tokens of a sentence; what is longer is cut.
        about: what it was trained on, how well it did, and what it is not for.
    """

    classes: list[str]
    longest: int
    about: str


@dataclass(frozen=True)
class Judgement:
    """What a judge says of one sentence.

    Attributes:
        shares: each class with its probability, largest first.
        tokens: of the sentence, without its begin and end.
        cut: how many of them the judge did not see.
        unknown: how many of those it saw its vocabulary does not cover.
    """

    shares: dict[str, float]
    tokens: int
    cut: int
    unknown: int

    @property
    def notes(self) -> list[str]:
        """What the reader should know before believing it, a line each."""
        found = []
        if self.cut:
            found.append(f"longer than it takes: the last {self.cut} of {self.tokens} tokens cut")
        if self.unknown:
            found.append(f"{counted(self.unknown, 'token')} unknown to it")
        return found

    def __str__(self) -> str:
        lines = [f"{name}: {share:.1%}" for name, share in self.shares.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass
class Judge:
    """A network with its tokenizer and card."""

    model: Bert
    tokenizer: Tokenizer
    card: Card

    def logits(self, texts: list[str]) -> Tensor:
        """Of N sentences, float32 (N, classes), on the CPU."""
        unlabelled = torch.zeros(len(texts), dtype=torch.int64)
        sentences = encode(self.tokenizer, texts, unlabelled, self.card.longest)
        device = next(self.model.parameters()).device
        batches = SentenceBatches(sentences.to(device), EVALUATED, "longest")
        return predict(self.model, batches)[0]

    def judge(self, text: str) -> Judgement:
        """
        Raises:
            DataError: for what is no text, or text without a word; one line.
        """
        if not isinstance(text, str):
            raise DataError(f"a sentence is text, and this is {type(text).__name__}: {text!r:.40}")
        if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise DataError("the sentence holds bytes that are no text in UTF-8")
        ids = self.tokenizer.encode(text).ids[1:-1]
        if not ids:
            raise DataError("an empty sentence: there is nothing to judge")
        seen = ids[: self.card.longest - 2]
        shares = self.logits([text])[0].softmax(0).tolist()
        named = sorted(zip(self.card.classes, shares, strict=True), key=lambda pair: -pair[1])
        return Judgement(dict(named), len(ids), len(ids) - len(seen), seen.count(UNKNOWN))


def save(path: Path, judge: Judge) -> None:
    """Write weights, configuration, tokenizer and card into one file, whole or not at all.

    Raises:
        CheckpointError: where it cannot be written.
    """
    path = Path(path)
    weights = {
        name: value.cpu().contiguous() for name, value in judge.model.inner.state_dict().items()
    }
    described = {
        "card": json.dumps(asdict(judge.card)),
        "config": judge.model.inner.config.to_json_string(use_diff=False),
        "tokenizer": judge.tokenizer.to_str(),
    }
    try:
        with replacing(path) as file:
            file.write(packed(weights, described))
    except OSError as error:
        raise CheckpointError(f"{path.name}: cannot be written: {error.strerror}") from None


def load(path: Path, device: torch.device = torch.device("cpu")) -> Judge:  # noqa: B008
    """Read a file of :func:`save`; any device's, onto this one.

    Raises:
        CheckpointError: where it is damaged, or holds no judge; one line.
    """
    path = Path(path)
    try:
        with safe_open(path, "pt") as file:
            described = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        why = error.strerror or "no such file"
        raise CheckpointError(f"{path.name}: cannot be read: {why}") from None
    except SafetensorError:
        raise CheckpointError(f"{path.name}: damaged, or no file of safetensors") from None
    try:
        card = json.loads(described["card"])
        if set(card) != {field.name for field in fields(Card)}:
            raise KeyError("card")
        tokenizer = Tokenizer.from_str(described["tokenizer"])
        model = Bert(BertConfig.from_dict(json.loads(described["config"])))
    except Exception as error:
        # What is missing or strange in such text fails in many ways.
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{path.name}: holds no judge of sentences: {why}") from None
    try:
        model.inner.load_state_dict(weights)
    except RuntimeError:
        raise CheckpointError(f"{path.name}: its weights are of another model") from None
    return Judge(model.to(device).eval(), tokenizer, Card(**card))
