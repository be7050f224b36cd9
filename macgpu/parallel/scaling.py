"""What a record holds about a model split over several devices (plain data, no processes)."""

from __future__ import annotations

from dataclasses import dataclass, field

from macgpu.measure.timing import Ratio, Timing


@dataclass(frozen=True)
class Case:
    """What was split: a block at one size."""

    block: str
    """``"mlp"`` or ``"attention"``."""
    width: int
    tokens: int
    dtype: str
    degree: int
    """Over how many ranks; 1 is the whole block on one."""

    def __str__(self) -> str:
        return f"{self.block}, width {self.width:,}, {self.tokens:,} tokens, {self.dtype}"


@dataclass(frozen=True)
class Setting:
    """How it was split and run."""

    way: str
    """Of communicating, such as ``"all-reduce, 4 chunks forward"`` or ``"DTensor"``."""
    max_ctas: int | None = None
    """The most multiprocessors that a collective of NCCL may take; ``None``: NCCL's choice."""
    blas: str = "default"
    """The library of matrix products: ``"default"`` or ``"cublaslt"``."""
    carve_out: int = 0
    """Multiprocessors that matrix products leave free."""

    def __str__(self) -> str:
        parts = [self.way]
        if self.max_ctas:
            parts.append(f"at most {self.max_ctas} CTAs")
        if self.blas != "default":
            parts.append(self.blas)
        if self.carve_out:
            parts.append(f"{self.carve_out} SMs carved out")
        return "; ".join(parts)


@dataclass(frozen=True)
class Step:
    """Forward and backward of a case; the slowest rank's time."""

    case: Case
    setting: Setting
    timing: Timing | None
    failure: str | None = None
    difference: float | None = None
    """From the whole block in the same data type: the largest of the relative errors (Frobenius)
    of output and input gradient."""


@dataclass(frozen=True)
class Speedup:
    """The whole block's time on one rank over the split one's, blocks in turn."""

    case: Case
    setting: Setting
    whole: Setting
    ratio: Ratio


@dataclass(frozen=True)
class Footprint:
    """Peak memory of forward and backward; ``None`` where there is no counter."""

    case: Case
    way: str
    peak_bytes: tuple[int | None, ...]
    """Of each rank."""
    parameters: tuple[int, ...]
    """Elements of the weights that each rank held."""


@dataclass(frozen=True)
class Collective:
    """One collective, alone on the wire."""

    name: str
    """``"all-reduce"``, …"""
    degree: int
    bytes: int
    """Of the tensor that is reduced."""
    max_ctas: int | None
    timing: Timing

    @property
    def bus_bytes_per_s(self) -> float:
        """What each rank sends a second: 2 (n - 1) / n of the tensor in a ring, NCCL's busbw."""
        return 2 * (self.degree - 1) / self.degree * self.bytes / self.timing.median_s


@dataclass(frozen=True)
class Exactness:
    """The largest differences of a split block from the whole one in float64; ``None`` where it
    failed."""

    block: str
    degree: int
    way: str
    output: float | None
    input_gradient: float | None
    weight_gradient: float | None
    failure: str | None = None

    def __str__(self) -> str:
        if self.failure:
            return f"{self.way}: {self.failure}"
        return (
            f"{self.way}: output {self.output:.1e}, input gradient {self.input_gradient:.1e}, "
            f"weight gradient {self.weight_gradient:.1e}"
        )


@dataclass(frozen=True)
class Scaling:
    """All that one run has measured of tensor parallelism."""

    backend: str
    """``"nccl"`` or ``"gloo"``."""
    ranks: int
    versions: dict[str, str] = field(default_factory=dict)
    exact: tuple[Exactness, ...] = ()
    collectives: tuple[Collective, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    steps: tuple[Step, ...] = ()
    speedups: tuple[Speedup, ...] = ()
    failures: tuple[str, ...] = ()
    """Parts that did not finish, each with its reason."""
