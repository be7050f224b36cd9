"""The page of the chips, made from ``data/chips``."""

from __future__ import annotations

from macgpu.chips import chips_html, read_chips, read_sources, sources_html

INTRODUCTION = """# Chips

The chips of Apple silicon Macs. Beside each value stands the key of its source, and the list below
the tables says what that is. A dash says that no source was found. Variants of a chip are given
from the smallest to the largest, and the figures between the bars belong together.

The bandwidth is the theoretical one of the whole chip; float32 is as Apple stated it, and its
public figures end with the M1 Ultra. [Know your GPU](../notebooks/03_know_your_gpu.ipynb) measures
what your own reaches, which is the figure to work with.
"""

REMARKS = """
## Which machine is which

`macgpu doctor` prints the chip of the machine at hand with its cores and memory. On a Mac,
`sysctl -n machdep.cpu.brand_string` prints the name of the chip, and
*About This Mac* shows it too. There was no M4 Ultra. A chip's name is not enough to know its
bandwidth: of the M3 Max, M4 Max, M5 Max and M6 there are variants with different ones.
"""


TABLES = (
    ("gpu_cores", "bandwidth_gb_s", "memory_gb"),
    ("announced", "cpu_cores", "fp32_tflops"),
)
"""The columns of each table: all of them in one would be wider than the page."""


def chips_page() -> str:
    """The page in MyST Markdown: the tables of all chips and the list of their sources."""
    chips = read_chips()
    parts = [*(chips_html(chips, columns) for columns in TABLES), sources_html(read_sources())]
    tables = [f"```{{raw}} html\n{part}\n```\n" for part in parts]
    return "\n".join([INTRODUCTION, *tables, REMARKS])
