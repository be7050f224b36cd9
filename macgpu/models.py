"""The models that the book measures, each as a case: model, batch and loss, the same everywhere.

Weights and batches come from a seed and are drawn on the CPU, so that every device starts from the
same numbers. Nothing is downloaded. Dropout is off in all of them: then every device and every
option computes the same loss, and can be checked against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Case:
    """One thing to measure: a classifier, a batch for it, and its loss.

    Attributes:
        name: what records and charts call it.
        make: builds the model, its weights drawn from torch's generator.
        make_inputs: of a batch size and a generator, the inputs (batch, …) on the CPU.
        classes: labels are drawn from 0 to ``classes - 1``; the model gives (batch, classes).
        batches: the batch size of each profile.
        convolutional: whether a channels-last layout changes anything.
    """

    name: str
    make: Callable[[], nn.Module]
    make_inputs: Callable[[int, torch.Generator], Tensor]
    classes: int
    batches: dict[str, int]
    convolutional: bool = False

    def build(self, seed: int = 0) -> nn.Module:
        """The model on the CPU, in training mode; torch's generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make().train()

    def batch(self, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Inputs (size, …) and int64 labels (size,) on the CPU.

        Raises:
            ValueError: for a size under 1, whose mean loss would be no number.
        """
        if size < 1:
            raise ValueError(f"a batch of {size} samples: it must have at least 1")
        generator = torch.Generator().manual_seed(seed)
        inputs = self.make_inputs(size, generator)
        return inputs, torch.randint(self.classes, (size,), generator=generator)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over the batch, computed in float32 at least."""
        return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), labels)


class PackedAttention(nn.Module):
    """Self-attention without a mask: one matrix product for queries, keys and values.

    A drop-in for the attention of torchvision's ViT and of transformers' BERT with the same
    numbers: three products become one, and the fused kernel gets no mask to read. Sequences of
    a batch must have the same length. Inputs and outputs are (batch, length, width).
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, heads: int, out: nn.Module | None = None
    ) -> None:
        """``weight`` is (3 · width, width) and ``bias`` (3 · width,): q, k, v below another."""
        super().__init__()
        self.heads = heads
        self.weight, self.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        self.out = nn.Identity() if out is None else out

    def forward(self, inputs: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        batch, length, width = inputs.shape
        packed = F.linear(inputs, self.weight, self.bias)
        q, k, v = packed.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width)), None


def mlp() -> nn.Module:
    """Images (N, 1, 28, 28), one hidden layer of 1,024: the second article's first model."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))


def cnn() -> nn.Module:
    """Images (N, 3, 32, 32), 3 convolutions and 2 linear layers: the article's second."""
    return nn.Sequential(
        *_convolution(3, 32),
        *_convolution(32, 64),
        *_convolution(64, 128),
        nn.Flatten(),
        nn.Linear(128 * 4 * 4, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)


class Encoder(nn.Module):
    """Tokens (N, 128), 6 encoder layers of width 512: the article's third model.

    The article gives the number of layers alone; width, heads and the inner width of 2,048 are
    those of the original transformer (Vaswani et al., 2017).
    """

    def __init__(self, vocabulary: int = 10_000, length: int = 128, width: int = 512) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 8, 2048, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.tokens(tokens) + self.positions).mean(1))


def resnet18() -> nn.Module:
    """torchvision's, for images (N, 3, 224, 224)."""
    from torchvision.models import resnet18

    return resnet18()


def resnet50() -> nn.Module:
    """torchvision's, for images (N, 3, 224, 224)."""
    from torchvision.models import resnet50

    return resnet50()


def vit_b_16() -> nn.Module:
    """torchvision's ViT-B/16, for images (N, 3, 224, 224), with packed attention."""
    from torchvision.models import vit_b_16

    model = vit_b_16()
    # torchvision starts the head at zero; then no gradient reaches the rest in the first step.
    nn.init.normal_(model.heads.head.weight, std=0.02)
    return pack_vit(model)


def pack_vit(model: nn.Module) -> nn.Module:
    """Swap the attention of torchvision's VisionTransformer for :class:`PackedAttention`."""
    for block in model.encoder.layers:
        old = block.self_attention
        block.self_attention = PackedAttention(
            old.in_proj_weight, old.in_proj_bias, old.num_heads, old.out_proj
        )
    return model


class BertClassifier(nn.Module):
    """transformers' BERT-base from its configuration, for tokens (N, length); gives logits.

    Dropout is off. ``packed`` swaps each layer's self-attention for :class:`PackedAttention`.
    """

    def __init__(self, packed: bool = True) -> None:
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.inner = BertForSequenceClassification(config)
        if packed:
            pack_bert(self.inner)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(input_ids=tokens).logits


def pack_bert(model: nn.Module) -> nn.Module:
    """The same for transformers' BERT with a head."""
    for layer in model.bert.encoder.layer:
        old = layer.attention.self
        parts = (old.query, old.key, old.value)
        layer.attention.self = PackedAttention(
            torch.cat([part.weight for part in parts]),
            torch.cat([part.bias for part in parts]),
            old.num_attention_heads,
        )
    return model


BLOCKS = ("BasicBlock", "Bottleneck", "EncoderBlock", "BertLayer", "TransformerEncoderLayer")
"""The classes whose instances, one after another, make up the models of this module."""


def checkpointed(model: nn.Module) -> nn.Module:
    """The same model, changed: each of its :data:`BLOCKS` keeps its input alone for backward.

    The block runs forward a second time when backward comes to it (activation checkpointing).
    A batch norm inside of it updates its running statistics both times.

    Raises:
        ValueError: for a model without such blocks.
    """
    blocks = [module for module in model.modules() if type(module).__name__ in BLOCKS]
    if not blocks:
        raise ValueError(f"no block to checkpoint: none of {', '.join(BLOCKS)}")
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def _images(channels: int, side: int) -> Callable[[int, torch.Generator], Tensor]:
    return lambda size, generator: torch.randn(size, channels, side, side, generator=generator)


def _tokens(vocabulary: int, length: int) -> Callable[[int, torch.Generator], Tensor]:
    return lambda size, generator: torch.randint(vocabulary, (size, length), generator=generator)


def _batches(smoke: int, quick: int, full: int) -> dict[str, int]:
    return {"smoke": smoke, "quick": quick, "full": full}


_BERT = Case("bert-128", BertClassifier, _tokens(30_522, 128), 2, _batches(1, 4, 64))

CASES = {
    case.name: case
    for case in (
        Case("mlp", mlp, _images(1, 28), 10, _batches(16, 128, 512)),
        Case("cnn", cnn, _images(3, 32), 10, _batches(4, 64, 512), convolutional=True),
        Case("encoder", Encoder, _tokens(10_000, 128), 10, _batches(1, 8, 64)),
        Case("resnet18", resnet18, _images(3, 224), 1000, _batches(2, 8, 256), True),
        Case("resnet50", resnet50, _images(3, 224), 1000, _batches(2, 4, 256), True),
        Case("vit-b-16", vit_b_16, _images(3, 224), 1000, _batches(1, 4, 128), True),
        _BERT,
        replace(
            _BERT,
            name="bert-512",
            make_inputs=_tokens(30_522, 512),
            batches=_batches(1, 1, 32),
        ),
    )
}
"""By name: the second article's three, then those of the comparison with NVIDIA."""

ARTICLE = ("mlp", "cnn", "encoder")
NVIDIA = ("resnet18", "resnet50", "vit-b-16", "bert-128", "bert-512")
