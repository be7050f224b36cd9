"""The page of data types, made from ``data/dtypes.csv``: what mps can hold."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from macgpu.data import DATA

DTYPES = DATA / "dtypes.csv"

INTRODUCTION = """# Data types

Which types a tensor on `mps` can have. This is the list in PyTorch's source
([`getMPSDataType`](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/mps/OperationUtils.mm));
the project's tests try each type on its {term}`software MPS device`, and nothing here was
tried on a Mac. *yes* means that such a tensor can be made and copied. A single operator may still
refuse a type: [operators, data types, fallback](../notebooks/07_operators_dtypes_fallback.ipynb)
shows how to find out, and [mixed precision](../notebooks/04_mixed_precision.ipynb) which of them
training can use.

| Type | Bytes a number | On mps |
|---|---|---|"""

REMARKS = "\n## Remarks\n"

REFUSED = """
## What a refusal says

float64
: `Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please
  use float32 instead.`

The other types
: `Trying to convert … to the MPS backend but it does not have support for that dtype.`

Both are a `TypeError`. The remedy is to convert before the tensor moves.
"""


def dtypes(path: Path = DTYPES) -> list[dict[str, str]]:
    """A row a type: dtype (its name in torch), on_mps (yes or no), note."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def dtypes_page() -> str:
    """The page in MyST Markdown: a row a type, with its size from torch itself, then remarks."""
    listed = dtypes()
    rows = [
        f"| `{row['dtype']}` | {getattr(torch, row['dtype']).itemsize} | {row['on_mps']} |"
        for row in listed
    ]
    notes = [f"`{row['dtype']}`\n: {row['note']}.\n" for row in listed if row["note"]]
    return "\n".join([INTRODUCTION, *rows, REMARKS, *notes, REFUSED])
