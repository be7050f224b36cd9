"""Errors whose message is one clear line for a reader; the command line shows no traceback."""

from __future__ import annotations


class BookError(RuntimeError):
    """The book cannot be run or built as asked; the message says why."""
