"""A device whose time is simulated: steps move a clock by as much as they are told to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Clock:
    """Seconds that pass only when a step or a sleep says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def step(self, seconds: Callable[[int], float]) -> Callable[[], None]:
        """A step that takes ``seconds(number of this call)``."""
        calls = 0

        def run() -> None:
            nonlocal calls
            self.now += seconds(calls)
            calls += 1

        return run

    def noisy(self, seconds: float, spread: float, seed: int) -> Callable[[], None]:
        """A step whose time is log-normal around its median, one draw a call."""
        rng = np.random.default_rng(seed)
        return self.step(lambda _: seconds * rng.lognormal(0, spread))
