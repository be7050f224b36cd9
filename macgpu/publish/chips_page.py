"""The page of the chips, made from ``data/chips``."""

from __future__ import annotations

from macgpu.chips import MARKS, chips_html, read_chips, read_sources, sources_html

INTRODUCTION = """# Chips

The chips of Apple silicon Macs, as sources had them on 30 November 2026; nothing here was measured
by this book. Beside each value stands the key of its source, which leads to the list below the
tables. Its letter says what kind it is: {kinds}. A dash says that no source was found. Variants of
a chip are given from the smallest to the largest, with a bar between; the first of one column
belongs to the first of the next.

The {{term}}`bandwidth` is the theoretical one of the whole chip, and memory is the most that was
announced; what is on sale has changed since.
[Know your GPU](../notebooks/03_know_your_gpu.ipynb) measures what your own reaches, which is the
figure to work with.

## Graphics and memory
"""

PROCESSOR = """
## Processor and arithmetic

Of the cores of the CPU, P stands for performance, E for efficiency and S for "super". The P cores
of the M5 Pro, Max and Ultra are a new design below the super cores, so their number does not
compare with that of older chips. Float32 is as Apple stated it for the largest variant, in 10¹²
operations a second; its public figures end with the M1 Ultra.
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
    kinds = ", ".join(f"*{mark}* {meaning}" for mark, meaning in MARKS.items())
    memory, processor = (_raw(chips_html(chips, columns)) for columns in TABLES)
    sources = _raw(sources_html(read_sources()))
    introduction = INTRODUCTION.format(kinds=kinds)
    return "\n".join([introduction, memory, PROCESSOR, processor, sources, REMARKS])


def _raw(html: str) -> str:
    return f"```{{raw}} html\n{html}\n```\n"
