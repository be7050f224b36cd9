"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from macgpu.errors import BookError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; the operating system lets go of it when the process ends, however.

    Raises:
        BookError: where another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BookError(
                f"another run is at work in {folder.resolve().name}; wait for it"
            ) from None
        yield
