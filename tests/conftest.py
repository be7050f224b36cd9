"""What the tests share: the project's root, the site built on smoke, small books to break."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import nbformat
import pytest
from rich.console import Console

from macgpu.machine import RUN_MIME
from macgpu.publish.book import Book
from macgpu.publish.execute import Outcome, print_table, run_chapters
from macgpu.publish.site import build_site

ROOT = Path(__file__).resolve().parent.parent

# As on a Mac.
multiprocessing.set_start_method("spawn", force=True)

RUN = {
    "device": "cpu",
    "device_name": "a processor",
    "machine": "a machine",
    "python": "3",
    "torch": "2",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="all of op_db instead of a fixed tenth")


@pytest.fixture(scope="session")
def book() -> Book:
    """The real book, built in a folder of its own."""
    return Book(ROOT, ROOT / "_build" / "test")


@pytest.fixture(scope="session")
def smoke_run(book: Book) -> list[Outcome]:
    """All chapters executed on smoke."""
    console = Console()
    outcomes = run_chapters(book, book.chapters(), "smoke", "auto", console)
    print_table(outcomes, console)
    return outcomes


@pytest.fixture(scope="session")
def site(book: Book, smoke_run: list[Outcome]) -> Path:
    """The folder of the site, built from the smoke run."""
    failed = [outcome for outcome in smoke_run if outcome.result == "failed"]
    assert not failed, "\n".join(f"{o.chapter.name}: {o.failure}" for o in failed)
    build_site(book, "smoke")
    return book.html


@pytest.fixture
def small_book(tmp_path: Path) -> Book:
    """A book of one chapter that runs in a moment, to add to and to break."""
    for folder in ("notebooks", "profiles", "book"):
        (tmp_path / folder).mkdir()
    for profile in ("smoke", "quick", "full"):
        (tmp_path / "profiles" / f"{profile}.yml").write_text("")
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n- file: notebooks/01_one\n"
        "- file: book/status\n"
    )
    shutil.copy(ROOT / "_config.yml", tmp_path)
    shutil.copytree(ROOT / "book" / "_static", tmp_path / "book" / "_static")
    shutil.copy(ROOT / "book" / "references.bib", tmp_path / "book")
    (tmp_path / "book" / "index.md").write_text("# A small book\n")
    book = Book(tmp_path, tmp_path / "_build")
    write_chapter(book, "01_one", "print('a first output')")
    return book


def write_chapter(book: Book, name: str, *sources: str) -> Path:
    """A notebook with a title, parameters, the line that says where it ran, and these cells."""
    bundle = {RUN_MIME: RUN, "text/html": "<p class='executed-on'>Executed on cpu</p>"}
    display = f"from IPython.display import display\ndisplay({bundle}, raw=True)"
    cells = [nbformat.v4.new_markdown_cell(f"# Chapter {name}", id="title")]
    for number, source in enumerate(['device = "auto"\nsize = 1', display, *sources]):
        cells.append(nbformat.v4.new_code_cell(source, id=f"code-{number}"))
    cells[1].metadata["tags"] = ["parameters"]
    path = book.root / "notebooks" / f"{name}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path
