"""Whether a classifier is as sure as it is right: confusions, reliability, calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def confusion(labels: Tensor, guesses: Tensor, classes: int) -> Tensor:
    """How often each class was taken for each: int64 (classes, classes), the true class in rows."""
    pairs = labels * classes + guesses
    return pairs.bincount(minlength=classes * classes).reshape(classes, classes)


@dataclass(frozen=True)
class Reliability:
    """Guesses by how sure they were, in bins of equal width from 0 to 1; all float64 (bins,).

    Attributes:
        counts: guesses in the bin.
        confidence: mean probability of the guessed class; NaN in an empty bin.
        accuracy: share of right guesses; NaN in an empty bin.
    """

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """The expected calibration error: mean distance of confidence and accuracy, over guesses.

        Naeini et al., 2015; Guo et al., 2017.
        """
        gaps = (self.confidence - self.accuracy).abs().nan_to_num() * self.counts
        return (gaps.sum() / self.counts.sum()).item()


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15) -> Reliability:
    """Sort guesses into bins by confidence.

    Args:
        probabilities: (N, classes), each row summing to 1.
        labels: (N,).
        bins: of equal width; a value on an edge belongs to the bin below, as in Guo et al.
    """
    sure, guesses = probabilities.double().max(1)
    place = (sure * bins).ceil().long().sub(1).clamp(0, bins - 1)
    counts = place.bincount(minlength=bins).double()
    confidence = torch.zeros(bins, dtype=torch.float64).index_add(0, place, sure) / counts
    right = (guesses == labels).double()
    accuracy = torch.zeros(bins, dtype=torch.float64).index_add(0, place, right) / counts
    return Reliability(counts, confidence, accuracy)
