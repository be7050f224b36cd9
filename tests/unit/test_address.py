"""What a public address adds to the site, and that nothing is promised without one."""

import subprocess
import sys
from xml.etree import ElementTree

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

from macgpu.publish.address import ATOM, CLONE, SHARE, Address, read_address
from macgpu.publish.gallery import RESULTS, Result, figure_of, gallery
from macgpu.publish.pdf import pages_in_order
from macgpu.publish.site import build_site, stage
from tests.conftest import ROOT

SITE = "https://example.org/book/"
REPOSITORY = "https://github.com/OWNER/REPO"
CHANGELOG = "# Changes\n\n## 2026-12-02\n\n- Two & a half.\n\n## 2026-12-01\n\n- One.\n"


@pytest.fixture
def published(small_book):
    """The small book with both addresses in its configuration, and a list of changes."""
    path = small_book.root / "_config.yml"
    config = yaml.safe_load(path.read_text())
    config["html"]["baseurl"] = SITE.rstrip("/")
    config["repository"]["url"] = REPOSITORY
    path.write_text(yaml.safe_dump(config))
    (small_book.root / "CHANGELOG.md").write_text(CHANGELOG)
    with (small_book.root / "_toc.yml").open("a") as toc:
        toc.write("- file: book/changes\n")
    return small_book


def test_without_an_address_nothing_points_anywhere_and_the_status_says_so(small_book):
    source = stage(small_book, "smoke")
    status = (source / "book" / "status.md").read_text()
    assert "no links to edit a page or to report a problem, and not a sitemap" in status
    assert "page-links" not in (source / "book" / "index.md").read_text()
    assert "sphinx_sitemap" not in (source / "_config.yml").read_text()
    assert not (source / "feed.xml").exists()


def test_a_page_that_tells_how_to_take_part_has_the_address_of_the_configuration(published):
    page = published.root / "book" / "index.md"
    page.write_text(f"# A small book\n\n{CLONE}\n{SHARE}")
    staged = stage(published, "smoke") / "book" / "index.md"
    text = staged.read_text()
    assert f"\ngit clone {REPOSITORY}.git\ncd REPO\n" in text
    assert "\ngit remote add mine https://github.com/NAME/REPO.git\n" in text
    assert f"({REPOSITORY}/compare)" in text
    config = published.root / "_config.yml"
    config.write_text(config.read_text().replace(REPOSITORY, "''"))
    text = (stage(published, "smoke") / "book" / "index.md").read_text()
    assert text.count("has no public address yet") == 2
    assert "git clone" not in text and "git push" not in text and "Fork the repository" not in text


def test_the_page_that_asks_for_a_mac_says_how_to_get_and_send():
    page = (ROOT / "book" / "add_your_mac.md").read_text()
    assert page.count(CLONE) == page.count(SHARE) == 1


def test_with_an_address_the_site_has_its_map_card_feed_and_links(published):
    build_site(published, "smoke")
    sitemap = ElementTree.parse(published.html / "sitemap.xml").getroot()
    places = {place.text for place in sitemap.findall("{*}url/{*}loc")}
    assert f"{SITE}book/index.html" in places and f"{SITE}notebooks/01_one.html" in places
    for place in places:
        assert (published.html / place.removeprefix(SITE)).is_file(), place

    feed = ElementTree.parse(published.html / "feed.xml").getroot()
    assert feed.tag == f"{{{ATOM}}}feed"

    page = BeautifulSoup((published.html / "book" / "index.html").read_text(), "html.parser")
    card = {tag["property"]: tag["content"] for tag in page.find_all("meta", property=True)}
    assert card["og:url"] == f"{SITE}book/index.html"
    assert card["og:title"] == "A small book"
    assert card["og:image"].startswith(SITE)
    assert (published.html / card["og:image"].removeprefix(SITE)).is_file()
    assert page.find("link", type="application/atom+xml")["href"] == f"{SITE}feed.xml"
    assert page.find("link", rel="canonical")["href"] == f"{SITE}book/index.html"

    links = [link["href"] for link in page.select(".page-links a")]
    assert links == [
        f"{REPOSITORY}/edit/main/book/index.md",
        f"{REPOSITORY}/issues/new?template=page.yml&page=A+small+book",
    ]
    chapter = (published.html / "notebooks" / "01_one.html").read_text()
    assert f"{REPOSITORY}/edit/main/notebooks/01_one.ipynb" in chapter
    status = (published.html / "book" / "status.html").read_text()
    assert "Not on this copy" not in status
    assert "/edit/" not in status, "the build makes this page: there is nothing to edit"
    assert "template=page.yml&amp;page=Status" in status


