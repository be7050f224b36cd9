"""Measuring split blocks on the ranks that torchrun started. All ranks call these in step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from macgpu.device import empty_cache, synchronize
from macgpu.measure.memory import peak_bytes, ran_out, reset_peak
from macgpu.measure.timing import Effort, compare_steps, time_in_turn, time_step
from macgpu.parallel import plan
from macgpu.parallel.blocks import MLP, Attention, Block
from macgpu.parallel.layers import PLAIN, WHOLE, Split, Way
from macgpu.parallel.ranks import Ranks, SharedClock
from macgpu.parallel.scaling import Case, Collective, Exactness, Footprint, Setting, Speedup, Step
from macgpu.parallel.shape import heads_of
from macgpu.parallel.weights import part

Report = Callable[[str], None]

ENGINE = "DTensor"
"""The way of PyTorch's own engine."""
UNSPLIT = "whole"
SEQUENCES = 4
WITHIN = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 0.02}
"""How far a split step may be from the whole one before it is timed, by data type."""

SWEEP_EFFORTS = {
    "smoke": Effort(0.002, 5, 3),
    "quick": Effort(0.010, 7, 5),
    "full": Effort(0.020, 9, 6),
}
"""By profile: short blocks, since many settings are tried, and the pairs of the comparison with
the whole block are many."""

WAYS = (
    PLAIN,
    Way(backward_chunks=1),
    Way(2, 1),
    Way(4, 1),
    Way(8, 1),
    Way(4, 2),
    Way(sequence=True),
    Way(backward_chunks=1, sequence=True),
)
FUSED = Way(sequence=True, fused=True)
TUNED = (Way(2, 1), Way(4, 1), Way(4, 2))
"""The ways that are also tried with few multiprocessors for the collectives."""
CTAS = (4, 8, 16)
CARVED = (8, 16)
"""So many are then kept free of products."""


@dataclass
class Groups:
    """The process groups of each degree: ranks 0 to degree - 1, by NCCL's settings."""

    ranks: Ranks
    degrees: tuple[int, ...]
    timeout_s: float

    def __post_init__(self):
        self.made: dict[tuple[int, int | None], dist.ProcessGroup] = {}
        for degree in self.degrees:
            for ctas in (None, *(CTAS if self.ranks.device.type == "cuda" else ())):
                self.made[degree, ctas] = self._make(degree, ctas)

    def split(self, degree: int, way: Way = PLAIN, ctas: int | None = None) -> Split | None:
        """This rank's place at that degree; ``None`` where it has none."""
        if self.ranks.rank >= degree:
            return None
        if degree == 1:
            return WHOLE
        return Split(self.made[degree, ctas], degree, self.ranks.rank, way)

    def _make(self, degree: int, ctas: int | None) -> dist.ProcessGroup:
        members, timeout = list(range(degree)), timedelta(seconds=self.timeout_s)
        if self.ranks.device.type != "cuda":
            return dist.new_group(members, timeout=timeout, backend="gloo")
        # Else a large product that is already queued would be served first.
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        if ctas:
            options.config.max_ctas = ctas
        return dist.new_group(members, timeout=timeout, backend="nccl", pg_options=options)


def make_block(case: Case, split: Split, device: torch.device, bias: bool = False) -> Block:
    """A rank's part of the case's block; without biases, as in current language models."""
    dtype = getattr(torch, case.dtype)
    if case.block == "mlp":
        return MLP(case.width, bias, split, device=device, dtype=dtype)
    heads, sequence = heads_of(case.width), case.tokens // SEQUENCES
    return Attention(case.width, heads, sequence, bias, split, device=device, dtype=dtype)


