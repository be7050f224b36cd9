"""When a chapter must be executed again: a fingerprint of all that its output depends on.

The fingerprint is of contents, never of time stamps: the notebook, the modules of ``macgpu`` that
it uses (with those that they use), the parameters, the data those modules read, and the versions
of Python and torch.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from macgpu.errors import BookError
from macgpu.publish.book import Chapter

PACKAGE = Path(__file__).resolve().parent.parent

FOLDERS_READ_BY = {
    "macgpu.data": PACKAGE.parent / "data" / "fashion-mnist",
    "macgpu.jobs.snippets": PACKAGE.parent / "data" / "movie-snippets",
    "macgpu.operators": PACKAGE.parent / "data" / "torch-versions",
    "macgpu.softmps": PACKAGE / "softmps" / "csrc",
    "macgpu.chips": PACKAGE.parent / "data" / "chips",
    "macgpu.speedup": PACKAGE.parent / "data" / "m2-article",
    "macgpu.measure.records": PACKAGE.parent / "results",
    "macgpu.reported": PACKAGE.parent / "data" / "reported",
}
"""Modules that read files of the repository, and the folder that they read."""


def fingerprint(chapter: Chapter, parameters: dict) -> str:
    """A hash that changes when anything that the chapter's output depends on changes."""
    notebook = chapter.read()
    digest = hashlib.sha256()
    _add(digest, _content(notebook))
    _add(digest, json.dumps(parameters, sort_keys=True).encode())
    _add(digest, f"python {platform.python_version()} torch {version('torch')}".encode())
    for module in sorted(modules_used(notebook, chapter.path.name)):
        _add(digest, module.encode())
        _add(digest, module_path(module).read_bytes())
        for path in _files(FOLDERS_READ_BY.get(module)):
            _add(digest, path.name.encode())
            _add(digest, path.read_bytes())
    return digest.hexdigest()


def modules_used(notebook: NotebookNode, name: str = "notebook") -> set[str]:
    """The modules of ``macgpu`` that a notebook imports, and all that those import in turn.

    Raises:
        BookError: where a cell is not Python.
    """
    found: set[str] = set()
    waiting = set()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # Magics (%env, !ls, %%bash) become calls, so that what is left is Python.
            source = TransformerManager().transform_cell(cell.source)
            waiting |= _imports(_parse(source, f"{name}, cell {cell.id!r}"))
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        path = module_path(module)
        waiting |= _imports(_parse(path.read_text(encoding="utf-8"), path.name))
    return found


def module_path(module: str) -> Path:
    """The file of a module of ``macgpu``; a package's is its ``__init__.py``."""
    base = PACKAGE.parent.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _imports(tree: ast.AST) -> set[str]:
    """The modules of ``macgpu`` named by import statements anywhere in the tree."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    modules = {name for name in names if name.split(".")[0] == PACKAGE.name}
    # `from macgpu.data import MEAN` also yields macgpu.data.MEAN, which is no module.
    modules = {name for name in modules if module_path(name).is_file()}
    # Importing a.b.c runs a and a.b too.
    return modules | {name.rsplit(".", depth)[0] for name in modules for depth in (1, 2)}


def _parse(source: str, where: str) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise BookError(f"{where}: line {error.lineno}: {error.msg}") from None


def _content(notebook: NotebookNode) -> bytes:
    """What of a notebook decides its output and its page: not outputs, not execution counts."""
    cells = [(cell.cell_type, cell.source, cell.metadata) for cell in notebook.cells]
    return json.dumps(cells, sort_keys=True).encode()


def _files(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        # The files that a module reads; not what a file manager or a text editor leaves there.
        readable = (path for path in folder.rglob("*") if path.is_file())
        yield from sorted(p for p in readable if p.name[0] != "." and p.suffix != ".md")


def _add(digest: hashlib._Hash, content: bytes) -> None:
    # With its length, so that two parts cannot be mistaken for one.
    digest.update(len(content).to_bytes(8, "big"))
    digest.update(content)
