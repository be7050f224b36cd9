"""Runs PyTorch's own sample inputs (`op_db`) on the CPU and on the device and compares.

An outcome is one word and a detail:

- `same`: values, types and gradients agree for every sample.
- `refused`: the device refuses as a Mac does: an operator without an MPS kernel, float64.
- `different`: anything else. Each of these has to be in `known_differences.json`.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

from macgpu.operators import Kind, classify

# Their result is memory that nobody wrote: shape and type are all there is to compare.
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "resize_", "resize_as_",
}  # fmt: skip
DTYPES = (torch.float32, torch.float16)
TOLERANCE = {torch.float32: (1e-4, 1e-4), torch.float16: (1e-2, 1e-2)}


@dataclass(frozen=True)
class Case:
    name: str  # with the variant: `div.floor_rounding`
    op: OpInfo
    dtype: torch.dtype

    @property
    def label(self) -> str:
        return f"{self.name} {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Outcome:
    word: str  # same, refused, different
    detail: str = ""


def cases() -> list[Case]:
    """Every operator of `op_db` with each of DTYPES that its CPU kernel has."""
    return [
        Case(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""), op, dtype)
        for op in op_db
        for dtype in DTYPES
        if dtype in op.supported_dtypes("cpu")
    ]


def outcome(case: Case) -> Outcome:
    """Compares all sample inputs of one case, and float32's gradients where there are any."""
    with_gradients = case.dtype == torch.float32 and case.op.supports_autograd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        samples = list(case.op.sample_inputs("cpu", case.dtype, requires_grad=with_gradients))
        refusals = set()
        for sample in samples:
            try:
                expected = _call(case.op, sample)
            except Exception:  # noqa: BLE001  # a sample that the CPU refuses compares nothing
                continue
            try:
                on_mps = _on_mps(sample)
                if not _concerns_the_device(on_mps):
                    continue  # a factory without a device: it makes a CPU tensor anywhere
                actual = _call(case.op, on_mps)
                _compare(case, actual, expected)
            except Exception as error:  # noqa: BLE001  # the outcome is what this function returns
                refusal = _as_on_a_mac(error)
                if refusal is None:
                    return Outcome("different", f"{type(error).__name__}: {error}")
                refusals.add(refusal)
    return Outcome("refused", ", ".join(sorted(refusals))) if refusals else Outcome("same")


def _on_mps(sample: SampleInput) -> SampleInput:
    values = (sample.input, sample.args, sample.kwargs)
    input_, args, kwargs = tree_map(_to_mps, values)
    return SampleInput(input_, args=args, kwargs=kwargs)


def _to_mps(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.detach().to("mps").requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device("mps")
    return value


def _concerns_the_device(sample: SampleInput) -> bool:
    values = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    return any(isinstance(value, torch.Tensor | torch.device) for value in values)


def _call(op: OpInfo, sample: SampleInput) -> list:
    """The results, followed by the gradients of their sum."""
    inputs = [
        leaf
        for leaf in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    copies = [leaf.detach().clone().requires_grad_() for leaf in inputs]
    swap = {id(leaf): copy for leaf, copy in zip(inputs, copies, strict=True)}

    def fresh(value: object) -> object:
        # In-place operators may not write to a leaf that needs gradients.
        if isinstance(value, torch.Tensor):
            return swap[id(value)].clone() if id(value) in swap else value.clone()
        return value

    input_, args, kwargs = tree_map(fresh, (sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    results = tree_flatten(op(input_, *args, **kwargs))[0]
    total = [
        result.sum()
        for result in results
        if isinstance(result, torch.Tensor) and result.requires_grad and not result.is_complex()
    ]
    if copies and total:
        gradients = torch.autograd.grad(sum(total), copies, allow_unused=True)
        results = [*results, *gradients]
    return results


def _compare(case: Case, actual: list, expected: list) -> None:
    assert len(actual) == len(expected), f"{len(actual)} results, not {len(expected)}"
    rtol, atol = TOLERANCE[case.dtype]
    for mine, reference in zip(actual, expected, strict=True):
        if not isinstance(reference, torch.Tensor):
            assert mine == reference or isinstance(reference, float), f"{mine} != {reference}"
            continue
        assert mine.is_mps, f"a result on {mine.device}"
        assert mine.dtype == reference.dtype and mine.shape == reference.shape
        if case.op.name not in UNINITIALISED:
            torch.testing.assert_close(
                mine.detach().cpu(), reference.detach().cpu(), rtol=rtol, atol=atol, equal_nan=True
            )


def _as_on_a_mac(error: Exception) -> str | None:
    """What was refused, if a Mac would refuse it too."""
    missing = re.match(r"The operator 'aten::(\S+)' is not currently implemented", str(error))
    if missing and isinstance(error, NotImplementedError):
        return f"aten::{missing[1]}" if classify(missing[1]) is Kind.MISSING else None
    if isinstance(error, TypeError) and (
        "doesn't support float64" in str(error) or "does not have support for that" in str(error)
    ):
        return "float64 or complex128"
    return None
