"""Which operators ran in which data type: an audit of what autocast did."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_SOURCE_OF_COPY = {"_to_copy": 0, "copy_": 1}
"""Which argument a copying operator reads."""


class DtypeAudit(TorchDispatchMode):
    """Counts the calls of each operator by the floating-point types of its inputs.

    It sees what autocast made of the code, the backward pass included. A cast is counted as
    ``"float32 → float16"``, an operator with inputs of two types as ``"float16, float32"``. Left
    out are views and copies, which compute nothing, and calls without a floating-point input.

    Attributes:
        calls: how often, by operator (``"mm"``, without overload) and types.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ARG002
        # Looked at before the call: an operator may change an input in place.
        took = _floats((args, kwargs))
        result = func(*args, **(kwargs or {}))
        name = func.name().partition("::")[2].partition(".")[0]
        if name in _SOURCE_OF_COPY:
            source, target = _floats(args[_SOURCE_OF_COPY[name]]), _floats(result)
            if source and target and source != target:
                self.calls["cast", f"{source} → {target}"] += 1
        elif took and not func.is_view:
            self.calls[name, took] += 1
        return result

    def table(self) -> pd.DataFrame:
        """Calls: a row for each operator, a column for each combination of types."""
        calls = pd.Series(self.calls, dtype=int).unstack(fill_value=0)
        return calls.sort_index().sort_index(axis=1)


def _floats(values: object) -> str:
    """The floating-point types of the tensors among nested values, in order of their names."""
    dtypes = {leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}
    names = (str(dtype).removeprefix("torch.") for dtype in dtypes if dtype.is_floating_point)
    return ", ".join(sorted(names))
