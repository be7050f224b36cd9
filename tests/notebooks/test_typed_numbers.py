"""No number in the prose of the measuring chapters is typed by hand.

Numbers come from the run, from records or from data files, through ``glue``. Found are digits and
number words in Markdown, in sentences that code makes, and literals that are glued as they are.
"""

import ast
import re

import pytest

from macgpu.publish.book import Chapter
from tests.conftest import ROOT

MEASURED = ("03", "05", "10", "11", "12", "13", "14", "16", "17")
CHAPTERS = [Chapter(path) for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
CHAPTERS = [chapter for chapter in CHAPTERS if chapter.number in MEASURED]
by_name = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)

NAMES = re.compile(
    r"""(?<![\w.])(
        fp(?:16|32|64) | bf16 | tf32 | b?float(?:16|32|64) | complex(?:64|128) | u?int(?:8|16|32|64)
      | ResNet-?(?:18|34|50|101) | VGG-?16 | ViT-B/16 | GPT-?2 | CIFAR-?(?:10|100) | Food101
      | M[1-9](?:\ (?:Pro|Max|Ultra))? | A100 | H100 | H200 | V100 | T4 | RTX\ [2-5]0[5-9]0
      | Apple[7-9] | Apple10 | Metal\ [34] | HBM[23]e? | GDDR[56]X?
      | (?:torch|PyTorch|macOS|Python|CUDA|TensorFlow)\ \d+(?:\.\d+)* | [Cc]hapters?\ \d\d?
      | pytorch\#\d+ | [\w.-]+\#\d+
    )(?![\w]|\.\d)""",
    re.VERBOSE,
)
WORDS = [
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
    "hundred",
    "thousand",
    "million",
    "billion",
    "dozen",
]
SMALL = [
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "half",
]
UNITS = (
    r"times|fold|per\ ?cent|%|percentage|seconds?|milliseconds?|microseconds?|minutes?|hours?|ms|µs"
    r"|watts?|joules?|degrees?|GB|GiB|MB|MiB|TFLOPS?|TFLOP/s|GB/s|images|samples|sequences|tokens"
)
NUMBER = re.compile(
    rf"\b(?:{'|'.join(WORDS)})s?\b|\b(?:{'|'.join(SMALL)})[\s-]+(?:{UNITS})\b", re.IGNORECASE
)


def is_reported(sentence: str) -> bool:
    """Says that it is reported, links its source, and names the year."""
    return all(
        re.search(wanted, sentence)
        for wanted in (r"\b[Rr]eported\b", r"\]\(https://", r"\b20[12]\d\b")
    )


def typed_numbers(text: str) -> list[str]:
    """The sentences and table rows of Markdown that hold a number typed by hand."""
    text = re.sub(r"^```(?!\{).*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\{glue:\w+\}`[^`]*`", "", text)
    # Code is a name or an expression; a number alone is a number, with quotes around or without.
    text = re.sub(r"`[^`\d\W][^`]*`", "", text)
    text = re.sub(r"^\*\*\d\.\*\*", "", text, flags=re.MULTILINE)
    found = []
    for sentence in re.split(r"(?<=[.!?:])\s+|\n", text):
        if is_reported(sentence):
            continue
        bare = re.sub(r"\]\([^)]*\)", "]", sentence)
        bare = NAMES.sub("", bare)
        if any(letter.isnumeric() for letter in bare) or NUMBER.search(bare):
            found.append(sentence.strip())
    return found


def typed_in_code(source: str) -> list[str]:
    """The sentences that code makes with a number typed into them, and literals that are glued."""
    # Magics are no prose.
    lines = [line for line in source.splitlines() if not line.startswith(("%", "!"))]
    tree = ast.parse("\n".join(lines))
    found = []
    constants = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_number(node.value):
            constants |= {ast.unparse(target): node.value for target in node.targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "glue":
            value = node.args[1]
            if _is_number(value) or ast.unparse(value) in constants:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and _is_sentence(node.value):
            found += typed_numbers(node.value)
    return found


def _is_number(node: ast.AST) -> bool:
    """A literal, or arithmetic on nothing but literals."""
    return not any(
        isinstance(part, (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.JoinedStr))
        or (isinstance(part, ast.Constant) and isinstance(part.value, (str, bool, type(None))))
        for part in ast.walk(node)
    )


def _is_sentence(text: object) -> bool:
    """A string of three words and more, and no program."""
    if not isinstance(text, str) or len(re.findall(r"[^\W\d_]{2,}", text)) < 3:
        return False
    try:
        ast.parse(text)
    except SyntaxError:
        return True
    return False


@by_name
def test_no_number_in_the_prose_is_typed_by_hand(chapter):
    found = []
    for cell in chapter.read().cells:
        numbers = typed_numbers if cell.cell_type == "markdown" else typed_in_code
        found += [f"{cell.id}: {sentence}" for sentence in numbers(cell.source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "It takes 45 s.",
        "It is 3x faster.",
        "About seventy times slower.",
        "It is three times as fast.",
        "Half percent, or ½.",
        "It drew `42` watts, or `3.5 W`.",
        "x² times",
        "| M1 Max | 140 |",
        "Others reported 140 images/s.",
        "Others reported 140 images/s in 2021.",
        "See [the 45 s of a step](02_first_training_run.ipynb).",
        "ResNet-51 is no name.",
        "M1 Max: 10.4 TFLOPS",
        "torch 2.14.1 gains 5 %",
        "$r = 45$",
        "```{note}\nIt takes 45 s.\n```",
        "{glue:text}`rate:.1f` images, which is 20 % more.",
    ],
)
def test_a_number_typed_into_prose_is_found(text):
    assert typed_numbers(text)


@pytest.mark.parametrize(
    "text",
    [
        "It takes {glue:text}`seconds:.1f` s on an M1 Max, in float32.",
        "ResNet-50, ViT-B/16 and bf16 on an H200 with torch 2.14.1.",
        "See [chapter 12](12_when_is_the_gpu_faster.ipynb) and pytorch#192551.",
        "**1.** Compute it.",
        "```python\nx = 45\n```",
        "Set `epochs = 90`, or use `torch.float16`.",
        "| M1 Max | 140 images/s, reported by [tlkh](https://github.com/tlkh/x), 2021 |",
        "Two kinds of figures.",
    ],
)
def test_names_code_links_and_reported_figures_pass(text):
    assert typed_numbers(text) == []


@pytest.mark.parametrize(
    "source",
    [
        "glue('rate', 45.2, display=False)",
        "rate = 45.2\nglue('rate', rate)",
        "glue('rate', 90 / 2)",
        "words = f'The card is 45 % faster than {name} was.'",
        "glue('words', 'about seventy times slower')",
        "page.show(figure, 'The bar of the card is 3 times higher.')",
    ],
)
def test_a_number_typed_into_code_is_found(source):
    assert typed_in_code(source)


@pytest.mark.parametrize(
    "source",
    [
        "glue('rate', count / seconds, display=False)",
        "words = f'The card is {gain:.1f} times faster than {name}.'",
        "figure, axis = plt.subplots(figsize=(5.6, 3.4))",
        "code = 'import torch\\nx = torch.ones(3)\\nprint(x)'",
        "# in 90 of 100 trials\nlimit = 3",
    ],
)
def test_computed_numbers_and_programs_pass(source):
    assert typed_in_code(source) == []
