"""How near generated pictures come to real ones, as numbers, on the features of a classifier.

The Fréchet distance (Heusel et al., 2017) takes both sets of features for Gaussians. Precision and
recall (Kynkäänniemi et al., 2019) tell apart what it mixes: whether what is made looks real, and
whether all that is real is made. None of the three can be compared with a figure that was made
with another network or another number of pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from macgpu.data import Pictures
from macgpu.jobs import gan
from macgpu.jobs.augment import Normalise
from macgpu.measure.generation import Look, MadeBy, Quality
from macgpu.measure.steps import Options

NEIGHBOURS = 3
"""That a feature's ball reaches to, as the paper recommends."""


def frechet(a: np.ndarray, b: np.ndarray) -> float:
    """The squared Fréchet distance between Gaussians with the moments of two sets of features.

    Args:
        a, b: (N, features) and (M, features); computed in float64.

    Raises:
        ValueError: where a set has fewer than two rows, the sets have not the same features, or a
            number is not finite.
    """
    a, b = _features(a), _features(b)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"sets of {a.shape[1]} and of {b.shape[1]} features cannot be compared")
    if min(len(a), len(b)) < 2:
        raise ValueError(f"sets of {len(a)} and {len(b)} pictures: each needs at least 2")
    moments = [(each.mean(0), np.atleast_2d(np.cov(each, rowvar=False))) for each in (a, b)]
    return frechet_of_gaussians(*moments[0], *moments[1])


def frechet_of_gaussians(
    mean_a: np.ndarray, covariance_a: np.ndarray, mean_b: np.ndarray, covariance_b: np.ndarray
) -> float:
    """``|a - b|² + tr(A + B - 2 (AB)^½)`` of means (D,) and covariances (D, D); never negative."""
    values, vectors = np.linalg.eigh(covariance_a)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    # AB has the eigenvalues of A^½ B A^½, which is symmetric: no root of a complex matrix.
    product = np.linalg.eigvalsh(root @ covariance_b @ root).clip(0)
    shift = ((mean_a - mean_b) ** 2).sum()
    spread = np.trace(covariance_a) + np.trace(covariance_b) - 2 * np.sqrt(product).sum()
    return max(0.0, float(shift + spread))


def precision_recall(
    real: np.ndarray, made: np.ndarray, neighbours: int = NEIGHBOURS
) -> tuple[float, float]:
    """Precision and recall of made features (M, D) beside real ones (N, D), each 0 to 1.

    Around each feature of a set is a ball that reaches to its k-th nearest neighbour in the set.
    Precision is the share of made features within a ball of a real one; recall the other way round.

    Raises:
        ValueError: where a set has no k neighbours, or a number is not finite.
    """
    real, made = _features(real), _features(made)
    if min(len(real), len(made)) <= neighbours:
        raise ValueError(
            f"sets of {len(real)} and {len(made)} pictures: each needs more than {neighbours}"
        )
    return _covered(real, made, neighbours), _covered(made, real, neighbours)


def _covered(centres: np.ndarray, others: np.ndarray, neighbours: int) -> float:
    """The share of the others within the ball of a centre."""
    centres, others = torch.from_numpy(centres), torch.from_numpy(others)
    # A feature is its own nearest.
    nearest = _distances(centres, centres).topk(neighbours + 1, largest=False).values
    inside = _distances(others, centres) <= nearest[:, -1]
    return inside.any(1).double().mean().item()


def _distances(a: Tensor, b: Tensor) -> Tensor:
    # By differences: the faster way, by a product, gives equal features a distance above zero.
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _features(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(f"features must be finite numbers in rows, not of shape {values.shape}")
    return values


@dataclass(frozen=True)
class Judge:
    """Compares pictures with real ones that no network was trained on.

    Attributes:
        model: from scaled pictures (N, channels, side, side) to features (N, D).
        normalise: what pictures go through before it.
        real: features (N, D) of the real pictures.
    """

    model: nn.Module
    normalise: Normalise
    real: np.ndarray

    @classmethod
    def of(cls, classifier: nn.Sequential, normalise: Normalise, images: Tensor) -> Judge:
        """With what the last layer of a classifier takes, and these pictures as the real ones."""
        model = classifier[:-1].eval()
        return cls(model, normalise, features(model, normalise, images))

    def __call__(self, images: Tensor) -> Quality:
        """Of uint8 pictures (N, channels, side, side).

        Raises:
            ValueError: for too few of them.
        """
        made = features(self.model, self.normalise, images)
        precision, recall = precision_recall(self.real, made)
        return Quality(frechet(self.real, made), precision, recall)


@torch.no_grad()
def features(
    model: nn.Module, normalise: Normalise, images: Tensor, batch_size: int = 500
) -> np.ndarray:
    """Of uint8 pictures (N, channels, side, side), float64 (N, D). In the model's mode."""
    device = next(model.parameters()).device
    parts = [model(normalise(part.to(device))) for part in images.split(batch_size)]
    return torch.cat(parts).cpu().double().numpy()


@dataclass(frozen=True)
class Judged:
    """A training run that was judged at each look.

    Attributes:
        run: as :func:`macgpu.jobs.gan.run` gives it.
        kept: what a record keeps of it.
        samples: at each look the first pictures of the latent numbers, always of the same ones.
    """

    run: gan.Run
    kept: MadeBy
    samples: list[Tensor]


def judged(
    recipe: gan.Recipe,
    pictures: Pictures,
    judge: Judge,
    seed: int = 0,
    options: Options = Options(),  # noqa: B008  (frozen)
    looks: Sequence[int] = (),
    shown: int = 10,
) -> Judged:
    """Train a generator and judge it at each look, with as many pictures as there are real ones.

    Args:
        recipe, pictures, seed, options, looks: as :func:`macgpu.jobs.gan.run` takes them.
        judge: of the pictures.
        shown: pictures that are kept at each look.

    Raises:
        ValueError: as :func:`macgpu.jobs.gan.run` does.
    """
    numbers = gan.latents(len(judge.real), recipe.latent)
    found: list[Look] = []
    samples: list[Tensor] = []

    def look(iterations: int, model: nn.Module) -> None:
        made = gan.sample(model, numbers)
        found.append(Look(iterations, judge(made)))
        samples.append(made[:shown])

    run = gan.run(recipe, pictures, seed, options, looks, look)
    return Judged(run, MadeBy(seed, tuple(found), tuple(run.seconds)), samples)


def noise(images: Tensor, seed: int = 0) -> Tensor:
    """As many pictures of random pixels: uint8 of the same shape, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, images.shape, generator=generator).to(torch.uint8)
