"""What a number and a text in a record may be. The measuring modules say it, where they stand."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=0)]
"""A time, a rate, a ratio."""
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Amount = Annotated[int, Field(ge=0)]
"""Operations or bytes."""
Samples = Annotated[tuple[Positive, ...], Field(min_length=1)]
"""Raw samples that a statistic was made of."""

MARKUP = frozenset('<>|`[]{}\\$*~^&#"')
"""What HTML, Markdown or MathJax would take for more than text; no chip or package is called so."""


def unfit(text: str) -> str | None:
    """The first character that no text of a record may hold, or ``None``: markup, or one that does
    not print, such as the escape that a terminal obeys."""
    return next((one for one in text if one in MARKUP or not one.isprintable()), None)


def fit(text: str) -> str:
    """A text from elsewhere, such as that of an error, with ``?`` for each :func:`unfit` one."""
    return "".join("?" if unfit(one) else one for one in text)
