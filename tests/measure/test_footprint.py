"""Footprints: sizes in turn until one does not fit, which is said, and the rest goes on."""

import json
from dataclasses import replace

import pytest
import torch

from macgpu import planner
from macgpu.measure import footprint, records
from macgpu.measure.memory import OUT_OF_MEMORY
from macgpu.measure.records import Footprint, RecordError
from macgpu.models import CASES, Encoder
from tests.measure.test_records import RECORD

CPU = torch.device("cpu")


def sweep(case, sizes, recompute=False):
    return list(footprint.sweep(case, case.build(), CPU, sizes, None, recompute, 0.001))


def test_a_sweep_predicts_and_times_each_size():
    points = sweep(CASES["cnn"], (2, 8, 64))
    assert [point.batch_size for point in points] == [2, 8, 64]
    predicted = [point.predicted_bytes for point in points]
    assert predicted == sorted(predicted) and predicted[0] < predicted[-1]
    assert all(point.samples_per_s > 0 and point.failure is None for point in points)
    # The CPU has no counter, so there is no peak and no error of the prediction.
    assert all(point.peak_bytes is None and point.error is None for point in points)


def test_a_batch_larger_than_what_is_drawn_repeats_it():
    seen = []

    class Spy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(784, 10)

        def forward(self, x):
            if x.shape[0] == 70:
                seen.append(x.detach())
            return self.layer(x.flatten(1))

    sweep(replace(CASES["mlp"], make=Spy), (70,))
    assert torch.equal(seen[-1][:32], seen[-1][32:64]) and not seen[-1][0].equal(seen[-1][1])


def test_out_of_memory_is_said_and_ends_the_sweep():
    def inputs(size, generator):
        if size == 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return CASES["cnn"].make_inputs(size, generator)

    points = sweep(replace(CASES["cnn"], make_inputs=inputs), (4, 20, 24))
    assert [point.batch_size for point in points] == [4, 20]
    assert points[0].failure is None
    assert points[1].failure == OUT_OF_MEMORY and points[1].samples_per_s is None


def test_what_would_take_most_of_the_memory_is_not_tried(monkeypatch):
    monkeypatch.setattr(footprint, "SHARE", 1e-6)
    points = sweep(CASES["cnn"], (4, 8))
    assert [point.failure for point in points] == ["not tried: it would take most of the memory"]


def test_every_way_is_measured_on_the_device_that_has_it(monkeypatch):
    small = replace(
        CASES["encoder"],
        make=lambda: Encoder(vocabulary=100, length=32, width=64),
        make_inputs=lambda size, generator: torch.randint(100, (size, 32), generator=generator),
    )
    monkeypatch.setitem(CASES, "encoder", small)
    monkeypatch.setattr(footprint, "SIZES", {"smoke": {"encoder": (16,)}})
    lines = []
    points = list(footprint.measure(CPU, "smoke", lines.append))
    assert [(point.autocast, point.checkpointed) for point in points] == [
        (None, False),
        (None, True),
    ]
    assert points[1].predicted_bytes < points[0].predicted_bytes
    assert len(lines) == 2 and "checkpointed: predicted" in lines[1]


POINT = Footprint("resnet50", 64, "bfloat16", True, 10**9, 11 * 10**8, 2 * 10**9, 900.0)


def test_footprints_are_read_as_they_were_written(tmp_path):
    failed = Footprint("resnet50", 4096, None, False, 10**12, failure=OUT_OF_MEMORY)
    record = replace(RECORD, footprints=(POINT, failed))
    assert records.read(records.write(record, tmp_path)) == record
    assert POINT.error == pytest.approx(10 / 11 - 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 0}, "footprints.0.batch_size"),
        ({"predicted_bytes": 0}, "footprints.0.predicted_bytes"),
        ({"autocast": "float64"}, "footprints.0.autocast"),
        ({"peak_bytes": 1.5}, "footprints.0.peak_bytes"),
        ({"failure": "out of memory"}, "footprints.0.failure: there must be a measurement"),
        ({"samples_per_s": None}, "footprints.0.failure: there must be a measurement"),
    ],
)
def test_a_footprint_that_says_nothing_sensible_is_refused(tmp_path, change, words):
    path = records.write(replace(RECORD, footprints=(POINT,)), tmp_path)
    content = json.loads(path.read_text())
    content["footprints"][0] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=words):
        records.read(path)


def test_a_record_without_footprints_stays_readable():
    assert RECORD.footprints == ()
    assert all(isinstance(record.footprints, tuple) for record in records.read_all())


def test_only_the_models_that_are_asked_for_are_measured(monkeypatch):
    monkeypatch.setattr(footprint, "SIZES", {"smoke": {"cnn": (2,), "mlp": (2,)}})
    monkeypatch.setattr(footprint, "WAYS", ((None, False),))
    points = footprint.measure(CPU, "smoke", lambda _: None, models=("mlp",))
    assert [point.model for point in points] == ["mlp"]


def test_what_there_is_no_time_for_is_said(monkeypatch):
    monkeypatch.setattr(footprint, "SIZES", {"smoke": {"mlp": (2,)}})
    lines = []
    assert list(footprint.measure(CPU, "smoke", lines.append, seconds=-1.0)) == []
    assert set(lines) == {"mlp: skipped, no time left"}


def test_a_rate_is_of_one_step_however_many_are_timed(monkeypatch):
    # Half a second a step, by whatever clock.
    monkeypatch.setattr(footprint, "time_block", lambda step, count, device: step() or count / 2)
    case = CASES["mlp"]
    (point,) = footprint.sweep(case, case.build(), CPU, (8,), None, False, 5.0)
    assert point.samples_per_s == 16


def test_predicted_is_the_plan_of_a_fused_optimizer_and_what_the_library_takes(monkeypatch):
    monkeypatch.setattr(footprint, "library_bytes", lambda device: 1000)
    case = CASES["mlp"]
    (point,) = sweep(case, (8,))
    planned = planner.plan(case.build(), case.batch, case.loss, 8, optimizer=planner.fused_adamw)
    assert point.predicted_bytes == planned.peak_bytes + 1000


def test_a_sweep_leaves_the_model_as_it_was():
    model = CASES["encoder"].build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    list(footprint.sweep(CASES["encoder"], model, CPU, (1,), None, True, 0.001))
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
