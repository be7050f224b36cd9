"""What a number in a record may be. The types of the measuring modules say it, where they stand."""

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
