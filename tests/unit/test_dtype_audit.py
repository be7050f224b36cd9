"""The audit of data types: what autocast casts, seen in forward, backward and the optimizer."""

import pytest
import torch
from torch import nn

from macgpu.dtype_audit import DtypeAudit


@pytest.fixture
def audited():
    """One step of a small network, autocast to bfloat16 on the CPU."""
    model = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    inputs, labels = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    with DtypeAudit() as audit:
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return audit


def test_products_run_in_the_low_type_in_both_directions(audited):
    # Two layers forward; backward a product for each weight, and one for the second layer's input.
    assert audited.calls["addmm", "bfloat16"] == 2
    assert audited.calls["mm", "bfloat16"] == 3
    assert {types for name, types in audited.calls if name in ("addmm", "mm")} == {"bfloat16"}


def test_the_loss_and_the_parameters_stay_in_float32(audited):
    assert audited.calls["_log_softmax", "float32"] == 1
    # Six parameters: two weights and two biases of linear layers, two of the norm.
    assert audited.calls["add_", "float32"] == 6
    assert ("_log_softmax", "bfloat16") not in audited.calls


def test_casts_are_counted_by_direction_and_copies_are_not(audited):
    # The input, two weights, two biases, and what the norm gave.
    assert audited.calls["cast", "float32 → bfloat16"] >= 6
    assert audited.calls["cast", "bfloat16 → float32"] >= 1
    with DtypeAudit() as plain:
        torch.empty(3).copy_(torch.ones(3))
        torch.arange(3).to(torch.int32)
    assert not any(name == "cast" for name, _ in plain.calls)


def test_inputs_of_two_types_are_named_both_and_views_left_out():
    with DtypeAudit() as audit:
        torch.ones(2, 2, dtype=torch.float16).t() + torch.ones(2, 2)
    assert dict(audit.calls) == {("add", "float16, float32 → float32"): 1}


def test_the_table_has_a_row_for_each_operator(audited):
    table = audited.table()
    assert table.loc["addmm", "bfloat16"] == 2
    assert table.loc["addmm", "float32"] == 0
    assert table.to_numpy().sum() == audited.calls.total()


def test_an_operator_that_changes_the_type_itself_is_no_cast():
    with DtypeAudit() as audit:
        torch.ones(3, dtype=torch.bfloat16).sum(dtype=torch.float32)
    assert dict(audit.calls) == {("sum", "bfloat16 → float32"): 1}


@pytest.mark.parametrize("non_blocking", [(), (True,)])
def test_a_copy_into_another_type_is_a_cast_from_what_is_read(non_blocking):
    with DtypeAudit() as audit:
        torch.empty(3).copy_(torch.ones(3, dtype=torch.float16), *non_blocking)
        torch.empty(3, dtype=torch.int32).copy_(torch.ones(3), *non_blocking)
    assert dict(audit.calls) == {("cast", "float16 → float32"): 1}


def test_inputs_given_by_keyword_count():
    weights, gradients = (
        [torch.ones(3, dtype=torch.bfloat16)],
        [torch.ones(3, dtype=torch.bfloat16)],
    )
    scale = torch.ones(())
    with DtypeAudit() as audit:
        torch._fused_sgd_(
            weights,
            gradients,
            [],
            weight_decay=0.0,
            momentum=0.0,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
            grad_scale=scale,
        )
    assert dict(audit.calls) == {("_fused_sgd_", "bfloat16, float32"): 1}


def test_the_table_is_empty_where_nothing_ran():
    with DtypeAudit() as audit:
        pass
    assert audit.table().empty
