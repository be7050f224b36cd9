"""The record that the benchmark of whole jobs writes, here of each job at its smallest."""

import subprocess
import sys
from dataclasses import replace

import pytest

from macgpu import compare
from macgpu.jobs import images
from macgpu.measure import records
from macgpu.measure.steps import Options
from macgpu.measure.timing import ratio_of_pairs
from macgpu.publish.results import results_tables
from tests.conftest import ROOT

BENCHMARK = ROOT / "benchmarks" / "jobs.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    options = ["--profile", "smoke", "--data", "subset", "--seeds", "3", "4", "--ablations", "1"]
    command = [sys.executable, str(BENCHMARK), *options, "--out", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return out


def test_one_record_holds_all_of_the_text_job(folder):
    (record,) = records.read_all(folder)
    assert record.suites == ("images", "text", "generation")
    variants = {job.variant: job for job in record.jobs if job.name == "text"}
    assert list(variants) == ["recipe", "without warm-up", "without buckets"]
    assert {job.data for job in variants.values()} == {"movie-snippets"}
    recipe = variants["recipe"]
    assert [run.seed for run in recipe.runs] == [3, 4]
    assert len(variants["without buckets"].runs) == 1
    assert recipe.over_plain is not None and recipe.over_plain.median > 0
    assert "padding: buckets" in recipe.settings
    assert "padding: fixed" in variants["without buckets"].settings
    (point,) = record.footprints
    assert point.model == "bert-tiny-16" and point.predicted_bytes > 0


def test_it_holds_the_pictures_with_and_without_each_part(folder):
    (record,) = records.read_all(folder)
    variants = {job.variant: job for job in record.jobs if job.name == "images"}
    assert list(variants) == ["recipe", *(f"without {part}" for part in images.TRAINED)]
    assert [run.seed for run in variants["recipe"].runs] == [3, 4]
    assert variants["recipe"].over_plain is not None
    assert all(len(run.seconds) == 1 for run in variants["recipe"].runs)


def test_it_holds_generators_between_both_bounds(folder):
    (record,) = records.read_all(folder)
    assert [made.variant for made in record.generations] == ["first", "hinge", "usual"]
    first, hinge, usual = record.generations
    assert "usual loss, batch norm" in first.settings and "hinge loss" in hinge.settings
    assert first.runs[0].looks[-1].iterations < hinge.runs[0].looks[-1].iterations
    assert hinge.over_plain is not None and usual.over_plain is None
    assert hinge.real.distance < hinge.noise.distance


def test_the_pages_show_it(folder):
    (record,) = records.read_all(folder)
    assert list(compare.job_table(record, "text")["seeds"]) == [2, 1, 1]
    table = compare.generation_table(record)
    assert list(table.index) == ["first", "hinge", "usual", "real", "noise"]
    assert table.loc["noise", "seeds"] == "–"
    shown = results_tables(folder)
    assert "text, movie-snippets, recipe; BERT (tiny" in shown
    assert "subset, hinge; width 4" in shown


def test_of_several_records_the_fullest_counts_and_each_way_is_shown(folder, monkeypatch):
    (record,) = records.read_all(folder)

    def made(month, seeds, options, epochs=2, **changes):
        """The record, finished in that month, of so many seeds and epochs."""
        jobs = []
        for job in record.jobs:
            runs = (
                replace(run, scores=epochs * run.scores, seconds=epochs * run.seconds)
                for run in job.runs[:seeds]
            )
            jobs.append(replace(job, runs=tuple(runs), options=options, **changes))
        finished = f"2027-{month:02}-01T00:00:00+00:00"
        return replace(record, finished=finished, jobs=tuple(jobs))

    def held(*several):
        monkeypatch.setattr(records, "read_all", lambda: several)

    plain, graphs = Options(), Options(compiled="reduce-overhead")
    first, other = made(1, 2, plain), made(2, 1, graphs)
    held(other, first)
    assert compare.fullest_job("images") is first
    assert compare.fullest_job("nothing") is None
    assert list(compare.ways_table("images")["compiled"]) == ["no", "reduce-overhead"]
    newer = made(3, 2, plain)
    held(newer, first)
    assert compare.fullest_job("images") is newer
    assert len(compare.ways_table("images")) == 1
    assert compare.ways_table("nothing").empty
    # One epoch, compiled in it: its time is none of training, its ratio is measured.
    ratio = ratio_of_pairs([2.0] * 60)
    speed = made(4, 2, plain, epochs=1, over_plain=ratio)
    held(newer, speed)
    assert compare.fullest_job("images") is newer
    (way,) = compare.ways_table("images").to_dict("records")
    (job,) = (job for job in newer.jobs if (job.name, job.variant) == ("images", "recipe"))
    assert way["seconds an epoch"] == f"{job.epoch_s:.2f}"
    assert way["time over a plain loop's"] == str(ratio)
    held(speed)
    assert compare.fullest_job("images") is None
    (way,) = compare.ways_table("images").to_dict("records")
    assert way["seconds an epoch"] == way["samples a second"] == "not measured"
