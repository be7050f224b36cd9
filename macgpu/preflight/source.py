"""The user's program: a script or a notebook, its modules, and where its lines are."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CELL = "#cell-"
"""Separates a notebook's path from the number of the cell in a code object's file name."""


RUNS_ITS_CELL = ("time", "timeit", "capture", "prun")
"""Cell magics whose cell is Python that runs in the notebook's own process and names."""

NO_CODE = ("html", "HTML", "markdown", "latex", "svg", "SVG", "javascript", "js")
"""Cell magics whose cell holds nothing that Python would run."""


class SourceError(ValueError):
    """The program cannot be read; the message says why in one line."""


@dataclass(frozen=True)
class Part:
    """A piece of code that is compiled as one: a module, or a notebook's cell."""

    name: str
    text: str
    skipped: str | None = None
    """The cell magic for whose sake the cell is not run, such as ``bash``."""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)


@dataclass(frozen=True)
class Program:
    """A script or notebook.

    Attributes:
        path: absolute.
        parts: the script, or the notebook's code cells in order.
        modules: the modules in its directory that it imports, directly or not.
    """

    path: Path
    parts: tuple[Part, ...]
    modules: tuple[Part, ...] = field(default=())

    @property
    def is_notebook(self) -> bool:
        return self.path.suffix == ".ipynb"

    @property
    def everything(self) -> tuple[Part, ...]:
        return self.parts + self.modules

    @cached_property
    def knows_mps(self) -> bool:
        """Whether its code names mps, or asks torch for the accelerator, anywhere."""
        return any(_names_mps(node) for part in self.everything for node in ast.walk(part.tree))

    @cached_property
    def _guards(self) -> list[range]:
        return [
            range(node.lineno, node.end_lineno + 1)
            for node in self.parts[0].tree.body
            if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        ]

    def is_guarded(self, line: int) -> bool:
        """Whether a spawned process leaves this line of the script out; a notebook is not run."""
        return self.is_notebook or any(line in guard for guard in self._guards)


def read_program(path: Path) -> Program:
    """Read a script or a notebook and the modules beside it.

    Raises:
        SourceError: where it does not exist, is no Python, or is no notebook.
    """
    path = path.resolve()
    if not path.is_file():
        raise SourceError(f"{path.name} {'is no file' if path.exists() else 'does not exist'}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path.name} cannot be read as text: {error}") from None
    parts = _cells(path, text) if path.suffix == ".ipynb" else (Part(str(path), text),)
    for part in parts:
        try:
            _ = part.tree
        except (SyntaxError, ValueError) as error:
            where = describe(part.name, getattr(error, "lineno", None))
            raise SourceError(f"{where} is not valid Python: {error.args[0]}") from None
    return Program(path, parts, tuple(_modules(path.parent, parts)))


def split_name(name: str) -> tuple[str, int | None]:
    """A code object's file name as the file and, for a notebook, the number of the cell."""
    file, _, cell = name.partition(CELL)
    return file, int(cell) if cell else None


def describe(name: str, line: int | None) -> str:
    """``train.py:12``, or ``notebook.ipynb, cell 3, line 2``."""
    file, cell = split_name(name)
    if cell:
        return f"{Path(file).name}, cell {cell}, line {line}"
    return Path(file).name + (f":{line}" if line else "")


def _cells(path: Path, text: str) -> tuple[Part, ...]:
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"{path.name} is not a notebook") from None
    return tuple(
        _cell(f"{path}{CELL}{number}", source) for number, source in enumerate(sources, start=1)
    )


def _cell(name: str, source: str) -> Part:
    from IPython.core.inputtransformer2 import TransformerManager

    magic = re.match(r"\s*%%(\S+)(.*)", source)
    if magic:
        call, argument = magic.groups()
        if call not in RUNS_ITS_CELL:
            return Part(name, "", skipped=call)
        # The magic's own line stays as a line, so that those after it keep their numbers.
        above = "\n" * source.count("\n", 0, magic.start(1))
        source = above + _line_for(call, argument.strip()) + source[magic.end() :]
    # IPython drops empty lines at the top.
    empty = re.match(r"(?:[ \t]*\n)*", source).group()
    code = TransformerManager().transform_cell(source[len(empty) :])
    return Part(name, "\n" * empty.count("\n") + code)


def _line_for(magic: str, argument: str) -> str:
    """Python that stands for the line of a cell magic which runs its cell."""
    if magic == "timeit":  # the rest of the line is the setup
        return re.sub(r"-[nr]\s*\d+|-[tcpoqv]\S*", "", argument).strip() or "pass"
    captured = [word for word in argument.split() if word.isidentifier()]
    if magic == "capture" and captured:
        return f"{captured[0]} = get_ipython()"
    return "pass"


def _modules(folder: Path, parts: tuple[Part, ...]) -> list[Part]:
    """The modules in the folder that the parts import, and what those import in turn."""
    found: dict[Path, Part] = {}
    to_do = list(parts)
    while to_do:
        for name in _imported(to_do.pop().tree):
            module = folder.joinpath(*name.split("."))
            for path in (module.with_suffix(".py"), module / "__init__.py"):
                if path in found or not path.is_file():
                    continue
                part = Part(str(path), path.read_text(encoding="utf-8", errors="replace"))
                try:
                    _ = part.tree
                except (SyntaxError, ValueError):
                    continue  # the run says so, if it comes to that
                found[path] = part
                to_do.append(part)
    return list(found.values())


def _imported(tree: ast.Module) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names += [module] if module else []
            names += [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
    return names


def _names_mps(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in ("mps", "mps:0")
    if isinstance(node, ast.Attribute):
        return node.attr in ("mps", "accelerator")
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("macgpu")
