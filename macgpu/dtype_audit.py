"""Which operators ran in which data type: an audit of what autocast did."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class DtypeAudit(TorchDispatchMode):
    """Counts the calls of each operator by the floating-point types of its inputs and results.

    It sees what autocast made of the code, the backward pass included. ``"float16"`` says that
    inputs and results had this type, ``"float16 → float32"`` that they differed, and
    ``"float16, float32"`` that there were tensors of both. Copies that change the type are counted
    as ``"cast"``. Left out are views and plain copies, which compute nothing, and calls without a
    floating-point input.

    Attributes:
        calls: how often, by operator (``"mm"``, without overload) and types.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ARG002
        result = func(*args, **(kwargs or {}))
        name = func.name().partition("::")[2].partition(".")[0]
        is_copy = name in ("_to_copy", "copy_")
        # `copy_` takes its target first, and reads what comes second.
        took, gave = _floats(args[1] if name == "copy_" else args, kwargs), _floats(result)
        known = f"{took} → {gave}" if gave and gave != took else took
        if is_copy and took and "→" in known:
            self.calls["cast", known] += 1
        elif took and not is_copy and not func.is_view:
            self.calls[name, known] += 1
        return result

    def table(self) -> pd.DataFrame:
        """Calls: a row for each operator, a column for each combination of types."""
        if not self.calls:
            return pd.DataFrame()
        calls = pd.Series(self.calls, dtype=int).unstack(fill_value=0)
        return calls.sort_index().sort_index(axis=1)


def _floats(*values: object) -> str:
    """The floating-point types of the tensors among nested values, in order of their names."""
    dtypes = {leaf.dtype for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}
    names = (str(dtype).removeprefix("torch.") for dtype in dtypes if dtype.is_floating_point)
    return ", ".join(sorted(names))
