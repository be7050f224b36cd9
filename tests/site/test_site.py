"""The site in a real browser: every page opens, alone, and works."""

import http.server
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup

from macgpu import troubleshooting
from macgpu.operators import operators
from macgpu.publish import browser
from macgpu.publish.gallery import RESULTS

PATH = browser.find()
if PATH is None:
    pytest.skip(
        "NO BROWSER: neither Chrome nor Chromium is here, so no page was opened",
        allow_module_level=True,
    )

from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import Error, sync_playwright  # noqa: E402
from pypdf import PdfReader  # noqa: E402

from macgpu.publish.pdf import print_book  # noqa: E402

MOST_BYTES = 1_500_000
"""Of a page with what only it loads."""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=PATH, args=list(browser.ARGUMENTS))
        except Error as error:
            pytest.skip(f"NO BROWSER: the one that is here does not start: {error.message[:200]}")
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(site):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietHandler, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def pages(site):
    return sorted(
        str(path.relative_to(site))
        for path in site.rglob("*.html")
        if "_static" not in path.parts and path.name != "index.html" or path.parent.name == "book"
    )


class Watched:
    """A page that remembers what went wrong on it, and what it asked the network for."""

    def __init__(self, context):
        self.page = context.new_page()
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._request)
        self.page.on("requestfailed", self._failed)
        self.page.on(
            "response",
            lambda answer: self.errors.append(answer.url) if answer.status >= 400 else None,
        )

    def _console(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _failed(self, request):
        # Leaving a page ends what it is still loading; that is no fault of the page.
        if request.failure != "net::ERR_ABORTED":
            self.errors.append(f"{request.url}: {request.failure}")

    def _request(self, request):
        if not re.match(r"(http://127\.0\.0\.1:|file:|data:|blob:)", request.url):
            self.outside.append(request.url)


@pytest.fixture
def watched(chromium):
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    yield Watched(context)
    context.close()


def test_every_page_opens_without_an_error_or_an_outside_request(watched, address, pages):
    assert len(pages) >= 6
    for name in pages:
        watched.page.goto(f"{address}/{name}", wait_until="networkidle")
        assert watched.page.title(), name
        assert watched.errors == [], name
        assert watched.outside == [], name


def test_pages_open_from_disk_with_their_formulas(watched, site):
    watched.page.goto((site / "notebooks" / "02_first_training_run.html").as_uri())
    watched.page.wait_for_selector("mjx-container svg")
    assert watched.errors == []
    assert watched.outside == []


def test_every_chapter_says_what_it_was_executed_on(watched, address, pages):
    chapters = [name for name in pages if name.startswith("notebooks/")]
    assert chapters
    for name in chapters:
        watched.page.goto(f"{address}/{name}")
        line = watched.page.locator(".executed-on").inner_text()
        assert re.match(r"Executed on (mps|cuda|cpu)\b.* torch \d+\.\d+.* \d{4}-\d{2}-\d{2}", line)


def test_no_image_is_broken_and_every_figure_has_its_text(watched, address, pages):
    figures = 0
    for name in pages:
        watched.page.goto(f"{address}/{name}", wait_until="networkidle")
        broken = watched.page.evaluate(
            "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        assert broken == [], name
        unnamed = watched.page.evaluate(
            "[...document.querySelectorAll('article img')].filter(i => !i.alt).map(i => i.src)"
        )
        assert unnamed == [], name
        for figure in watched.page.locator(".book-figure > svg").all():
            assert figure.get_attribute("role") == "img"
            assert len(figure.get_attribute("aria-label")) > 10
            figures += 1
    assert figures > 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_take_the_themes_text_colour(chromium, address, theme):
    context = chromium.new_context(color_scheme=theme)
    page = context.new_page()
    page.goto(f"{address}/notebooks/02_first_training_run.html")
    colours = page.evaluate(
        """() => {
          const figure = document.querySelector('.book-figure');
          const ground = e => {
            for (; e; e = e.parentElement) {
              const colour = getComputedStyle(e).backgroundColor;
              if (colour !== 'rgba(0, 0, 0, 0)') return colour;
            }
          };
          return {
            text: getComputedStyle(figure.querySelector('svg')).color,
            ground: ground(figure),
            page: getComputedStyle(document.body).color,
          };
        }"""
    )
    context.close()
    brightness = {
        name: sum(map(int, re.findall(r"\d+", value)[:3])) / 3 for name, value in colours.items()
    }
    assert colours["text"] == colours["page"]
    if theme == "dark":
        assert brightness["ground"] < 60 and brightness["text"] > 180
    else:
        assert brightness["ground"] > 230 and brightness["text"] < 90


def test_the_search_finds_a_word(watched, address):
    watched.page.goto(f"{address}/search.html?q=Rosetta")
    watched.page.wait_for_selector("#search-results li a")
    results = watched.page.locator("#search-results li a").all_inner_texts()
    assert any("Install and verify" in result for result in results)


def test_code_copies(watched, address):
    watched.page.goto(f"{address}/notebooks/01_install_and_verify.html")
    block = watched.page.locator("div.cell_input div.highlight", has_text="original.fill_").first
    block.hover()
    block.locator("button.copybtn").click()
    copied = watched.page.evaluate("navigator.clipboard.readText()")
    assert "original = torch.zeros(4)" in copied


def test_each_chapter_can_be_downloaded(site, pages):
    for name in pages:
        if name.startswith("notebooks/"):
            assert (site / "_sources" / name.replace(".html", ".ipynb")).is_file()
            assert ".ipynb" in (site / name).read_text()


def test_every_link_inside_of_the_site_holds(site):
    parsed = {
        path: BeautifulSoup(path.read_text("utf-8"), "html.parser")
        for path in site.rglob("*.html")
        if "_static" not in path.parts
    }
    names = {path: {tag["id"] for tag in page.find_all(id=True)} for path, page in parsed.items()}
    links, broken = 0, []
    for path, page in parsed.items():
        for tag in page.find_all(["a", "area", "img", "link", "script", "source", "use"]):
            link = tag.get("href") or tag.get("src") or tag.get("xlink:href")
            if not link or re.match(r"(https?|mailto|data|javascript):", link):
                continue
            links += 1
            address, _, anchor = link.partition("#")
            file = unquote(address.partition("?")[0])
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (
                anchor and target in names and unquote(anchor) not in names[target]
            ):
                broken.append(f"{path.relative_to(site)} → {link}")
    assert broken == []
    assert links > 500


def test_a_page_is_light(site, pages):
    for name in pages:
        path = site / name
        page = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        pictures = {path.parent / image["src"] for image in page.find_all("img", src=True)}
        files = [path, *(file for file in pictures if file.is_file())]
        assert sum(file.stat().st_size for file in files) < MOST_BYTES, name


COLOUR = "color-contrast"
# What passed is not told of, node by node.
FINDINGS = {"resultTypes": ["violations"]}
LOOKS = {
    "light": (1280, "light", {}),
    # What differs between the themes is colour alone, and colour is the same on any width.
    "dark": (1280, "dark", {"runOnly": [COLOUR]}),
    "narrow": (390, "light", {"rules": {COLOUR: {"enabled": False}}}),
}


@pytest.mark.parametrize("look", LOOKS)
def test_axe_has_no_serious_finding_on_any_page(chromium, address, pages, look):
    width, theme, options = LOOKS[look]
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    found = []
    for name in [*pages, "search.html", "genindex.html"]:
        page.goto(f"{address}/{name}")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        found += [
            f"{name}: {finding['impact']} {finding['id']} {node['target']} {node['failureSummary']}"
            for finding in Axe().run(page, options=FINDINGS | options).response["violations"]
            if finding["impact"] in ("serious", "critical")
            for node in finding["nodes"]
        ]
    context.close()
    assert not found, "\n".join(found)


def test_a_wide_table_scrolls_with_the_keyboard(chromium, address):
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(f"{address}/notebooks/03_know_your_gpu.html", wait_until="networkidle")
    table = page.locator("article .book-table table, article table.book-table").first
    table.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    context.close()


def test_a_table_that_was_unfolded_scrolls_with_the_keyboard_too(chromium, address):
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(f"{address}/book/results.html", wait_until="networkidle")
    table = page.locator("article details table").first
    assert not table.is_visible(), "a record is folded at first"
    page.locator("article details summary").first.click()
    page.wait_for_function("document.querySelector('article details table').tabIndex === 0")
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.scrollLeft > 0")
    context.close()


def test_the_landing_page_leads_from_each_result_to_its_chapter(watched, address):
    watched.page.goto(f"{address}/book/index.html")
    cards = watched.page.locator("article .sd-card")
    assert cards.count() == len(RESULTS)
    for card in cards.all():
        assert card.locator(".book-figure svg[role=img]").count() == 1
    cards.last.locator("a").first.click()
    watched.page.wait_for_url("**/notebooks/*.html")


def test_the_book_prints_with_its_folded_cells_and_links_inside(site, tmp_path):
    target = tmp_path / "book.pdf"
    pages = ["book/index", "notebooks/02_first_training_run", "book/status"]
    # Playwright runs once in a thread, and the browser of the other tests has this one.
    with ThreadPoolExecutor() as pool:
        sheets = pool.submit(print_book, site, pages, target).result()
    book = PdfReader(target)
    assert len(book.pages) == sheets > len(pages)
    assert [entry.title for entry in book.outline] == [
        "PyTorch on the Mac GPU",
        "The first training run",
        "Status",
    ]
    text = "\n".join(page.extract_text() for page in book.pages)
    assert "Find out whether your Mac" in text
    assert 'device = "auto"' in text, "the folded parameters are open on paper"
    assert "Skip to main content" not in text and "Search" not in text, "no navigation"
    assert "Edit this page" not in text

    # A link from the chapter to the status page is one inside of the book.
    chapter, status = (book.get_destination_page_number(entry) for entry in book.outline[1:])
    links = [
        note.get_object() for page in book.pages[chapter:status] for note in page.get("/Annots", [])
    ]
    assert book.pages[status].indirect_reference in [
        link["/Dest"][0] for link in links if "/Dest" in link
    ]
    addresses = [link["/A"]["/URI"] for link in links if "/A" in link]
    assert addresses and not [a for a in addresses if not a.startswith("https://")]


def test_what_doctor_and_preflight_print_leads_to_its_entry(site):
    for entry in troubleshooting.entries():
        name, _, anchor = troubleshooting.link(entry.anchor).partition("#")
        html = (site / "book" / name).read_text()
        assert html.count(f'id="{anchor}"') == 1, anchor


def test_the_printed_page_leads_to_the_landing_page(watched, site):
    watched.page.goto((site / "index.html").as_uri())
    watched.page.wait_for_url("**/book/index.html")
    assert (
        watched.page.locator("article h1").first.inner_text().startswith("PyTorch on the Mac GPU")
    )
    assert watched.errors == []


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window(chromium, address, pages, width):
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    for name in pages:
        page.goto(f"{address}/{name}", wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()


def test_the_theme_switches(watched, address):
    watched.page.goto(f"{address}/book/index.html")

    def theme():
        return watched.page.evaluate("document.documentElement.dataset.theme")

    seen = {theme()}
    for _ in range(3):
        watched.page.locator("button.theme-switch-button:visible").first.click()
        seen.add(theme())
    assert seen >= {"light", "dark"}


def test_the_status_page_lists_every_chapter(watched, address, smoke_run):
    watched.page.goto(f"{address}/book/status.html")
    rows = watched.page.locator("article table tbody tr").all_inner_texts()
    assert len(rows) == len(smoke_run)
    assert all("passed" in row and "smoke" in row for row in rows)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_term_shows_its_definition_when_pointed_at_or_reached_by_keyboard(
    chromium, address, width
):
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(f"{address}/book/glossary.html")
    entry = page.locator("dt:has-text('loss scale') + dd").first.inner_text()
    page.goto(f"{address}/book/ten_things.html")
    term = page.locator("a.term", has_text="loss scale")

    def shown():
        found = term.evaluate("e => getComputedStyle(e, '::after').content")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        return None if found in ("none", "normal") else found.strip('"')

    assert shown() is None
    term.hover()
    assert shown() == entry
    page.mouse.move(0, 0)
    assert shown() is None
    page.locator("a.term", has_text="autocast").focus()
    page.keyboard.press("Tab")
    assert shown() == entry
    term.click()
    page.wait_for_url("**/glossary.html#term-loss-scale")
    context.close()


def test_the_operator_page_finds_an_operator_as_one_types(watched, address):
    watched.page.goto(f"{address}/book/operators.html")
    count = watched.page.locator("#operator-count")
    assert count.inner_text() == f"{len(operators())} of {len(operators())} operators"
    watched.page.fill("#operator-filter", "adaptive_max_pool3d")
    shown = watched.page.locator("#operator-table tbody tr:visible").all_inner_texts()
    expected = [name for name in operators() if "adaptive_max_pool3d" in name]
    assert sorted(row.split("\t")[0] for row in shown) == sorted(expected)
    assert "adaptive_max_pool3d\tmissing\tkernel" in shown
    assert count.inner_text() == f"{len(expected)} of {len(operators())} operators"
    states = watched.page.locator("article table").first.locator("tbody tr:visible")
    assert states.count() == 4, "the filter leaves the table of states alone"
