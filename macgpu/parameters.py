"""A chapter's parameters: one that cannot be meant so is refused in one line, before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from macgpu.errors import BookError
from macgpu.models import CASES
from macgpu.words import counted


def require_choice(allowed: Iterable[str | bool], /, **asked: object) -> None:
    """Refuse a parameter that is none of the names ``allowed``.

    Raises:
        BookError: with the parameter and what it may be, as all functions here.
    """
    names = list(allowed)
    for name, value in asked.items():
        if value not in names:
            _refuse(name, value, f"one of {', '.join(map(str, names))}")


def require_choices(allowed: Iterable[str], /, **asked: object) -> None:
    """Refuse a parameter that is no list of names, one or more, each one of ``allowed``."""
    names = list(allowed)
    for name, value in asked.items():
        listed = value if isinstance(value, list) else []
        if not listed or not all(one in names for one in listed):
            _refuse(name, value, f"a list of one or more of {', '.join(names)}")


def require_text(**asked: object) -> None:
    """Refuse a parameter that is no text; it may be empty."""
    for name, value in asked.items():
        if not isinstance(value, str):
            _refuse(name, value, "text")


def require_count(least: int = 1, /, **asked: object) -> None:
    """Refuse a parameter that is no whole number of at least ``least``."""
    for name, value in asked.items():
        if not _is_count(value, least):
            _refuse(name, value, f"a whole number of at least {least}")


def require_counts(least: int, /, **asked: object) -> None:
    """Refuse a parameter that is no list of whole numbers, one or more, each at least ``least``."""
    for name, value in asked.items():
        listed = value if isinstance(value, list) else []
        if not listed or not all(_is_count(one, least) for one in listed):
            _refuse(name, value, f"a list of whole numbers of at least {least}")


def require_positive(**asked: object) -> None:
    """Refuse a parameter that is no number above 0."""
    for name, value in asked.items():
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            _refuse(name, value, "a number above 0")


def require_at_most(most: float, /, **asked: float | list[int]) -> None:
    """Refuse a number above ``most``, or a list with one; that they are numbers is asked before."""
    for name, value in asked.items():
        if max(value if isinstance(value, list) else [value]) > most:
            _refuse(name, value, f"at most {most}")


def require_batches(least: int = 0, /, **asked: object) -> None:
    """Refuse what does not map models of the book, at least ``least``, to a batch size each."""
    for name, value in asked.items():
        _require_models(name, value, least)
        for model, size in value.items():
            require_count(**{f"{name}[{model!r}]": size})


def require_batch_lists(**asked: object) -> None:
    """Refuse a parameter that does not map models of the book, one or more, to batch sizes each."""
    for name, value in asked.items():
        _require_models(name, value, least=1)
        for model, sizes in value.items():
            require_counts(1, **{f"{name}[{model!r}]": sizes})


def _require_models(name: str, value: object, least: int) -> None:
    if not isinstance(value, dict):
        _refuse(name, value, "models with their batch sizes")
    if len(value) < least:
        _refuse(name, value, f"at least {counted(least, 'model')} with batch sizes")
    for model in value:
        if model not in CASES:
            _refuse(f"a model of {name}", model, f"one of {', '.join(CASES)}")


def _is_count(value: object, least: int) -> bool:
    # A truth value is an int to Python, and no count to a reader.
    return type(value) is int and value >= least


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    raise BookError(f"{name} = {value!r}: it must be {wanted}")
