"""Does a long run get slower, or its memory grow? A slope with an interval, read from a log."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

LEAST = 8
"""Readings without which no interval of a slope means anything."""

_Z = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Trend:
    """A straight line through readings, by its slope: units of the reading per unit of time."""

    slope: float
    low: float
    """The 95 % interval of the slope; right where readings scatter independently."""
    high: float

    @property
    def rises(self) -> bool:
        return self.low > 0

    @property
    def falls(self) -> bool:
        return self.high < 0


def trend(times: Sequence[float], readings: Sequence[float]) -> Trend:
    """The median of the slopes between all pairs of readings: a few outliers do not move it.

    Theil (1950); the interval is Sen's (1968), from the spread of Kendall's statistic.

    Args:
        times: in any unit that rises: seconds, steps.
        readings: one each.

    Raises:
        ValueError: for fewer than :data:`LEAST` readings, for one that is no finite number, and for
            times that do not rise from each reading to the next.
    """
    count = len(readings)
    if count < LEAST:
        raise ValueError(f"a trend needs at least {LEAST} readings, not {count}")
    for reading in readings:
        if reading is None or not math.isfinite(reading):
            raise ValueError(f"a trend needs finite readings, not {reading}: leave it out")
    for before, after in pairwise(times):
        # NaN does not rise, either.
        if not before < after:
            raise ValueError(f"a trend needs times that rise, not {after} after {before}")
    points = list(zip(times, readings, strict=True))
    slopes = sorted((r - q) / (t - s) for (s, q), (t, r) in combinations(points, 2))
    spread = _Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    # So many slopes lie outside on either side, the bound itself among them.
    outside = max(math.floor((len(slopes) - spread) / 2), 1)
    return Trend(statistics.median(slopes), slopes[outside - 1], slopes[-outside])


@dataclass(frozen=True)
class Sustained:
    """The speed at the start of a run beside the speed at its end."""

    cold: float
    """Median of the first fifth of the readings."""
    sustained: float
    """Median of the last fifth."""
    trend: Trend

    @property
    def share(self) -> float:
        """Of the cold speed, what is left at the end."""
        return self.sustained / self.cold

    @property
    def slows(self) -> bool:
        """Whether a slow-down is shown: a falling trend, and more than 5 % lost."""
        return self.trend.falls and self.share < 0.95


def sustained(times: Sequence[float], rates: Sequence[float]) -> Sustained:
    """Cold and sustained speed from readings over a run, its warm-up left out by the caller.

    Raises:
        ValueError: as :func:`trend` does.
    """
    line = trend(times, rates)
    fifth = max(len(rates) // 5, 1)
    return Sustained(statistics.median(rates[:fifth]), statistics.median(rates[-fifth:]), line)
