"""What the watched process saw, written down as it happens.

Each event is one line of JSON, appended at once when it is new, and again with its count at every
optimizer step. So whatever ends the process, what it had seen is there to be read.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

MACGPU = str(Path(__file__).parent.parent)
PREFLIGHT = str(Path(__file__).parent)
STANDARD_LIBRARY = sysconfig.get_path("stdlib")

TRANSPARENT = (
    "torch/_tensor.py",
    "torch/_tensor_str.py",
    "torch/_ops.py",
    "torch/functional.py",
    "torch/_jit_internal.py",
    "torch/nn/functional.py",
    "torch/overrides.py",
    "torch/utils/_device.py",
)
"""Python parts of what a caller sees as one operation of torch."""


@dataclass
class Event:
    """One kind of thing at one line, and how often.

    ``first`` is the number of optimizer steps done when it first happened; ``hits`` the number of
    different such numbers it happened at; ``order`` ranks events by when they first happened.
    """

    kind: str
    detail: str
    file: str | None
    line: int | None
    order: int
    first: int
    count: int = 0
    hits: int = 0
    last: int = -1


class Ledger:
    """Collects events and appends them to a file.

    Args:
        path: the file; the reader keeps the last line of each event.
        script: the user's program; files in its directory are the user's, too.
    """

    def __init__(self, path: Path, script: Path) -> None:
        self.path = path
        self.script = str(script)
        self.root = str(script.parent) + os.sep
        self.step = 0
        self._events: dict[tuple, Event] = {}
        self._changed: set[tuple] = set()
        self._is_user: dict[str, bool] = {}
        self._process = os.getpid()

    def note(
        self, kind: str, detail: str = "", place: tuple[str, int] | None = None, by: int = 1
    ) -> None:
        """Count an event, at ``place`` or else at the line of the user's code that runs now."""
        file, line = place or self.place() or (None, None)
        key = (kind, detail, file, line)
        event = self._events.get(key)
        if event is None:
            event = Event(kind, detail, file, line, len(self._events), self.step)
            self._events[key] = event
        event.count += by
        if event.last != self.step:
            event.hits += 1
            event.last = self.step
        if event.count == by:
            self._write({"event": asdict(event)})
        else:
            self._changed.add(key)

    def record(self, **fact: object) -> None:
        """Append a fact about the run itself."""
        self._write(fact)

    def end_step(self) -> None:
        """One more optimizer step is done."""
        self.flush()
        self.step += 1
        self.record(steps=self.step)

    def flush(self) -> None:
        """Append every event whose count has changed."""
        for key in self._changed:
            self._write({"event": asdict(self._events[key])})
        self._changed.clear()

    def place(self) -> tuple[str, int] | None:
        """File and line of the innermost frame of the user's code."""
        frame = self._innermost(sys._getframe(1))
        if frame is None:
            # The backward pass runs in a thread of its own, which the main thread waits for.
            frame = self._innermost(sys._current_frames()[threading.main_thread().ident])
        return (frame.f_code.co_filename, frame.f_lineno) if frame else None

    def direct_place(self) -> tuple[str, int] | None:
        """The same, or ``None`` where a library, and not the user's code, called torch."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if self.is_user(name):
                return name, frame.f_lineno
            if not name.startswith(PREFLIGHT) and not name.endswith(TRANSPARENT):
                return None
            frame = frame.f_back
        return None

    def is_user(self, name: str) -> bool:
        """Whether a code object's file name is the user's script, notebook or a module by it."""
        known = self._is_user.get(name)
        if known is None:
            known = self._is_user[name] = name.startswith(self.script) or (
                name.startswith(self.root)
                and "site-packages" not in name
                and not name.startswith((MACGPU, STANDARD_LIBRARY))
            )
        return known

    def _innermost(self, frame: FrameType | None) -> FrameType | None:
        while frame is not None and not self.is_user(frame.f_code.co_filename):
            frame = frame.f_back
        return frame

    def _write(self, content: dict) -> None:
        if os.getpid() != self._process:
            return  # a forked child: its counts are not this run's
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")
