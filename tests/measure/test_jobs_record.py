"""The record that the benchmark of whole jobs writes, here of the text job at its smallest."""

import subprocess
import sys

import pytest

from macgpu import compare
from macgpu.measure import records
from macgpu.publish.results import results_tables
from tests.conftest import ROOT

BENCHMARK = ROOT / "benchmarks" / "jobs.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    options = ["--profile", "smoke", "--parts", "text", "--seeds", "3", "4", "--ablations", "1"]
    command = [sys.executable, str(BENCHMARK), *options, "--out", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return out


def test_one_record_holds_all_of_the_text_job(folder):
    (record,) = records.read_all(folder)
    assert record.suites == ("text",)
    variants = {job.variant: job for job in record.jobs}
    assert list(variants) == ["recipe", "without warm-up", "without buckets"]
    assert {(job.name, job.data) for job in record.jobs} == {("text", "movie-snippets")}
    recipe = variants["recipe"]
    assert [run.seed for run in recipe.runs] == [3, 4]
    assert len(variants["without buckets"].runs) == 1
    assert recipe.over_plain is not None and recipe.over_plain.median > 0
    assert "padding: buckets" in recipe.settings
    assert "padding: fixed" in variants["without buckets"].settings
    (point,) = record.footprints
    assert point.model == "bert-tiny-16" and point.predicted_bytes > 0


def test_the_pages_show_it(folder):
    (record,) = records.read_all(folder)
    assert list(compare.job_table(record, "text")["seeds"]) == [2, 1, 1]
    shown = results_tables(folder)
    assert "text, movie-snippets, recipe; BERT (tiny" in shown
