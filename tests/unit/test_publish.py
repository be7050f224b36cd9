"""Chapters are executed when they changed, checked, and published whole or not at all.

A small book with real papermill and a real kernel.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import nbformat
import pytest
from rich.console import Console

from macgpu.errors import BookError
from macgpu.lock import locked
from macgpu.publish import freshness
from macgpu.publish.book import find_book
from macgpu.publish.execute import executed_run, problems_of, run_chapters
from macgpu.publish.site import STAMP, build_site, for_readers, stage, without_figures_of
from macgpu.publish.status import Row, status_page
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
    executed = small_book.executed("smoke") / "01_one.ipynb"
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
    followed = {"train", "data", "device", "machine", "words"}
    assert used == {"macgpu", *(f"macgpu.{name}" for name in followed)}


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
    good = (small_book.executed("smoke") / "01_one.ipynb").read_bytes()
    write_chapter(small_book, "01_one", "before = 1", "total = before / 0\nprint(total)")
    write_chapter(small_book, "02_two", "print('the second')")
    results, text = run(small_book)
    assert results == ["failed", "executed"]
    assert "01" in text and "total = before / 0" in text and "ZeroDivisionError" in text
    assert (small_book.executed("smoke") / "01_one.ipynb").read_bytes() == good, (
        "the good one stays"
    )


def test_a_parameter_that_a_chapter_refuses_is_one_line_and_no_traceback(small_book):
    check = "from macgpu import parameters\nparameters.require_count(trials=0)"
    write_chapter(small_book, "01_one", check)
    results, text = run(small_book)
    assert results == ["failed"]
    shown = text.splitlines()[1:]
    assert shown == ["  cell 4: trials = 0: it must be a whole number of at least 1"]


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
    assert not (small_book.executed("smoke") / "01_one.ipynb").exists()


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


@pytest.mark.parametrize("content", [b"{ half a notebook", b"[]", b"123", b"\xff\xfe", b""])
def test_a_file_that_is_no_notebook_is_refused_and_the_others_run(small_book, content):
    (small_book.root / "notebooks" / "02_two.ipynb").write_bytes(content)
    results, text = run(small_book)
    assert results == ["executed", "failed"]
    assert "02_two.ipynb is not a readable notebook" in text


@pytest.mark.parametrize("content", ["01_one: {", "- a list", "01_one: [1]"])
def test_a_profile_that_is_no_table_is_one_line(small_book, content):
    (small_book.root / "profiles" / "smoke.yml").write_text(content)
    results, text = run(small_book)
    assert results == ["failed"]
    assert "profiles/smoke.yml" in text and "Traceback" not in text


def test_parameters_are_literals_in_one_cell(small_book):
    path = small_book.root / "notebooks" / "01_one.ipynb"
    edit(path, lambda nb: nb.cells[1].update(source="size = len('abc')"))
    assert "literals only" in run(small_book)[1]
    edit(path, lambda nb: nb.cells[1].metadata.update(tags=[]))
    assert "one cell tagged parameters, found 0" in run(small_book)[1]


def test_a_damaged_executed_notebook_is_made_again(small_book):
    run(small_book)
    executed = small_book.executed("smoke") / "01_one.ipynb"
    for damaged in (executed.read_bytes()[:100], b"[]", b"123", b"\xff\xfe", b""):
        executed.write_bytes(damaged)
        assert executed_run(executed) is None
        assert run(small_book)[0] == ["executed"]


def test_a_quick_look_on_another_profile_loses_nothing(small_book):
    run(small_book, profile="quick")
    assert run(small_book, profile="smoke")[0] == ["executed"]
    assert run(small_book, profile="quick")[0] == ["fresh"]


def test_another_version_of_torch_makes_chapters_run_again(small_book, monkeypatch):
    chapter = small_book.chapter("1")
    before = freshness.fingerprint(chapter, {})
    monkeypatch.setattr(freshness, "version", lambda package: "9.9")
    newer_torch = freshness.fingerprint(chapter, {})
    monkeypatch.setattr(freshness.platform, "python_version", lambda: "3.99")
    assert len({before, newer_torch, freshness.fingerprint(chapter, {})}) == 3


def test_the_site_is_built_once_and_a_bad_page_leaves_it_as_it_was(small_book):
    run(small_book)
    assert build_site(small_book, "smoke")
    page = small_book.html / "notebooks" / "01_one.html"
    assert "a first output" in page.read_text()
    assert not build_site(small_book, "smoke"), "nothing changed"
    before = page.read_bytes()
    index = small_book.root / "book" / "index.md"
    index.write_text("# A small book\n\n[nowhere](missing.md)\n")
    with pytest.raises(BookError, match="missing.md"):
        build_site(small_book, "smoke")
    assert page.read_bytes() == before
    with pytest.raises(BookError, match="missing.md"):
        build_site(small_book, "smoke")  # the warning must not get lost the second time
    index.write_text("# A small book, mended\n")
    assert build_site(small_book, "smoke")
    assert (small_book.html / STAMP).is_file()
    (small_book.html / "index.html").unlink()
    assert build_site(small_book, "smoke"), "a page that is gone is made again"
    assert (small_book.html / "index.html").is_file()


def test_a_chapter_that_was_not_executed_shows_no_output(small_book):
    source = stage(small_book, "smoke")
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
    ran = executed_run(small_book.executed("smoke") / chapter.path.name)
    page = status_page([Row(chapter, "Chapter 01_one", ran, True)])
    assert "| [01 Chapter 01_one](../notebooks/01_one.ipynb) | passed |" in page
    assert "| cpu | smoke |" in page
    assert "- cpu on a machine; Python 3; torch 2" in page


def test_a_page_folds_its_parameters_and_keeps_its_outputs(small_book):
    run(small_book)
    path = small_book.executed("smoke") / "01_one.ipynb"
    page = for_readers(nbformat.read(path, 4), executed_run(path), True)
    folded = [c for c in page.cells if "hide-input" in c.metadata.get("tags", [])]
    assert len(folded) == 2, "the parameters and what the run set"
    assert "a first output" in json.dumps(page)
    assert page.cells[0].source.startswith("# Chapter 01_one\n\n")
    assert "profile smoke" in page.cells[0].source


def test_a_chapter_that_changed_since_its_run_says_so(small_book):
    path = write_chapter(small_book, "02_two", "print('the second')")
    run(small_book)
    edit(path, lambda nb: nb.cells[0].update(source="# Another title"))
    source = stage(small_book, "smoke")
    status = (source / "book" / "status.md").read_text()
    assert "[02 Chapter 02_two](../notebooks/02_two.ipynb) | passed, and changed since |" in status
    assert "[01 Chapter 01_one](../notebooks/01_one.ipynb) | passed |" in status
    assert "has changed since this run" in (source / "notebooks" / "02_two.ipynb").read_text()


def test_a_damaged_data_file_stops_only_the_chapters_that_read_it(small_book, monkeypatch):
    from macgpu import data

    write_chapter(small_book, "02_two", "from macgpu import data")
    monkeypatch.setattr(data, "SHA256", {"fashion-mnist/held-out.txt": "another"})
    results, text = run(small_book)
    assert results == ["executed", "failed"]
    assert "is not the file that was shipped" in text and "Traceback" not in text


def test_two_runs_at_once_are_one_run_and_one_clear_line(small_book):
    with locked(small_book.build):
        done = macgpu(small_book, "run", "--profile", "smoke")
    assert done.returncode == 1
    assert done.stderr.strip() == "macgpu: another run is at work in _build; wait for it"
    assert not small_book.executed("smoke").exists()


def test_a_file_in_the_place_of_the_build_folder_is_named(small_book):
    small_book.build.write_text("")
    done = macgpu(small_book, "run")
    assert done.stderr.strip() == "macgpu: _build is a file, and should be a folder"


def test_a_failed_chapter_fails_the_command_and_the_table_shows_it(small_book):
    write_chapter(small_book, "02_two", "1 / 0")
    done = macgpu(small_book, "run", "--profile", "smoke", "--device", "cpu")
    assert done.returncode == 1
    table = [line.split() for line in done.stdout.splitlines()[-3:]]
    assert table[0] == ["chapter", "device", "time", "result"]
    assert table[1][0] == "01_one" and table[1][-1] == "executed"
    assert table[2] == ["02_two", "–", "–", "failed"]


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
    assert not small_book.executed("quick").exists()


def test_a_record_that_is_refused_is_named_and_the_chapters_run(small_book):
    (small_book.root / "results").mkdir()
    (small_book.root / "results" / "broken.json").write_text("[]")
    done = macgpu(small_book, "run", "--profile", "smoke", "--device", "cpu")
    assert done.returncode == 0
    assert done.stderr == (
        "macgpu: a record is left out: broken.json: version: is missing, so this is no record\n"
    )
    assert "01  one: executed" in done.stdout


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
    # The chapter writes to a pipe, so that the signal comes while its cell runs.
    pipe = small_book.root / "pipe"
    os.mkfifo(pipe)
    write_chapter(
        small_book,
        "02_two",
        f"import threading\nopen({str(pipe)!r}, 'w').close()",
        "threading.Event().wait()",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "macgpu", "run", "--profile", "smoke", "--device", "cpu"],
        cwd=small_book.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pipe.read_text()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "macgpu: interrupted; what was finished is kept"
    assert "01  one: executed" in output
    assert not (small_book.executed("smoke") / "02_two.ipynb").exists()
    write_chapter(small_book, "02_two", "print('the second')")
    assert run(small_book)[0] == ["fresh", "executed"]


def test_the_module_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "macgpu", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("run", "site", "doctor"):
        assert command in done.stdout
