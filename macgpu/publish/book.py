"""The book as files: its chapters, its profiles, and where what is built lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

from macgpu.errors import BookError

PROFILES = ("smoke", "quick", "full")

UNREADABLE = (
    nbformat.reader.NotJSONError,
    nbformat.ValidationError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)
"""What nbformat raises for a file that is no notebook, or not UTF-8."""


@dataclass(frozen=True)
class Chapter:
    """One notebook of the book."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

    def read(self) -> nbformat.NotebookNode:
        """The notebook.

        Raises:
            BookError: where the file is not a notebook.
        """
        try:
            return nbformat.read(self.path, as_version=4)
        except UNREADABLE as error:
            first_line = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise BookError(f"{self.path.name} is not a readable notebook: {first_line}") from None

    @property
    def title(self) -> str:
        """The text of the first heading."""
        return title_of(self.read()) or self.name


def title_of(notebook: nbformat.NotebookNode) -> str | None:
    """The text of the first heading of a notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("# "):
            return cell.source.splitlines()[0].removeprefix("# ").strip()
    return None


@dataclass(frozen=True)
class Book:
    """The folder of the book and the folder that it is built in."""

    root: Path
    build: Path

    def executed(self, profile: str) -> Path:
        """Where executed chapters lie: a folder a profile, so that a quick look loses nothing."""
        return self.build / "executed" / profile

    @property
    def html(self) -> Path:
        return self.build / "html"

    def require_writable(self) -> None:
        """Raise a BookError where nothing can be written into the folder that is built in."""
        folder = self.build
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise BookError(f"{folder.name} is a file, and should be a folder")
        if not os.access(folder, os.W_OK):
            raise BookError(f"no permission to write {folder.name}")

    def chapters(self) -> list[Chapter]:
        """All chapters, in order."""
        return [Chapter(path) for path in sorted((self.root / "notebooks").glob("[0-9]*.ipynb"))]

    def chapter(self, wanted: str) -> Chapter:
        """The chapter with this number or name.

        Raises:
            BookError: where there is none, naming those that exist.
        """
        chapters = self.chapters()
        number = wanted.zfill(2) if wanted.isdigit() else wanted
        for chapter in chapters:
            if number in (chapter.number, chapter.name):
                return chapter
        names = ", ".join(chapter.name for chapter in chapters)
        raise BookError(f"no chapter {wanted!r}: there are {names}")

    def parameters(self, chapter: Chapter, profile: str) -> dict:
        """What the profile sets for this chapter.

        Raises:
            BookError: where there is no such profile, or it names a chapter that does not exist.
        """
        if profile not in PROFILES:
            raise BookError(f"no profile {profile!r}: choose {', '.join(PROFILES)}")
        path = self.root / "profiles" / f"{profile}.yml"
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            first_line = str(error).splitlines()[0]
            raise BookError(f"profiles/{profile}.yml is not readable YAML: {first_line}") from None
        if not isinstance(values, dict) or not all(isinstance(v, dict) for v in values.values()):
            raise BookError(f"profiles/{profile}.yml must map chapters to their parameters")
        unknown = set(values) - {chapter.name for chapter in self.chapters()}
        if unknown:
            raise BookError(
                f"profiles/{profile}.yml names no chapter: {', '.join(sorted(unknown))}"
            )
        return values.get(chapter.name, {})


def find_book(start: Path | None = None, build: Path | None = None) -> Book:
    """The book that ``start`` (by default the current folder) lies in.

    Raises:
        BookError: where neither it nor a folder above holds ``_toc.yml`` and ``notebooks``.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir():
            return Book(folder, (build or folder / "_build").resolve())
    raise BookError("not inside the book: run this in the folder that holds _toc.yml")
