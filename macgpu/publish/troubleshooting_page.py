"""The troubleshooting page, made from its list of entries."""

from __future__ import annotations

from itertools import groupby

from macgpu.troubleshooting import Entry

REPOSITORIES = {
    "LLMs-from-scratch": "rasbt/LLMs-from-scratch",
    "accelerate": "huggingface/accelerate",
    "build-nanogpt": "karpathy/build-nanogpt",
    "dl-for-micro": "computational-cell-analytics/dl-for-micro",
    "hyrax": "lincc-frameworks/hyrax",
    "lightning": "Lightning-AI/pytorch-lightning",
    "mlx-benchmark": "TristanBilot/mlx-benchmark",
    "nanoGPT": "karpathy/nanoGPT",
    "nanochat": "karpathy/nanochat",
    "pytorch": "pytorch/pytorch",
    "rf-detr": "roboflow/rf-detr",
    "stable-audio-3": "Stability-AI/stable-audio-3",
    "transformers": "huggingface/transformers",
    "ultralytics": "ultralytics/ultralytics",
}

INTRODUCTION = """Look for the message that you see, or for the symptom. `macgpu doctor` and \
`macgpu preflight` print the address of the entry for whatever they find.

Nothing on this page was run on a Mac. Messages were printed by torch on Linux or by the book's \
software MPS device, or are quoted from the reports that an entry names; … stands for what is left \
out or differs. What those reports say of a Mac is theirs. *Changed* names a version only where a \
wheel, a change or a report tells it: a report that is closed does not prove that a fix has \
shipped."""


def troubleshooting_page(entries: list[Entry]) -> str:
    """The page in MyST Markdown: an index of messages and of symptoms, and every entry."""
    lines = ["# Troubleshooting", "", INTRODUCTION, "", "## By message", ""]
    messages = sorted(
        ((message, entry) for entry in entries for message in entry.messages),
        key=lambda pair: pair[0].lower().lstrip("'`"),
    )
    lines += [f"- [{_code(message)}](#{entry.anchor})" for message, entry in messages]
    lines += ["", "## By symptom"]
    for group, listed in groupby(entries, key=lambda entry: entry.group):
        links = " · ".join(f"[{entry.title}](#{entry.anchor})" for entry in listed)
        lines += ["", f"**{group}.** {links}"]
    for group, listed in groupby(entries, key=lambda entry: entry.group):
        lines += ["", f"## {group}", ""]
        for entry in listed:
            lines += _section(entry)
    return "\n".join(lines)


def _section(entry: Entry) -> list[str]:
    lines = [f"({entry.anchor})=", f"### {entry.title}", ""]
    if entry.messages:
        lines += [*(f"> {_code(message)}\\" for message in entry.messages[:-1])]
        lines += [f"> {_code(entry.messages[-1])}", ""]
    lines += [f"**Cause.** {entry.cause}", "", f"**Check.** {entry.check}", ""]
    lines += [f"**Remedy.** {entry.remedy}", ""]
    if entry.changed:
        lines += [f"**Changed.** {entry.changed}", ""]
    chapters = [f"[](../notebooks/{chapter}.ipynb)" for chapter in entry.chapters]
    shown = [f"Read more in {', '.join(chapters)}."] if chapters else []
    sources = [_linked(source) for source in entry.sources]
    reported = [f"Reported in {', '.join(sources)}."] if sources else []
    if shown or reported:
        lines += [" ".join([*shown, *reported]), ""]
    return lines


def _code(text: str) -> str:
    """A span of code, also of a text with back ticks of its own."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _linked(source: str) -> str:
    """``pytorch#1`` as a link to that issue or pull request."""
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{REPOSITORIES[repository]}/issues/{number})"
