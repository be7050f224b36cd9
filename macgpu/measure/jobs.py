"""What a record holds about a whole job, trained from seeds to a score (plain data)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from macgpu.measure.fields import Count, Samples
from macgpu.measure.steps import Options
from macgpu.measure.timing import Ratio

Score = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class SeedRun:
    """One training from one seed."""

    seed: int
    scores: Annotated[tuple[Score, ...], Field(min_length=1)]
    """After each epoch."""
    seconds: Samples
    """Of each epoch's training, without the evaluation. The first holds what is compiled."""
    without: dict[str, Score] = field(default_factory=dict)
    """The last score without a part of the recipe that leaves the training as it is."""

    def seconds_to(self, target: float) -> float | None:
        """Training time until a score reached the target; ``None`` where none did."""
        for number, score in enumerate(self.scores, 1):
            if score >= target:
                return sum(self.seconds[:number])
        return None


@dataclass(frozen=True)
class Job:
    """A job trained by one recipe from several seeds."""

    name: str
    """``"images"``, …"""
    data: str
    """The data set, such as ``"fashion-mnist"``."""
    metric: str
    """What the scores are, such as ``"test accuracy"``; a share, 0 to 1."""
    variant: str
    """``"recipe"``, or what was changed, such as ``"without label smoothing"``."""
    settings: str
    """The recipe's numbers, in words."""
    samples: Count
    """That the training set has."""
    options: Options
    runs: Annotated[tuple[SeedRun, ...], Field(min_length=1)]
    over_plain: Ratio | None = None
    """The time of the job's loop over that of a plain, as well tuned one, passes in turn."""

    @property
    def final(self) -> list[float]:
        """The last score of each seed."""
        return [run.scores[-1] for run in self.runs]

    @property
    def mean(self) -> float:
        return statistics.mean(self.final)

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds; ``None`` for a single one."""
        return statistics.stdev(self.final) if len(self.runs) > 1 else None

    @property
    def epoch_s(self) -> float | None:
        """The median epoch's training, without each run's first one; ``None`` where there is no
        other: the first holds what is compiled."""
        times = [s for run in self.runs for s in run.seconds[1:]]
        return statistics.median(times) if times else None

    @property
    def samples_per_s(self) -> float | None:
        return self.samples / self.epoch_s if self.epoch_s else None

    def __str__(self) -> str:
        epoch = f", {self.epoch_s:.2f} s an epoch" if self.epoch_s else ""
        return f"mean {self.mean:.2%} of {len(self.runs)}{epoch}"
