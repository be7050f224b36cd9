"""A small language model, whole or split by PyTorch's engine, its weights drawn rank by rank."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from macgpu.parallel.plan import PlainAttention, PlainMLP
from macgpu.parallel.shape import Shape
from macgpu.parallel.weights import draw


class Layer(nn.Module):
    """A transformer block: norm, attention, norm, MLP, each pair added to its input."""

    def __init__(self, shape: Shape):
        super().__init__()
        width = shape.width
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = PlainAttention(width, width // shape.heads, shape.sequence, bias=True)
        self.mlp = PlainMLP(width, 4 * width, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class LanguageModel(nn.Module):
    """Token numbers (tokens,) to logits (tokens, vocabulary)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build(
    shape: Shape,
    mesh: DeviceMesh | None = None,
    sequence: bool = True,
    dtype: torch.dtype = torch.float64,
) -> LanguageModel:
    """The model with seeded weights, whole or split over a mesh; a rank draws only its part.

    Args:
        sequence: between the blocks, each rank holds a part of the tokens.
    """
    with torch.device("meta"):
        model = LanguageModel(shape)
    if mesh is not None:
        split(model, mesh, sequence)
    fill(model, dtype)
    return model


def split(model: LanguageModel, mesh: DeviceMesh, sequence: bool = True) -> None:
    """Split the model over the mesh, by the engine's plan."""
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(
                input_layouts=Replicate(), output_layouts=Shard(0) if sequence else Replicate()
            ),
            # The logits stay split; loss_parallel takes them so.
            "head": ColwiseParallel(
                input_layouts=Shard(0) if sequence else Replicate(),
                output_layouts=Shard(-1),
                use_local_output=False,
            ),
        },
    )
    if sequence:
        parallelize_module(model.norm, mesh, SequenceParallel(sequence_dim=0))
    for layer in model.layers:
        split_layer(layer, mesh, sequence)


def split_layer(layer: Layer, mesh: DeviceMesh, sequence: bool = True) -> None:
    """Split one transformer block: two all-reduces forward, or as many all-gathers and
    reduce-scatters under ``sequence``."""
    tokens = Shard(0) if sequence else Replicate()
    gathered = PrepareModuleInput(input_layouts=tokens, desired_input_layouts=Replicate())
    plan = {"attention": gathered, "mlp": gathered}
    for name in ("attention.query", "attention.key", "attention.value", "mlp.inner"):
        plan[name] = ColwiseParallel()
    for name in ("attention.outer", "mlp.outer"):
        plan[name] = RowwiseParallel(output_layouts=tokens)
    if sequence:
        norm = SequenceParallel(sequence_dim=0)
        plan |= {"attention_norm": norm, "mlp_norm": norm}
    parallelize_module(layer, mesh, plan)


def fill(model: nn.Module, dtype: torch.dtype) -> None:
    """Draw the weights of a model on the meta device; those of one seed at any degree."""
    for number, (name, empty) in enumerate(list(model.named_parameters())):
        owner, _, leaf = name.rpartition(".")
        weight = _drawn(empty, number, dtype)
        setattr(model.get_submodule(owner), leaf, nn.Parameter(weight))


def _drawn(empty: torch.Tensor, seed: int, dtype: torch.dtype) -> torch.Tensor:
    # A vector is drawn as a column, so that it splits the same way.
    rows, columns = empty.shape if empty.ndim == 2 else (empty.shape[0], 1)
    dim, degree, rank = 0, 1, 0
    placement = empty.placements[0] if isinstance(empty, DTensor) else Replicate()
    if placement.is_shard():
        dim, degree, rank = placement.dim, empty.device_mesh.size(), empty.device_mesh.get_rank()
    part = draw((rows, columns), dim, degree, rank, seed, dtype=dtype)
    part = part if empty.ndim == 2 else 1 + 0.1 * part[:, 0]
    if not isinstance(empty, DTensor):
        return part
    return DTensor.from_local(part, empty.device_mesh, empty.placements, run_check=False)


def batch(shape: Shape, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and their successors (tokens,) of one step: counting, by ones, twos or threes."""
    generator = torch.Generator().manual_seed(step)
    start = torch.randint(shape.vocabulary, (shape.batch, 1), generator=generator)
    stride = torch.randint(1, 4, (shape.batch, 1), generator=generator)
    counted = (start + stride * torch.arange(shape.sequence + 1)) % shape.vocabulary
    return counted[:, :-1].flatten(), counted[:, 1:].flatten()


def loss_of(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy; of split logits without ever gathering them.

    ``backward`` must be called within :func:`splitting`.
    """
    return F.cross_entropy(model(tokens), targets)


def splitting(mesh: DeviceMesh | None):
    """The context in which the loss of split logits is computed and differentiated."""
    return nullcontext() if mesh is None else loss_parallel()
