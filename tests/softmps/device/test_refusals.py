"""What a Mac refuses, the device refuses: the same exception with the same key words.

The words are those of PyTorch's MPS sources and of reports from Macs.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

MISSING = {
    "aten::mode": lambda x: x.mode(),
    "aten::take": lambda x: torch.take(x, torch.tensor([0], device="mps")),
    "aten::linalg_eig": lambda x: torch.linalg.eig(x @ x.t()),
    "aten::adaptive_max_pool3d.out": lambda x: nn.AdaptiveMaxPool3d(2)(x.view(1, 1, 3, 2, 2)),
    "aten::multi_margin_loss": lambda x: F.multi_margin_loss(x, torch.tensor([0, 1, 2]).to("mps")),
}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4).to("mps")


@pytest.mark.parametrize("name", MISSING)
def test_missing_operator(name: str, x: torch.Tensor) -> None:
    words = f"The operator '{name}' is not currently implemented for the MPS device.*"
    with pytest.raises(NotImplementedError, match=words + "PYTORCH_ENABLE_MPS_FALLBACK=1"):
        MISSING[name](x)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("kaiser_window", lambda: torch.kaiser_window(8, device="mps")),
        ("kaiser_window.periodic", lambda: torch.kaiser_window(8, True, device="mps")),
        ("kaiser_window.beta", lambda: torch.kaiser_window(8, True, 3.0, device="mps")),
        (
            "kaiser_window",
            lambda: torch.ops.aten.kaiser_window.out(8, out=torch.empty(8, device="mps")),
        ),
    ],
)
def test_generic_operator_without_a_part_for_mps(name: str, make: Callable) -> None:
    words = f"The operator 'aten::{name}' is not currently implemented for the MPS device"
    with pytest.raises(NotImplementedError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.zeros(2, dtype=torch.float64, device="mps"),
        lambda x: torch.empty_strided((2,), (1,), dtype=torch.float64, device="mps"),
        lambda x: torch.zeros(2, dtype=torch.float64).to("mps"),
        lambda x: x.double(),
        lambda x: x.sum(dtype=torch.float64),
        lambda x: torch.add(x.long(), torch.tensor(1.0, dtype=torch.float64)),
        lambda x: nn.Linear(2, 2).double().to("mps"),
    ],
)
def test_float64(make: Callable, x: torch.Tensor) -> None:
    with pytest.raises(
        TypeError, match="MPS framework doesn't support float64. Please use float32"
    ):
        make(x)


def test_complex128(x: torch.Tensor) -> None:
    words = "Trying to convert ComplexDouble to the MPS backend but it does not have support"
    with pytest.raises(TypeError, match=words):
        torch.zeros(2, dtype=torch.complex128).to("mps")
    assert torch.fft.fft(x).dtype == torch.complex64


TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, mps:0"
MIXED = {
    "add": (lambda m, c: m + c, TWO_DEVICES),
    "add, CPU first": (lambda m, c: c + m, TWO_DEVICES),
    "add in place": (lambda m, c: c.add_(m), TWO_DEVICES),
    "into a CPU number": (lambda m, c: torch.tensor(0.0).add_(m.sum()), TWO_DEVICES),
    "MSE loss": (lambda m, c: F.mse_loss(m, c), TWO_DEVICES),
    "linear weight": (
        lambda m, c: F.linear(m, c),
        "Tensor for argument weight is on cpu but expected on mps",
    ),
    "linear input": (
        lambda m, c: nn.Linear(4, 2).to("mps")(c),
        "Tensor for argument input is on cpu but expected on mps",
    ),
    "convolution weight": (
        lambda m, c: F.conv1d(m[None, None, 0], c[None, None, 0]),
        r"Input type \(MPSFloatType\) and weight type \(torch.FloatTensor\) should be the same",
    ),
    "convolution input": (
        lambda m, c: F.conv2d(c[None, None], m[None, None]),
        r"slow_conv2d_forward_mps: input\(device='cpu'\) and weight\(device=mps:0'\)  must be on",
    ),
    "matrix product": (
        lambda m, c: m @ c.t(),
        r"argument #2 'mat2' is on CPU, but expected it to be on GPU \(while checking .* for mm\)",
    ),
    "embedding": (
        lambda m, c: F.embedding(torch.tensor([1]), m),
        "Placeholder storage has not been allocated on MPS device!",
    ),
    "cross entropy": (
        lambda m, c: F.cross_entropy(m, torch.tensor([0, 1, 2])),
        "Placeholder storage has not been allocated on MPS device!",
    ),
    "cat": (
        lambda m, c: torch.cat([m, c]),
        "all input tensors must be on the same device. Received mps:0 and cpu",
    ),
    "mask": (
        lambda m, c: m.masked_fill(c > 0, 0),
        "expected self and mask to be on the same device, but got mask on cpu and self on mps:0",
    ),
    "indices on mps": (
        lambda m, c: c[torch.tensor([0], device="mps")],
        "indices should be either on cpu or on the same device as the indexed tensor",
    ),
    "generator": (
        lambda m, c: torch.randn(2, device="mps", generator=torch.Generator()),
        "Expected a 'mps' device type for generator but found 'cpu'",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_devices(name: str, x: torch.Tensor) -> None:
    operation, words = MIXED[name]
    with pytest.raises(RuntimeError, match=words):
        operation(x, torch.ones(3, 4))


def test_what_may_be_on_the_cpu(x: torch.Tensor) -> None:
    """Numbers as tensors, and the indices of an indexed tensor."""
    assert (x * torch.tensor(2.0)).tolist() == (x * 2).tolist()
    assert x[torch.tensor([2, 0])].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    x[torch.tensor([0])] = 7.0
    assert x[0].tolist() == [7.0] * 4
    assert x.copy_(torch.ones(3, 4)).sum().item() == 12


def test_numpy_needs_the_cpu(x: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="can't convert mps:0 device type tensor to numpy"):
        x.numpy()


def test_collectives(x: torch.Tensor, tmp_path) -> None:
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        for collective in (dist.all_reduce, lambda tensor: dist.broadcast(tensor, 0)):
            with pytest.raises(
                RuntimeError, match="distributed operators can not fall back to CPU"
            ):
                collective(x)
    finally:
        dist.destroy_process_group()


def test_sharing_between_processes(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(x)


@pytest.mark.parametrize("size", [17, 20])
def test_number_of_dimensions(size: int) -> None:
    with pytest.raises(RuntimeError, match="MPS supports tensors with dimensions <= 16"):
        torch.empty([1] * size, device="mps")


def test_metal_and_gpu_time_are_not_there() -> None:
    with pytest.raises(RuntimeError, match="cannot compile or run Metal shaders"):
        torch.mps.compile_shader("kernel void nothing() {}")
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    with pytest.raises(RuntimeError, match="no GPU clock"):
        start.elapsed_time(end)


def test_sparse_tensors_are_not_there(x: torch.Tensor) -> None:
    with pytest.raises(NotImplementedError, match="no tensors of layout Sparse"):
        x.to_sparse()
