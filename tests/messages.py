"""Whether what a program said is what the troubleshooting page says that it says."""

from __future__ import annotations

import re

from macgpu.troubleshooting import entries


def explained_by(said: str) -> set[str]:
    """The anchors of the entries with a message that ``said`` begins with; … matches anything."""
    said = " ".join(said.split())
    return {
        entry.anchor
        for entry in entries()
        for message in entry.messages
        if re.match(
            ".*?".join(re.escape(part) for part in " ".join(message.split()).split("…")), said
        )
    }
