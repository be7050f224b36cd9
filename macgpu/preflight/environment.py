"""Watches the variables of the MPS backend being set, and when torch is imported."""

from __future__ import annotations

import builtins
import os

from macgpu import variables
from macgpu.preflight.ledger import Ledger


class Environment:
    """``os.environ`` as the script sees it, against what torch has read by then."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.torch_was_imported = False
        self._ratio_place: tuple[str, int] | None = None

    def install(self) -> None:
        """Note what is wrong already, and watch from now on."""
        for name in os.environ:
            if name in variables.INVENTED:
                self.ledger.note("invented-variable", name, place=(None, None))
        kind = type(os.environ)
        set_item, import_ = kind.__setitem__, builtins.__import__

        def set_variable(environ: os._Environ, name: str, value: str) -> None:
            if environ is not os.environ or name not in (variables.HIGH, variables.LOW):
                set_item(environ, name, value)
            else:
                # For Python only: torch would end the run over ratios that contradict each other.
                environ._data[environ.encodekey(name)] = environ.encodevalue(value)
            if environ is os.environ:
                self._judge(name)

        def import_and_tell(name: str, *args: object, **named: object) -> object:
            if name.partition(".")[0] == "torch":
                builtins.__import__ = import_
                self.torch_was_imported = True
                fallback = os.environ.get(variables.FALLBACK) == "1"
                self.ledger.record(fallback=fallback)
            return import_(name, *args, **named)

        kind.__setitem__ = set_variable
        builtins.__import__ = import_and_tell

    def check_ratios(self) -> None:
        """Note watermark ratios that the allocator refuses."""
        problem = variables.watermark_problem(os.environ)
        if problem:
            self.ledger.note("bad-watermark", problem, self._ratio_place or (None, None))

    def _judge(self, name: str) -> None:
        if name in variables.INVENTED:
            self.ledger.note("invented-variable", name)
        elif name in variables.REAL and self.torch_was_imported:
            self.ledger.note("late-variable", name)
        if name in (variables.HIGH, variables.LOW):
            self._ratio_place = self.ledger.place()
