"""Attention with each kind of mask, with and without gradients, against the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

QUERIES, KEYS = 4, 6


def tensors(device: str, *, grad: bool) -> list[torch.Tensor]:
    """Query, key and value (batch 2, heads 3, length, width 8)."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(2, 3, n, 8, generator=generator) for n in (QUERIES, KEYS, KEYS)]
    return [tensor.to(device).requires_grad_(grad) for tensor in made]


def boolean_mask() -> torch.Tensor:
    mask = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[0] = True
    mask[1] = False  # a query without any key
    return mask


MASKS = {
    "none": None,
    "boolean": boolean_mask(),
    "boolean of each sample": torch.stack([boolean_mask(), ~boolean_mask()])[:, None],
    "float": torch.randn(QUERIES, KEYS, generator=torch.Generator().manual_seed(2)),
    "float with infinity": torch.zeros(QUERIES, KEYS).masked_fill(~boolean_mask(), -torch.inf),
    "causal": "causal",
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, grad: bool) -> None:
    def attend(device: str) -> list[torch.Tensor]:
        mask, inputs = MASKS[name], tensors(device, grad=grad)
        if isinstance(mask, torch.Tensor):
            options = {"attn_mask": mask.to(device)}
        else:
            options = {"is_causal": mask == "causal"}
        output = F.scaled_dot_product_attention(*inputs, **options)
        if grad:
            output.square().sum().backward()
        return [output.detach().cpu()] + [x.grad.cpu() for x in inputs if grad]

    torch.testing.assert_close(attend("mps"), attend("cpu"))


def test_boolean_mask_with_float16() -> None:
    def attend(device: str) -> torch.Tensor:
        inputs = [tensor.half() for tensor in tensors(device, grad=False)]
        return F.scaled_dot_product_attention(*inputs, attn_mask=boolean_mask().to(device)).cpu()

    torch.testing.assert_close(attend("mps"), attend("cpu"), atol=2e-3, rtol=2e-3)


def test_boolean_mask_of_the_operator_that_a_mac_chooses() -> None:
    query, key, value = tensors("mps", grad=False)
    mask = boolean_mask()
    output, weights = torch.ops.aten._scaled_dot_product_attention_math_for_mps(
        query, key, value, mask.to("mps")
    )
    assert (weights.cpu()[..., ~mask] == 0).all()
    expected = F.scaled_dot_product_attention(*tensors("cpu", grad=False), attn_mask=mask)
    torch.testing.assert_close(output.cpu(), expected)


def test_mask_of_whole_numbers_is_refused() -> None:
    mask = boolean_mask().long()
    for device in ("cpu", "mps"):
        with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool or float"):
            F.scaled_dot_product_attention(*tensors(device, grad=False), attn_mask=mask.to(device))
