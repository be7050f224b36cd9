"""Peak memory of a piece of work, and what running out of memory looks like."""

from __future__ import annotations

import torch

from macgpu.device import empty_cache

OUT_OF_MEMORY = "out of memory"


def reset_peak(device: torch.device) -> None:
    """Start counting the peak anew. Nothing to do where there is no counter."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif device.type == "mps":
        try:
            torch.accelerator.reset_peak_memory_stats()
        except (AttributeError, RuntimeError, NotImplementedError):
            return


def library_bytes(device: torch.device) -> int:
    """What cuBLAS takes beside a step's tensors; 0 where there is none.

    Each of the two threads of a step, that of forward and that of backward, has a workspace: 32 MiB
    on Hopper and 8.125 MiB on other cards (torch's notes on ``CUBLAS_WORKSPACE_CONFIG``).
    """
    if device.type != "cuda":
        return 0
    major, _ = torch.cuda.get_device_capability()
    return 2 * (32 * 2**20 if major == 9 else 65 * 2**17)


def peak_bytes(device: torch.device) -> int | None:
    """The most bytes that tensors held since :func:`reset_peak`; ``None`` without a counter.

    On mps this is what ``torch.accelerator`` counts, where this torch counts at all; a peak of 0
    means that it does not. The CPU has no counter.
    """
    try:
        if device.type == "cuda":
            peak = torch.cuda.max_memory_allocated()
        elif device.type == "mps":
            peak = torch.accelerator.max_memory_allocated()
        else:
            return None
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
    return peak or None


def ran_out(error: BaseException, device: torch.device) -> bool:
    """Whether this error says that memory ran out; if so, the allocator's cache is given back.

    cuda has its own class of error; mps and the CPU raise a RuntimeError that says so.
    """
    text = str(error).lower()
    out = isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text)
    )
    if out:
        empty_cache(device)
    return out
