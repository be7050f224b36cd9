"""The reference pages hold every row of their data, and what they say fits the installed torch."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from typer.main import get_command

from macgpu import chips, operators, reported, variables
from macgpu.cli import app
from macgpu.publish.chips_page import TABLES, chips_page
from macgpu.publish.dtypes_page import dtypes, dtypes_page
from macgpu.publish.reported_list import reported_list
from macgpu.publish.variables_page import variables_page
from macgpu.publish.versions_page import timeline, versions_page
from tests.conftest import ROOT

BOOK = ROOT / "book"


def test_every_variable_is_on_its_page_with_when_it_is_read():
    page = variables_page()
    real, _, invented = page.partition("## Invented ones")
    for name, variable in variables.REAL.items():
        entry = re.search(rf"^`{name}`\n: (.+)$", real, re.MULTILINE)[1]
        assert variable.meaning in entry and variable.read in entry
        assert f"Default: {variable.default}." in entry
    for name in variables.INVENTED:
        assert f"\n`{name}`\n: Not read." in invented
    assert set(variables.REAL).isdisjoint(variables.INVENTED)
    named = set(re.findall(r"PYTORCH_\w+", page))
    assert named == set(variables.REAL) | set(variables.INVENTED)


def test_the_defaults_of_the_watermarks_are_those_of_the_installed_torch():
    header = Path(torch.__file__).parent / "include" / "ATen" / "mps" / "MPSAllocator.h"
    text = header.read_text(encoding="utf-8")
    high, low = (
        float(re.search(rf"default_{which}_watermark_ratio = ([\d.]+);", text)[1])
        for which in ("high", "low")
    )
    assert (high, low) == (variables.HIGH_DEFAULT, variables.LOW_DEFAULT)


def test_every_version_is_on_its_page_with_its_count_of_kernels():
    page, rows = versions_page(), timeline()
    versions = [tuple(map(int, row["torch"].split("."))) for row in rows]
    assert versions == sorted(versions)
    for row in rows:
        assert len(re.findall(rf"^\| {re.escape(row['torch'])} \|", page, re.MULTILINE)) == 2
        assert not row["note"] or f"torch {row['torch']}\n: {row['note']}.\n" in page
    counted = operators.history().set_index("torch")["native"]
    assert set(counted.index) <= {row["torch"] for row in rows}
    for version, kernels in counted.items():
        assert re.search(rf"^\| {re.escape(version)} \|.*\| {kernels} \|$", page, re.MULTILINE)


def test_the_newest_version_of_the_page_is_the_one_of_the_book():
    assert timeline()[-1]["torch"] == torch.__version__.partition("+")[0]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_type_of_numbers_that_torch_has_is_on_its_page():
    named = [row["dtype"] for row in dtypes()]
    assert len(set(named)) == len(named)
    # Left out: types below a byte, quantised ones, and one newer than the source that was read.
    odd = re.compile(r"u?int[1-7]$|qu?int|bits|float4|bcomplex32")
    names = {str(value).removeprefix("torch.") for value in vars(torch).values() if is_type(value)}
    assert set(named) == {name for name in names if not odd.match(name)}
    page = dtypes_page()
    for row in dtypes():
        size = torch.empty(1, dtype=getattr(torch, row["dtype"])).element_size()
        assert f"| `{row['dtype']}` | {size} | {row['on_mps']} |" in page
        assert row["note"] in page


def is_type(value):
    return isinstance(value, torch.dtype)


def test_every_chip_and_each_of_its_columns_is_on_its_page():
    page = chips_page()
    for chip in chips.read_chips():
        assert page.count(f"<tr><th>{chip.name}</th>") == len(TABLES)
    assert sorted(column for columns in TABLES for column in columns) == sorted(chips.COLUMNS)
    for key in chips.read_sources():
        assert f'<li id="source-{key}">' in page


def test_every_source_of_reported_figures_ends_the_bibliography():
    listed = reported_list(reported.sources())
    for source in reported.sources():
        assert f"[{source.name}]({source.url}), {source.year}" in listed
    assert {row.source.name for row in reported.training()} <= {s.name for s in reported.sources()}


def terms():
    text = (BOOK / "glossary.md").read_text(encoding="utf-8")
    body = re.search(r"```\{glossary\}\n(.*?)\n```", text, re.DOTALL)[1]
    return re.findall(r"^(\S.*)$", body, re.MULTILINE)


def test_the_terms_of_the_glossary_are_unique_and_alphabetical():
    found = [term.casefold() for term in terms()]
    assert len(found) >= 40
    assert found == sorted(set(found))


def test_the_tools_that_are_named_exist():
    page = (BOOK / "tools.md").read_text(encoding="utf-8")
    commands = get_command(app).commands
    for words in re.findall(r"`macgpu ([a-z ]+)", page):
        first, *rest = words.split()
        command = commands[first]
        assert not hasattr(command, "commands") or rest[0] in command.commands
    for dotted in re.findall(r"`(macgpu(?:\.\w+)+)`", page):
        module, _, name = dotted.rpartition(".")
        if dotted != "macgpu.parallel":
            assert hasattr(__import__(module, fromlist=[name]), name), dotted


def test_the_ten_things_are_ten_and_each_leads_to_its_chapter():
    page = (BOOK / "ten_things.md").read_text(encoding="utf-8")
    things = re.split(r"^\d+\. ", page, flags=re.MULTILINE)[1:]
    assert len(things) == 10
    for thing in things:
        (chapter,) = re.findall(r"→\s+\[\]\(\.\./notebooks/(\w+)\.ipynb\)", thing)
        assert (ROOT / "notebooks" / f"{chapter}.ipynb").is_file()
    assert "(ten_things.md)" in (BOOK / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["tools", "variables", "versions", "dtypes", "chips", "glossary"])
def test_a_reference_page_is_in_the_table_of_contents(page):
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
    assert {"file": f"book/{page}"} in parts[-1]["chapters"]


def test_every_work_of_the_bibliography_is_cited():
    # Sphinx refuses a work that is cited and not listed; this is the other way round.
    works = (BOOK / "references.bib").read_text(encoding="utf-8")
    listed = re.findall(r"^@\w+\{(\w+),", works, re.MULTILINE)
    assert len(set(listed)) == len(listed)
    page = (BOOK / "bibliography.md").read_text(encoding="utf-8")
    assert set(listed) == set(re.findall(r"\{cite:t\}`(\w+)`", page))
