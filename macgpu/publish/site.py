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
import yaml
from nbformat import NotebookNode

from macgpu.claims import claims
from macgpu.errors import BookError
from macgpu.machine import RUN_MIME
from macgpu.publish.address import FEED, Address, read_address
from macgpu.publish.book import Book, Chapter, title_of
from macgpu.publish.chips_page import chips_page
from macgpu.publish.claims_page import claims_page
from macgpu.publish.dtypes_page import dtypes_page
from macgpu.publish.execute import Run, executed_run, is_current, without_colour
from macgpu.publish.gallery import MARK, gallery
from macgpu.publish.operators_page import operators_page
from macgpu.publish.reported_list import reported_list
from macgpu.publish.results import results_tables
from macgpu.publish.status import Row, status_page
from macgpu.publish.troubleshooting_page import troubleshooting_page
from macgpu.publish.variables_page import variables_page
from macgpu.publish.versions_page import versions_page
from macgpu.reported import sources
from macgpu.troubleshooting import entries

STAMP = ".built-from"

PARAMETER_PROMPTS = {
    "parameters": "The parameters of this chapter",
    "injected-parameters": "What this run set",
}


def build_site(book: Book, profile: str) -> bool:
    """Build ``_build/html`` from what was executed on this profile.

    Returns:
        False where the site was up to date already.

    Raises:
        BookError: where jupyter-book fails or warns; the end of its output is the message.
    """
    source = stage(book, profile)
    stamp = book.html / STAMP
    if stamp.is_file() and stamp.read_text() == _fingerprint(source) + _listing(book.html):
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
    (built / STAMP).write_text(_fingerprint(source) + _listing(built))
    _replace(book.html, built)
    return True


def stage(book: Book, profile: str) -> Path:
    """Lay out what jupyter-book reads: configuration, pages, executed chapters, tables."""
    source = book.build / "source"
    shutil.rmtree(source, ignore_errors=True)
    (source / "notebooks").mkdir(parents=True)
    address = read_address(book.root / "_config.yml")
    _write_config(book, source, address)
    shutil.copy(book.root / "_toc.yml", source)
    shutil.copytree(book.root / "book", source / "book")
    rows: list[Row] = []
    for chapter in book.chapters():
        executed = book.executed(profile) / chapter.path.name
        run = executed_run(executed)
        if run is None:
            page, current = not_executed(chapter, profile), False
        else:
            current = is_current(run, chapter)
            page = for_readers(nbformat.read(executed, 4), run, current)
        nbformat.write(page, source / "notebooks" / chapter.path.name)
        rows.append(Row(chapter, title_of(page) or chapter.name, run, current))
    missing = {row.chapter.name for row in rows if row.run is None}
    for page in (source / "book").rglob("*.md"):
        text = without_figures_of(page.read_text("utf-8"), missing)
        page.write_text(address.fill(text), "utf-8")
    for name, text in generated_pages(rows, address).items():
        (source / "book" / f"{name}.md").write_text(text, encoding="utf-8")
    for name, make in (
        ("results", lambda: results_tables(book.root / "results")),
        ("bibliography", lambda: reported_list(sources())),
    ):
        page = source / "book" / f"{name}.md"
        if page.is_file():
            page.write_text(page.read_text("utf-8") + "\n" + make(), "utf-8")
    landing = source / "book" / "index.md"
    results = gallery(book.executed(profile), {row.chapter.name for row in rows} - missing)
    landing.write_text(landing.read_text("utf-8").replace(MARK, results), "utf-8")
    if (book.root / "CHANGELOG.md").is_file():
        shutil.copy(book.root / "CHANGELOG.md", source / "book" / "changes.md")
    _add_page_links(book, source, address)
    return source


def generated_pages(rows: list[Row], address: Address) -> dict[str, str]:
    """The pages that are made from data and from the installed torch, by name."""
    return {
        "status": status_page(rows) + address.status_line(),
        "claims": claims_page(claims()),
        "troubleshooting": troubleshooting_page(entries()),
        "variables": variables_page(),
        "versions": versions_page(),
        "dtypes": dtypes_page(),
        "operators": operators_page(version("torch").partition("+")[0]),
        "chips": chips_page(),
    }


def _write_config(book: Book, source: Path, address: Address) -> None:
    config = yaml.safe_load((book.root / "_config.yml").read_text("utf-8"))
    address.extend(config)
    (source / "_config.yml").write_text(yaml.safe_dump(config), "utf-8")
    if address.site:
        changelog = (book.root / "CHANGELOG.md").read_text("utf-8")
        (source / FEED).write_bytes(address.feed(changelog, config["title"]))


def _add_page_links(book: Book, source: Path, address: Address) -> None:
    """Put the links to edit and to report below every page."""
    for page in sorted((source / "book").rglob("*.md")):
        path = page.relative_to(source)
        text = page.read_text("utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        links = address.page_links(path.as_posix(), title, (book.root / path).is_file())
        page.write_text(text + links, "utf-8")
    for chapter in book.chapters():
        path = source / "notebooks" / chapter.path.name
        page = nbformat.read(path, 4)
        links = address.page_links(f"notebooks/{path.name}", title_of(page) or chapter.name, True)
        if links:
            page.cells.append(nbformat.v4.new_markdown_cell(links.strip(), id="page-links"))
            nbformat.write(page, path)


def without_figures_of(page: str, missing: set[str]) -> str:
    """A page without the figures that it takes from chapters which were not executed."""

    def keep_or_drop(block: re.Match) -> str:
        return "" if block["chapter"] in missing else block[0]

    return re.sub(r"```\{glue:\}.*\n:doc: \S*/(?P<chapter>\w+)\.ipynb\n```\n", keep_or_drop, page)


def for_readers(notebook: NotebookNode, run: Run, current: bool) -> NotebookNode:
    """An executed chapter as its page shows it.

    The line that says where it ran stands under the title, with the time that it took; the
    parameters are folded.
    """
    line = ""
    for cell in notebook.cells:
        for output in [o for o in cell.get("outputs", []) if RUN_MIME in o.get("data", {})]:
            line = output.data["text/html"]
            cell.outputs.remove(output)
        for tag, prompt in PARAMETER_PROMPTS.items():
            if tag in cell.metadata.get("tags", []):
                cell.metadata["tags"].append("hide-input")
                cell.metadata["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}
    took = (
        f" · profile {run.profile}, {run.seconds:.0f} s in all · "
        '<a href="../book/status.html">all chapters</a></p>'
    )
    heading, _, rest = notebook.cells[0].source.partition("\n")
    if not current:
        rest = f"\n```{{note}}\nThe chapter has changed since this run.\n```\n{rest}"
    notebook.cells[0].source = f"{heading}\n\n{line.replace('</p>', took)}\n{rest}"
    return notebook


def not_executed(chapter: Chapter, profile: str) -> NotebookNode:
    """What stands in for a chapter that has not been executed: no output is shown as if it had."""
    command = f"make book CHAPTER={chapter.number} PROFILE={profile}"
    text = (
        f"# {chapter.title}\n\nThis chapter has not been executed on this machine yet. "
        f"`{command}` does it."
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


def _listing(folder: Path) -> str:
    """A hash of the names and sizes of all files in a built site, to notice one that is gone."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != STAMP)
    names = "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)
    return hashlib.sha256(names.encode()).hexdigest()


def _replace(target: Path, built: Path) -> None:
    """Put a finished folder where an older one may be, which is gone only when this one is in."""
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.replace(old)
    built.replace(target)
    shutil.rmtree(old, ignore_errors=True)
