"""Numbers as they stand in a sentence or a table of a page."""

from __future__ import annotations


def percent(share: float, digits: int = 0, sign: bool = False) -> str:
    """A share, such as 0.48 or -0.48, in percent: ``48 %``, ``−48 %``, with a sign ``+48 %``."""
    value = round(100 * share, digits)
    if not value:
        # A small loss is no "−0 %".
        value, sign = 0.0, False
    return f"{value:{'+' if sign else ''}.{digits}f}\u00a0%".replace("-", "−")


def times(ratio: float) -> str:
    """How many times, with two digits that say something: ``30``, ``1.4``, ``0.042``."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def counted(number: int, noun: str) -> str:
    """``1 worker``, ``2 workers``, for a noun whose plural has an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def gib(count: float | None, digits: int = 1) -> str:
    """Bytes in GiB, of 2³⁰ bytes each; a dash where there is no figure."""
    return "–" if count is None else f"{count / 2**30:,.{digits}f}\u00a0GiB"


def flop_rate(flops_per_s: float) -> str:
    """Operations per second in the unit that fits: ``"51.3 TFLOP/s"``, ``"1.34 GFLOP/s"``."""
    rounded = float(f"{flops_per_s:.3g}")
    size, unit = (1e12, "TFLOP/s") if rounded >= 1e12 else (1e9, "GFLOP/s")
    return f"{rounded / size:g} {unit}"
