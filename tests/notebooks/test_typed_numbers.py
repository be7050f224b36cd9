"""No figure in the prose of the measuring chapters is typed by hand: each is glued from the run.

Digits may stand in names (float32, ResNet-18, M1), in code, links and formulas, and as the number
of an exercise. Every other digit in a text cell, or in a sentence that a code cell makes, fails.
"""

import ast
import re

import pytest

from macgpu.publish.book import Chapter
from tests.conftest import ROOT

MEASURING = ("03", "12")
CHAPTERS = [
    Chapter(path)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    if path.name.startswith(MEASURING)
]
by_name = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)

NOT_FIGURES = (
    r"```.*?```",  # code
    r"`[^`]*`",
    r"\$[^$]*\$",  # formulas
    r"\]\([^)]*\)",  # addresses of links
    r"\bpytorch#\d+",
    r"(?m)^\*\*\d\.\*\*",  # the number of an exercise
    r"\b[A-Za-z][\w]*-?\d\w*",  # names: float32, bf16, M1, ResNet-18, H200
)


def figures(text: str) -> list[str]:
    """What looks like a figure in prose: every word with a digit that is not part of a name."""
    for pattern in NOT_FIGURES:
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return re.findall(r"\S*\d\S*", text)


def code_cells(chapter):
    for cell in chapter.read().cells:
        if cell.cell_type == "code" and not cell.id.startswith("solution-"):
            yield cell, ast.parse(cell.source)


def glue_calls(chapter):
    for _, tree in code_cells(chapter):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "glue":
                yield node


def test_the_rule_finds_typed_figures_and_leaves_names_alone():
    assert figures("It takes 3.5 ms, 20% of {glue:text}`total:.1f`.") == ["3.5", "20%"]
    assert figures("up to 11TFLOPS") == ["11TFLOPS"]
    assert figures("an M1 Max in float32 runs ResNet-18 (`x = 3`), [a](b/07_c.ipynb)") == []


@by_name
def test_no_figure_is_typed_in_prose(chapter):
    for cell in chapter.read().cells:
        if cell.cell_type == "markdown":
            assert figures(cell.source) == [], cell.id


@by_name
def test_no_figure_is_typed_in_a_sentence_that_code_makes(chapter):
    for cell, tree in code_cells(chapter):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                # One word is a name, a key or a format.
                sentence = node.value if " " in node.value.strip() else ""
                assert figures(sentence) == [], cell.id


@by_name
def test_what_is_glued_is_computed_and_what_is_shown_is_glued(chapter):
    glued = set()
    for call in glue_calls(chapter):
        glued.add(call.args[0].value)
        parts = [node for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)]
        assert parts, f"{call.args[0].value} is typed, not computed"
    prose = "\n".join(c.source for c in chapter.read().cells if c.cell_type == "markdown")
    shown = set(re.findall(r"\{glue:text\}`(\w+)", prose))
    assert shown, "a measuring chapter shows what it measured"
    assert shown == glued
