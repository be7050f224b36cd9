"""What ends the bibliography: the sources of the figures that others reported."""

from __future__ import annotations

from macgpu.reported import Source


def reported_list(sources: list[Source]) -> str:
    """The sources as a list in MyST Markdown, newest first."""
    by_year = sorted(sources, key=lambda source: (-source.year, source.name))
    rows = [
        f"- [{source.name}]({source.url}), {source.year}: {source.software}" for source in by_year
    ]
    return "\n".join([*rows, ""])
