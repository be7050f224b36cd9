"""A chapter refuses what it cannot run on, in one line that says what would do."""

import ast

import pytest
import yaml
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from macgpu import parameters
from macgpu.errors import BookError
from macgpu.publish.book import Chapter
from tests.conftest import ROOT

CHAPTERS = {p.stem: Chapter(p) for p in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))}
ELSEWHERE = {"device", "dataset", "folder", "download", "pretrained"}
"""Refused by what takes them, in one line, too: a device, a data set, a model's name."""


def cell(chapter, name):
    return next(cell.source for cell in chapter.read().cells if cell.id == name)


def defaults(chapter):
    asked = {}
    exec(cell(chapter, "parameters"), asked)
    return {name: value for name, value in asked.items() if not name.startswith("__")}


def check(chapter, asked):
    """Execute the chapter's check of its parameters, with what the cell before it imports."""
    imports = [
        node
        for node in ast.parse(cell(chapter, "setup")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    namespace = dict(asked)
    exec(compile(ast.Module(imports, []), "setup", "exec"), namespace)
    exec(cell(chapter, "parameters-checked"), namespace)


def odd(value):
    """Of the same type, and nothing that can be meant."""
    return {int: -1, float: -1.0, str: "nothing like it", dict: {"mpl": 1}}.get(type(value))


def questions():
    for name, chapter in CHAPTERS.items():
        for parameter, value in defaults(chapter).items():
            if parameter not in ELSEWHERE:
                for wrong in ([], ["?"]) if isinstance(value, list) else (odd(value),):
                    yield pytest.param(name, parameter, wrong, id=f"{name[:2]} {parameter} {wrong}")


@pytest.mark.parametrize(("name", "parameter", "wrong"), list(questions()))
def test_a_chapter_refuses_each_parameter_that_cannot_be(name, parameter, wrong):
    chapter = CHAPTERS[name]
    with pytest.raises(BookError, match=f"{parameter}.* = .*: it must be .+") as refused:
        check(chapter, {**defaults(chapter), parameter: wrong})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("profile", ["smoke", "quick", "full"])
def test_a_chapter_takes_what_the_profiles_ask_for(profile):
    asked = yaml.safe_load((ROOT / "profiles" / f"{profile}.yml").read_text("utf-8")) or {}
    for name, chapter in CHAPTERS.items():
        own = defaults(chapter)
        if set(own) - ELSEWHERE:
            check(chapter, {**own, **asked.get(name, {})})


@pytest.mark.parametrize(
    ("require", "good", "bad"),
    [
        (lambda **asked: parameters.require_choice(("smoke", "full"), **asked), ["full"], ["", []]),
        (
            lambda **asked: parameters.require_choices(("smoke", "full"), **asked),
            [["full"], ["full", "smoke"]],
            [[], "full", ["full", 3], [["full"]]],
        ),
        (parameters.require_count, [1, 7], [0, -1, 1.5, "2", True, None, [1]]),
        (lambda **asked: parameters.require_counts(4, **asked), [[4], [9, 4]], [[], [8, 3], 4]),
        (parameters.require_positive, [0.1, 3], [0, -1.0, float("nan"), float("inf"), "1", True]),
        (
            parameters.require_batches,
            [{}, {"mlp": 1, "cnn": 4}],
            [{"mlp": 0}, {"mpl": 1}, {"mlp": [1]}, 0, ["mlp"]],
        ),
        (
            parameters.require_batch_lists,
            [{"cnn": [1]}, {"mlp": [8, 64], "cnn": [2]}],
            [{}, {"mlp": 8}, {"mlp": []}, {"mlp": [8, 0]}, {"mpl": [8]}, 0],
        ),
    ],
    ids=["choice", "choices", "count", "counts", "positive", "batches", "batch lists"],
)
def test_what_can_be_meant_passes_and_what_cannot_is_named(require, good, bad):
    for value in good:
        require(asked=value)
    for value in bad:
        with pytest.raises(BookError, match=r"asked.* = .*: it must be .+") as refused:
            require(asked=value)
        assert "\n" not in str(refused.value)


def test_the_line_says_what_would_do():
    with pytest.raises(BookError, match="^effort = 'ful': it must be one of smoke, full$"):
        parameters.require_choice(("smoke", "full"), effort="ful")
    with pytest.raises(BookError, match=r"^a\['mlp'\] = 0: it must be a whole number of at least"):
        parameters.require_batches(a={"cnn": 2, "mlp": 0})
    with pytest.raises(BookError, match="^a model of a = 'resnet': it must be one of mlp, cnn"):
        parameters.require_batches(a={"resnet": 2})


def test_a_notebook_shows_the_line_alone():
    with capture_output() as captured:
        InteractiveShell.instance().run_cell(
            "from macgpu import parameters\nparameters.require_count(trials=0)"
        )
    line = "BookError: trials = 0: it must be a whole number of at least 1"
    assert captured.stdout.strip() == line
    assert captured.stderr == ""
