"""The page of torch versions, made from ``data/torch-versions``."""

from __future__ import annotations

import csv
from pathlib import Path

from macgpu.operators import HISTORY, history

TIMELINE = HISTORY.with_name("timeline.csv")

INTRODUCTION = """# Versions of torch

What each version brought for the Mac's GPU, as its official macOS wheel has it: read in the files,
not tried on a Mac. Versions between two rows were not read. A dash says that the cell was not
read either. [Install and verify](../notebooks/01_install_and_verify.ipynb) says what to install
today, and [the operators](operators.md) are listed for the version of this book.

| torch | Oldest Python | Oldest macOS | Operators with an MPS kernel |
|---|---|---|---|"""

FEATURES = """
## What came when

{term}`Autocast <autocast>` and the {term}`loss scale` are explained in
[mixed precision](../notebooks/04_mixed_precision.ipynb), a {term}`fused optimizer` in
[against NVIDIA](../notebooks/13_against_nvidia.ipynb).

| torch | Autocast on mps to | Loss scaler | Fused AdamW |
|---|---|---|---|"""

NOTES = "\n## Remarks\n"

COMING = """
## What is coming

The list that PyTorch's developers keep of operators still missing on mps is
[pytorch#141287](https://github.com/pytorch/pytorch/issues/141287); the one of `torch.compile` on
mps is [pytorch#150121](https://github.com/pytorch/pytorch/issues/150121).
"""


def timeline(path: Path = TIMELINE) -> list[dict[str, str]]:
    """A row a version, oldest first; the columns are described in the folder's README."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def versions_page() -> str:
    """The page in MyST Markdown: what each version needs, has and is known for."""
    rows = timeline()
    kernels = history().set_index("torch")["native"]
    needs = [
        f"| {row['torch']} | {row['python']} | {_cell(row['macos'])} "
        f"| {kernels.get(row['torch'], '–')} |"
        for row in rows
    ]
    features = [
        f"| {row['torch']} | {_cell(row['autocast'].replace(' ', ', '))} | "
        + " | ".join(_cell(row[column]) for column in ("scaler", "fused_adamw"))
        + " |"
        for row in rows
    ]
    notes = [f"torch {row['torch']}\n: {row['note']}.\n" for row in rows if row["note"]]
    return "\n".join([INTRODUCTION, *needs, FEATURES, *features, NOTES, *notes, COMING])


def _cell(text: str) -> str:
    return text or "–"
