"""Other people's training steps beside the book's, as the records hold them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from macgpu.compare import captions, timed_steps
from macgpu.measure import records
from macgpu.measure.records import Comparison, Record
from macgpu.measure.timing import ratio_of_timings

WAYS = {None: "eager", "default": "torch.compile", "reduce-overhead": "CUDA graphs"}
"""By mode of the compiler, what the ladder calls such a step; it has no name for one without."""


@dataclass(frozen=True)
class Rival:
    """Other steps of a model, each compared in turn with the book's of the same run."""

    record: Record
    pairs: tuple[Comparison, ...]
    """The other's step is A, the book's is B."""

    @property
    def slower_compiled(self) -> list[str]:
        """The compiled steps of the other that are shown to take longer than its eager one."""
        times = {
            result.label.options.compiled: result.timing
            for result in self.record.results
            if result.timing
            and (result.label.model, result.label.code)
            == (self.pairs[0].a.model, self.pairs[0].a.code)
        }
        eager = times.pop(None, None)
        return [
            WAYS[mode]
            for mode, timing in times.items()
            if eager and ratio_of_timings(timing, eager).verdict == "slower"
        ]


def newest(device_type: str) -> dict[str, Rival]:
    """By model, what its newest run with another's step on such a device holds."""
    found: dict[str, Rival] = {}
    for record in sorted(records.read_all(), key=lambda record: record.finished):
        if record.device.type == device_type:
            pairs = [pair for pair in record.comparisons if pair.a.code != pair.b.code]
            for model in dict.fromkeys(pair.a.model for pair in pairs):
                own = tuple(pair for pair in pairs if pair.a.model == model)
                found[model] = Rival(record, own)
    return found


def table(found: dict[str, Rival]) -> pd.DataFrame:
    """A row for each other step: whose and which, the book's beside it, and the ratio of times.

    The ratio is the other's time over the book's, with the bounds of its interval; the last column
    is what that makes of the other (``"faster"``, ``"slower"`` or no difference shown).
    """
    return pd.DataFrame(
        {
            "model": model,
            "other": f"{pair.a.code}, {WAYS[pair.a.options.compiled]}",
            "the book's": pair.b.step,
            "ratio": pair.ratio.median,
            "low": pair.ratio.low,
            "high": pair.ratio.high,
            "the other is": pair.ratio.verdict,
        }
        for model, rival in found.items()
        for pair in rival.pairs
    )


def where(found: dict[str, Rival]) -> str:
    """Machine and day of each run, once."""
    return captions({model: rival.record for model, rival in found.items()})


def words(found: dict[str, Rival], kept: dict[str, Record], models: Iterable[str]) -> str:
    """What the table does not show by itself.

    Which other step never had CUDA graphs, which step of the book is in no ladder of ``kept`` (see
    :func:`macgpu.compare.newest_of_each`), whose compiler made a step slower, and which of the
    ``models`` have no other step.
    """
    sentences = []
    for model, rival in found.items():
        code, book = rival.pairs[0].a.code, rival.pairs[-1].b
        modes = {pair.a.options.compiled for pair in rival.pairs}
        if "reduce-overhead" not in modes:
            either = ", and neither was the book's" if book.step != "CUDA graphs" else ""
            sentences.append(f"For {model}, {code} was not run with CUDA graphs{either}.")
        if book not in [result.label for result in timed_steps(kept.get(model), model)]:
            sentences.append(
                f"The book's step of {model} with {book.step} has no rate in the table of rates: "
                "it was timed in turn with the other's alone."
            )
        if rival.slower_compiled:
            sentences.append(
                f"For {model}, {code} is slower with {' and with '.join(rival.slower_compiled)} "
                "than without the compiler. That was seen, and its cause was not looked for."
            )
    sentences += [
        f"No other step was run for {model}: benchmarks/h200.py, which runs them, names none."
        for model in models
        if found and model not in found
    ]
    return " ".join(sentences)
