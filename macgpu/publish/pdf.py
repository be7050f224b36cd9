"""The whole book on paper: ``python -m macgpu.publish.pdf SITE TARGET``, which ``make pdf`` runs.

Chromium prints each page of a built site, in the order of the table of contents; pypdf puts them
together, with an outline, and turns links between pages into links inside of the file.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urldefrag

import yaml
from playwright.sync_api import Page, sync_playwright
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NullObject,
    TextStringObject,
)

from macgpu.errors import BookError
from macgpu.publish import browser

PAPER = {
    "format": "A4",
    "margin": {"top": "18mm", "bottom": "18mm", "left": "16mm", "right": "16mm"},
    "print_background": True,
    "tagged": True,
    "display_header_footer": True,
    "header_template": "<span></span>",
    "footer_template": (
        '<div style="width:100%;text-align:center;font-size:8px" class="pageNumber"></div>'
    ),
}


def pages_in_order(toc: Path) -> list[str]:
    """The pages of a ``_toc.yml``, without their suffix, the landing page first."""
    contents = yaml.safe_load(toc.read_text(encoding="utf-8"))
    parts = contents.get("parts", [contents])
    return [contents["root"], *(page["file"] for part in parts for page in part["chapters"])]


def print_book(site: Path, pages: list[str], target: Path) -> int:
    """Print these pages of a built site into one PDF.

    Returns:
        the number of sheets.

    Raises:
        BookError: where no browser is here, or a page was not built.
    """
    path = browser.find()
    if path is None:
        raise BookError("no Chrome or Chromium is here to print with")
    writer = PdfWriter()
    places: dict[str, ArrayObject] = {}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(browser.ARGUMENTS))
        sheet = chromium.new_context(color_scheme="light").new_page()
        for name in pages:
            source = site / f"{name}.html"
            if not source.is_file():
                raise BookError(f"{name} is not among the built pages: make book first")
            printed = PdfReader(io.BytesIO(_printed(sheet, source)))
            start = len(writer.pages)
            title = sheet.locator("article h1").first.evaluate("e => e.firstChild.textContent")
            _name_places_in_full(printed, source.as_uri())
            writer.append(printed, outline_item=title, import_outline=False)
            places |= _places(printed, writer, start, source.as_uri())
        chromium.close()
    _link_inside(writer, places, site.as_uri())
    writer.add_metadata({"/Title": "PyTorch on the Mac GPU"})
    target.parent.mkdir(parents=True, exist_ok=True)
    writer.compress_identical_objects()
    writer.write(target)
    return len(writer.pages)


def _printed(sheet: Page, source: Path) -> bytes:
    sheet.goto(source.as_uri(), wait_until="networkidle")
    # Formulas are set after the page has loaded; what is folded stays closed on paper otherwise.
    sheet.evaluate("window.MathJax?.startup?.promise")
    sheet.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    return sheet.pdf(**PAPER)


def _places(
    printed: PdfReader, writer: PdfWriter, start: int, address: str
) -> dict[str, ArrayObject]:
    """Where each place of one printed page is in the whole book, by the address that it had."""
    places = {address: _place(writer, start, None)}
    for name, found in printed.named_destinations.items():
        number = printed.get_destination_page_number(found)
        if number is not None:
            places[f"{address}#{name.removeprefix('/')}"] = _place(
                writer, start + number, found.top
            )
    return places


def _place(writer: PdfWriter, number: int, top: float | None) -> ArrayObject:
    page = writer.pages[number]
    height = FloatObject(page.mediabox.top if top is None else top)
    return ArrayObject(
        [page.indirect_reference, NameObject("/XYZ"), NullObject(), height, NullObject()]
    )


def _links(pages: Iterable[PageObject]) -> Iterator[DictionaryObject]:
    for page in pages:
        for annotation in page.get("/Annots", []):
            link = annotation.get_object()
            if link.get("/Subtype") == "/Link":
                yield link


def _name_places_in_full(printed: PdfReader, address: str) -> None:
    """Make a link to a place on its own page one to the page's address: many pages share names."""
    for link in _links(printed.pages):
        if "/Dest" in link:
            name = str(link.pop("/Dest")).removeprefix("/")
            link[NameObject("/A")] = DictionaryObject(
                {
                    NameObject("/S"): NameObject("/URI"),
                    NameObject("/URI"): TextStringObject(f"{address}#{name}"),
                }
            )


def _link_inside(writer: PdfWriter, places: dict[str, ArrayObject], site: str) -> None:
    """Make links to printed pages links inside of the book; one to another file leads nowhere."""
    for link in _links(writer.pages):
        address = link.get("/A", {}).get("/URI", "")
        if address.startswith(site):
            del link["/A"]
            place = places.get(address, places.get(urldefrag(address).url))
            if place is not None:
                link[NameObject("/Dest")] = place


def main() -> None:
    """Print the book that lies in the current folder; the arguments are its site and the PDF."""
    site, target = map(Path, sys.argv[1:])
    try:
        sheets = print_book(site.resolve(), pages_in_order(Path("_toc.yml")), target)
    except BookError as error:
        sys.exit(f"macgpu: {error}")
    print(f"{sheets} pages: {target.resolve()}")


if __name__ == "__main__":
    main()
