"""How much memory a training step will take, found out without taking it.

A step is run on fake tensors: they have a shape, a type and a lifetime, and no numbers. Each piece
of memory that would be allocated is noted with the moment of its birth and of its release, so that
the peak is read off, wherever in the step it comes.
"""

from __future__ import annotations

import copy
import inspect
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensorMode,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ROUND = 512
"""CUDA's caching allocator gives out multiples of so many bytes."""

KINDS = ("weights", "optimizer", "batch", "gradients", "activations", "temporary")
PHASES = ("forward", "backward", "optimizer step")
AUTOCAST = (None, "bfloat16", "float16")
ATTENTION = ("fused", "math")


class PlanError(ValueError):
    """This step cannot be planned; the message says why."""


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW as torch chooses it on cuda: all parameters in one call (foreach)."""
    return torch.optim.AdamW(parameters, foreach=True)


def fused_adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW fused, which makes no temporary tensors."""
    return torch.optim.AdamW(parameters, fused=True)


@dataclass(frozen=True)
class Plan:
    """The memory of one training step that is not the first, in bytes."""

    batch_size: int
    timeline: dict[str, np.ndarray]
    """Of each of :data:`KINDS`, the bytes alive after each allocation or release of the step,
    int64, all of one length.

    - weights: parameters and buffers, which live through the step, as the next two do
    - optimizer: what the optimizer keeps, for AdamW two values a parameter
    - batch: inputs and labels, as many bytes as moving them to the device copies
    - gradients: of the parameters, from their making in backward to the end of the step
    - activations: all else that is alive at the end of forward, since backward needs it; copies of
      the weights in autocast's type are among it
    - temporary: what lives for a moment within a phase
    """
    starts: dict[str, int]
    """Where in the timeline each of :data:`PHASES` begins."""

    @property
    def total(self) -> np.ndarray:
        """Bytes alive after each event."""
        return np.sum(list(self.timeline.values()), axis=0)

    @property
    def peak_bytes(self) -> int:
        return int(self.total.max())

    @property
    def peak_phase(self) -> str:
        """Which of :data:`PHASES` the peak falls into."""
        moment = self.total.argmax()
        return [phase for phase, start in self.starts.items() if start <= moment][-1]

    @property
    def at_peak(self) -> dict[str, int]:
        """What the peak is made of, by kind."""
        moment = self.total.argmax()
        return {kind: int(curve[moment]) for kind, curve in self.timeline.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The most that each kind takes; not all at the same moment, so not to be added."""
        return {kind: int(curve.max()) for kind, curve in self.timeline.items()}


@dataclass(frozen=True)
class Line:
    """Plans for two batch sizes, and through them for every other.

    At each moment of a step, some of the bytes are there whatever the batch is, and the rest grow
    with it. Two plans tell which; the peak may move from one moment to another.
    """

    small: Plan
    large: Plan

    def at(self, batch_size: int) -> Plan:
        """The plan for another batch size."""
        batch_size = _checked_batch_size(batch_size)
        a, b = self.small, self.large
        steps, of = batch_size - a.batch_size, b.batch_size - a.batch_size
        timeline = {
            kind: a.timeline[kind] + (b.timeline[kind] - a.timeline[kind]) * steps // of
            for kind in KINDS
        }
        return Plan(batch_size, timeline, a.starts)

    def largest_batch(self, limit_bytes: float) -> int:
        """The largest batch size whose peak is at most ``limit_bytes``; 0 where none is.

        Raises:
            PlanError: for a limit that is infinite or no number.
        """
        if not math.isfinite(limit_bytes):
            raise PlanError(f"a limit of {limit_bytes} bytes: it must be a finite number")
        a, b = self.small, self.large
        per_sample = (b.total - a.total) / (b.batch_size - a.batch_size)
        fixed = a.total - per_sample * a.batch_size
        grows = per_sample > 0
        if fixed.max() > limit_bytes:
            return 0
        return int(((limit_bytes - fixed[grows]) / per_sample[grows]).min())


def plan_line(
    model: nn.Module,
    make_batch: Callable[[int], tuple[object, object]],
    loss: Callable[[Tensor, object], Tensor],
    batch_sizes: tuple[int, int] = (8, 16),
    **options: object,
) -> Line:
    """Plan a step for two batch sizes; arguments and errors as in :func:`plan`.

    Raises:
        PlanError: where the two are the same size, or tell nothing about others, too.
    """
    sizes = sorted({_checked_batch_size(size) for size in batch_sizes})
    if len(sizes) != 2:
        raise PlanError(f"batch sizes {batch_sizes}: a line takes two that differ")
    small, large = (plan(model, make_batch, loss, size, **options) for size in sizes)
    if len(small.total) != len(large.total):
        raise PlanError("the step does something else at another batch size: plan each by itself")
    if not (large.total > small.total).any():
        raise PlanError(f"nothing grows from batch {sizes[0]} to {sizes[1]}: choose larger ones")
    return Line(small, large)


def plan(
    model: nn.Module,
    make_batch: Callable[[int], tuple[object, object]],
    loss: Callable[[Tensor, object], Tensor],
    batch_size: int,
    autocast: str | None = None,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = adamw,
    attention: str = "fused",
) -> Plan:
    """Predict the memory of a training step: forward, loss, backward, optimizer, no gradients kept.

    Counted is what a step's tensors take on cuda. Not counted, since only the library knows: the
    workspaces of cuBLAS and cuDNN (see ``measure.memory.library_bytes`` for the first), and what
    the allocator loses to fragmentation. Recurrent layers are counted as the CPU computes them.

    Args:
        model: on the CPU, in training mode. It is not run and not changed.
        make_batch: of a batch size, inputs and labels: tensors, or tuples, lists and dicts of them,
            with the samples along the first dimension. It is called while tensors are fake, so a
            large batch costs nothing.
        loss: of logits and labels; computed outside of autocast.
        batch_size: at least 1.
        autocast: ``"bfloat16"``, ``"float16"``, or ``None`` for float32 throughout.
        optimizer: of parameters, such as :func:`adamw`.
        attention: ``"fused"``, as on cuda, or ``"math"``, which keeps the (length × length)
            weights of each head for backward.

    Raises:
        PlanError: for a batch size or option that is none, a batch of another size, a model without
            parameters to train or with lazy ones, an optimizer whose step takes a closure, and for
            a path that depends on values, which fake tensors do not have.
    """
    batch_size = _checked_batch_size(batch_size)
    _check(model, autocast, attention)
    ledger = Ledger()
    # Tensors that a module keeps outside of its parameters and buffers are faked where they appear.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with FakeCopyMode(mode):
        model = copy.deepcopy(model)
    dtype = getattr(torch, autocast) if autocast else None
    running = "batch"
    try:
        with mode, _like_a_gpu(attention):
            inputs, labels = _moved(make_batch(batch_size))
            _check_length(inputs, batch_size)
            running = "optimizer"
            update = optimizer(p for p in model.parameters() if p.requires_grad)
            _first_step(model, update)
            ledger.hold("weights", [*model.parameters(), *model.buffers()])
            ledger.hold("optimizer", tree_leaves([*update.state.values()]))
            ledger.hold("batch", tree_leaves((inputs, labels)))
            with ledger:
                ledger.begin("forward")
                running = "model"
                with torch.autocast("cpu", dtype, enabled=dtype is not None):
                    logits = model(inputs)
                running = "loss"
                value = loss(logits, labels)
                del logits
                ledger.keep("activations")
                ledger.begin("backward")
                running = "model"
                value.backward()
                ledger.hold("gradients", [p.grad for p in model.parameters()])
                ledger.begin("optimizer step")
                running = "optimizer"
                update.step()
                update.zero_grad(set_to_none=True)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise PlanError(
            f"the {running}'s path depends on values ({error}), which a plan does not have: "
            "take out .item(), boolean masks as indices and the like"
        ) from None
    # What came before forward is no part of the step, but for what it left.
    before = ledger.starts["forward"] - 1
    timeline = {kind: curve[before:] for kind, curve in ledger.timeline().items()}
    starts = {phase: start - before for phase, start in ledger.starts.items()}
    return Plan(batch_size, timeline, starts)


def _check(model: nn.Module, autocast: str | None, attention: str) -> None:
    if autocast not in AUTOCAST:
        raise PlanError(f"autocast to {autocast!r}: choose None, 'bfloat16' or 'float16'")
    if attention not in ATTENTION:
        raise PlanError(f"attention {attention!r}: choose {' or '.join(map(repr, ATTENTION))}")
    if any(nn.parameter.is_lazy(value) for value in [*model.parameters(), *model.buffers()]):
        raise PlanError("the model has lazy parameters: give it a batch first, which sets them")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise PlanError("the model has no parameters to train")
    elsewhere = {parameter.device.type for parameter in model.parameters()} - {"cpu"}
    if elsewhere:
        raise PlanError(f"the model lies on {elsewhere.pop()}: plan it before it is moved")


def _checked_batch_size(batch_size: int) -> int:
    # NumPy's integers are whole numbers too.
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
        raise PlanError(f"a batch size of {batch_size!r}: it must be a whole number, at least 1")
    return int(batch_size)


def _moved(batch: tuple[object, object]) -> tuple[object, object]:
    """Copies, as the device gets them: of a slice of the data set, the slice alone."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def _check_length(inputs: object, batch_size: int) -> None:
    shapes = [tuple(leaf.shape) for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    if batch_size not in [shape[0] for shape in shapes if shape]:
        found = ", ".join(map(str, shapes)) or "no tensor"
        raise PlanError(
            f"make_batch({batch_size}) gave inputs of {found}: a batch of {batch_size} samples, "
            "along the first dimension, is expected"
        )


def _first_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """An optimizer makes its states in its first step, which is not the one to be planned."""
    arguments = inspect.signature(optimizer.step).parameters.values()
    if any(argument.default is argument.empty for argument in arguments):
        name = type(optimizer).__name__
        raise PlanError(f"a step of {name} takes a closure, and runs the model more than once")
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@contextmanager
def _like_a_gpu(attention: str) -> Iterator[None]:
    """Choose what a GPU chooses where the CPU, whose kernels are asked for shapes, does not.

    Dropout on a GPU keeps one byte a value, and inside of fused attention nothing.
    """
    dropout, fused_attention = F.dropout, F.scaled_dot_product_attention

    def drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if training and 0 < p < 1:
            return torch.native_dropout(input, p, True)[0]
        return dropout(input, p, training, inplace)

    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask=None, dropout_p=0.0, *args, **kwargs
    ) -> Tensor:
        dropped = dropout_p if attention == "math" else 0.0
        return fused_attention(query, key, value, attn_mask, dropped, *args, **kwargs)

    # A function mode would not see the calls within torch's own multi-head attention.
    F.dropout, F.scaled_dot_product_attention = drop, attend
    try:
        with sdpa_kernel(SDPBackend.MATH) if attention == "math" else nullcontext():
            yield
    finally:
        F.dropout, F.scaled_dot_product_attention = dropout, fused_attention


class Ledger(TorchDispatchMode):
    """Notes when memory of tensors is allocated and released; active as a context manager.

    It sees fake tensors and real ones on any device, those that autograd keeps included. A storage
    counts once, however many tensors look into it. Tensors made before are not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.starts: dict[str, int] = {}
        self._changes: list[tuple[int, int]] = []
        """Number of a storage, and its bytes: positive when made, negative when released."""
        self._numbers: dict[int, int] = {}
        """Of the storages alive, by address."""
        self._sizes: list[int] = []
        self._kinds: dict[int, str] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ARG002
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._number(value)
        return result

    @property
    def alive_bytes(self) -> int:
        """Of the tensors that were made within the context, or held, and are not released."""
        return sum(self._sizes[number] for number in self._numbers.values())

    def begin(self, phase: str) -> None:
        self.starts[phase] = len(self._changes)

    def hold(self, kind: str, values: Iterable[object]) -> None:
        """Say of what kind the tensors among these values are."""
        for value in values:
            if isinstance(value, Tensor):
                self._kinds.setdefault(self._number(value), kind)

    def keep(self, kind: str) -> None:
        """Say of what kind is all that is alive and has none yet."""
        for number in self._numbers.values():
            self._kinds.setdefault(number, kind)

    def timeline(self) -> dict[str, np.ndarray]:
        """See :attr:`Plan.timeline`."""
        kinds = [KINDS.index(self._kinds.get(number, "temporary")) for number, _ in self._changes]
        changes = np.zeros((len(KINDS), len(self._changes)), dtype=np.int64)
        changes[kinds, range(len(kinds))] = [bytes_ for _, bytes_ in self._changes]
        return dict(zip(KINDS, changes.cumsum(axis=1), strict=True))

    def _number(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._numbers:
            number = self._numbers[address] = len(self._sizes)
            size = -(-storage.nbytes() // ROUND) * ROUND
            self._sizes.append(size)
            self._changes.append((number, size))
            weakref.finalize(storage, self._release, address)
        return self._numbers[address]

    def _release(self, address: int) -> None:
        number = self._numbers.pop(address)
        self._changes.append((number, -self._sizes[number]))
