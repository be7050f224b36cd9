"""What the text of the program tells without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from macgpu import variables
from macgpu.preflight.cuda import CLASSES, STAND_INS, STREAMS, TENSOR_TYPES
from macgpu.preflight.source import NO_CODE, Part, Program

NEEDS_CUDA = frozenset([*STAND_INS, *STREAMS, *CLASSES, *TENSOR_TYPES])
"""Functions and classes of torch.cuda that raise where there is no CUDA."""

TAKES_DEVICE = frozenset(["device", "to", "set_default_device", "set_default_tensor_type"])
"""Functions whose first argument may be a device."""


@dataclass(frozen=True)
class Spot:
    """One fault that can be read; the lines are those of the whole expression."""

    kind: str
    detail: str
    name: str
    line: int
    end_line: int


def read_faults(program: Program) -> list[Spot]:
    """Every fault in the text of the program and its modules, in order."""
    spots = []
    for part in program.everything:
        if part.skipped and part.skipped not in NO_CODE:
            spots.append(Spot("skipped-cell", f"%%{part.skipped}", part.name, 1, 1))
        spots += _Reader(part, program.knows_mps).spots
    return spots


class _Reader(ast.NodeVisitor):
    """Walks one part; code under a condition that mentions cuda is CUDA's own business."""

    def __init__(self, part: Part, knows_mps: bool) -> None:
        self.part = part
        self.knows_mps = knows_mps
        self.spots: list[Spot] = []
        self.under_cuda = False
        self.from_cuda_amp = set(_imported_from_cuda_amp(part.tree))
        self.visit(part.tree)
        called = any(spot.kind == "cuda-amp" for spot in self.spots)
        if self.from_cuda_amp and not called:
            for node in ast.walk(part.tree):
                if isinstance(node, ast.ImportFrom) and node.module == "torch.cuda.amp":
                    self._add("cuda-amp", node)

    def visit_If(self, node: ast.If) -> None:  # noqa: N802
        self._visit_choice(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:  # noqa: N802
        self._visit_choice(node)

    def visit_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        for target in node.targets:
            self._visit_assignment(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802
        if node.value is not None:
            self._visit_assignment(node.target, node.value)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        positional = [*node.posonlyargs, *node.args]
        defaults = [*zip(positional[::-1], node.defaults[::-1], strict=False)]
        defaults += zip(node.kwonlyargs, node.kw_defaults, strict=True)
        for argument, default in defaults:
            if "device" in argument.arg and default is not None and _is_cuda(default):
                self._add("hardcoded-cuda", default)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802
        function = ast.unparse(node.func)
        last = function.rpartition(".")[2]
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        first = node.args[0] if node.args else None
        enabled = not _is(named.get("enabled"), False)
        if last in ("autocast", "GradScaler") and enabled:
            if function.startswith(("torch.cuda.amp.", "cuda.amp.")) or (
                function in self.from_cuda_amp
            ):
                self._add("cuda-amp", node)
            elif _is_cuda(first or named.get("device_type") or named.get("device")):
                self._add("cuda-autocast", node, f'{last}("cuda")')
        elif last == "cuda" and isinstance(node.func, ast.Attribute):
            self._add("hardcoded-cuda", node)
        elif function in (f"torch.cuda.{last}", f"cuda.{last}") and last in NEEDS_CUDA:
            self._add("hardcoded-cuda", node, f": torch.cuda.{last}()")
        elif last in TAKES_DEVICE and _is_cuda(first):
            self._add("hardcoded-cuda", node)
        elif last == "init_process_group" and "nccl" in (
            _text(first),
            _text(named.get("backend")),
        ):
            self._add("distributed", node, "the nccl backend")
        else:
            for name in ("device", "map_location", "default"):
                if _is_cuda(named.get(name)):
                    self._add("hardcoded-cuda", node)
        if _is(named.get("pin_memory"), True):
            self._add("pin-memory", node, "pin_memory=True")
        if last == "pin_memory":
            self._add("pin-memory", node, "pin_memory()")
        if last in ("setdefault", "putenv") and _text(first) in variables.INVENTED:
            self._add("invented-variable", node, _text(first))
        workers = named.get("num_workers")
        if isinstance(workers, ast.Constant) and workers.value:
            for role in ("collate_fn", "worker_init_fn"):
                if isinstance(named.get(role), ast.Lambda):
                    self._add("worker-cannot-load", node, f"the {role}: it is a lambda")
        self.generic_visit(node)

    def _visit_choice(self, node: ast.If | ast.IfExp) -> None:
        test = ast.unparse(node.test)
        asks = "cuda.is_available" in test
        if asks and not self.knows_mps and _chooses_a_device(node):
            end = node.test if isinstance(node, ast.If) else node
            self._add("cuda-or-cpu", node, end_line=end.end_lineno)
        before = self.under_cuda
        self.under_cuda = before or "cuda" in test
        self.generic_visit(node)
        self.under_cuda = before

    def _visit_assignment(self, target: ast.expr, value: ast.expr) -> None:
        text = ast.unparse(target)
        if "device" in text.lower() and _is_cuda(value):
            self._add("hardcoded-cuda", value)
        if ast.unparse(value) == "torch.cuda.is_available()" and not self.knows_mps:
            self._add("cuda-or-cpu", value)
        if isinstance(target, ast.Subscript) and _text(target.slice) in variables.INVENTED:
            self._add("invented-variable", target, _text(target.slice))

    def _add(self, kind: str, node: ast.AST, detail: str = "", end_line: int = 0) -> None:
        if self.under_cuda and kind not in ("invented-variable", "worker-cannot-load"):
            return
        end = end_line or node.end_lineno
        spot = Spot(kind, detail, self.part.name, node.lineno, end)
        if spot not in self.spots:
            self.spots.append(spot)


def _chooses_a_device(node: ast.If | ast.IfExp) -> bool:
    if isinstance(node, ast.IfExp):
        return any(_text(child) == "cpu" for child in ast.walk(node.orelse))
    inside = [
        child for part in (node.body, node.orelse) for line in part for child in ast.walk(line)
    ]
    return any(
        _is_cuda(child)
        or (isinstance(child, ast.Call) and ast.unparse(child.func).endswith(".cuda"))
        for child in inside
    )


def _imported_from_cuda_amp(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.cuda.amp"):
            for alias in node.names:
                yield alias.asname or alias.name
        if isinstance(node, ast.ImportFrom) and node.module == "torch.cuda":
            for alias in node.names:
                if alias.name == "amp":
                    name = alias.asname or "amp"
                    yield from (f"{name}.autocast", f"{name}.GradScaler")


def _text(node: ast.AST | None) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None


def _is(node: ast.AST | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_cuda(node: ast.AST | None) -> bool:
    text = _text(node)
    return text is not None and (text == "cuda" or text.startswith("cuda:"))
