"""A model that computes in half precision and answers in float32."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Autocast(nn.Module):
    """A model whose operators compute in a type of their own choice; the logits are float32."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, self.dtype):
            return self.model(inputs).float()
