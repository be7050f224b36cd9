"""A chapter refuses what it cannot run on, in one line that says what would do."""

from functools import partial

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from macgpu import parameters
from macgpu.errors import BookError


@pytest.mark.parametrize(
    ("require", "good", "bad"),
    [
        (partial(parameters.require_choice, ("smoke", "full")), ["full"], ["", []]),
        (partial(parameters.require_choice, (False, True)), [True, False], ["yes", 2, None, []]),
        (
            partial(parameters.require_choices, ("cnn", "mlp")),
            [["mlp"], ["mlp", "cnn"]],
            [[], ["mpl"], ["mlp", 1], [["mlp"]], "mlp", None],
        ),
        (parameters.require_text, ["", "a name"], [1, True, None, ["a name"]]),
        (parameters.require_count, [1, 7], [0, -1, 1.5, "2", True, None, [1]]),
        (partial(parameters.require_count, 0), [0, 7], [-1, False]),
        (partial(parameters.require_counts, 4), [[4], [9, 4]], [[], [8, 3], 4]),
        (partial(parameters.require_at_most, 8), [8, 0.5, [1, 8]], [9, 8.5, [1, 9]]),
        (parameters.require_positive, [0.1, 3], [0, -1.0, float("nan"), float("inf"), "1", True]),
        (
            parameters.require_batches,
            [{}, {"mlp": 1, "cnn": 4}],
            [{"mlp": 0}, {"mpl": 1}, {"mlp": [1]}, 0, ["mlp"]],
        ),
        (partial(parameters.require_batches, 1), [{"mlp": 1}], [{}]),
        (
            parameters.require_batch_lists,
            [{"cnn": [1]}, {"mlp": [8, 64], "cnn": [2]}],
            [{}, {"mlp": 8}, {"mlp": []}, {"mlp": [8, 0]}, {"mpl": [8]}, 0],
        ),
    ],
    ids=[
        "choice",
        "yes or no",
        "choices",
        "text",
        "count",
        "count from 0",
        "counts",
        "at most",
        "positive",
        "batches",
        "some batches",
        "batch lists",
    ],
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
    with pytest.raises(BookError, match="^a = {}: it must be at least 1 model with batch sizes$"):
        parameters.require_batches(1, a={})


def test_a_notebook_shows_the_line_alone():
    with capture_output() as captured:
        InteractiveShell.instance().run_cell(
            "from macgpu import parameters\nparameters.require_count(trials=0)"
        )
    line = "BookError: trials = 0: it must be a whole number of at least 1"
    assert captured.stdout.strip() == line
    assert captured.stderr == ""
