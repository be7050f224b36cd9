"""The operator table: what PyTorch's MPS backend has a kernel for, without a Mac.

Source: `native_functions.yaml`, the list that PyTorch is generated from, which the wheel packs.
For torch 2.14.1 it was compared with the operators registered in the official macOS binary: none
too many, and two too few, the EXTRAS.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import pandas as pd
import yaml

# `embedding_renorm_` is registered as a fallback to the CPU, `_slow_conv2d_forward` as an error:
# the binary has them under the MPS key, the list has not.
EXTRAS = frozenset({"_slow_conv2d_forward", "embedding_renorm_"})


HISTORY = Path(__file__).resolve().parent.parent / "data" / "torch-versions" / "operators.csv"


class Kind(str, Enum):
    """How an operator gets to run on MPS."""

    NATIVE = "native"  # has an MPS kernel
    COMPOSED = "composed"  # is computed with other operators, whatever the device
    GENERIC = "generic"  # has one kernel for all devices, which may call other operators
    MISSING = "missing"  # NotImplementedError, or the CPU with PYTORCH_ENABLE_MPS_FALLBACK=1


@dataclass(frozen=True)
class Operator:
    """One aten operator: its name with overload (`add.Tensor`) and how it gets to run on MPS."""

    name: str
    kind: Kind
    elementwise: bool  # iterates over its tensors element by element, with broadcasting
    on_cuda: bool  # has a CUDA kernel


def native_functions_path() -> Path:
    """The list packed with the installed torch; torch itself is not imported.

    Raises ModuleNotFoundError where torch is not installed.
    """
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed: its package torchgen is not there")
    return Path(spec.origin).parent / "packaged/ATen/native/native_functions.yaml"


@cache
def operators() -> dict[str, Operator]:
    """All aten operators of the installed torch, by name with overload."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(native_functions_path().read_text(), Loader=loader)
    by_name = {entry["func"].split("(")[0]: entry for entry in entries}
    return {name: _classify(name, entry, by_name) for name, entry in by_name.items()}


def classify(name: str) -> Kind:
    """How `name`, with overload and with or without `aten::`, gets to run on MPS.

    Raises KeyError for a name that the installed torch does not have.
    """
    return operators()[name.removeprefix("aten::")].kind


def native_names() -> frozenset[str]:
    """The operators with an MPS kernel, as in the macOS binary."""
    native = {name for name, operator in operators().items() if operator.kind is Kind.NATIVE}
    return frozenset(native) | (EXTRAS & operators().keys())


def history() -> pd.DataFrame:
    """Counts by torch version, a row each: torch, total, native, composed, generic, missing, cuda
    (with a CUDA kernel), both. Source: data/torch-versions/README.md."""
    return pd.read_csv(HISTORY, dtype={"torch": str})


def _classify(name: str, entry: dict, by_name: dict[str, dict]) -> Operator:
    # A structured operator is implemented once, in its `out` form; the others delegate to it.
    structured = by_name[entry["structured_delegate"]] if "structured_delegate" in entry else entry
    keys = _dispatch_keys(entry)
    kernels = keys | _dispatch_keys(structured)
    if "MPS" in kernels:
        kind = Kind.NATIVE
    elif not keys and structured is entry or "CompositeImplicitAutograd" in keys:
        kind = Kind.COMPOSED
    elif any(key.startswith("CompositeExplicitAutograd") for key in keys):
        kind = Kind.GENERIC
    else:
        kind = Kind.MISSING
    tags = entry.get("tags", [])
    elementwise = (
        "pointwise" in ([tags] if isinstance(tags, str) else tags)
        or structured.get("structured_inherits") == "TensorIteratorBase"
    )
    return Operator(name, kind, elementwise, "CUDA" in kernels)


def _dispatch_keys(entry: dict) -> set[str]:
    """`CPU, CUDA: kernel` in the list means two keys."""
    return {key.strip() for keys in entry.get("dispatch", {}) for key in keys.split(",")}
