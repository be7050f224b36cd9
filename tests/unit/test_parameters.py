"""A chapter refuses what it cannot run on, in one line that says what would do."""

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from macgpu import parameters
from macgpu.errors import BookError


@pytest.mark.parametrize(
    ("require", "good", "bad"),
    [
        (lambda **asked: parameters.require_choice(("smoke", "full"), **asked), ["full"], ["", []]),
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
    ids=["choice", "count", "counts", "positive", "batches", "batch lists"],
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
