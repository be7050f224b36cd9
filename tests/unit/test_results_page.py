"""The results page shows what the records hold, and nothing where they hold nothing."""

import re
from dataclasses import replace

import torch
import yaml
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from macgpu.measure import records
from macgpu.measure.energy import Energy
from macgpu.measure.generation import Generation, Look, MadeBy, Quality
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.loading import Loading, Pass, ThreeWay
from macgpu.measure.records import Comparison, Footprint, Label, Result
from macgpu.measure.steps import Options
from macgpu.measure.timing import ratio_of_pairs, summarise
from macgpu.publish.results import KEY, _anchor, results_tables
from tests.conftest import ROOT


def a_result(**changes):
    timing = summarise([0.2, 0.2, 0.2], 2, 1.0, [], True)
    label = Label("resnet50", 32, Options())
    return replace(Result(label, timing, None, None, None, None, None), **changes)


def write(folder, *results, **parts):
    record = records.make(torch.device("cpu"), ("models",), "smoke", results=results, **parts)
    return records.write(record, folder)


def row(page, start):
    (line,) = (line for line in page.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_no_record_is_said(tmp_path):
    assert results_tables(tmp_path / "none") == "There is no record yet.\n"


def test_a_record_is_listed_with_machine_date_and_provenance(tmp_path):
    path = write(tmp_path, a_result())
    page = results_tables(tmp_path)
    record = records.read(path)
    listed = row(page, f"| {record.device.name} (cpu)")
    anchor = listed[1].partition("(#")[2].rstrip(")")
    assert listed[1].startswith(f"[{record.finished[:16].replace('T', ' ')}]")
    assert f"({anchor})=\n### {record.device.name}" in page
    assert listed[2:] == [
        "training steps",
        "smoke",
        "reader",
        record.software["torch"],
    ]
    assert f"File: {path.name}" in page
    assert record.machine.describe() in page


def test_a_step_is_shown_as_a_rate(tmp_path):
    write(tmp_path, a_result(peak_memory_bytes=2**30))
    # Two steps in 0.2 s: 0.1 s for 32 samples.
    assert row(results_tables(tmp_path), "| resnet50, float32")[1:] == [
        "32",
        "320.0",
        "100 ms [100, 100]",
        "1.00\u00a0GiB",
    ]


def test_other_peoples_step_stands_beside_the_books(tmp_path):
    ours = a_result().label
    theirs = replace(ours, code="timm")
    ratio = ratio_of_pairs([1.25] * 60)
    write(tmp_path, comparisons=(Comparison(theirs, ours, ratio),))
    assert row(results_tables(tmp_path), "| timm's resnet50, float32")[1:] == [
        "resnet50, float32 (float32)",
        "1.250 [1.250, 1.250]",
        "slower",
    ]


def test_a_step_that_left_the_curve_is_explained_where_there_is_one(tmp_path):
    write(tmp_path, a_result(timing=None, failure="out of memory"))
    assert "first losses" not in results_tables(tmp_path)
    write(tmp_path, a_result(timing=None, failure="wrong: curve off by 0.18 (0.05 allowed)"))
    assert "half-precision types set to 0.10" in results_tables(tmp_path)


def test_what_was_not_measured_says_why_and_is_not_zero(tmp_path):
    failed = a_result(timing=None, failure="out of memory")
    silent = a_result(timing=None, energy=Energy(None, "no energy meter for cpu on Linux"))
    write(tmp_path, failed, silent)
    page = results_tables(tmp_path)
    rows = [line for line in page.splitlines() if line.startswith("| resnet50")]
    assert "not timed: out of memory" in rows[0]
    assert "not measured: no energy meter for cpu on Linux" in rows[1]
    assert " 0" not in rows[0] + rows[1]
    assert all(len(r.strip("|").split("|")) == n for r, n in zip(rows, (5, 6), strict=True))


def test_a_record_that_is_refused_is_named_and_the_others_are_shown(tmp_path, capsys):
    write(tmp_path, a_result())
    (tmp_path / "cut_off.json").write_text('{"version": ')
    (tmp_path / "<b>.json").write_text("{}")
    page = results_tables(tmp_path)
    assert "\nLeft out: cut\\_off.json: not whole JSON" in page
    assert "\nLeft out: \\<b\\>.json: version: is missing, so this is no record." in page
    assert row(page, "| resnet50, float32")[2] == "320.0"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[1].startswith("macgpu: a record is left out: cut_off.json: not whole JSON")
    results_tables(tmp_path)
    assert capsys.readouterr().err == "", "it was said"


HOSTILE = "</td> <script>alert(1)</script> | [x](//e.vil) ![x](y) `c` $m$ {{s}} *b*\n# h &amp; \\"


def test_whatever_a_record_says_is_text_on_the_page(tmp_path, monkeypatch):
    # The records refuse such names; a page that is made of others must still not run them.
    record = records.make(torch.device("cpu"), ("models",), "smoke")
    path = records.write(record, tmp_path)
    label = replace(a_result().label, options=replace(Options(), compiled=HOSTILE), step=HOSTILE)
    timing = replace(a_result().timing, flags=(HOSTILE,))
    failed = Footprint("resnet50", 4096, None, False, 2**40, failure=HOSTILE)
    hostile = replace(
        record,
        device=replace(record.device, name=HOSTILE),
        machine=replace(record.machine, chip=HOSTILE, os_version=HOSTILE),
        software={"torch": HOSTILE},
        results=(
            a_result(label=label, timing=timing),
            a_result(timing=None, failure=HOSTILE),
            a_result(energy=Energy(HOSTILE, None, 1.0, 1, 1.0, 1.0, 1.0, 1.0)),
            a_result(energy=Energy(None, HOSTILE)),
        ),
        comparisons=(Comparison(label, label, ratio_of_pairs([1.25] * 60)),),
        footprints=(failed,),
    )
    monkeypatch.setattr(records, "read", lambda _: hostile)
    page = results_tables(tmp_path).replace(KEY, "")
    extensions = set(yaml.safe_load((ROOT / "_config.yml").read_text())["parse"].popitem()[1])
    config = MdParserConfig(enable_extensions=extensions)
    html = create_md_parser(config, RendererHTML).render(page)
    tags = set(re.findall(r"</?(\w+)", html))
    ours = {"h2", "h3", "p", "details", "summary", "a", "div"}
    assert tags == ours | {"table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r'href="([^"]*)"', html)) == {f"#{_anchor(path.name)}"}
    text = " ".join(HOSTILE.splitlines())
    assert html.count(escapeHtml(text)) == page.count("alert") >= 12
    assert path.name in html


def test_a_loader_is_shown_with_its_rate_and_what_waits_for_it(tmp_path):
    label = ("jpeg", 2, 80, 64, 1500.0, "resnet18", 20, Options())
    # Four steps a pass: 80 pictures in 0.2 s, and 0.3 s of 0.4 s for the model alone.
    jpeg = Loading(*label, ThreeWay(4, 9.0, (Pass(0.2, 0.3, 0.4),), 0.05, 0.075, 0.1))
    # As noise has it: faster with the loader than without.
    noisy = ThreeWay(4, 0.1, (Pass(0.01, 0.41, 0.40),), 0.0025, 0.1025, 0.1)
    failed = replace(jpeg, workers=4, timing=None, failure="out of memory")
    resident = replace(jpeg, loader="resident", workers=0, timing=noisy)
    write(tmp_path, loading=(jpeg, failed, resident))
    page = results_tables(tmp_path)
    rows = [line for line in page.splitlines() if ", resnet18, batch 20 |" in line]
    assert rows == [
        "| jpeg, resnet18, batch 20 | 2 | 400 | 75 ms | 100 ms | 25.0\u00a0% |",
        "| jpeg, resnet18, batch 20 | 4 | not timed: out of memory | – | – | – |",
        "| resident, resnet18, batch 20 | – | 8,000 | 102.5 ms | 100 ms | 0.0\u00a0% |",
    ]


def test_the_tables_of_a_record_are_folded_under_what_they_hold(tmp_path):
    write(tmp_path, a_result(), a_result(timing=None, energy=Energy(None, "no energy meter")))
    records.write(records.make(torch.device("cpu"), (), "quick"), tmp_path)
    page = results_tables(tmp_path)
    assert page.count("<details>") == page.count("</details>") == 1
    folded = page.partition("<details>")[2].partition("</details>")[0]
    assert folded.startswith("<summary>Show training steps and energy</summary>\n\n| Training step")
    assert "| Energy of |" in folded and "Measured on" not in folded


def test_a_generator_is_shown_between_its_bounds(tmp_path):
    made = MadeBy(0, (Look(100, Quality(2.5, 0.7, 0.5)),), (2.0,))
    bounds = Quality(0.1, 0.9, 0.9), Quality(20.0, 0.2, 0.0)
    text = ("fashion-mnist", "hinge", "100 iterations", "128 of a ResNet", 50, Options())
    write(tmp_path, generations=(Generation(*text, *bounds, (made,)),))
    shown = row(results_tables(tmp_path), "| fashion-mnist, hinge; 100 iterations")
    assert shown[1:] == ["1", "2.5 (0.1 to 20)", "0.70, 0.50", "20 ms", "2,500", "–"]


def test_a_footprint_is_shown_beside_its_prediction(tmp_path):
    fits = Footprint("resnet50", 32, "bfloat16", True, 2**30, 2 * 2**30, 3 * 2**30, 64.0)
    fails = Footprint("resnet50", 4096, None, False, 2**40, failure="out of memory")
    record = records.make(torch.device("cpu"), ("memory",), "smoke", footprints=(fits, fails))
    records.write(record, tmp_path)
    page = results_tables(tmp_path)
    assert row(page, "| resnet50, bfloat16, checkpointed")[1:] == [
        "32",
        "1.00\u00a0GiB",
        "2.00\u00a0GiB",
        "3.00\u00a0GiB",
        "64.0",
    ]
    assert row(page, "| resnet50, float32")[1:4] == ["4096", "1,024.00\u00a0GiB", "out of memory"]


def test_a_job_is_shown_over_its_seeds_with_its_rate(tmp_path):
    runs = (SeedRun(0, (0.5, 0.94), (9.0, 2.0)), SeedRun(1, (0.5, 0.96), (9.0, 2.0)))
    text = ("images", "fashion-mnist", "test accuracy", "recipe", "width 64, 2 epochs", 60_000)
    job = Job(*text, Options(), runs, ratio_of_pairs([0.98, 1.0, 1.02]))
    single = replace(job, variant="without EMA", runs=runs[:1], over_plain=None)
    write(tmp_path, jobs=(job, single))
    page = results_tables(tmp_path)
    assert row(page, "| images, fashion-mnist, recipe; width 64")[1:] == [
        "2",
        "test accuracy 95.00 ± 1.41 %",
        "2 s",
        "30,000",
        "1.000 [0.980, 1.020]",
    ]
    assert row(page, "| images, fashion-mnist, without EMA")[1:3] == ["1", "test accuracy 94.00 %"]
    assert row(page, "| images, fashion-mnist, without EMA")[-1] == "–"
