"""Chapters are executed when they changed, checked, and published whole or not at all.

A small book with real papermill and a real kernel.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from rich.console import Console

from macgpu.publish import freshness
from macgpu.publish.book import BookError, find_book
from macgpu.publish.execute import executed_run, problems_of, run_chapters
from macgpu.publish.site import STAMP, build_site, for_readers, stage, without_figures_of
from macgpu.publish.status import status_page
from tests.conftest import ROOT, write_chapter


def run(book, profile="smoke", device="cpu"):
    console = Console(record=True, width=120, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    outcomes = run_chapters(book, book.chapters(), profile, device, console)
    return [outcome.result for outcome in outcomes], console.export_text()


def edit(path, change):
    notebook = nbformat.read(path, 4)
    change(notebook)
    nbformat.write(notebook, path)


def test_a_chapter_is_executed_once_and_then_fresh(small_book):
    assert run(small_book)[0] == ["executed"]
    executed = small_book.executed / "01_one.ipynb"
    assert "a first output" in executed.read_text()
    before = executed.read_bytes()
    assert run(small_book)[0] == ["fresh"]
    assert executed.read_bytes() == before


def test_what_a_page_depends_on_makes_its_chapter_run_again(small_book):
    path = small_book.root / "notebooks" / "01_one.ipynb"
    run(small_book)
    assert run(small_book, device="auto")[0] == ["executed"], "another parameter"
    profile = small_book.root / "profiles" / "smoke.yml"
    profile.write_text("01_one: {size: 2}\n")
    assert run(small_book)[0] == ["executed"], "another parameter from the profile"
    edit(path, lambda nb: nb.cells[0].update(source="# Another title"))
    assert run(small_book)[0] == ["executed"], "another text"
    os.utime(path)
    assert run(small_book)[0] == ["fresh"], "a new time stamp alone changes nothing"


def test_modules_are_followed_and_others_are_not(small_book):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("%env A=1\nfrom macgpu import train\n!ls"),
            nbformat.v4.new_code_cell("from macgpu.data import MEAN, Batches"),
        ]
    )
    used = freshness.modules_used(notebook)
    assert used == {"macgpu", "macgpu.train", "macgpu.data", "macgpu.device", "macgpu.machine"}


def test_a_changed_module_or_data_file_changes_the_fingerprint(small_book, monkeypatch):
    # A copy of the package, to change it without touching the real one.
    shutil.copytree(ROOT / "macgpu", small_book.root / "macgpu")
    monkeypatch.setattr(freshness, "PACKAGE", small_book.root / "macgpu")
    data = small_book.root / "data"
    data.mkdir()
    monkeypatch.setattr(freshness, "FOLDERS_READ_BY", {"macgpu.data": data})
    write_chapter(small_book, "01_one", "from macgpu import data")
    chapter = small_book.chapter("1")

    def changed_by(path, content):
        before = freshness.fingerprint(chapter, {})
        path.write_text(content)
        return freshness.fingerprint(chapter, {}) != before

    assert changed_by(data / "numbers.txt", "1")
    assert changed_by(data / "numbers.txt", "2")
    assert changed_by(small_book.root / "macgpu" / "data.py", "import macgpu.machine")
    assert changed_by(small_book.root / "macgpu" / "machine.py", "")
    assert not changed_by(small_book.root / "macgpu" / "train.py", ""), "a module not used"


def test_a_failing_cell_is_shown_and_the_others_still_run(small_book):
    run(small_book)
    good = (small_book.executed / "01_one.ipynb").read_bytes()
    write_chapter(small_book, "01_one", "before = 1", "total = before / 0\nprint(total)")
    write_chapter(small_book, "02_two", "print('the second')")
    results, text = run(small_book)
    assert results == ["failed", "executed"]
    assert "01" in text and "total = before / 0" in text and "ZeroDivisionError" in text
    assert (small_book.executed / "01_one.ipynb").read_bytes() == good, "the good one stays"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def broken(:\n    pass", "line 1"),
        ("import sys\nsys.exit(0)", "was not executed"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "its kernel died"),
    ],
)
def test_a_chapter_that_does_not_run_to_its_end_fails(small_book, source, words):
    write_chapter(small_book, "01_one", source, "print('after')")
    results, text = run(small_book)
    assert results == ["failed"]
    assert words in text
    assert not (small_book.executed / "01_one.ipynb").exists()


def test_a_chapter_that_does_not_say_where_it_ran_fails(small_book):
    path = write_chapter(small_book, "01_one")
    edit(path, lambda nb: nb.cells[2].update(source="pass"))
    results, text = run(small_book)
    assert results == ["failed"]
    assert "executed on" in text


def test_an_error_that_a_tag_allows_is_still_an_error():
    cell = nbformat.v4.new_code_cell("1/0", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("error", ename="ZeroDivisionError")]
    assert any(
        "ZeroDivisionError" in p for p in problems_of(nbformat.v4.new_notebook(cells=[cell]))
    )


def test_a_parameter_that_no_chapter_has_is_refused(small_book):
    (small_book.root / "profiles" / "smoke.yml").write_text("01_one: {sise: 2}\n")
    results, text = run(small_book)
    assert results == ["failed"]
    assert "no parameter sise" in text


def test_a_profile_for_a_chapter_that_does_not_exist_is_refused(small_book):
    (small_book.root / "profiles" / "smoke.yml").write_text("09_nine: {size: 2}\n")
    assert "09_nine" in run(small_book)[1]


def test_a_file_that_is_no_notebook_is_refused_and_the_others_run(small_book):
    (small_book.root / "notebooks" / "02_two.ipynb").write_text("{ half a notebook")
    results, text = run(small_book)
    assert results == ["executed", "failed"]
    assert "02_two.ipynb is not a readable notebook" in text


def test_parameters_are_literals_in_one_cell(small_book):
    path = small_book.root / "notebooks" / "01_one.ipynb"
    edit(path, lambda nb: nb.cells[1].update(source="size = len('abc')"))
    assert "literals only" in run(small_book)[1]
    edit(path, lambda nb: nb.cells[1].metadata.update(tags=[]))
    assert "one cell tagged parameters, found 0" in run(small_book)[1]


def test_a_damaged_executed_notebook_is_made_again(small_book):
    run(small_book)
    executed = small_book.executed / "01_one.ipynb"
    executed.write_bytes(executed.read_bytes()[:100])
    assert executed_run(executed) is None
    assert run(small_book)[0] == ["executed"]


def test_the_site_is_built_once_and_a_bad_page_leaves_it_as_it_was(small_book):
    run(small_book)
    assert build_site(small_book)
    page = small_book.html / "notebooks" / "01_one.html"
    assert "a first output" in page.read_text()
    assert not build_site(small_book), "nothing changed"
    before = page.read_bytes()
    index = small_book.root / "book" / "index.md"
    index.write_text("# A small book\n\n[nowhere](missing.md)\n")
    with pytest.raises(BookError, match="missing.md"):
        build_site(small_book)
    assert page.read_bytes() == before
    with pytest.raises(BookError, match="missing.md"):
        build_site(small_book)  # the warning must not get lost the second time
    index.write_text("# A small book, mended\n")
    assert build_site(small_book)
    assert (small_book.html / STAMP).is_file()


def test_a_chapter_that_was_not_executed_shows_no_output(small_book):
    source = stage(small_book)
    page = (source / "notebooks" / "01_one.ipynb").read_text()
    assert "has not been executed on this machine" in page
    assert "print(" not in page
    assert "not executed" in (source / "book" / "status.md").read_text()


def test_a_page_loses_only_the_figures_of_chapters_that_did_not_run():
    page = "a\n```{glue:} one\n:doc: ../notebooks/01_one.ipynb\n```\nb\n"
    page += "```{glue:} two\n:doc: ../notebooks/02_two.ipynb\n```\nc\n"
    kept = without_figures_of(page, {"01_one"})
    assert "01_one" not in kept and "02_two" in kept
    assert kept.startswith("a\nb\n") and kept.endswith("c\n")


def test_the_status_page_says_what_the_run_said(small_book):
    run(small_book)
    chapter = small_book.chapter("01")
    ran = executed_run(small_book.executed / chapter.path.name)
    page = status_page([(chapter, ran)])
    assert "| [01 Chapter 01_one](../notebooks/01_one.ipynb) | passed |" in page
    assert "| cpu | smoke |" in page
    assert "- cpu on a machine; Python 3; torch 2" in page


def test_a_page_folds_its_parameters_and_keeps_its_outputs(small_book):
    run(small_book)
    path = small_book.executed / "01_one.ipynb"
    page = for_readers(nbformat.read(path, 4), executed_run(path))
    folded = [c for c in page.cells if "hide-input" in c.metadata.get("tags", [])]
    assert len(folded) == 2, "the parameters and what the run set"
    assert "a first output" in json.dumps(page)
    assert "profile smoke" in page.cells[0].source


def macgpu(book, *arguments):
    command = [sys.executable, "-m", "macgpu", *arguments]
    return subprocess.run(command, cwd=book.root, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--profile", "huge"], "no profile 'huge': choose smoke, quick, full"),
        (["run", "--device", "tpu"], "no device 'tpu': choose auto, mps, cuda, cpu"),
        (["run", "--chapter", "77"], "no chapter '77': there are 01_one"),
    ],
)
def test_a_wrong_word_gets_one_clear_line(small_book, arguments, words):
    done = macgpu(small_book, *arguments)
    assert done.returncode == 1
    assert done.stderr.strip() == f"macgpu: {words}"


def test_a_device_that_is_not_there_stops_before_anything_runs(small_book):
    missing = "mps" if sys.platform != "darwin" else "cuda"
    done = macgpu(small_book, "run", "--device", missing)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"device {missing} cannot be used" in done.stderr
    assert not small_book.executed.exists()


def test_outside_of_a_book_there_is_one_clear_line(tmp_path):
    with pytest.raises(BookError, match="not inside the book"):
        find_book(tmp_path)


def test_no_permission_to_write_is_one_clear_line(small_book):
    small_book.build.mkdir()
    small_book.build.chmod(0o555)
    command = [sys.executable, "-m", "macgpu", "run"]
    if os.geteuid() == 0:
        # root may write anywhere, so this process gives up that right first.
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}", *command]
    done = subprocess.run(command, cwd=small_book.root, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "macgpu: no permission to write _build"


def test_ctrl_c_ends_with_one_line_and_the_next_run_goes_on(small_book):
    started = small_book.root / "started"
    wait = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(600)"
    write_chapter(small_book, "02_two", wait)
    process = subprocess.Popen(
        [sys.executable, "-m", "macgpu", "run", "--profile", "smoke", "--device", "cpu"],
        cwd=small_book.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not started.exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "macgpu: interrupted; what was finished is kept"
    assert "01  one: executed" in output
    assert not (small_book.executed / "02_two.ipynb").exists()
    write_chapter(small_book, "02_two", "print('the second')")
    assert run(small_book)[0] == ["fresh", "executed"]


def test_the_module_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "macgpu", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("run", "site", "doctor"):
        assert command in done.stdout
