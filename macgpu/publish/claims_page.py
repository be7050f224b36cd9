"""The page of the articles' claims, made from their list."""

from __future__ import annotations

import re
from collections import Counter

from macgpu.claims import ARTICLES, VERDICTS, Claim

REPOSITORIES = {"pytorch": "pytorch/pytorch", "transformers": "huggingface/transformers"}

ORIGINALS = {
    "1": "深度解析：Pytorch在Mac GPU上的训练与性能测评",
    "2": "PyTorch 在 Mac M2 上的性能真相MPS 加速实测与避坑指南",
}
"""The articles' own titles, as in the copies that were read: what a reader can search for."""

INTRODUCTION = """Two articles about training with PyTorch on a Mac stand at the beginning of this \
book. They are in Chinese, and we know no address that will stay. This page lists what they claim \
and what the book found, each with the chapter that shows it. The claims are in our words, \
translated and shortened: you cannot check the wording here, only what is said of it. Much of it \
was right when it was written, or is right on the machine of its author; a verdict is about \
the sentence, with the software of today, and not about the people who wrote it.

Where a claim is a line of code, the line was executed, on Linux or on the book's software MPS \
device, and the project's tests execute it again with every change. Figures from a Mac were not \
repeated: this book was made without one. [Add your Mac](add_your_mac.md) says how yours can \
help."""


def claims_page(claims: list[Claim]) -> str:
    """The page in MyST Markdown: what the verdicts mean, how many of each, and every claim."""
    counts = Counter((claim.verdict, claim.article) for claim in claims)
    lines = [
        "# Claims checked",
        "",
        INTRODUCTION,
        "",
        "| Verdict | Article 1 | Article 2 | Meaning |",
        "|---|---|---|---|",
        *(
            f"| {verdict} | {counts[verdict, '1']} | {counts[verdict, '2']} | {meaning} |"
            for verdict, meaning in VERDICTS.items()
        ),
    ]
    for number, title in ARTICLES.items():
        lines += [
            "",
            f"## Article {number}: {title}",
            "",
            f'Its own title, in Chinese: <span lang="zh">{ORIGINALS[number]}</span>.',
            "",
            *(_entry(claim) for claim in claims if claim.article == number),
        ]
    return "\n".join([*lines, ""])


def _entry(claim: Claim) -> str:
    """A term and what is said of it: a table of four columns would not fit on a telephone."""
    evidence = re.sub(r"\b(\w+)#(\d+)", _linked, claim.evidence)
    shown = f"[](../notebooks/{claim.chapter}.ipynb)"
    return f"{claim.claim}\n: **{claim.verdict.capitalize()}.** {evidence}. → {shown}\n"


def _linked(issue: re.Match) -> str:
    """``pytorch#1`` as a link to that issue."""
    repository, number = REPOSITORIES[issue[1]], issue[2]
    return f"[{issue[0]}](https://github.com/{repository}/issues/{number})"
