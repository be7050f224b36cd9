"""The planner: against closed forms, real tensors, autograd's own count, and the card's records."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from macgpu import planner
from macgpu.measure import records
from macgpu.models import CASES, checkpointed
from macgpu.planner import Ledger, PlanError, fused_adamw, plan, plan_line

TOLERANCE = 0.15
"""What the book promises of a peak on cuda."""
CONVOLUTIONS = ("cnn", "resnet18", "resnet50")
WORKSPACES = 2 * 32 * 2**20
"""Of cuBLAS on the H200 of the records, one for each thread of a step."""


def images(size):
    return torch.randn(size, 784), torch.randint(10, (size,))


def mlp(width=1024):
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def test_the_parts_of_an_mlp_are_those_of_the_closed_form():
    width, batch = 1024, 512
    step = plan(mlp(width), images, F.cross_entropy, batch)
    weights = 4 * (784 * width + width + width * 10 + 10)
    # Each of a dozen small tensors takes a whole unit of the allocator.
    near = partial(pytest.approx, abs=16 * planner.ROUND)
    assert step.sizes["weights"] == near(weights)
    assert step.sizes["gradients"] == near(weights)
    assert step.sizes["optimizer"] == near(2 * weights)
    assert step.sizes["batch"] == near(batch * (784 * 4 + 8))
    # Backward needs the hidden layer after the ReLU, and the loss's log-probabilities.
    assert step.sizes["activations"] == near(4 * batch * (width + 10))
    # AdamW on all parameters at once copies as many numbers as there are weights.
    assert step.peak_phase == "optimizer step"
    assert step.peak_bytes == near(5 * weights + batch * (784 * 4 + 8))


def test_a_large_batch_of_an_mlp_peaks_in_backward_as_the_closed_form_says():
    width, batch = 1024, 8192
    step = plan(mlp(width), images, F.cross_entropy, batch, optimizer=fused_adamw)
    weights = 4 * (784 * width + width + width * 10 + 10)
    # The ReLU's output, the gradient that reaches it, and the one that it passes on, and the
    # gradient of the second layer's weights.
    hidden = 3 * 4 * batch * width
    expected = 3 * weights + batch * (784 * 4 + 8) + hidden + 4 * width * 10
    assert step.peak_phase == "backward"
    assert step.peak_bytes == pytest.approx(expected, rel=0.005)
    assert sum(step.at_peak.values()) == step.peak_bytes


def test_half_precision_keeps_activations_of_half_the_size_and_copies_of_weights():
    width, batch = 1024, 4096
    step = plan(mlp(width), images, F.cross_entropy, batch, autocast="bfloat16")
    # The batch is cast too. Of the weights, those of the first layer are not needed in backward,
    # since nobody asks for the gradient of the batch.
    kept = 2 * batch * (784 + width + 10) + 2 * width * 10
    assert step.sizes["activations"] == pytest.approx(kept, abs=8 * planner.ROUND)


@pytest.mark.parametrize("name", ["cnn", "encoder"])
def test_activations_are_what_autograd_says_that_it_saves(name):
    case = CASES[name]
    model = case.build()
    inputs, labels = case.batch(2)
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), inputs, labels)}
    saved = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        case.loss(model(inputs), labels)
    planned = plan(model, case.batch, case.loss, 2).sizes["activations"]
    assert planned == pytest.approx(sum(saved.values()), rel=0.01)


def test_a_plan_is_what_a_real_step_allocates():
    case = CASES["cnn"]
    model = case.build()
    planned = plan(model, case.batch, case.loss, 8, optimizer=fused_adamw)
    inputs, labels = case.batch(8)
    optimizer = fused_adamw(model.parameters())
    ledger = Ledger()
    for _ in range(2):
        held = [*model.parameters(), inputs, labels]
        held += [s for state in optimizer.state.values() for s in state.values()]
        ledger = Ledger()
        ledger.hold("weights", held)
        with ledger:
            case.loss(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert sum(ledger.timeline().values()).max() == pytest.approx(planned.peak_bytes, rel=0.01)


def recorded():
    for record in records.read_all():
        if record.device.name != "NVIDIA H200":
            continue
        for result in record.results:
            label = result.label
            # A compiler fuses operations, which a plan does not do.
            if label.code == "macgpu" and result.peak_memory_bytes and not label.options.compiled:
                yield record.finished, result


PEAKS = {
    f"{result.label.model}, {result.label.step}": result
    for _, result in sorted(recorded(), key=lambda pair: pair[0])
}


@pytest.mark.parametrize("name", PEAKS)
def test_the_peak_is_within_tolerance_of_what_the_card_measured(name):
    label, peak = PEAKS[name].label, PEAKS[name].peak_memory_bytes
    case, options = CASES[label.model], label.options
    optimizer = fused_adamw if options.fused else planner.adamw
    step = plan(case.build(), case.batch, case.loss, label.batch_size, options.autocast, optimizer)
    predicted = step.peak_bytes + WORKSPACES
    if label.model in CONVOLUTIONS and not options.autocast:
        # These peaks hold the first step, in which cuDNN tries algorithms with large workspaces.
        assert predicted <= peak
    else:
        assert predicted == pytest.approx(peak, rel=TOLERANCE)


def test_the_predictions_of_the_records_are_within_tolerance():
    points = [p for r in records.read_all() for p in r.footprints if p.peak_bytes]
    if not points:
        pytest.skip("no record of a card predicts and measures yet")
    wrong = {}
    for p in points:
        # Computed again in float32, convolutions took more than tensors there: most likely cuDNN's
        # workspaces, which no plan knows. The plan is then a lower bound, and the chapter says so.
        beyond = p.model in CONVOLUTIONS and p.checkpointed and not p.autocast
        if p.error > TOLERANCE or (p.error < -TOLERANCE and not beyond):
            wrong[f"{p.model}, {p.batch_size}, {p.way}"] = p.error
    assert not wrong


def test_two_plans_tell_every_other_batch_size():
    case = CASES["cnn"]
    line = plan_line(case.build(), case.batch, case.loss)
    for size in (1, 40, 700):
        direct = plan(case.build(), case.batch, case.loss, size)
        assert line.at(size).peak_bytes == pytest.approx(direct.peak_bytes, rel=0.005)
        assert line.at(size).peak_phase == direct.peak_phase


def test_the_largest_batch_fits_and_the_next_does_not():
    case = CASES["cnn"]
    line = plan_line(case.build(), case.batch, case.loss)
    for limit in (50e6, 1e9):
        size = line.largest_batch(limit)
        assert line.at(size).peak_bytes <= limit < line.at(size + 1).peak_bytes
    assert line.largest_batch(1e6) == 0


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, "8"])
def test_a_batch_size_that_is_none_is_refused(batch_size):
    line = plan_line(mlp(8), images, F.cross_entropy)
    for ask in (line.at, lambda size: plan(mlp(8), images, F.cross_entropy, size)):
        with pytest.raises(PlanError, match=f"a batch size of {batch_size!r}.*at least 1"):
            ask(batch_size)


def test_a_whole_number_of_numpy_is_a_batch_size():
    line = plan_line(mlp(8), images, F.cross_entropy)
    assert line.at(np.int64(8)).peak_bytes == line.small.peak_bytes
    assert type(plan(mlp(8), images, F.cross_entropy, np.int32(8)).batch_size) is int


ROWS = torch.zeros(1000, 16), torch.zeros(1000, dtype=torch.int64)


def rows(size):
    return tuple(part[:size] for part in ROWS)


def test_of_a_slice_of_the_data_set_the_slice_alone_is_counted():
    step = plan(nn.Linear(16, 10), rows, F.cross_entropy, 64)
    assert step.sizes["batch"] == 64 * (16 * 4 + 8)


def test_what_moving_copies_is_counted_of_a_broadcast_batch():
    def same(size):
        return torch.zeros(1, 16).expand(size, 16), rows(size)[1]

    assert plan(nn.Linear(16, 10), same, F.cross_entropy, 64).sizes["batch"] == 64 * (16 * 4 + 8)


class Pairs(nn.Linear):
    def forward(self, inputs):
        left, (right,) = inputs["left"], inputs["right"]
        return super().forward(left + right)


def test_inputs_in_dicts_and_tuples_are_counted_with_the_batch():
    def pairs(size):
        return {"left": torch.zeros(size, 16), "right": (torch.zeros(size, 16),)}, rows(size)[1]

    step = plan(Pairs(16, 10), pairs, F.cross_entropy, 64)
    assert step.sizes["batch"] == 64 * (2 * 16 * 4 + 8)


def test_a_batch_of_another_size_than_asked_is_refused():
    model = nn.Linear(16, 10)
    with pytest.raises(PlanError, match=r"make_batch\(5000\) gave inputs of \(1000, 16\)"):
        plan(model, rows, F.cross_entropy, 5000)
    with pytest.raises(PlanError, match=r"make_batch\(8\) gave inputs of \(1000, 16\)"):
        plan_line(model, lambda _: rows(1000), F.cross_entropy)
    with pytest.raises(PlanError, match="gave inputs of no tensor"):
        plan(model, lambda size: ([], rows(size)[1]), F.cross_entropy, 8)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((8, 8), "two that differ"),
        ((8,), "two that differ"),
        ((0, 8), "a batch size of 0"),
        # Two batches of less than one unit of the allocator.
        ((1, 2), "nothing grows from batch 1 to 2"),
    ],
)
def test_sizes_that_make_no_line_are_refused(sizes, words):
    with pytest.raises(PlanError, match=words):
        plan_line(nn.Linear(16, 10), rows, F.cross_entropy, sizes)


def test_the_order_of_the_two_sizes_does_not_matter():
    lines = [plan_line(mlp(8), images, F.cross_entropy, sizes) for sizes in ((8, 64), (64, 8))]
    assert lines[0].largest_batch(1e8) == lines[1].largest_batch(1e8) > 64


@pytest.mark.parametrize("limit", [float("inf"), float("nan")])
def test_a_limit_that_is_no_number_is_refused(limit):
    line = plan_line(mlp(8), images, F.cross_entropy)
    with pytest.raises(PlanError, match=f"a limit of {limit}"):
        line.largest_batch(limit)


def test_a_case_refuses_an_empty_batch():
    with pytest.raises(ValueError, match="a batch of 0 samples"):
        CASES["mlp"].batch(0)


class Peeking(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, x):
        y = self.layer(x)
        return y if y.sum().item() > 0 else -y


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (mlp(8), {"autocast": "float64"}, "autocast to 'float64'"),
        (mlp(8), {"attention": "flash"}, "attention 'flash'"),
        (nn.ReLU(), {}, "no parameters"),
        (mlp(8).to("meta"), {}, "lies on meta"),
        (Peeking(), {}, "the model's path depends on values"),
        (mlp(8), {"optimizer": torch.optim.ASGD}, "the optimizer's path depends on values"),
        (mlp(8), {"optimizer": torch.optim.LBFGS}, "LBFGS takes a closure"),
        (nn.LazyLinear(10), {}, "lazy parameters"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(model, options, words):
    with pytest.raises(PlanError, match=words):
        plan(model, images, F.cross_entropy, 4, **options)


def test_a_path_that_depends_on_values_is_named_for_the_loss_and_the_batch_too():
    def peek(logits, labels):
        value = F.cross_entropy(logits, labels)
        return value if value.item() > 1 else 2 * value

    def positive(size):
        inputs, labels = images(size)
        return inputs[inputs.sum(1) > 0], labels

    with pytest.raises(PlanError, match="the loss's path depends on values"):
        plan(mlp(8), images, peek, 4)
    with pytest.raises(PlanError, match="the batch's path depends on values"):
        plan(mlp(8), positive, F.cross_entropy, 4)


def test_planning_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(784, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    before = copy.deepcopy(model.state_dict())
    plan(model, images, F.cross_entropy, 4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dropout_keeps_one_byte_a_value():
    width, batch = 1024, 512
    dropped = nn.Sequential(nn.Linear(784, width), nn.Dropout(0.1), nn.Linear(width, 10))
    kept = plan(dropped, images, F.cross_entropy, batch).sizes["activations"]
    # Its output, which the next layer needs, its mask, and the log-probabilities.
    assert kept == pytest.approx(batch * (4 * width + width + 4 * 10), abs=8 * planner.ROUND)


def test_attention_in_parts_keeps_the_weights_of_every_head():
    case = CASES["encoder"]
    fused, parts = (
        plan(case.build(), case.batch, case.loss, 2, attention=attention)
        for attention in ("fused", "math")
    )
    weights = 6 * 8 * 128 * 128 * 4 * 2
    assert parts.sizes["activations"] - fused.sizes["activations"] >= weights


def test_checkpointing_computes_the_same_and_plans_less():
    case = CASES["encoder"]
    plain, thrifty = case.build().double(), checkpointed(case.build().double())
    inputs, labels = case.batch(1)
    for model in (plain, thrifty):
        case.loss(model(inputs), labels).backward()
    for one, other in zip(plain.parameters(), thrifty.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    peaks = [plan(m, case.batch, case.loss, 64) for m in (case.build(), checkpointed(case.build()))]
    assert peaks[1].sizes["activations"] < 0.2 * peaks[0].sizes["activations"]
    # What a block computes anew is there while backward goes through it.
    assert peaks[1].peak_bytes < peaks[0].peak_bytes


def test_a_model_without_blocks_cannot_be_checkpointed():
    with pytest.raises(ValueError, match="no block to checkpoint"):
        checkpointed(mlp())


def test_the_ledger_finds_a_kept_graph_and_no_leak_in_a_detached_loss():
    case = CASES["cnn"]
    model = case.build()
    inputs, labels = case.batch(16)

    def growth(keep):
        log, alive = [], []
        with Ledger() as ledger:
            for _ in range(3):
                log.append(keep(case.loss(model(inputs), labels)))
                alive.append(ledger.alive_bytes)
        return alive[2] - alive[1]

    assert growth(lambda loss: loss) > 1e6
    assert growth(torch.Tensor.detach) == planner.ROUND


def test_planning_leaves_torchs_own_functions_as_they_were_even_where_it_fails():
    before = F.dropout, F.scaled_dot_product_attention
    case = CASES["mlp"]
    plan(case.build(), case.batch, case.loss, 2)
    with pytest.raises(PlanError):
        plan(case.build(), case.batch, lambda logits, _: logits.sum().item(), 2)
    assert (F.dropout, F.scaled_dot_product_attention) == before


def test_a_peak_at_the_first_event_of_a_phase_belongs_to_it():
    rises = {kind: np.array([1, 1, 5, 1]) for kind in planner.KINDS}
    starts = {"forward": 1, "backward": 2, "optimizer step": 3}
    assert planner.Plan(1, rises, starts).peak_phase == "backward"


def test_a_tensor_takes_whole_blocks_of_the_allocator():
    with Ledger() as ledger:
        tensors = [torch.ones(1), torch.ones(129)]
        assert ledger.alive_bytes == 512 + 2 * 512, len(tensors)


def test_dropout_within_fused_attention_keeps_nothing():
    class Attending(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.p, self.layer = p, nn.Linear(32, 32)

        def forward(self, x):
            heads = self.layer(x).view(len(x), 64, 4, 8).transpose(1, 2)
            return F.scaled_dot_product_attention(heads, heads, heads, dropout_p=self.p)

    def activations(p, attention):
        planned = plan(
            Attending(p),
            lambda size: (torch.randn(size, 64, 32), None),
            lambda out, _: out.sum(),
            2,
            attention=attention,
        )
        return planned.sizes["activations"]

    assert activations(0.1, "fused") == activations(0.0, "fused")
    assert activations(0.1, "math") > activations(0.0, "math")
