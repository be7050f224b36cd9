"""Build the site from executed chapters: stage the pages, run jupyter-book, publish whole.

Nothing is executed here. A page that would warn fails the build, and a build that fails leaves
the site that was there before.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from macgpu.machine import RUN_MIME
from macgpu.publish.book import Book, BookError, Chapter
from macgpu.publish.execute import Run, executed_run, without_colour
from macgpu.publish.results import results_tables
from macgpu.publish.status import status_page

STAMP = ".built-from"

PARAMETER_PROMPTS = {
    "parameters": "The parameters of this chapter",
    "injected-parameters": "What this run set",
}


def build_site(book: Book) -> bool:
    """Build ``_build/html`` from what is executed. False where it was up to date already.

    Raises:
        BookError: where jupyter-book fails or warns; the end of its output is the message.
    """
    source = stage(book)
    stamp = _fingerprint(source)
    if (book.html / STAMP).is_file() and (book.html / STAMP).read_text() == stamp:
        return False
    output = book.build / "site"
    shutil.rmtree(output, ignore_errors=True)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", source]
    command += ["--path-output", output, "--warningiserror", "--nitpick", "--keep-going", "--quiet"]
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise BookError("jupyter-book failed:\n" + without_colour(done.stdout)[-3000:])
    built = output / "_build" / "html"
    (built / STAMP).write_text(stamp)
    _replace(book.html, built)
    return True


def stage(book: Book) -> Path:
    """Lay out what jupyter-book reads: configuration, pages, executed chapters, results, status."""
    source = book.build / "source"
    shutil.rmtree(source, ignore_errors=True)
    (source / "notebooks").mkdir(parents=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(book.root / name, source / name)
    shutil.copytree(book.root / "book", source / "book")
    runs: list[tuple[Chapter, Run | None]] = []
    for chapter in book.chapters():
        executed = book.executed / chapter.path.name
        run = executed_run(executed)
        page = for_readers(nbformat.read(executed, 4), run) if run else not_executed(chapter)
        nbformat.write(page, source / "notebooks" / chapter.path.name)
        runs.append((chapter, run))
    missing = {chapter.name for chapter, run in runs if run is None}
    for page in (source / "book").rglob("*.md"):
        page.write_text(without_figures_of(page.read_text("utf-8"), missing), "utf-8")
    (source / "book" / "status.md").write_text(status_page(runs), encoding="utf-8")
    results = source / "book" / "results.md"
    if results.is_file():
        tables = results_tables(book.root / "results")
        results.write_text(results.read_text("utf-8") + "\n" + tables, "utf-8")
    return source


def without_figures_of(page: str, missing: set[str]) -> str:
    """A page without the figures that it takes from chapters which were not executed."""

    def keep_or_drop(block: re.Match) -> str:
        return "" if block["chapter"] in missing else block[0]

    return re.sub(r"```\{glue:\}.*\n:doc: \S*/(?P<chapter>\w+)\.ipynb\n```\n", keep_or_drop, page)


def for_readers(notebook: NotebookNode, run: Run) -> NotebookNode:
    """An executed chapter as its page shows it: parameters folded, the time under the title."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(RUN_MIME, None)
        for tag, prompt in PARAMETER_PROMPTS.items():
            if tag in cell.metadata.get("tags", []):
                cell.metadata["tags"].append("hide-input")
                cell.metadata["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}
    title = notebook.cells[0]
    title.source += (
        f"\n\nThis page was executed whole, on profile {run.profile}, in {run.seconds:.0f} seconds "
        f"on {run.finished[:10]}; the next line names the machine. "
        "[Status of all chapters](../book/status.md)."
    )
    return notebook


def not_executed(chapter: Chapter) -> NotebookNode:
    """What stands in for a chapter that has not been executed: no output is shown as if it had."""
    text = (
        f"# {chapter.title}\n\nThis chapter has not been executed on this machine yet. "
        f"`make book CHAPTER={chapter.number}` does it."
    )
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="title")])


def _fingerprint(source: Path) -> str:
    """A hash of all that is staged and of the versions that render it."""
    digest = hashlib.sha256()
    for package in ("jupyter-book", "sphinx", "myst-nb", "sphinx-book-theme"):
        digest.update(f"{package} {version(package)}\n".encode())
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(source)).encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _replace(target: Path, built: Path) -> None:
    """Put a finished folder where an older one may be, which is gone only when this one is in."""
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.replace(old)
    built.replace(target)
    shutil.rmtree(old, ignore_errors=True)
