"""What the device refuses is found on the troubleshooting page, by the words that are printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.messages import explained_by

FAULTS: list[tuple[str, Callable[[], object]]] = [
    ("float64", lambda: torch.zeros(2, dtype=torch.float64).to("mps")),
    ("complex128", lambda: torch.zeros(2, dtype=torch.complex128).to("mps")),
    ("missing-operator", lambda: torch.zeros(3, device="mps").mode()),
    ("sparse-tensor", lambda: torch.eye(2).to_sparse().to("mps")),
    ("mixed-devices", lambda: torch.zeros(2, device="mps") + torch.zeros(2)),
    ("mixed-devices", lambda: nn.Embedding(4, 2).to("mps")(torch.tensor([1]))),
    ("mixed-devices", lambda: nn.Linear(2, 2)(torch.zeros(1, 2, device="mps"))),
    ("mixed-devices", lambda: nn.Conv2d(1, 1, 1)(torch.zeros(1, 1, 2, 2, device="mps"))),
    ("mixed-devices", lambda: nn.Conv2d(1, 1, 1).to("mps")(torch.zeros(1, 1, 2, 2))),
    ("numpy-of-mps", lambda: torch.zeros(2, device="mps").numpy()),
    ("generator-device", lambda: torch.randn(2, device="mps", generator=torch.Generator())),
    ("too-many-dimensions", lambda: torch.zeros((1,) * 17, device="mps")),
    ("invalid-buffer-size", lambda: torch.empty(2**50, dtype=torch.uint8, device="mps")),
]


@pytest.mark.parametrize(("anchor", "fault"), FAULTS)
def test_the_page_explains_what_is_refused(anchor: str, fault: Callable[[], object]) -> None:
    with pytest.raises((RuntimeError, TypeError)) as raised:
        fault()
    assert explained_by(str(raised.value)) == {anchor}


def test_the_page_explains_memory_that_is_full() -> None:
    torch.mps.set_per_process_memory_fraction(1e-6)
    try:
        with pytest.raises(RuntimeError) as raised:
            torch.zeros(10**7, device="mps")
    finally:
        torch.mps.set_per_process_memory_fraction(0.0)
    assert explained_by(str(raised.value)) == {"out-of-memory"}
