"""What a record holds about a network that makes pictures: how near they come (plain data)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from macgpu.measure.fields import Count, NotNegative, Samples
from macgpu.measure.steps import Options
from macgpu.measure.timing import Ratio

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Quality:
    """Pictures beside real ones, on the features of a classifier."""

    distance: NotNegative
    """The squared Fréchet distance."""
    precision: Share
    """Of what was made, the share that looks real."""
    recall: Share
    """Of what is real, the share that is made."""

    def __str__(self) -> str:
        return (
            f"distance {self.distance:.3g}, precision {self.precision:.2f}, "
            f"recall {self.recall:.2f}"
        )


@dataclass(frozen=True)
class Look:
    """At one run, after so many iterations."""

    iterations: Count
    quality: Quality


@dataclass(frozen=True)
class MadeBy:
    """One training from one seed."""

    seed: int
    looks: Annotated[tuple[Look, ...], Field(min_length=1)]
    """Of rising iterations."""
    seconds: Samples
    """Of the training before each look, from the one before it. The first holds what is
    compiled."""

    @property
    def last(self) -> Quality:
        return self.looks[-1].quality

    @property
    def iteration_s(self) -> float:
        """Of an iteration, without those before the first look where there are more."""
        ends = [look.iterations for look in self.looks]
        if len(ends) == 1:
            return self.seconds[0] / ends[0]
        return sum(self.seconds[1:]) / (ends[-1] - ends[0])


@dataclass(frozen=True)
class Generation:
    """A generator trained by one recipe from several seeds, with both bounds of its quality."""

    data: str
    """The data set, such as ``"fashion-mnist"``."""
    variant: str
    """``"first"``, ``"hinge"``, ``"usual"``, …"""
    settings: str
    """The recipe's numbers, in words."""
    features: str
    """Of which network the features are, and how many pictures a set has."""
    batch_size: Count
    options: Options
    real: Quality
    """Of real pictures beside other real ones: the best that can be asked for."""
    noise: Quality
    """Of pictures of random pixels: the other end."""
    runs: Annotated[tuple[MadeBy, ...], Field(min_length=1)]
    over_plain: Ratio | None = None
    """The time of the book's iteration over that of a plain, as well tuned one, in turn."""

    @property
    def distance(self) -> float:
        """The median over the seeds of the last distance."""
        return statistics.median(run.last.distance for run in self.runs)

    @property
    def precision(self) -> float:
        """The median over the seeds, as the recall is."""
        return statistics.median(run.last.precision for run in self.runs)

    @property
    def recall(self) -> float:
        return statistics.median(run.last.recall for run in self.runs)

    @property
    def excess(self) -> float:
        """How far the distance is from real against real."""
        return self.distance - self.real.distance

    @property
    def iteration_s(self) -> float:
        return statistics.median(run.iteration_s for run in self.runs)

    @property
    def samples_per_s(self) -> float:
        return self.batch_size / self.iteration_s

    def __str__(self) -> str:
        return (
            f"{self.runs[-1].last}, excess over real against real {self.excess:.3g} in the median "
            f"of {len(self.runs)}, {1e3 * self.iteration_s:.3f} ms an iteration"
        )
