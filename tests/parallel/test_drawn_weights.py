"""Each rank draws its own part of one matrix, in pieces."""

import pytest
import torch

from macgpu.parallel import weights
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