@dataclass
class BlockStep:
    """Forward and backward of a block: the gradients of its input and its weights."""

    block: torch.nn.Module
    x: torch.Tensor
    upstream: torch.Tensor
    blas: str = "default"
    carve_out: int = 0

    def __call__(self) -> list[torch.Tensor]:
        if self.x.device.type == "cuda":
            torch.backends.cuda.preferred_blas_library(self.blas)
            torch._C._set_sm_carveout_experimental(self.carve_out or None)
        out = self.block(self.x)
        # The engine's result may still be on its way; a network's next layer would wait for it.
        getattr(out, "wait", nothing)()
        return [
            out.detach(),
            *torch.autograd.grad(out, [self.x, *self.block.parameters()], self.upstream),
        ]


def inputs(case: Case, split: Split, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens and the upstream gradient, (tokens, width); a rank's part under ``sequence``."""
    generator = torch.Generator(device).manual_seed(7)
    mine = slice(None)
    if split.way.sequence:
        mine = part(case.tokens, split.degree, split.rank)
    drawn = [
        torch.randn(
            case.tokens,
            case.width,
            generator=generator,
            device=device,
            dtype=getattr(torch, case.dtype),
        )[mine].contiguous()
        for _ in range(2)
    ]
    return drawn[0].requires_grad_(), drawn[1]


def exactness(
    block: str, width: int, tokens: int, degree: int, ways: Iterable[Way | None], groups: Groups
) -> list[Exactness]:
    """Each way of splitting against the whole block in float64: the largest differences.

    The way ``None`` is that of PyTorch's own engine.
    """
    ranks = groups.ranks
    case = Case(block, width, tokens, "float64", degree)
    whole = make_block(case, WHOLE, ranks.device, bias=True)
    expected = BlockStep(whole, *inputs(case, WHOLE, ranks.device))()
    found = []
    for way in ways:
        split, differences = groups.split(degree, way or PLAIN), [0.0, 0.0, 0.0]
        failure = None
        if split:
            try:
                differences = _differences(case, split, way, expected, ranks.device)
            except Exception as error:
                # Whatever it was, all ranks must learn of it.
                failure = type(error).__name__
        failure = next(filter(None, ranks.gathered(failure)), None)
        largest = [None if failure else ranks.largest(one) for one in differences]
        found.append(Exactness(block, degree, str(way or ENGINE), *largest, failure=failure))
    return found


def _differences(
    case: Case,
    split: Split,
    way: Way | None,
    expected: list[torch.Tensor],
    device: torch.device,
) -> list[float]:
    """Of this rank's output, input gradient and weight gradients from its part of the whole's."""
    block = make_block(case, split, device, bias=True)
    if way is None:
        block = plan.adopt(block, DeviceMesh.from_group(split.group, device.type))
    out, x_gradient, *gradients = BlockStep(block, *inputs(case, split, device))()
    names = [name for name, _ in block.named_parameters()]
    got = [out, x_gradient, *_by_place(names, gradients)]

    def mine(whole: torch.Tensor, dim: int = 0) -> torch.Tensor:
        kept = part(whole.shape[dim], split.degree, split.rank)
        return whole[kept] if dim == 0 else whole[:, kept]

    pieces = 3 if case.block == "attention" else 1
    inner, outer, inner_bias, outer_bias = expected[2:]
    tokens = slice(None)
    if split.way.sequence:
        tokens = part(case.tokens, split.degree, split.rank)
    wanted = [
        expected[0][tokens],
        expected[1][tokens],
        torch.cat([mine(one) for one in inner.chunk(pieces)]),
        mine(outer, dim=1),
        torch.cat([mine(one) for one in inner_bias.chunk(pieces)]),
        outer_bias,
    ]
    apart = [float((one - other).abs().max()) for one, other in zip(got, wanted, strict=True)]
    return [apart[0], apart[1], max(apart[2:])]


def _by_place(names: list[str], gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """A block's gradients as inner weight, outer weight, inner bias, outer bias.

    The engine's attention has three inner layers, which are joined.
    """
    places: dict[tuple[bool, bool], list[torch.Tensor]] = {}
    for name, gradient in zip(names, gradients, strict=True):
        local = getattr(gradient, "to_local", lambda gradient=gradient: gradient)()
        places.setdefault((name.endswith("bias"), name.startswith("outer")), []).append(local)
    return [torch.cat(places[place]) for place in sorted(places)]


def footprints(case: Case, ways: Iterable[Way], groups: Groups) -> list[Footprint]:
    """The peak of one forward and backward where a rank holds its part and nothing else.

    The whole block is measured on the first rank, in its turn.
    """
    ranks, found = groups.ranks, []
    turns = [(replace(case, degree=1), PLAIN), *((case, way) for way in ways)]
    for one, way in turns:
        split = groups.split(one.degree, way)
        peak, parameters = None, 0
        if split:
            empty_cache(ranks.device)
            reset_peak(ranks.device)
            block = make_block(one, split, ranks.device)
            step = BlockStep(block, *inputs(one, split, ranks.device))
            step()
            synchronize(ranks.device)
            peak = peak_bytes(ranks.device)
            parameters = sum(weight.numel() for weight in block.parameters())
            del block, step
            empty_cache(ranks.device)
        members = ranks.gathered((peak, parameters))[: one.degree]
        peaks, counts = zip(*members, strict=True)
        found.append(Footprint(one, UNSPLIT if one.degree == 1 else str(way), peaks, counts))
    return found


def collectives(
    sizes: Iterable[int], degree: int, dtype: torch.dtype, profile: str, groups: Groups
) -> Iterator[Collective]:
    """The all-reduce of tensors of so many bytes."""
    ranks = groups.ranks
    for size in sizes:
        for ctas in sorted({ctas for found, ctas in groups.made if found == degree}, key=_none):
            if ctas and size < 1 << 22:
                continue
            split = groups.split(degree, ctas=ctas)
            step = nothing
            if split:
                tensor = torch.zeros(size // dtype.itemsize, dtype=dtype, device=ranks.device)
                step = _all_reduce(tensor, split.group)
            timing = time_step(step, ranks.device, SWEEP_EFFORTS[profile], clock=SharedClock(ranks))
            yield Collective("all-reduce", degree, size, ctas, timing)


def settings(groups: Groups, fused: bool) -> list[tuple[Setting, Way | None]]:
    """What is tried of a split block; the way is ``None`` for PyTorch's own engine."""
    if fused:
        return [(Setting(str(way)), way) for way in (PLAIN, FUSED)]
    tried: list[tuple[Setting, Way | None]] = [(Setting(ENGINE), None)]
    tried += [(Setting(str(way)), way) for way in WAYS]
    for ctas in sorted({ctas for _, ctas in groups.made if ctas}):
        tried += [(Setting(str(way), ctas), way) for way in TUNED]
    # A product that takes all multiprocessors and keeps them lets no collective run beside it.
    for way in (Way(4, 1), Way(4, 2)) if groups.ranks.device.type == "cuda" else ():
        tried.append((Setting(str(way), None, "cublaslt"), way))
        tried += [(Setting(str(way), count, "cublaslt", count), way) for count in CARVED]
    return tried


def sweep(
    case: Case, groups: Groups, profile: str, report: Report, fused: bool = False
) -> tuple[list[Step], list[Speedup]]:
    """Time the whole block on the first rank and every setting of the split one, in turn.

    A setting that computes something else is not timed. The fastest one and PyTorch's engine are
    then compared with the whole block by pairs of blocks.
    """
    ranks, device = groups.ranks, groups.ranks.device
    whole_case = replace(case, degree=1)
    entries: list[tuple[Case, Setting, Callable[[], object]]] = []
    whole: Callable[[], object] = nothing
    libraries = ("default", "cublaslt") if device.type == "cuda" else ("default",)
    if ranks.first:
        whole = BlockStep(make_block(whole_case, WHOLE, device), *inputs(case, WHOLE, device))
    for blas in libraries:
        step = replace(whole, blas=blas) if ranks.first else nothing
        entries.append((whole_case, Setting(UNSPLIT, blas=blas), step))

    split = groups.split(case.degree)
    block = make_block(case, split, device) if split else None
    expected = whole()[:2] if ranks.first else None
    drawn: dict[bool, tuple[torch.Tensor, torch.Tensor]] = {}
    kept, results = list(entries), []
    for setting, way in settings(groups, fused):
        step, difference, failure = nothing, None, None
        try:
            if split:
                step = _split_step(case, block, setting, way, groups, drawn)
                difference = _relative(case, step(), way, split, expected)
                synchronize(device)
        except Exception as error:
            failure = "out of memory" if ran_out(error, device) else type(error).__name__
            report(f"  {setting}: {str(error).splitlines()[0]}")
        failure = next(filter(None, ranks.gathered(failure)), None)
        difference = ranks.largest(-1.0 if difference is None else difference)
        if failure is None and difference > WITHIN[case.dtype]:
            failure = "wrong"
        if failure:
            results.append(Step(case, setting, None, failure, max(difference, 0.0)))
            continue
        kept.append((case, setting, step))
        results.append(Step(case, setting, None, None, difference))
    del expected

    timings = time_in_turn(
        [step for *_, step in kept], device, SWEEP_EFFORTS[profile], clock=SharedClock(ranks)
    )
    by_entry = {
        (one, setting): timing for (one, setting, _), timing in zip(kept, timings, strict=True)
    }
    results = [Step(one, setting, None) for one, setting, _ in entries] + results
    results = [replace(step, timing=by_entry.get((step.case, step.setting))) for step in results]
    for step in results:
        report(f"  {step.setting}: {step.timing or step.failure}")

    def fastest(among):
        return min(among, key=lambda entry: by_entry[entry[0], entry[1]].median_s)

    baseline = fastest(kept[: len(entries)])
    chosen = [fastest(kept[len(entries) :])] if len(kept) > len(entries) else []
    chosen += [entry for entry in kept if entry[1].way == ENGINE and entry not in chosen]
    speedups = []
    for one, setting, step in chosen:
        ratio = compare_steps(
            baseline[2], step, device, SWEEP_EFFORTS[profile], clock=SharedClock(ranks)
        )
        speedups.append(Speedup(one, setting, baseline[1], ratio))
        report(f"  speed-up: {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], {setting}")
    return results, speedups


def _split_step(
    case: Case,
    block: Block,
    setting: Setting,
    way: Way | None,
    groups: Groups,
    drawn: dict[bool, tuple[torch.Tensor, torch.Tensor]],
) -> BlockStep:
    """``drawn`` keeps the inputs, which all steps of one layout of the tokens share."""
    split = groups.split(case.degree, way or PLAIN, setting.max_ctas)
    if way is None:
        mesh = DeviceMesh.from_group(split.group, groups.ranks.device.type)
        module = plan.adopt(block, mesh)
    else:
        module = block.with_way(way, split.group)
    if split.way.sequence not in drawn:
        drawn[split.way.sequence] = inputs(case, split, groups.ranks.device)
    return BlockStep(module, *drawn[split.way.sequence], setting.blas, setting.carve_out)


def _relative(
    case: Case,
    got: list[torch.Tensor],
    way: Way | None,
    split: Split,
    expected: list[torch.Tensor] | None,
) -> float | None:
    """How far output and input gradient are from the whole block's, on the first rank.

    The first rank's part of the tokens is compared where a rank holds no more.
    """
    if expected is None:
        return None
    mine = slice(None)
    if way and way.sequence:
        mine = part(case.tokens, split.degree, 0)
    return max(
        float((one - other[mine]).double().norm() / other[mine].double().norm())
        for one, other in zip(got[:2], expected, strict=True)
    )


def _all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup) -> Callable[[], object]:
    return lambda: dist.all_reduce(tensor, group=group)


def nothing() -> None:
    """What a rank does while others work: it waits at the clock."""


def _none(number: int | None) -> int:
    return number or 0
