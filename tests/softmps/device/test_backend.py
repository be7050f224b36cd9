"""What torch offers on a Mac apart from operators: backend, memory, random numbers, saving."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import macgpu.softmps
from macgpu.operators import EXTRAS, native_names, operators

MIB = 2**20


def test_it_announces_itself() -> None:
    assert torch.backends.mps.is_available() and torch.backends.mps.is_built()
    assert "Software" in torch.backends.mps.get_name()
    assert macgpu.softmps.is_active()
    assert torch.backends.mps.is_macos_or_newer(14, 0)
    assert torch.backends.mps.get_core_count() == 0  # no GPU cores
    assert torch.mps.device_count() == 1


def test_accelerator() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("mps")
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    torch.accelerator.synchronize()
    torch.mps.synchronize()


def test_registered_operators_are_the_table() -> None:
    def registered(name: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "MPS")

    assert [name for name in native_names() if not registered(name)] == []
    # A torch built with MPS reaches the first four by other names; the rest have one kernel for
    # all devices, which such a torch completes for MPS (ldexp) or has no part in (kaiser_window).
    more = {name for name in operators() if registered(name)} - native_names() - EXTRAS
    assert more == {
        "copy_", "convolution_overrideable", "convolution_backward_overrideable",
        "scaled_dot_product_attention", "ldexp.Tensor", "ldexp_", "ldexp.out",
        "kaiser_window", "kaiser_window.periodic", "kaiser_window.beta",
    }  # fmt: skip


def test_memory_is_counted_and_cached() -> None:
    torch.mps.empty_cache()
    before = torch.mps.current_allocated_memory()
    x = torch.empty(MIB, dtype=torch.float32, device="mps")
    assert torch.mps.current_allocated_memory() - before == 4 * MIB
    y = x + 1  # the result of a kernel counts as well
    assert torch.mps.current_allocated_memory() - before == 8 * MIB
    view = y[10:]
    del x, y
    assert torch.mps.current_allocated_memory() - before == 4 * MIB
    del view
    assert torch.mps.current_allocated_memory() == before
    assert torch.mps.driver_allocated_memory() >= before + 8 * MIB
    torch.mps.empty_cache()
    assert torch.mps.driver_allocated_memory() == before


def test_memory_of_a_training_step_comes_back() -> None:
    def step() -> None:
        x = torch.randn(4, 3, 16, 16, device="mps")
        model(x).sum().backward()
        model.zero_grad()

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    model.to("mps")
    step()
    before = torch.mps.current_allocated_memory()
    for _ in range(3):
        step()
    assert torch.mps.current_allocated_memory() == before


def test_accelerator_memory() -> None:
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    x = torch.empty(MIB, device="mps")
    assert torch.accelerator.memory_allocated() == torch.mps.current_allocated_memory()
    assert torch.accelerator.memory_reserved() == torch.mps.driver_allocated_memory()
    del x
    assert torch.accelerator.max_memory_allocated() - before == 4 * MIB
    assert torch.accelerator.memory_allocated() == before


def test_memory_limit() -> None:
    torch.mps.empty_cache()
    fraction = (torch.mps.current_allocated_memory() + 8 * MIB) / torch.mps.recommended_max_memory()
    torch.mps.set_per_process_memory_fraction(fraction)
    try:
        kept = torch.empty(MIB, device="mps")
        with pytest.raises(
            RuntimeError,
            match=r"MPS backend out of memory \(MPS allocated: .* MiB, other allocations: .*, max "
            r"allowed: .* MiB\). Tried to allocate 16.00 MiB on private pool. Use "
            r"PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations",
        ):
            torch.empty(4 * MIB, device="mps")
        # What is only cached makes room before the limit counts as reached.
        for _ in range(3):
            torch.empty(MIB // 2, device="mps")
            torch.empty(MIB - 1024, device="mps")
        assert kept.numel() == MIB
        torch.mps.set_per_process_memory_fraction(0.0)
        assert torch.empty(4 * MIB, device="mps").numel() == 4 * MIB
    finally:
        torch.mps.set_per_process_memory_fraction(1.7)


def test_buffer_larger_than_the_machine() -> None:
    with pytest.raises(RuntimeError, match="Invalid buffer size: .* GiB"):
        torch.empty(torch.mps.recommended_max_memory(), device="mps")


def test_random_numbers() -> None:
    torch.manual_seed(3)
    first = torch.rand(5, device="mps")
    torch.rand(5)  # the CPU's generator is another
    state = torch.mps.get_rng_state()
    second = torch.rand(5, device="mps")
    torch.mps.manual_seed(3)
    assert torch.equal(torch.rand(5, device="mps"), first)
    torch.mps.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="mps"), second)
    torch.mps.seed()
    assert not torch.equal(torch.rand(5, device="mps"), first)
    generator = torch.Generator("mps").manual_seed(3)
    assert torch.equal(torch.rand(5, device="mps", generator=generator), first)
    assert torch.equal(torch.rand(5, device="mps", generator=generator), second)


def test_dropout_draws_from_the_device() -> None:
    x = torch.ones(1000, device="mps")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    kept = torch.nn.functional.dropout(x, 0.25)
    assert torch.equal(torch.get_rng_state(), before), "the CPU's generator was used"
    torch.mps.manual_seed(0)
    assert torch.equal(torch.nn.functional.dropout(x, 0.25), kept)
    torch.testing.assert_close(kept[kept != 0].cpu(), torch.full(((kept != 0).sum(),), 4 / 3))


def test_events() -> None:
    event = torch.mps.Event()
    assert not event.query()
    event.record()
    event.wait()
    event.synchronize()
    assert event.query()


@pytest.mark.parametrize("target", [None, "cpu", "mps"])
def test_save_and_load(target: str | None) -> None:
    x = torch.arange(6.0, device="mps")
    model = nn.Linear(2, 2).to("mps")
    file = io.BytesIO()
    torch.save({"x": x, "view": x[2:], "model": model.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=target, weights_only=True)
    assert loaded["x"].device.type == (target or "mps")
    loaded["x"][3] = 9.0
    assert loaded["view"].tolist() == [2.0, 9.0, 4.0, 5.0]
    torch.testing.assert_close(loaded["model"]["weight"].cpu(), model.weight.detach().cpu())


def test_copies() -> None:
    model = nn.Linear(2, 2).to("mps")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.zero_()
    assert model.weight.abs().sum() > 0
    x = pickle.loads(pickle.dumps(torch.arange(3, device="mps")))
    assert x.is_mps and x.tolist() == [0, 1, 2]
    assert repr(torch.ones(2, device="mps")) == "tensor([1., 1.], device='mps:0')"


def test_views_share_memory() -> None:
    x = torch.zeros(3, 4, device="mps")
    for view in (
        x.t(),
        x.view(-1),
        x[1:, ::2],
        x.unfold(1, 2, 1),
        x.expand(2, 3, 4),
        x.permute(1, 0),
    ):
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x.t()[1].add_(2)
    assert x[:, 1].tolist() == [2, 2, 2]
    torch.view_as_real(torch.zeros(2, dtype=torch.complex64, device="mps")).fill_(1)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.add(x[0, 1:], 1, out=x[0, :-1])


def test_results_into_given_tensors() -> None:
    x = torch.arange(4.0, device="mps")
    out = torch.empty(0, device="mps")
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3, 4]
    target = torch.zeros(2, 4, device="mps")
    torch.mul(x, 2, out=target[1])
    assert target.tolist() == [[0, 0, 0, 0], [0, 2, 4, 6]]
    values, indices = torch.empty(0, device="mps"), torch.empty(0, dtype=torch.long, device="mps")
    torch.sort(x, descending=True, out=(values, indices))
    assert values.tolist() == [3, 2, 1, 0] and indices.tolist() == [3, 2, 1, 0]


def test_storages() -> None:
    x = torch.arange(4.0, device="mps")
    y = torch.empty(0, device="mps").set_(x.untyped_storage(), 1, (2,), (2,))
    x.mul_(2)
    assert y.tolist() == [2, 6]
    assert y.resize_(8).shape == (8,)
    assert x.untyped_storage().nbytes() == y.untyped_storage().nbytes() == 36
    assert x.tolist() == [0, 2, 4, 6], "the bytes moved with the storage"
    storage = torch.UntypedStorage(8, device="mps")
    assert storage.device.type == "mps" and storage.nbytes() == 8
    assert x.clone().set_().numel() == 0


def test_autograd_sees_in_place_changes() -> None:
    w = torch.ones(3, device="mps", requires_grad=True)
    y = w * w
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_second_derivatives() -> None:
    x = torch.tensor([1.0, 2.0], device="mps", requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3, 12] and second.tolist() == [6, 12]


def test_workers_are_spawned() -> None:
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="spawn")
    assert sum(batch.to("mps").sum().item() for (batch,) in loader) == 28


def test_pinned_memory() -> None:
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        batches = [batch for (batch,) in loader]
    assert any("pin_memory" in str(w.message) and "MPS" in str(w.message) for w in seen)
    assert not any(batch.is_pinned() for batch in batches)
    assert torch.ones(3).pin_memory().is_pinned()


def test_autocast_lists() -> None:
    x = torch.randn(4, 4, device="mps")
    with torch.autocast("mps"):
        assert (x @ x).dtype == torch.float16
        assert x.half().softmax(-1).dtype == torch.float32
        assert nn.functional.layer_norm(x.half(), (4,)).dtype == torch.float32


def test_torchvision_kernels() -> None:
    from torchvision.ops import nms, roi_align

    boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 3.9], [5, 5, 9, 9]], device="mps")
    scores = torch.tensor([0.9, 0.8, 0.7], device="mps")
    assert nms(boxes, scores, 0.5).tolist() == [0, 2]
    image = torch.arange(64.0, device="mps").view(1, 1, 8, 8).requires_grad_()
    roi_align(image, [boxes], 2).sum().backward()
    assert image.grad.is_mps and image.grad.sum() > 0
