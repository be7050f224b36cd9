"""The operator table against the official macOS binary."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from macgpu.operators import EXTRAS, Kind, classify, history, native_names, operators

DECODED = Path(__file__).parent / "mps_operators_torch-2.14.1.txt"


def test_table_equals_the_macos_binary() -> None:
    if version("torch").split("+")[0] != "2.14.1":
        pytest.skip(f"the binary of torch 2.14.1 was decoded, not that of {version('torch')}")
    lines = DECODED.read_text().splitlines()
    decoded = {line for line in lines if line and not line.startswith("#")}
    assert native_names() == decoded
    native = {name for name, operator in operators().items() if operator.kind is Kind.NATIVE}
    assert decoded - native == EXTRAS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mm", Kind.NATIVE),  # structured: its kernel is that of mm.out
        ("aten::linear", Kind.NATIVE),  # composed elsewhere
        ("softmax.int", Kind.COMPOSED),
        ("transpose.int", Kind.GENERIC),
        ("mode", Kind.MISSING),
        ("linalg_eig", Kind.MISSING),
    ],
)
def test_classification(name: str, kind: Kind) -> None:
    assert classify(name) is kind


def test_elementwise_operators() -> None:
    table = operators()
    assert table["add.Tensor"].elementwise and table["where.self"].elementwise
    assert not table["mm"].elementwise and not table["index_select"].elementwise


def test_unknown_operator() -> None:
    with pytest.raises(KeyError):
        classify("no_such_operator")


def test_history_ends_with_what_the_installed_version_gives() -> None:
    installed = version("torch").partition("+")[0]
    rows = history().set_index("torch")
    if installed not in rows.index:
        pytest.skip(f"the table has no row for torch {installed}")
    table = operators().values()
    counted = Counter(operator.kind.value for operator in table)
    row = rows.loc[installed]
    assert {kind: row[kind] for kind in counted} == counted
    assert row["total"] == len(table)
    assert row["cuda"] == sum(operator.on_cuda for operator in table)
    both = sum(operator.on_cuda and operator.kind is Kind.NATIVE for operator in table)
    assert row["both"] == both