def test_the_feed_has_an_entry_for_each_date():
    feed = ElementTree.fromstring(Address(SITE, "", "main").feed(CHANGELOG, "A book"))
    find = {"a": ATOM}
    assert feed.findtext("a:updated", namespaces=find) == "2026-12-02T00:00:00Z"
    assert [e.text for e in feed.findall("a:entry/a:content", find)] == [
        "- Two & a half.",
        "- One.",
    ]
    ids = [e.text for e in feed.findall("a:entry/a:id", find)]
    assert len(set(ids)) == len(ids)


def test_the_changelog_of_the_book_makes_a_feed():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    entries = ElementTree.fromstring(Address(SITE, "", "main").feed(changelog, "x"))
    assert len(entries.findall(f"{{{ATOM}}}entry")) == changelog.count("\n## ")


def test_the_forms_ask_for_what_the_doctor_says():
    forms = ROOT / ".github" / "ISSUE_TEMPLATE"
    for name in ("problem.yml", "page.yml", "record.yml"):
        form = yaml.safe_load((forms / name).read_text("utf-8"))
        fields = {field["id"]: field for field in form["body"] if "id" in field}
        assert "macgpu doctor" in fields["doctor"]["attributes"]["description"]
        required = fields["doctor"].get("validations", {}).get("required", False)
        assert required == (name != "page.yml")
    # The links below the pages fill in this field of this form.
    links = Address("", REPOSITORY, "main").page_links("book/x.md", "X", True)
    report = BeautifulSoup(links, "html.parser").find_all("a")[-1]["href"]
    form, _, title = report.partition("template=")[2].partition("&")
    page = yaml.safe_load((forms / form).read_text("utf-8"))
    assert title.partition("=")[0] in [field.get("id") for field in page["body"]]


def test_the_address_of_the_book_is_read_from_its_configuration():
    address = read_address(ROOT / "_config.yml")
    assert not address.site or address.site.endswith("/")
    assert not address.repository.endswith("/")


def test_the_gallery_shows_figures_of_executed_chapters_alone(tmp_path, monkeypatch):
    figure = '<figure class="book-figure">drawn</figure>'
    cells = [
        nbformat.v4.new_markdown_cell("# The first", id="title"),
        nbformat.v4.new_code_cell(
            "",
            id="one",
            outputs=[nbformat.v4.new_output("display_data", data={"text/html": figure})],
        ),
        nbformat.v4.new_code_cell("", id="without"),
    ]
    path = tmp_path / "01_first.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    results = (
        Result("01_first", "one", "What?"),
        Result("01_first", "without", "No figure"),
        Result("02_gone", "one", "No chapter"),
    )
    monkeypatch.setattr("macgpu.publish.gallery.RESULTS", results)
    shown = gallery(tmp_path, {"01_first", "02_gone"})
    assert shown.count("grid-item-card") == 1
    assert figure in shown and "[The first](../notebooks/01_first.ipynb)" in shown
    assert gallery(tmp_path, set()) == ""
    assert figure_of(path, "without") is None


def test_each_result_of_the_gallery_is_a_cell_that_draws():
    for result in RESULTS:
        cells = nbformat.read(ROOT / "notebooks" / f"{result.chapter}.ipynb", 4).cells
        drawn = [cell for cell in cells if cell.id == result.cell]
        shows = ("page.show(", "show_rows(")
        assert len(drawn) == 1 and any(show in drawn[0].source for show in shows), result


def test_the_pdf_has_every_page_once_in_the_order_of_the_contents(small_book):
    assert pages_in_order(small_book.root / "_toc.yml") == [
        "book/index",
        "notebooks/01_one",
        "book/status",
    ]
    pages = pages_in_order(ROOT / "_toc.yml")
    assert len(set(pages)) == len(pages)
    chapters = [f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")]
    assert set(chapters) <= set(pages)


def test_a_page_that_was_not_built_stops_the_pdf_in_one_line(small_book):
    done = subprocess.run(
        [sys.executable, "-m", "macgpu.publish.pdf", "_build/html", "_build/book.pdf"],
        cwd=small_book.root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
