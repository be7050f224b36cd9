"""Training a split model, saving it at one degree and going on at another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh

from macgpu.parallel.model import Shape, batch, build, loss_of, splitting

LEARNING_RATE = 1e-3


class Run:
    """A model, its optimizer, and the number of steps that both have taken."""

    def __init__(
        self, shape: Shape, mesh: DeviceMesh | None = None, dtype: torch.dtype = torch.float64
    ):
        self.shape, self.mesh = shape, mesh
        self.model = build(shape, mesh, dtype=dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.step = 0

    def advance(self) -> torch.Tensor:
        """One step; its loss, as a tensor."""
        tokens, targets = batch(self.shape, self.step)
        self.optimizer.zero_grad()
        with splitting(self.mesh):
            loss = loss_of(self.model, tokens, targets)
            loss.backward()
        self.optimizer.step()
        self.step += 1
        return whole(loss.detach())

    def save(self, folder: Path) -> None:
        """Write this rank's part of weights and optimizer state beside the others'."""
        dcp.save(self._state(), checkpoint_id=folder / f"step-{self.step:06d}")

    def load(self, folder: Path) -> bool:
        """Go on from the newest whole checkpoint, of whatever degree; whether there is one."""
        found = checkpoints(folder)
        if not found:
            return False
        state = self._state()
        dcp.load(state, checkpoint_id=found[-1])
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = int(found[-1].name.removeprefix("step-"))
        return True

    def _state(self) -> dict:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints, oldest first: the file with their contents is written last."""
    return sorted(path.parent for path in Path(folder).glob("step-*/.metadata"))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor put together from the ranks' parts; all of them must call."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def held(model: nn.Module) -> int:
    """Elements of the weights that this rank holds."""
    return sum(
        getattr(weight, "to_local", lambda weight=weight: weight)().numel()
        for weight in model.parameters()
    )


def apart(model: nn.Module, other: nn.Module, of: Callable = lambda weight: weight) -> float:
    """The largest difference between two models' weights, or what ``of`` takes of each."""
    differences = [
        (whole(of(one)) - whole(of(two))).detach().abs().max()
        for one, two in zip(model.parameters(), other.parameters(), strict=True)
    ]
    return float(torch.stack(differences).max())
