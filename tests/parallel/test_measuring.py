"""What is measured of split blocks: by ranks in threads, with errors and times that are planted."""

import pytest

from macgpu.parallel import measure, ranks
from macgpu.parallel.blocks import MLP, Attention
from macgpu.parallel.layers import PLAIN, WHOLE, Way
from macgpu.parallel.scaling import Case, Setting
from tests.parallel.threads import Virtual, on_ranks

OVERLAPPED, WRONG, ENGINE = Way(2, 1), Way(4, 1), Way(8, 1)
SEQUENCE = Way(backward_chunks=1, sequence=True)
ERROR = 1e-3


@pytest.fixture(autouse=True, scope="module")
def one_group():
    with pytest.MonkeyPatch.context() as patch:
        # All that ranks in threads can have: torch's list of groups is the process's.
        patch.setattr(measure.Groups, "_make", lambda self, degree, ctas: self.ranks.control)
        yield


def differences(block):
    def work(joint):
        groups = measure.Groups(joint, (2,), 30)
        return measure.exactness(block, 16, 16, 2, (PLAIN, OVERLAPPED, SEQUENCE), groups)

    first, second = on_ranks(2, work)
    assert first == second and len(first) == 3
    return first


@pytest.mark.parametrize("block", ["mlp", "attention"])
def test_split_blocks_are_exact(block):
    for one in differences(block):
        assert one.failure is None
        assert max(one.output, one.input_gradient, one.weight_gradient) < 1e-12


@pytest.mark.parametrize("place", ["inner", "outer", "inner_bias", "outer_bias", "input", "output"])
@pytest.mark.parametrize("kind", [MLP, Attention])
def test_an_error_of_one_rank_is_reported_where_it_is(monkeypatch, kind, place):
    def spoil(tensor):
        tensor = tensor.clone()
        tensor[-1].view(-1)[-1] += ERROR
        return tensor

    class Spoilt(kind):
        """On the second rank alone; the hooks are called with the gradients."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.spoilt = self.split.rank == 1
            if self.spoilt and place not in ("input", "output"):
                getattr(self, place).register_hook(spoil)

        def forward(self, x):
            if self.spoilt and place == "input":
                x.register_hook(spoil)
            out = super().forward(x)
            return spoil(out) if self.spoilt and place == "output" else out

    monkeypatch.setattr(measure, kind.__name__, Spoilt)
    field = {"input": "input_gradient", "output": "output"}.get(place, "weight_gradient")
    for one in differences(kind.__name__.lower()):
        names = ("output", "input_gradient", "weight_gradient")
        found = {name: getattr(one, name) for name in names}
        assert found.pop(field) == pytest.approx(ERROR, rel=1e-6)
        assert max(found.values()) < 1e-12


SECONDS = {
    WHOLE: (4.0,),
    # The first rank's own clock would call this one the fastest.
    PLAIN: (1.0, 2.0),
    OVERLAPPED: (1.6, 0.5),
    WRONG: (0.1, 0.1),
    ENGINE: (5.0, 8.0),
}
"""On each rank, of a block split in such a way."""
FACTORS = {OVERLAPPED: 1 + 2**-15, WRONG: 1.5}
"""By which the output of a way is wrong, and so the input gradient."""


@pytest.fixture(scope="module")
def swept():
    """The steps of a sweep by the names of their ways, and its speed-ups."""
    time = Virtual()

    class Planted(MLP):
        def forward(self, x):
            way = WHOLE if self.split.degree == 1 else self.split.way
            time.pass_by(SECONDS[way][self.split.rank])
            return FACTORS.get(way, 1) * super().forward(x)

    # PyTorch's engine needs torch's own list of groups; one of the book's ways stands in.
    names = {way: str(way) for way in (PLAIN, OVERLAPPED, WRONG)} | {ENGINE: measure.ENGINE}
    tried = [(Setting(name), way) for way, name in names.items()]
    case = Case("mlp", 16, 8, "float32", 2)

    def work(joint):
        return measure.sweep(case, measure.Groups(joint, (2,), 30), "smoke", lambda line: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "settings", lambda groups, fused: tried)
        patch.setattr(measure, "MLP", Planted)
        patch.setattr(ranks, "time", time)
        (steps, speedups), _ = on_ranks(2, work)
    return {one.setting.way: one for one in steps}, speedups


def test_a_way_that_computes_something_else_is_not_timed(swept):
    steps, speedups = swept
    wrong = steps[str(WRONG)]
    assert (wrong.failure, wrong.timing) == ("wrong", None)
    assert wrong.difference == pytest.approx(0.5)
    assert str(WRONG) not in {one.setting.way for one in speedups}
    # One that rounds differently is timed, and its difference is published.
    overlapped = steps[str(OVERLAPPED)]
    assert overlapped.failure is None
    assert overlapped.difference == pytest.approx(2**-15, rel=0.05)
    assert steps[str(PLAIN)].difference < 1e-6


def test_a_step_takes_as_long_as_its_slowest_rank(swept):
    steps, _ = swept
    found = {way: step.timing.median_s for way, step in steps.items() if step.timing}
    assert found == pytest.approx(
        {"whole": 4.0, str(PLAIN): 2.0, str(OVERLAPPED): 1.6, measure.ENGINE: 8.0}
    )


def test_the_fastest_way_and_the_engine_are_compared_with_the_whole_block(swept):
    _, speedups = swept
    found = {one.setting.way: one.ratio.median for one in speedups}
    assert found == pytest.approx({str(OVERLAPPED): 4.0 / 1.6, measure.ENGINE: 4.0 / 8.0})
    assert {one.whole for one in speedups} == {Setting("whole")}
