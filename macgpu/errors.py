"""Errors whose message is one clear line for a reader; nowhere is a traceback shown with it."""

from __future__ import annotations


class BookError(RuntimeError):
    """The book cannot be run or built as asked; the message says why."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]
