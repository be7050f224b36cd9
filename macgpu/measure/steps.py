"""Training steps to measure: the plain one, and what makes it faster, one option at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from macgpu.models import Case

LEARNING_RATE = 1e-5
"""What BERT is fine-tuned with. Its first steps at 1e-4 overshoot, and then the rounding of a data
type shows in the losses that are compared."""
LOSS_SCALE = 2.0**12
"""Where the loss scale of float16 starts: low enough that none of the first steps, whose losses are
compared, is skipped. torch's own start, 2^16, is found to fit by skipping."""
FIRST = 5
"""So many losses are kept, to be compared with another step's."""


@dataclass(frozen=True)
class Options:
    """How a training step is computed. The default is the plain step in float32."""

    tf32: bool = False
    """Round the inputs of float32 products to TF32 (NVIDIA)."""
    autocast: Literal["bfloat16", "float16"] | None = None
    """``"bfloat16"`` or ``"float16"``."""
    channels_last: bool = False
    fused: bool = False
    """The optimizer's operations on many tensors in one kernel each time."""
    compiled: str | None = None
    """The mode of ``torch.compile`` for forward, loss and backward, such as ``"default"``."""

    @property
    def peak(self) -> str:
        """The data type whose matmul peak this step is measured against."""
        return self.autocast or ("tf32" if self.tf32 else "float32")

    @property
    def tuned(self) -> bool:
        """Whether anything but the data type differs from the plain step."""
        return self.channels_last or self.fused or self.compiled is not None

    def __str__(self) -> str:
        parts = [self.autocast or ("tf32" if self.tf32 else "float32")]
        parts += ["channels_last"] * self.channels_last + ["fused"] * self.fused
        parts += [f"compiled ({self.compiled})"] if self.compiled else []
        return ", ".join(parts)


def ladder(case: Case, device: torch.device) -> list[tuple[str, Options]]:
    """The steps from plain to tuned for this device, each with the name of what it adds.

    An option that changes nothing here is left out: TF32 is NVIDIA's, a layout of channels needs
    a convolution. The CPU has the plain step alone.
    """
    plain = Options()
    rungs = [("float32", plain)]
    if device.type == "cpu":
        return rungs
    if device.type == "cuda":
        rungs.append(("tf32", replace(plain, tf32=True)))
    changes = [("bfloat16 autocast", {"autocast": "bfloat16"})]
    if case.convolutional:
        changes.append(("channels_last", {"channels_last": True}))
    changes.append(("fused optimizer", {"fused": True}))
    if device.type == "cuda":
        changes.append(("torch.compile", {"compiled": "default"}))
        changes.append(("CUDA graphs", {"compiled": "reduce-overhead"}))
    for name, change in changes:
        rungs.append((name, replace(rungs[-1][1], **change)))
    return rungs


def precisions(device: torch.device) -> list[tuple[str, Options]]:
    """The plain step in each data type that this device trains in, each with its name."""
    kinds = [("float32", Options())]
    if device.type == "cuda":
        kinds.append(("tf32", Options(tf32=True)))
    return kinds + [(name, Options(autocast=name)) for name in ("float16", "bfloat16")]


class TrainStep:
    """One training step on a batch that stays on the device; a call runs it.

    A step is forward, loss, backward, AdamW, and gradients set to None; nothing in it waits for
    the device. In float16 the loss is scaled; then the step waits once, to learn whether it is to
    be skipped, unless the optimizer is fused.

    On NVIDIA the process keeps what the last call set: TF32 as that step has it, and cuDNN's search
    for the fastest algorithm. To put them back after each call would take microseconds of a step.
    """

    def __init__(
        self,
        case: Case,
        device: torch.device,
        options: Options = Options(),  # noqa: B008  (frozen)
        batch_size: int = 2,
    ) -> None:
        layout = torch.channels_last if options.channels_last else torch.preserve_format
        self.options = options
        self.batch_size = batch_size
        self._losses: list[Tensor] = []
        self.model = model = case.build().to(device, memory_format=layout)
        inputs, labels = case.batch(batch_size)
        if inputs.dim() == 4:
            inputs = inputs.to(memory_format=layout)
        self.batch = inputs.to(device), labels.to(device)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=LEARNING_RATE, fused=options.fused or None
        )
        dtype = getattr(torch, options.autocast) if options.autocast else None
        self.scaler = torch.amp.GradScaler(
            device.type, init_scale=LOSS_SCALE, enabled=dtype == torch.float16
        )

        def forward(inputs: Tensor, labels: Tensor) -> Tensor:
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                logits = model(inputs)
            return case.loss(logits, labels)

        self.forward = forward
        if options.compiled:
            # Forward and loss in one graph, and with it backward, for this one shape.
            self.forward = torch.compile(forward, mode=options.compiled, dynamic=False)
        # cuDNN tries its algorithms at the first call, in every row: the plain one is no straw man.
        torch.backends.cudnn.benchmark = True

    def __call__(self) -> None:
        # Set at each call, since steps with and without it may take turns.
        set_tf32(self.options.tf32)
        loss = self.forward(*self.batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if len(self._losses) < FIRST:
            # A copy: the compiler's CUDA graphs write the next loss into the same memory.
            self._losses.append(loss.detach().clone())

    def first_losses(self) -> list[float]:
        """The losses of the first steps, at most :data:`FIRST`."""
        return torch.stack(self._losses).tolist()


def set_tf32(on: bool) -> None:
    """Let NVIDIA's tensor cores round float32 inputs to TF32, or not. Of no effect elsewhere."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on
