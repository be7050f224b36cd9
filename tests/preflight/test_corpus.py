"""Every planted fault is found on its line, nothing else is, and clean scripts stay clean."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import macgpu.preflight as preflight
from macgpu.preflight import examine
from macgpu.preflight.kinds import KINDS, NOTE

from .zygote import Zygote

HERE = Path(__file__).parent
MODULES = {"helper.py", "pictures.py"}
"""Imported by a script beside them, and no scripts themselves."""


def scripts(folder: str) -> list[Path]:
    found = [*(HERE / folder).glob("*.py"), *(HERE / folder).glob("*.ipynb")]
    return sorted(path for path in found if path.name not in MODULES)


def expected(path: Path) -> set[tuple]:
    """What the comments say: (kind, file, cell, line)."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        return {
            (kind, path.name, number, line)
            for number, text in enumerate(code, start=1)
            for kind, line in _marks(text)
        }
    text = path.read_text()
    found = {(kind, path.name, None, line) for kind, line in _marks(text)}
    found |= {(kind, None, None, None) for kind in re.findall(r"# expect-run: (\S+)", text)}
    if "from helper import" in text:
        found |= expected(path.with_name("helper.py"))
    return found


def _marks(text: str) -> list[tuple[str, int]]:
    marks = []
    for number, line in enumerate(text.splitlines(), start=1):
        for kinds in re.findall(r"# expect: (.+)$", line):
            marks += [(kind.strip(), number) for kind in kinds.split(",")]
    return marks


def found(path: Path, on: str) -> set[tuple]:
    report = examine(path, on=on)
    return {
        (f.kind, Path(f.file).name if f.file else None, f.cell, f.line) for f in report.findings
    }


@pytest.fixture(scope="module", params=["trace", "soft"])
def device(request):
    """Each device in turn, its processes forked from one."""
    if request.param == "soft":
        softmps = pytest.importorskip("macgpu.softmps", reason="no software device here")
        try:
            environment = softmps.environment(preflight._environment())
        except softmps.SoftMPSUnavailableError as error:
            pytest.skip(str(error))
    else:
        environment = preflight._environment()
    zygote = Zygote(environment)
    patch = pytest.MonkeyPatch()
    patch.setattr(preflight, "_run", zygote.run)
    yield request.param
    patch.undo()
    zygote.close()


@pytest.mark.parametrize("path", scripts("corpus"), ids=lambda path: path.name)
def test_planted_faults_are_found_on_their_lines(path, device):
    assert found(path, device) == expected(path)


@pytest.mark.parametrize("path", scripts("clean"), ids=lambda path: path.name)
def test_clean_scripts_stay_clean(path, device):
    assert found(path, device) == set()


def test_the_corpus_plants_every_kind_that_a_script_can_have():
    planted = {mark[0] for path in scripts("corpus") for mark in expected(path)}
    of_bad_input = {"no-training-step", "script-error", "untraceable", "unwatched-process"}
    assert planted | of_bad_input == set(KINDS)
    assert KINDS["pin-memory"].severity == NOTE
