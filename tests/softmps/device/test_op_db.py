"""PyTorch's own sample inputs give on the device what they give on the CPU.

With `--nightly` all of them, without a fixed tenth.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path

import op_db
import pytest

KNOWN = json.loads((Path(__file__).parent / "known_differences.json").read_text())
CASES = op_db.cases()
SEEN: Counter[str] = Counter()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        nightly = metafunc.config.getoption("--nightly")
        chosen = [case for case in CASES if nightly or zlib.crc32(case.name.encode()) % 10 == 0]
        metafunc.parametrize("case", chosen, ids=lambda case: case.label)


def test_case(case: op_db.Case) -> None:
    outcome = op_db.outcome(case)
    SEEN[outcome.word] += 1
    if case.label in KNOWN["differences"]:
        assert outcome.word == "different", f"no longer different: {outcome}"
    else:
        assert outcome.word != "different", outcome.detail


def test_known_differences_exist() -> None:
    """Every entry names a case: none is left over from an older torch."""
    assert KNOWN["differences"].keys() <= {case.label for case in CASES}


def test_counts(request: pytest.FixtureRequest) -> None:
    """The numbers that are published are those of this run."""
    if not request.config.getoption("--nightly"):
        pytest.skip("only a --nightly run sees all cases")
    assert dict(SEEN) == KNOWN["counts"]
