"""The environment variables of PyTorch's MPS backend: the real ones, and invented ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
HIGH = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW = "PYTORCH_MPS_LOW_WATERMARK_RATIO"

HIGH_DEFAULT, LOW_DEFAULT = 1.7, 1.4
"""Of the recommended memory, in torch 2.14."""


@dataclass(frozen=True)
class Variable:
    """A variable that torch reads."""

    default: str
    """What holds without it."""
    read: str
    """When torch reads it, which it does once."""
    meaning: str
    source: str
    """Where the two are from: a file of PyTorch's repository, or an address."""


DOCUMENTATION = "https://docs.pytorch.org/docs/stable/mps_environment_variables.html"
_ALLOCATOR = "aten/src/ATen/mps/MPSAllocator.mm"
_PROFILER = "aten/src/ATen/mps/MPSProfiler.mm"

REAL = {
    FALLBACK: Variable(
        "0",
        "when torch is imported",
        "A number other than 0 lets an operator without an MPS kernel run on the CPU, with one "
        "warning and a copy there and back.",
        "aten/src/ATen/mps/MPSFallback.mm",
    ),
    HIGH: Variable(
        f"{HIGH_DEFAULT}",
        "when memory on mps is first asked for",
        "The most that may be allocated, as a multiple of the recommended memory. 0.0 lifts the "
        "limit.",
        _ALLOCATOR,
    ),
    LOW: Variable(
        f"{LOW_DEFAULT}",
        "when memory on mps is first asked for",
        "From this multiple of the recommended memory on, cached buffers are given back early. It "
        "may not be above the high one.",
        _ALLOCATOR,
    ),
    "PYTORCH_MPS_FAST_MATH": Variable(
        "0",
        "when torch first compiles a Metal shader",
        "Anything but 0 compiles shaders with fast, less exact arithmetic.",
        "aten/src/ATen/native/mps/OperationUtils.mm",
    ),
    "PYTORCH_MPS_PREFER_METAL": Variable(
        "not set",
        "at the first matrix product",
        "Set to anything, even 0, it makes matrix products use torch's own Metal kernel instead "
        "of Apple's graphs. On an M4 Max it was reported as several times slower "
        "([pytorch#198182](https://github.com/pytorch/pytorch/issues/198182)).",
        "aten/src/ATen/native/mps/operations/LinearAlgebra.mm",
    ),
    "PYTORCH_MPS_LOG_PROFILE_INFO": Variable(
        "0",
        "when torch's profiler for mps is made",
        "A sum of flags. 1, 2 and 4 print operations, copies and fallbacks as they run; 8 prints "
        "the totals when the process ends.",
        _PROFILER,
    ),
    "PYTORCH_MPS_TRACE_SIGNPOSTS": Variable(
        "0",
        "when torch's profiler for mps is made",
        "A sum of flags. 1 marks operations for Xcode's Instruments as events, 2 as intervals.",
        _PROFILER,
    ),
    "PYTORCH_DEBUG_MPS_ALLOCATOR": Variable(
        "0",
        "when memory on mps is first asked for",
        "A sum of flags. 1 prints totals; 2, 4 and 8 print allocations, reuse and releases; 16 "
        "leaves small buffers out.",
        _ALLOCATOR,
    ),
    "PYTORCH_MPS_DISABLE_PREFILL_ATTENTION": Variable(
        "not set",
        "not known",
        "In the binary since torch 2.13 and in no documentation. By its name it turns off the "
        "attention kernels for long inputs that came with pull request 181575.",
        "https://github.com/pytorch/pytorch/pull/181575",
    ),
}
"""Every such name in the binary of the official macOS wheel of torch 2.14.1."""

INVENTED = {
    "PYTORCH_MPS_LOG_LEVEL": "PYTORCH_MPS_LOG_PROFILE_INFO prints what runs",
    "PYTORCH_MPS_MEMORY_LIMIT_MB": f"{HIGH} is the limit",
    "PYTORCH_MPS_ALLOCATOR_POLICY": "the allocator has one policy",
    "PYTORCH_MPS_ALLOCATOR_CACHE_SIZE": f"{LOW} says when the cache is given back",
    "PYTORCH_MPS_BACKEND": "choose the device in the code",
    "PYTORCH_ENABLE_MPS_CPU_FALLBACK": f"the real name is {FALLBACK}",
}
"""Names that circulate on the web and that torch never reads, and what to do instead."""


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
