"""The chapters as committed, and as they run on smoke."""

import re

import nbformat
import pytest
import yaml

from macgpu.publish.book import PROFILES, Chapter
from macgpu.publish.execute import declared_parameters
from tests.conftest import ROOT

CHAPTERS = [Chapter(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
by_name = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)


@by_name
def test_a_chapter_is_committed_without_outputs(chapter):
    for cell in chapter.read().cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@by_name
def test_a_chapter_is_a_valid_notebook_with_stable_ids(chapter):
    notebook = chapter.read()
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    # An id that was made up by a tool, eight hexadecimal digits, changes when the file is remade.
    assert not [i for i in ids if re.fullmatch(r"[0-9a-f]{8}", i)]


@by_name
def test_parameters_are_literals_and_name_the_device(chapter):
    assert declared_parameters(chapter.read())["device"] == "auto"


@by_name
def test_profiles_set_only_what_the_chapter_has(book, chapter):
    declared = declared_parameters(chapter.read())
    for profile in PROFILES:
        assert set(book.parameters(chapter, profile)) <= set(declared)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_names_each_chapter_and_parameter_once(book, profile):
    # YAML's reader keeps the last of two and says nothing.
    path = book.root / "profiles" / f"{profile}.yml"
    tree = yaml.compose(path.read_text(encoding="utf-8"))
    chapters = tree.value if tree else []
    for pairs in (chapters, *(parameters.value for _, parameters in chapters)):
        names = [name.value for name, _ in pairs]
        assert len(set(names)) == len(names), names


@by_name
def test_cells_are_short_and_prose_comes_first(chapter):
    cells = chapter.read().cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    lengths = sorted(len([line for line in cell.source.splitlines() if line]) for cell in code)
    assert lengths[len(lengths) // 2] <= 8
    assert lengths[-1] <= 30
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")


@by_name
def test_every_cell_that_a_reader_sees_follows_words_of_its_own(chapter):
    shown = [
        cell for cell in chapter.read().cells if "remove-cell" not in cell.metadata.get("tags", [])
    ]
    unspoken = []
    for before, cell in zip(shown[2:], shown[3:], strict=False):  # after parameters and setup
        heading = before.source.rstrip().splitlines()[-1].startswith("#")
        if cell.cell_type == "code" and (before.cell_type == "code" or heading):
            unspoken.append(cell.id)
    assert not unspoken


@by_name
def test_a_chapter_has_its_parts_in_order(chapter):
    headings = [
        line.removeprefix("## ")
        for cell in chapter.read().cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    assert headings[-3:] == ["On a Mac", "Exercises", "What you now know"]


@by_name
def test_exercises_have_solutions_that_were_executed(chapter):
    cells = chapter.read().cells
    exercises = sum(
        len(re.findall(r"^\*\*\d\.\*\*", cell.source, re.MULTILINE))
        for cell in cells
        if cell.cell_type == "markdown"
    )
    solutions = [cell for cell in cells if cell.id.startswith("solution-")]
    assert 1 <= exercises == len(solutions) <= 3
    assert all(cell.metadata["tags"] == ["hide-cell"] for cell in solutions)


@by_name
def test_links_to_other_chapters_name_the_file_alone(chapter):
    # A chapter that has not been executed is a page without sections to link to.
    text = "\n".join(cell.source for cell in chapter.read().cells)
    assert not re.findall(r"\]\([^)]*\.ipynb#[^)]*\)", text)


def test_the_table_of_contents_lists_every_chapter_in_order():
    listed = re.findall(r"notebooks/(\w+)", (ROOT / "_toc.yml").read_text())
    assert listed == [chapter.name for chapter in CHAPTERS]


@by_name
def test_a_chapter_runs_on_smoke(smoke_run, chapter):
    outcome = next(o for o in smoke_run if o.chapter.name == chapter.name)
    assert outcome.result in ("executed", "fresh"), outcome.failure
    assert outcome.run.device in ("mps", "cuda", "cpu")
    assert outcome.run.profile == "smoke"


def test_the_readme_lists_every_chapter_by_its_title():
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (\d\d) \| \[(.+)\]\(notebooks/(\w+)\.ipynb\)", readme, re.MULTILINE)
    assert rows == [(chapter.number, chapter.title, chapter.name) for chapter in CHAPTERS]
