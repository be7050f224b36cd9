"""The operator page, made from the operator table of the installed torch."""

from __future__ import annotations

from collections import Counter

from macgpu.operators import Kind, operators

MEANINGS = {
    Kind.NATIVE: "has an MPS kernel",
    Kind.COMPOSED: "is made of other operators, whatever the device",
    Kind.GENERIC: "has one implementation for all devices, which may call other operators",
    Kind.MISSING: "has nothing for MPS: it raises, or runs on the CPU with the fallback",
}

FILTER = """```{raw} html
<label for="operator-filter">Show names that contain</label>
<input id="operator-filter" type="search" placeholder="pool" autocomplete="off">
<p id="operator-count" aria-live="polite"></p>
```"""


def operators_page(torch_version: str) -> str:
    """The page in MyST Markdown: what the states mean, a filter, and every operator."""
    table = sorted(operators().values(), key=lambda operator: operator.name.lstrip("_"))
    counts = Counter(operator.kind for operator in table)
    lines = [
        "# Operators",
        "",
        f"Every operator of torch {torch_version} and how it gets to run on MPS, as "
        "`native_functions.yaml` in the wheel says. "
        "[Operators, data types, fallback](../notebooks/07_operators_dtypes_fallback.ipynb) "
        "explains the states. A {term}`kernel` that exists may still refuse a "
        "[data type](dtypes.md) or a shape. The column CUDA says, for comparison, whether that "
        "file lists a kernel for NVIDIA's cards; those of `add` are generated, so it lists none. "
        "Two of the missing are registered in the macOS binary all the same: "
        "`embedding_renorm_`, which always runs on the CPU, and `_slow_conv2d_forward`, which "
        "raises.",
        "",
        "| State | Operators | Meaning |",
        "|---|---|---|",
        *(f"| {kind.value} | {counts[kind]} | {MEANINGS[kind]} |" for kind in Kind),
        "",
        FILTER,
        "",
        "```{raw} html",
        '<table id="operator-table"><thead><tr><th scope="col">Operator</th>'
        '<th scope="col">MPS</th><th scope="col">CUDA</th></tr></thead><tbody>',
        *(
            f"<tr><td>{operator.name}</td><td>{operator.kind.value}</td>"
            f"<td>{'kernel' if operator.on_cuda else '–'}</td></tr>"
            for operator in table
        ),
        "</tbody></table>",
        '<script src="../_static/operators.js"></script>',
        "```",
        "",
    ]
    return "\n".join(lines)
