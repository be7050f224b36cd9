"""Watches every operator that touches a tensor on the device, the backward pass included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from macgpu.operators import Kind, operators
from macgpu.preflight import pretend
from macgpu.preflight.gpu import KIND_OF_DTYPE, NARROWER, Gpu
from macgpu.preflight.ledger import Ledger
from macgpu.preflight.shapes import Shapes

NOT_ON_A_MAC = (
    "mkldnn",
    "_for_cpu",
    "_fused_sdp_choice",
    "_resize_output_",
    "_fused_rms_norm_backward",
)
"""Parts of names of operators that only this machine's torch picks, and a Mac's never meets."""

MIXES = frozenset(
    [
        "copy_",
        "_to_copy",
        "_copy_from",
        "set_",
        "index",
        "index_put",
        "index_put_",
        "_index_put_impl_",
        "_unsafe_index",
        "_unsafe_index_put",
        "_pack_padded_sequence",
        "_pack_padded_sequence_backward",
        "_pad_packed_sequence",
        "_ctc_loss",
        "_foreach_copy_",
    ]
)
"""Operators that take tensors of both devices."""

STAYS_ON_CPU = {"_pack_padded_sequence": 1, "_pad_packed_sequence": 1}
"""Which result of an operator lies on the CPU whatever the device."""

WAITS = {
    "nonzero": "nonzero()",
    "masked_select": "masked_select()",
    "equal": "torch.equal()",
    "allclose": "torch.allclose()",
    "_unique": "unique()",
    "_unique2": "unique()",
    "unique_dim": "unique()",
    "unique_consecutive": "unique_consecutive()",
    "repeat_interleave": "repeat_interleave() without output_size",
    "bincount": "bincount()",
}
"""Operators that need the result before Python can go on; ``devices`` watches the reading of
values, which some operators do on the CPU only."""


class DevicesApart(BaseException):
    """Ends the script where a tensor that is trained lies on the CPU, and its input on mps."""


class Watch(TorchDispatchMode):
    """Notes operators without an MPS kernel, refused data types, mixed devices, waits, shapes."""

    def __init__(self, ledger: Ledger, gpu: Gpu, shapes: Shapes) -> None:
        super().__init__()
        self.ledger = ledger
        self.gpu = gpu
        self.shapes = shapes
        self.gpu_was_used = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the first operator would import torch._dynamo, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ARG002
        kwargs = kwargs or {}
        tensors = list(_tensors((*args, *kwargs.values())))
        on_gpu = [tensor for tensor in tensors if self.gpu.holds(tensor)]
        if not on_gpu:
            results = func(*args, **kwargs)
            if self.gpu.pretends and all(pretend.is_undecided(tensor) for tensor in tensors):
                for tensor in _tensors((results,)):
                    pretend.leave_undecided(tensor)
            return results
        if not self.gpu_was_used:
            self.gpu_was_used = True
            self.ledger.record(gpu_used=True)
        name = func.overloadpacket.__name__
        if func.namespace == "c10d":
            self.ledger.note("distributed", f"{name.strip('_')} of mps tensors")
        elif func.namespace == "aten":
            kwargs = self._examine(func, name, args, kwargs, tensors, on_gpu)
            if len(on_gpu) < len(tensors) and name not in MIXES:
                args, kwargs = self._together(name, args, kwargs, tensors)
        results = func(*args, **kwargs)
        if self.gpu.pretends:
            self._place_results(name, results, tensors)
        return results

    def _examine(self, func, name, args, kwargs, tensors, on_gpu) -> dict:
        sparse = any(tensor.layout is not torch.strided for tensor in tensors)
        if not sparse and has_no_kernel(func.name().removeprefix("aten::")):
            self.ledger.note("missing-operator", f"aten::{name}")
        dtype = kwargs.get("dtype")
        to_cpu = name == "_to_copy" and _is_cpu(kwargs.get("device")) and not self.gpu.pretends
        if dtype in NARROWER and not to_cpu:
            self.ledger.note(KIND_OF_DTYPE[dtype], f"aten::{name}")
            kwargs = {**kwargs, "dtype": NARROWER[dtype]}
        wait = WAITS.get(name)
        if name in ("index", "index_put_") and _has_mask(args[1]):
            wait = "indexing with a boolean mask"
        if wait:
            place = self.ledger.direct_place()
            if place:
                self.ledger.note("sync-in-step", wait, place)
        self.shapes.see(f"aten::{name}", on_gpu)
        return kwargs

    def _together(self, name, args, kwargs, tensors) -> tuple:
        """The arguments on one device, so that the run can go on; 0-dimensional ones may differ."""
        apart = [t for t in tensors if not self.gpu.holds(t) and t.dim() and _is_dense_cpu(t)]
        if self.gpu.pretends:
            for tensor in filter(pretend.is_undecided, apart):
                pretend.put(tensor, True)
            apart = [tensor for tensor in apart if not self.gpu.holds(tensor)]
        if not apart:
            return args, kwargs
        if torch._C._current_graph_task_id() == -1:  # the backward pass only repeats the forward's
            self.ledger.note("mixed-devices", f"aten::{name}")
            # Its gradient could not come back to it: what followed would all be this one fault.
            if any(tensor.requires_grad for tensor in apart):
                raise DevicesApart
        if self.gpu.pretends:
            return args, kwargs
        # An operation that writes into a CPU tensor has to find all of them there.
        move = self.gpu.fetch if args and args[0] is apart[0] else self.gpu.send
        moved = torch.utils._pytree.tree_map_only(Tensor, move, (args, kwargs))
        return moved

    def _place_results(self, name, results, tensors) -> None:
        """Results lie on mps, except those that are one of the CPU tensors that came in."""
        on_cpu = {pretend.storage_of(t)._cdata for t in tensors if not self.gpu.holds(t)}
        results = results if isinstance(results, tuple | list) else (results,)
        for index, result in enumerate(results):
            if index == STAYS_ON_CPU.get(name):
                continue
            for tensor in _tensors((result,)):
                if pretend.storage_of(tensor)._cdata not in on_cpu:
                    pretend.put(tensor, True)


@cache
def has_no_kernel(name: str) -> bool:
    """Whether a Mac refuses this aten operator, given with its overload (``add.Tensor``)."""
    if any(part in name for part in NOT_ON_A_MAC) or name not in operators():
        return False
    kind = operators()[name].kind
    if kind is Kind.GENERIC:
        # It calls its other forms; where one of those is missing, so is it.
        packet = name.partition(".")[0]
        return packet in _packets_with_a_missing_form()
    return kind is Kind.MISSING


@cache
def _packets_with_a_missing_form() -> frozenset[str]:
    missing = (o.name for o in operators().values() if o.kind is Kind.MISSING)
    return frozenset(name.partition(".")[0] for name in missing)


def _tensors(values: Sequence) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _is_cpu(device: torch.device | None) -> bool:
    return device is not None and device.type == "cpu"


def _is_dense_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided
