"""Numbers as they stand in a sentence."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``"1 step"``, ``"2 steps"``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def flop_rate(flops_per_s: float) -> str:
    """Operations per second in the unit that fits: ``"51.3 TFLOP/s"``, ``"1.34 GFLOP/s"``."""
    rounded = float(f"{flops_per_s:.3g}")
    size, unit = (1e12, "TFLOP/s") if rounded >= 1e12 else (1e9, "GFLOP/s")
    return f"{rounded / size:g} {unit}"
