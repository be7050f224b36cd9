"""What a site gains from a public address: links to its source, a map, a card, a feed.

The addresses stand in ``_config.yml`` (``html.baseurl`` and ``repository.url``), and nowhere else.
While one is empty, what would need it is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import yaml

ATOM = "http://www.w3.org/2005/Atom"
FEED = "feed.xml"

CLONE = "Clone the repository, and go into its folder.\n"
SHARE = (
    "Fork the repository, push the record to a branch of your fork, and open a pull request.\n"
    "Without git, open an issue and attach the file.\n"
)
"""What a page says in its source, and the site by the commands that need an address."""


@dataclass(frozen=True)
class Address:
    """Where the book is published; an empty string where it is not."""

    site: str
    """Of the folder that holds ``index.html``, with a slash at its end."""
    repository: str
    branch: str

    def page_links(self, path: str, title: str, in_repository: bool) -> str:
        """The line under a page, in HTML: edit it, or report what is wrong with it.

        Args:
            path: of the page's source in the repository.
            title: of the page; the form is opened with it.
            in_repository: whether there is a source to edit; some pages are made by the build.
        """
        if not self.repository:
            return ""
        form = urlencode({"template": "page.yml", "page": title})
        links = {"Report a problem with this page": f"{self.repository}/issues/new?{form}"}
        if in_repository:
            edit = f"{self.repository}/edit/{self.branch}/{quote(path)}"
            links = {"Edit this page": edit, **links}
        # HTML, since MyST escapes the & of an address twice.
        tags = [f'<a href="{escape(link)}">{words}</a>' for words, link in links.items()]
        return f'\n\n<p class="page-links">{" · ".join(tags)}</p>\n'

    def fill(self, page: str) -> str:
        """A page with the exact commands in place of :data:`CLONE` and :data:`SHARE`."""
        return page.replace(CLONE, self._clone() + "\n").replace(SHARE, self._share() + "\n")

    def _clone(self) -> str:
        if not self.repository:
            return (
                "This copy of the book has no public address yet, so there is nothing to clone: go "
                "into the folder that you were given."
            )
        folder = self.repository.rpartition("/")[2]
        return f"```bash\ngit clone {self.repository}.git\ncd {folder}\n```"

    def _share(self) -> str:
        if not self.repository:
            return (
                "This copy of the book has no public address yet: send the file to whoever gave "
                "you the copy."
            )
        host, _, name = self.repository.rpartition("/")
        owners = host.rpartition("/")[0]
        return (
            f"Sharing needs an account. [Fork the repository]({self.repository}/fork), and type "
            "your account's name in place of `NAME`:\n\n"
            "```bash\n"
            "git switch --create record-my-mac\n"
            "git add results\n"
            'git commit --message "Add a record of my Mac"\n'
            f"git remote add mine {owners}/NAME/{name}.git\n"
            "git push --set-upstream mine record-my-mac\n"
            "```\n\n"
            f"Then [open a pull request]({self.repository}/compare) from that branch. Without git, "
            f"[open an issue]({self.repository}/issues/new?template=record.yml) and attach the "
            "file."
        )

    def status_line(self) -> str:
        """What this copy of the site lacks for want of an address; empty where it has all."""
        missing = []
        if not self.repository:
            missing.append("links to edit a page or to report a problem")
        if not self.site:
            missing.append("a sitemap, a feed and a card for links that are shared")
        if not missing:
            return ""
        return (
            "\n## Not on this copy\n\nThis copy has no public address yet, so it has no "
            + ", and not ".join(missing)
            + ".\n"
        )

    def extend(self, config: dict) -> None:
        """Switch on, in jupyter-book's configuration, what needs the address of the site."""
        if not self.site:
            return
        config["html"]["baseurl"] = self.site
        feed = f'<link rel="alternate" type="application/atom+xml" href="{self.site}{FEED}">'
        sphinx = config["sphinx"]["config"]
        sphinx["extensions"] += ["sphinx_sitemap", "sphinxext.opengraph"]
        sphinx |= {
            "html_extra_path": [FEED],
            "sitemap_url_scheme": "{link}",
            "sitemap_show_lastmod": False,
            "ogp_site_url": self.site,
            "ogp_image": "_static/card.png",
            "ogp_image_alt": "The title of the book: PyTorch on the Mac GPU, a book that runs",
            "ogp_custom_meta_tags": [feed],
        }

    def feed(self, changelog: str, title: str) -> bytes:
        """The changelog as an Atom feed: an entry for each heading that is a date."""
        changes = f"{self.site}book/changes.html"
        parts = re.split(r"^## (\d{4}-\d\d-\d\d)\n", changelog, flags=re.MULTILINE)[1:]
        entries = list(zip(parts[::2], parts[1::2], strict=True))
        ElementTree.register_namespace("", ATOM)
        feed = ElementTree.Element(f"{{{ATOM}}}feed")
        _add(feed, "title", title)
        _add(feed, "id", self.site)
        _add(feed, "link", rel="self", href=f"{self.site}{FEED}")
        _add(_add(feed, "author"), "name", f"The authors of {title}")
        _add(feed, "updated", f"{max(date for date, _ in entries)}T00:00:00Z")
        for date, text in entries:
            entry = _add(feed, "entry")
            _add(entry, "title", f"Changes of {date}")
            _add(entry, "id", f"{changes}#{date}")
            _add(entry, "link", href=changes)
            _add(entry, "updated", f"{date}T00:00:00Z")
            _add(entry, "content", text.strip())
        return ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)


def read_address(config: Path) -> Address:
    """The addresses in a ``_config.yml``."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    site = settings["html"]["baseurl"]
    repository = settings["repository"]
    return Address(
        site.rstrip("/") + "/" if site else "", repository["url"].rstrip("/"), repository["branch"]
    )


def _add(
    parent: ElementTree.Element, name: str, text: str | None = None, **attributes: str
) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, f"{{{ATOM}}}{name}", attributes)
    element.text = text
    return element
