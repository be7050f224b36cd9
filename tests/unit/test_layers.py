"""The way that imports may go: publishing imports measuring, never the other way round."""

import ast

from tests.conftest import ROOT

PACKAGE = ROOT / "macgpu"
# The command line stands above both.
ABOVE = {"cli.py", "__main__.py"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_measuring_never_imports_publishing():
    measuring = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.name not in ABOVE and "publish" not in path.relative_to(PACKAGE).parts
    ]
    assert len(measuring) > 5
    wrong = [
        path.name
        for path in measuring
        if any(name.startswith("macgpu.publish") for name in imported(path))
    ]
    assert wrong == []


def test_nothing_imports_a_chapter():
    for path in PACKAGE.rglob("*.py"):
        assert not any(name.startswith("notebooks") for name in imported(path)), path
