"""Every parameter of every chapter: one that cannot be meant so is refused in one line.

Only the setup cell is executed, up to where the device is picked, and the hidden cell of checks
that a chapter has whose setup cell is full. So a value that is odd is refused before it is used.
"""

import functools

import pytest

from macgpu.data import DataError
from macgpu.device import pick
from macgpu.errors import BookError
from macgpu.jobs.images import pictures
from macgpu.publish.book import PROFILES
from macgpu.publish.execute import declared_parameters
from tests.notebooks.test_chapters import CHAPTERS, by_name

NO_NUMBER = (None, "2", [], [1], {"mlp": 1})
NO_LIST = (None, 4, "mlp", {"mlp": 1}, [])
ODD = {
    "bool": ("yes", None, [], 2),
    "int": (0, -1, 1.5, True, *NO_NUMBER),
    "float": (0, -0.1, float("nan"), float("inf"), True, *NO_NUMBER),
    "str": ("no such name", "", 3, True, *NO_LIST[3:]),
    "list of int": ([0], [-1], [1.5], [True], ["2"], [4, None], [[4]], *NO_LIST),
    "list of str": (["no such name"], [""], [1], [["mlp"]], *NO_LIST),
    "list of list": ([[0]], [[0, 1]], [[-1, True]], [["2", False]], [0, False], *NO_LIST),
    "dict of int": (*({"mlp": n} for n in (0, -1, 1.5, True, "2", [1])), {"no such name": 1}, 4),
    "dict of list": (*({"mlp": n} for n in ([], [0], [1.5], 8)), {"no such name": [1]}, {}, 4),
}
"""By the kind of a parameter's own value: what none of that kind can be."""

MEANT = {
    "cutout": (0,),
    "seed": (0,),
    "seeds": ([0],),
    "part_seeds": ([0],),
    "folder": ("no such name", ""),
    "keep": ("no such name", ""),
    "pretrained": ("no such name", ""),
}
"""What can be, all the same, for a parameter of this name."""

ODD_HERE = {
    "04_mixed_precision": {"live_model": ["mlp"], "steps": [19]},
    "05_data_loading": {
        "epochs": [1],
        "worker_runs": [[[0, False]], [[2, True]], [[0, False], [2, False]], [[0, True]]],
    },
    "06_memory_and_batch_size": {"planned": [{}], "fitted": ["cnn"], "batch_sizes": [[1, 2]]},
    "09_long_runs": {"steps": [3], "readings": [7]},
    "10_tensor_parallelism": {"degrees": [[1]], "sizes": [[2, 8], [8, 8]], "staged": [[2]]},
    "15_images_resnet18": {"target": [85]},
    "16_text_bert": {"longest": [2, 513], "planned_lengths": [[32, 513]]},
    "17_generation_dcgan": {"most_tests": [9]},
    "18_best_practices_and_outlook": {"chosen": [{}], "lengths": [[64], [64, 64]]},
}
"""Beyond that: what one chapter cannot take."""

LEFT = {
    "device": (pick, ValueError),
    "dataset": (lambda name: pictures(name, "datasets"), DataError),
}
"""What the function that takes it refuses, with the error that it raises."""


def kind_of(value):
    kind = type(value).__name__
    parts = list(value.values()) if isinstance(value, dict) else value
    return f"{kind} of {type(parts[0]).__name__}" if kind in ("dict", "list") else kind


@functools.cache
def own(chapter):
    return declared_parameters(chapter.read())


@functools.cache
def checks_of(chapter):
    cells = {cell.id: cell.source for cell in chapter.read().cells}
    before, pick, _ = cells["setup"].partition("device = pick(device)")
    assert pick, "the setup cell picks the device"
    return compile(f"{before}\n{cells.get('parameter-checks', '')}", chapter.name, "exec")


def check(chapter, **changed):
    """Execute the chapter's checks on its own parameters, some of them changed."""
    exec(checks_of(chapter), own(chapter) | changed)


def refused(chapter, name, value):
    """Whether this is refused, in one line that says of which parameter it speaks."""
    try:
        check(chapter, **{name: value})
    except BookError as error:
        return name in str(error) and "\n" not in str(error)
    return False


@by_name
def test_every_parameter_is_refused_where_it_cannot_be_meant_so(chapter):
    accepted = []
    for name in own(chapter).keys() - set(LEFT):
        kind = kind_of(own(chapter)[name])
        odd = [value for value in ODD[kind] if value not in MEANT.get(name, ())]
        odd += ODD_HERE.get(chapter.name, {}).get(name, [])
        accepted += [(name, value) for value in odd if not refused(chapter, name, value)]
    assert not accepted


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_a_function_is_refused_there_in_one_line(name):
    take, error = LEFT[name]
    with pytest.raises(error, match="'no such name'.*choose ") as refused:
        take("no such name")
    assert "\n" not in str(refused.value)


@by_name
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_accepted(book, chapter, profile):
    check(chapter, **book.parameters(chapter, profile))


@by_name
def test_what_can_be_meant_is_accepted(chapter):
    for name in own(chapter).keys() & MEANT.keys():
        for value in MEANT[name]:
            check(chapter, **{name: value})


def test_the_tables_name_parameters_that_there_are():
    declared = {chapter.name: own(chapter) for chapter in CHAPTERS}
    assert set().union(*declared.values()) >= {*MEANT, *LEFT}
    for chapter, odd in ODD_HERE.items():
        assert odd.keys() <= declared[chapter].keys()
