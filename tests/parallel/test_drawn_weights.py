"""Each rank draws its own part of one matrix, in pieces."""

import itertools

import pytest
import torch

from macgpu.parallel import weights
from macgpu.parallel.blocks import MLP, Attention
from macgpu.parallel.layers import Split
from macgpu.parallel.model import Shape, build
from macgpu.parallel.weights import draw, part


@pytest.mark.parametrize("degree", [2, 3, 4])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("piece", [1, 50, 1 << 22])
def test_the_parts_make_up_the_whole_at_any_degree(monkeypatch, dim, degree, piece):
    # Pieces of one row, of some rows that end within a part, and of all rows.
    monkeypatch.setattr(weights, "PIECE", piece)
    whole = draw((24, 12), dim, seed=5)
    parts = [draw((24, 12), dim, degree, rank, seed=5) for rank in range(degree)]
    assert parts[0].shape[dim] == (24, 12)[dim] // degree
    assert torch.equal(torch.cat(parts, dim), whole)


def test_another_seed_is_another_matrix_and_the_deviation_is_as_stated():
    one, other = (draw((400, 100), 0, seed=seed) for seed in (1, 2))
    assert not torch.equal(one, other)
    assert float(one.std()) == pytest.approx(0.1, rel=0.02)


def test_a_seed_gives_the_same_numbers_in_every_type():
    assert torch.equal(draw((8, 8), 0).double(), draw((8, 8), 0, dtype=torch.float64))


def test_no_rank_holds_more_than_its_part_and_a_piece(monkeypatch):
    monkeypatch.setattr(weights, "PIECE", 64)
    made = []
    drawn = torch.randn

    def watched(*shape, **options):
        made.append(shape[0] * shape[1])
        return drawn(*shape, **options)

    monkeypatch.setattr(torch, "randn", watched)
    kept = draw((64, 16), 0, 4, 1)
    assert kept.numel() == 64 * 16 / 4
    assert kept.untyped_storage().nbytes() == kept.numel() * 4
    assert max(made) <= 64


def test_a_side_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="30 does not divide by the degree 4"):
        part(30, 4, 0)


def test_every_weight_of_a_model_has_a_stream_of_its_own():
    _unlike(build(Shape(width=32), dtype=torch.float32).named_parameters())


@pytest.mark.parametrize("seed", [0, 1])
def test_every_weight_of_a_block_has_a_stream_of_its_own(seed):
    mlp, attention = MLP(64, True, seed=seed), Attention(64, 8, 16, True, seed=seed)
    for block in (mlp, attention):
        _unlike(block.named_parameters())
    pieces = {
        f"{name}{i}": one
        for name in ("inner", "inner_bias")
        for i, one in enumerate(getattr(attention, name).chunk(3))
    }
    _unlike(pieces.items())
    # The same layer further on in a model is another one.
    further = MLP(64, True, seed=seed + 1)
    _unlike({"inner": mlp.inner, "further": further.inner}.items())


def test_the_ranks_blocks_make_up_the_whole_one():
    def made(kind, split):
        return kind(64, True, split) if kind is MLP else kind(64, 8, 16, True, split)

    for kind, pieces in ((MLP, 1), (Attention, 3)):
        whole = made(kind, Split())
        parts = [made(kind, Split(None, 4, rank)) for rank in range(4)]
        for name in ("inner", "inner_bias"):
            # Query, key and value are split each by itself.
            by_piece = zip(*(getattr(one, name).chunk(pieces) for one in parts), strict=True)
            joined = torch.cat([torch.cat(piece) for piece in by_piece])
            assert torch.equal(joined, getattr(whole, name))
        assert torch.equal(torch.cat([one.outer for one in parts], 1), whole.outer)
        assert all(torch.equal(one.outer_bias, whole.outer_bias) for one in parts)


def test_weights_of_norms_are_spread_around_one():
    # Weights of one would hide a norm that is left out, or whose weight another rank's is.
    drawn = {name: one for name, one in build(Shape(width=256)).named_parameters() if one.ndim == 1}
    assert len([name for name in drawn if "norm" in name]) == 2 * (2 * 2 + 1)
    for one in drawn.values():
        assert float(one.detach().mean()) == pytest.approx(1, abs=0.05)
        assert float(one.detach().std()) == pytest.approx(0.1, abs=0.03)


def _unlike(named) -> None:
    """No two of the weights begin with the same numbers, up to their mean and deviation."""
    streams = {}
    for name, weight in named:
        start = weight.detach().flatten()[:32]
        streams[name] = (start - start.mean()) / start.std()
    assert len(streams) > 1
    for (name, one), (other, two) in itertools.combinations(streams.items(), 2):
        assert not torch.allclose(one, two, atol=1e-3), (name, other)
