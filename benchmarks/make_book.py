"""How long `make book` takes with the environment made: from nothing, and with nothing changed.

Works in `_build/bench`, and leaves `_build` as it is.
"""

from __future__ import annotations

import shutil
import sys
import time

from rich.console import Console

from macgpu.publish.book import find_book
from macgpu.publish.execute import print_table, run_chapters
from macgpu.publish.site import build_site


def main() -> None:
    book = find_book()
    book = type(book)(book.root, book.root / "_build" / "bench")
    shutil.rmtree(book.build, ignore_errors=True)
    console = Console()
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        outcomes = run_chapters(book, book.chapters(), "quick", "auto", console)
        build_site(book, "quick")
        seconds.append(time.perf_counter() - start)
    print_table(outcomes, console)
    print(f"first {seconds[0]:.0f} s (240 allowed), second {seconds[1]:.1f} s (15 allowed)")
    sys.exit(any(outcome.result == "failed" for outcome in outcomes))


if __name__ == "__main__":
    main()
