"""transformers' BERT as a classifier of sentences: from its configuration, or pretrained."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from macgpu.data import DataError
from macgpu.jobs.tokens import PAD, SPECIAL
from macgpu.models import Case

SIZES = {
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
    },
    "base": {},
}
"""BERT-base is what a configuration is without a change. BERT-tiny is of Turc et al., 2019."""


def configuration(size: str) -> BertConfig:
    """Of one of :data:`SIZES`; in all of them the embedding has room for 30,522 tokens."""
    return BertConfig(**SIZES[size])


class Bert(nn.Module):
    """Token ids (N, length), filled up with :data:`PAD`, to logits (N, classes)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        # Attention as one operation of torch's, which takes the mask below.
        config._attn_implementation = "sdpa"
        self.inner = BertForSequenceClassification(config)

    def forward(self, ids: Tensor) -> Tensor:
        # Of this shape, (N, 1, 1, length), the mask is used as it is. Given (N, length),
        # transformers looks whether it masks anything, and waits for the device in every step.
        mask = (ids != PAD)[:, None, None, :]
        return self.inner(input_ids=ids, attention_mask=mask).logits


def case(size: str, length: int) -> Case:
    """Training on full sentences of one length, as a case to plan and to measure."""

    def ids(count: int, generator: torch.Generator) -> Tensor:
        vocabulary = configuration(size).vocab_size
        return torch.randint(len(SPECIAL), vocabulary, (count, length), generator=generator)

    return Case(f"bert-{size}-{length}", lambda: Bert(configuration(size)), ids, 2, batches={})


def pretrained_tokenizer(name: str) -> Tokenizer:
    """The tokenizer that came with pretrained weights: a folder, or a name on the Hugging Face hub.

    Raises:
        DataError: where it cannot be had, or numbers its special tokens otherwise.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name).backend_tokenizer
    except (OSError, ValueError) as error:
        raise _no_weights(name, error) from None
    if tokenizer.token_to_id(SPECIAL[PAD]) != PAD:
        raise DataError(f"{name}: {SPECIAL[PAD]} is not token {PAD}, so it is none of BERT's")
    return tokenizer


def pretrained(name: str) -> Bert:
    """BERT with pretrained weights under a new, untrained head for two classes.

    Only safetensors are read, which hold no code.

    Raises:
        DataError: where they cannot be had.
    """
    try:
        inner = BertForSequenceClassification.from_pretrained(
            name, use_safetensors=True, num_labels=2
        )
    except (OSError, ValueError) as error:
        raise _no_weights(name, error) from None
    model = Bert(inner.config)
    model.inner.load_state_dict(inner.state_dict())
    return model


def _no_weights(name: str, error: Exception) -> DataError:
    return DataError(f"no pretrained BERT {name!r}: {str(error).splitlines()[0]}")
