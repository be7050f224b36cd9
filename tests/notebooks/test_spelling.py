"""The spelling of all prose: an English dictionary, and the project's own words."""

import re
from collections import defaultdict
from pathlib import Path

import nbformat
import pytest
from spylls.hunspell import Dictionary

from tests.conftest import ROOT

WORDS = ROOT / "tests" / "words.txt"
FILES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "book").glob("*.md"),
        *(ROOT / "data").rglob("*.md"),
        *(ROOT / ".github").rglob("*.md"),
        ROOT / "macgpu" / "softmps" / "README.md",
        *(ROOT / "notebooks").glob("*.ipynb"),
    ]
)

NO_PROSE = re.compile(
    r"""
      ^(?P<fence>```+|~~~+|:::+)[^\n]*\n(?P<inside>.*?)^(?P=fence)\s*$   # blocks of code
    | `+[^`]+`+                                 # code in a line
    | \$\$.+?\$\$ | \$[^$\n]+\$                 # formulas
    | <[^>]+>                                   # HTML, and addresses
    | \]\([^)\s]*\)                             # where links lead
    | https?://\S+ | \S+@\S+
    | \{\w[\w:-]*\}                             # roles of MyST
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
DIRECTIVE_OF_PROSE = re.compile(
    r"^[`:~]+\{(?:note|tip|warning|admonition|important|div|dropdown)\b"
)


def prose(markdown: str) -> str:
    """The words of Markdown that a reader reads as text."""

    def inside_or_nothing(found: re.Match) -> str:
        if found["fence"] and DIRECTIVE_OF_PROSE.match(found[0]):
            return prose(found["inside"])
        return " "

    return NO_PROSE.sub(inside_or_nothing, markdown)


def words(markdown: str) -> list[str]:
    """Words to look up; names with digits, inner capitals or underscores are none."""
    found = re.findall(r"[\w'’.-]*\w", prose(markdown))
    parts = [part for token in found for part in re.split(r"[-.]", token.replace("’", "'"))]
    return [
        part.strip("'").removesuffix("'s")
        for part in parts
        if re.fullmatch(r"'?[A-Za-zéï][a-zéï']+", part)
    ]


def markdown_of(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text("utf-8")
    cells = nbformat.read(path, 4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.fixture(scope="module")
def dictionary() -> Dictionary:
    return Dictionary.from_files("en_US")


def test_every_word_of_the_prose_is_known(dictionary):
    own = set(WORDS.read_text("utf-8").split())
    unknown = defaultdict(set)
    for path in FILES:
        for word in set(words(markdown_of(path))) - own:
            unknown[word].add(str(path.relative_to(ROOT)))
    known = {word for word in unknown if word.lower() in own or dictionary.lookup(word)}
    listed = [
        f"{word}: {', '.join(sorted(unknown[word]))}" for word in sorted(set(unknown) - known)
    ]
    assert not listed, "mend these, or add them to tests/words.txt:\n" + "\n".join(listed)


def test_the_list_of_words_is_sorted_and_used():
    own = WORDS.read_text("utf-8").split()
    assert own == sorted(set(own))
    used = {word for path in FILES for word in words(markdown_of(path))}
    used |= {word.lower() for word in used}
    assert [word for word in own if word not in used] == []


def test_a_misspelled_word_is_found_and_code_is_not_read(dictionary):
    text = (
        "A wrnog word, `wrnogcode`, $\\alpah$ and [a link](wrnog.md).\n\n```python\nwrnogg\n```\n"
    )
    assert [word for word in words(text) if not dictionary.lookup(word)] == ["wrnog"]
