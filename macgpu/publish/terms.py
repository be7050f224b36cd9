"""A Sphinx extension: a term of the glossary shows its definition wherever a page uses it.

The definition stands in the page itself, so nothing is loaded when a reader points at the term;
``book.css`` shows it. A page that Sphinx is not told about, such as one of a small book without a
glossary, is left as it is.
"""

from __future__ import annotations

from html import escape

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def show_definitions(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put its definition beside each use of a term on a page."""
    del docname
    texts = definitions(app)
    for reference in list(doctree.findall(nodes.reference)):
        address = reference.get("refuri", "")
        anchor = address.partition("#")[2]
        if anchor in texts and any("std-term" in child["classes"] for child in inlines(reference)):
            html = (
                f'<a class="reference internal term" href="{escape(address)}" '
                f'data-definition="{escape(texts[anchor])}">{escape(reference.astext())}</a>'
            )
            reference.replace_self(nodes.raw("", html, format="html"))


def inlines(reference: nodes.reference) -> list[nodes.inline]:
    """What stands inside of a link, such as the name of a term."""
    return list(reference.findall(nodes.inline))


def definitions(app: Sphinx) -> dict[str, str]:
    """All definitions of the glossary, by the anchor of their term."""
    found = {}
    terms = app.env.get_domain("std").objects
    for page in {page for (kind, _), (page, _) in terms.items() if kind == "term"}:
        for item in app.env.get_doctree(page).findall(nodes.definition_list_item):
            if isinstance(item.parent.parent, addnodes.glossary):
                text = " ".join(item[-1].astext().split())
                found |= {anchor: text for term in item[:-1] for anchor in term["ids"]}
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("doctree-resolved", show_definitions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
