"""The operator table against the official macOS binary."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from macgpu.operators import EXTRAS, Kind, classify, native_names, operators

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
