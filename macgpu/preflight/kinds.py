"""What preflight can find: every kind with its severity, its sentence and its remedy.

A kind's slug is stable: it is the anchor of its section on the troubleshooting page.
"""

from __future__ import annotations

from dataclasses import dataclass

from macgpu.troubleshooting import link

FAILS, HURTS, NOTE = "fails", "hurts", "note"
"""Stops the script on a Mac; slows it or silently changes what it does; good to know."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault; ``{detail}`` in the message is filled in where it is found."""

    severity: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """One fault at one place of the user's code.

    Attributes:
        kind: a key of :data:`KINDS`.
        severity: ``"fails"``, ``"hurts"`` or ``"note"``.
        book: where the book explains it, ``troubleshooting.html#…``.
        file: the script, a module beside it or a notebook; ``None`` where no line is to blame.
        line: counted from 1; in a notebook within the cell.
        cell: of a notebook, counted from 1 over its code cells; ``None`` in a script.
        count: how often it happened in the run; ``None`` where only the text was read.
    """

    kind: str
    severity: str
    message: str
    remedy: str
    book: str
    file: str | None = None
    line: int | None = None
    cell: int | None = None
    count: int | None = None


KINDS: dict[str, Kind] = {
    # Operators and data types
    "missing-operator": Kind(
        FAILS,
        "{detail} has no MPS kernel: NotImplementedError",
        "Replace it, or move that one operation: op(x.cpu()).to(x.device). To let every such "
        "operator run on the CPU, set PYTORCH_ENABLE_MPS_FALLBACK=1 before Python starts.",
    ),
    "fallback-operator": Kind(
        HURTS,
        "{detail} has no MPS kernel: it runs on the CPU, with a copy there and back",
        "Replace it, or take it out of the training step.",
    ),
    "float64": Kind(
        FAILS,
        "a float64 tensor is made on or sent to mps ({detail}): TypeError",
        "Cast before the move: x.to(torch.float32).to(device), or x.to(device, torch.float32). "
        "NumPy and pandas make float64 by default.",
    ),
    "complex128": Kind(
        FAILS,
        "a complex128 tensor is made on or sent to mps ({detail}): TypeError",
        "Cast before the move: x.to(torch.complex64).",
    ),
    "sparse-tensor": Kind(
        HURTS,
        "a sparse tensor goes to mps, where few operators accept one",
        "Check each operator it meets; to_dense() before the move is the sure way.",
    ),
    # Devices
    "mixed-devices": Kind(
        FAILS,
        "a CPU tensor meets an mps tensor in {detail}: RuntimeError",
        "Move both to the same device; make new tensors with device=x.device, and register "
        "constants of a module with register_buffer.",
    ),
    "numpy-of-mps": Kind(
        FAILS,
        "{detail} of an mps tensor: TypeError",
        "Copy it first: x.detach().cpu().numpy().",
    ),
    "hardcoded-cuda": Kind(
        FAILS,
        "CUDA is asked for by name{detail}",
        "Choose the device once, at the top, and use it everywhere: "
        "device = torch.accelerator.current_accelerator(check_available=True) "
        'or torch.device("cpu").',
    ),
    "cuda-or-cpu": Kind(
        HURTS,
        "the choice is between CUDA and the CPU: on a Mac this silently trains on the CPU",
        "Ask torch.accelerator.current_accelerator(check_available=True), which is mps on a Mac.",
    ),
    "gpu-unused": Kind(
        HURTS,
        "the script trains, and no tensor ever lies on mps",
        "Move the model and each batch to the device.",
    ),
    "non-blocking": Kind(
        HURTS,
        "non_blocking=True towards mps can read memory that is already freed: wrong data, no error",
        "Leave non_blocking out, or pass non_blocking=device.type == 'cuda'.",
    ),
    "distributed": Kind(
        FAILS,
        "{detail} does not work on mps",
        "A Mac has one GPU: train without torch.distributed there. To learn it, use gloo with "
        "CPU tensors.",
    ),
    # The training step
    "sync-in-step": Kind(
        HURTS,
        "{detail} in every training step: Python waits for the GPU each time",
        "Keep the value on the device (detach() and add up), and read it once every many steps.",
    ),
    "changing-shapes": Kind(
        HURTS,
        "new shapes in step after step ({detail}): MPS compiles and keeps a graph for each",
        "Pad to one length, or to a few lengths (buckets).",
    ),
    "no-training-step": Kind(
        HURTS,
        "no training step was seen{detail}",
        "Give the script the arguments that make it train, or more time with --seconds.",
    ),
    # Mixed precision
    "cuda-amp": Kind(
        HURTS,
        "torch.cuda.amp is silently off without CUDA{detail}",
        'Use torch.autocast(device.type) and torch.amp.GradScaler(device.type); "mps" needs '
        "torch 2.8.",
    ),
    "cuda-autocast": Kind(
        HURTS,
        "{detail} is silently off without CUDA",
        'Pass device.type instead of "cuda".',
    ),
    "half-parameters": Kind(
        FAILS,
        "GradScaler is given {detail} parameters: it refuses them or loses their gradients",
        "Keep the parameters in float32 and let autocast choose the type of each operation.",
    ),
    # Loading data
    "pin-memory": Kind(
        NOTE,
        "{detail} does nothing on a Mac, where the CPU and the GPU share the memory",
        "Leave it out, or pass pin_memory=device.type == 'cuda'.",
    ),
    "worker-cannot-load": Kind(
        FAILS,
        "worker processes, which a Mac spawns, cannot load {detail}",
        "Define it at the top level of a module (.py) and import it from there.",
    ),
    "device-tensor-in-worker": Kind(
        FAILS,
        "the dataset gives mps tensors, which a worker process cannot send",
        "Return CPU tensors, and move each batch to the device in the training loop.",
    ),
    "no-main-guard": Kind(
        FAILS,
        "workers are started outside of if __name__ == '__main__': each spawned one runs the "
        "script again: RuntimeError",
        "Put what runs in a function main(), and call it under if __name__ == '__main__':.",
    ),
    "unwatched-process": Kind(
        NOTE,
        "a process is started here, and what it does is not watched",
        "Run preflight on the part that trains.",
    ),
    # Environment variables
    "late-variable": Kind(
        HURTS,
        "{detail} is set after torch was imported: torch has read it already",
        "Set it before import torch, or before Python starts; in a notebook restart the kernel.",
    ),
    "invented-variable": Kind(
        HURTS,
        "{detail} does not exist: torch never reads it",
        "Remove it. The chapter on debugging lists the real ones.",
    ),
    "bad-watermark": Kind(
        FAILS,
        "{detail}",
        "Set both ratios, low not above high, or neither.",
    ),
    # The script itself
    "skipped-cell": Kind(
        HURTS,
        "a {detail} cell is not run, and was not examined",
        "Where it trains, or makes what later cells need, run preflight on that program itself.",
    ),
    "script-error": Kind(
        FAILS,
        "the script stopped: {detail}",
        "This comes from the script, or from what it needs, and not from the device.",
    ),
    "untraceable": Kind(
        HURTS,
        "preflight's stand-in for mps cannot do this, and the run ended: {detail}",
        "What comes after it was not examined. Run preflight on a Mac.",
    ),
}
"""Every kind, by its slug."""


def finding(
    kind: str,
    detail: str = "",
    file: str | None = None,
    line: int | None = None,
    cell: int | None = None,
    count: int | None = None,
) -> Finding:
    """A finding with the severity, sentence and remedy of its kind."""
    entry = KINDS[kind]
    message = entry.message.format(detail=detail)
    return Finding(kind, entry.severity, message, entry.remedy, link(kind), file, line, cell, count)
