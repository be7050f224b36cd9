"""The environment variables of PyTorch's MPS backend: the real ones, and invented ones."""

from __future__ import annotations

from collections.abc import Mapping

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
HIGH = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW = "PYTORCH_MPS_LOW_WATERMARK_RATIO"

HIGH_DEFAULT, LOW_DEFAULT = 1.7, 1.4
"""Of the recommended memory, in torch 2.14."""

REAL = (
    FALLBACK,
    HIGH,
    LOW,
    "PYTORCH_MPS_FAST_MATH",
    "PYTORCH_MPS_PREFER_METAL",
    "PYTORCH_MPS_LOG_PROFILE_INFO",
    "PYTORCH_MPS_TRACE_SIGNPOSTS",
    "PYTORCH_DEBUG_MPS_ALLOCATOR",
    "PYTORCH_MPS_DISABLE_PREFILL_ATTENTION",
)
"""Every such name in the binary of the official macOS wheel of torch 2.14.1."""

INVENTED = (
    "PYTORCH_MPS_LOG_LEVEL",
    "PYTORCH_MPS_MEMORY_LIMIT_MB",
    "PYTORCH_MPS_ALLOCATOR_POLICY",
    "PYTORCH_MPS_ALLOCATOR_CACHE_SIZE",
    "PYTORCH_MPS_BACKEND",
    "PYTORCH_ENABLE_MPS_CPU_FALLBACK",
)
"""Names that circulate on the web and that torch never reads."""


def set_in_time(
    name: str, now: Mapping[str, str], at_start: Mapping[str, str], torch_was_loaded: bool
) -> bool:
    """Whether torch is sure to have seen the value that ``name`` has now.

    torch reads these variables once. A value that the process was started with is seen; one that
    was set from Python is seen only if that happened before ``import torch``.
    """
    return now.get(name) == at_start.get(name) or not torch_was_loaded


def watermark_problem(variables: Mapping[str, str]) -> str | None:
    """What is wrong with the watermark ratios, or ``None``.

    The allocator needs numbers, at least 0, with LOW not above HIGH; 0.0 lifts a limit.
    """
    ratios = {HIGH: HIGH_DEFAULT, LOW: LOW_DEFAULT}
    for name in ratios:
        if name in variables:
            try:
                ratios[name] = float(variables[name])
            except ValueError:
                return f"{name}={variables[name]!r} is not a number"
            if not 0 <= ratios[name] <= 2:
                return f"{name}={variables[name]} is outside of 0 to 2"
    if ratios[HIGH] and ratios[LOW] > ratios[HIGH]:
        return (
            f"the low watermark ({ratios[LOW]}) is above the high one ({ratios[HIGH]}): "
            f"set {LOW} too, at most to the value of {HIGH}"
        )
    return None
