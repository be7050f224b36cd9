"""The Fréchet distance in closed form, precision and recall of known cases, the judge."""

import numpy as np
import pytest
import torch
from torch import nn

from macgpu.data import Pictures
from macgpu.jobs import gan, quality
from macgpu.jobs.augment import Normalise
from macgpu.jobs.quality import Judge, frechet, frechet_of_gaussians, precision_recall


def drawn(count, features, seed=0):
    return np.random.default_rng(seed).standard_normal((count, features))


def test_a_set_has_no_distance_from_itself():
    features = drawn(200, 8) @ drawn(8, 8, 1)
    assert frechet(features, features) == pytest.approx(0, abs=1e-9)
    assert frechet(features, features[::-1]) == pytest.approx(0, abs=1e-9)
    # Rounding may leave less than nothing; a distance has no sign.
    assert all(frechet(each, each) >= 0 for each in (drawn(60, 8, seed) for seed in range(20)))


def test_a_shift_gives_its_square():
    features, shift = drawn(300, 4), np.array([3.0, 0.0, -4.0, 0.0])
    assert frechet(features, features + shift) == pytest.approx(25)
    assert frechet(features + shift, features) == pytest.approx(25)


def test_diagonal_covariances_give_the_difference_of_the_deviations():
    zero = np.zeros(2)
    a, b = np.diag([4.0, 1.0]), np.diag([1.0, 9.0])
    assert frechet_of_gaussians(zero, a, zero, b) == pytest.approx((2 - 1) ** 2 + (1 - 3) ** 2)


def test_covariances_that_do_not_commute_are_as_the_root_of_their_product_says():
    a, b = (m @ m.T for m in (drawn(5, 5), drawn(5, 5, 1)))
    values = np.linalg.eigvals(a @ b)
    expected = np.trace(a) + np.trace(b) - 2 * np.sqrt(values.real).sum()
    zero = np.zeros(5)
    assert frechet_of_gaussians(zero, a, zero, b) == pytest.approx(expected)


def test_a_set_without_spread_has_a_distance():
    # Fewer pictures than features, and features that are always zero, as after a ReLU.
    collapsed = np.zeros((5, 8))
    features = drawn(6, 8)
    expected = (features.mean(0) ** 2).sum() + features.var(0, ddof=1).sum()
    assert frechet(collapsed, features) == pytest.approx(expected)


def test_large_sets_of_one_kind_come_near_and_others_do_not():
    one, same, other = drawn(4000, 6), drawn(4000, 6, 1), 1.5 * drawn(4000, 6, 2)
    assert frechet(one, same) < 0.05
    # Each deviation differs by a half.
    assert frechet(one, other) == pytest.approx(6 * 0.25, rel=0.1)


def test_identical_sets_are_wholly_precise_and_recalled():
    features = drawn(50, 3)
    assert precision_recall(features, features) == (1, 1)
    # Equal ones are at no distance, however far from zero, and a ball may have no radius.
    repeated = np.repeat(drawn(30, 64) + 1e4, 5, axis=0)
    assert precision_recall(repeated, repeated[::5]) == (1, 1)


def test_sets_apart_have_neither():
    assert precision_recall(drawn(50, 3), drawn(50, 3, 1) + 1000) == (0, 0)


def test_a_collapsed_set_is_precise_and_recalls_little():
    real = drawn(400, 3)
    precision, recall = precision_recall(real, real[:1] + 1e-6 * drawn(400, 3, 1))
    assert precision == 1 and recall < 0.01


def test_one_of_two_modes_is_recalled_by_half_and_noise_beside_it_costs_precision():
    left, right = drawn(100, 2), drawn(100, 2, 1) + 100
    real = np.concatenate([left, right])
    assert precision_recall(real, left) == (1, 0.5)
    assert precision_recall(left, real) == (0.5, 1)


def test_the_balls_reach_to_the_third_neighbour_and_include_it():
    real = np.array([[0.0], [1.0], [2.0], [3.0]])
    # The balls reach 3, 2, 2 and 3 far: from -3 to 6.
    made = np.array([[-3.0], [6.0], [-3.1], [6.1]])
    assert precision_recall(real, made)[0] == 0.5
    # With one neighbour they reach 1 far.
    assert precision_recall(real, np.array([[-1.0], [4.1]]), neighbours=1)[0] == 0.5


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (drawn(5, 3), drawn(5, 4), "3 and of 4 features"),
        (drawn(1, 3), drawn(5, 3), "at least 2"),
        (drawn(5, 3)[0], drawn(5, 3), "in rows"),
        (np.full((5, 3), np.nan), drawn(5, 3), "finite"),
    ],
)
def test_features_that_have_no_distance_are_refused(a, b, said):
    with pytest.raises(ValueError, match=said):
        frechet(a, b)


def test_too_few_for_neighbours_are_refused():
    with pytest.raises(ValueError, match="3 and 9 pictures: each needs more than 3"):
        precision_recall(drawn(3, 2), drawn(9, 2))


@pytest.fixture
def judge():
    torch.manual_seed(0)
    classifier = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)
    )
    return Judge.of(classifier, Normalise((0.5,), (0.3,)), some(60))


def some(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 1, 8, 8), generator=generator).to(torch.uint8)


def test_the_judge_looks_at_what_the_last_layer_takes(judge):
    assert judge.real.shape == (60, 6) and judge.real.dtype == np.float64
    assert not any(layer.training for layer in judge.model.modules())
    found = judge(some(60))
    assert found.distance == pytest.approx(0, abs=1e-9)
    assert (found.precision, found.recall) == (1, 1)


def test_the_judge_ranks_another_draw_before_one_picture_repeated(judge):
    other, single = judge(some(60, 1)), judge(some(1, 1).expand(60, -1, -1, -1))
    assert other.distance < single.distance and single.recall < other.recall


def test_features_do_not_depend_on_the_batches_they_were_computed_in(judge):
    images = some(23, 2)
    whole = quality.features(judge.model, judge.normalise, images)
    parts = quality.features(judge.model, judge.normalise, images, batch_size=5)
    assert np.allclose(whole, parts, atol=1e-5)


def test_a_run_is_judged_at_each_look_by_as_many_pictures_as_are_real(judge):
    recipe = gan.Recipe(iterations=3, width=4, latent=6, batch_size=8)
    pictures = Pictures(some(20), torch.zeros(20, dtype=torch.int64))
    done = quality.judged(recipe, pictures, judge, seed=4, looks=(1,), shown=5)
    assert [look.iterations for look in done.kept.looks] == [1, 3]
    assert done.kept.seed == 4 and list(done.kept.seconds) == done.run.seconds
    assert [made.shape for made in done.samples] == [(5, 1, 8, 8)] * 2
    made = gan.sample(done.run.generator, gan.latents(60, 6))
    assert done.kept.last == judge(made)
    assert torch.equal(done.samples[-1], made[:5])
