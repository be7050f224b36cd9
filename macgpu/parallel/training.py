"""Training a split model, saving it at one degree and going on at another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh

from macgpu.errors import BookError
from macgpu.parallel.model import batch, build, loss_of, splitting
from macgpu.parallel.shape import Shape

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
        """Write this rank's part of weights and optimizer state beside the others'.

        Raises:
            BookError: where it cannot be written.
        """
        place = folder / f"step-{self.step:06d}"
        # What is overwritten is not whole until it is written anew. No rank writes before all have
        # come to dcp.save.
        (place / ".metadata").unlink(missing_ok=True)
        try:
            dcp.save(self._state(), checkpoint_id=place)
        except CheckpointException as error:
            raise BookError(f"{place} cannot be written: {_in_short(_cause(error))}") from None

    def load(self, folder: Path) -> bool:
        """Go on from the newest whole checkpoint, of whatever degree; whether there is one.

        Raises:
            BookError: where it is damaged, or of a model of other sizes.
        """
        found = checkpoints(folder)
        if not found:
            return False
        state = self._state()
        try:
            # First by itself: dcp.load would log two tracebacks of what fails here.
            dcp.FileSystemReader(found[-1]).read_metadata()
        except Exception as error:
            raise BookError(_refusal(found, error)) from None
        try:
            dcp.load(state, checkpoint_id=found[-1])
        except CheckpointException as error:
            raise BookError(_refusal(found, _cause(error))) from None
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = int(_number(found[-1]))
        return True

    def _state(self) -> dict:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints, oldest first: the file with their contents is written last."""
    found = [path.parent for path in Path(folder).glob("step-*/.metadata")]
    # By number: as text, step-1000000 comes before step-999999.
    return sorted(
        (path for path in found if _number(path).isdigit()), key=lambda p: int(_number(p))
    )


def _number(checkpoint: Path) -> str:
    return checkpoint.name.removeprefix("step-")


def _cause(error: CheckpointException) -> BaseException:
    """What failed on the first of the ranks that failed."""
    return error.failures[min(error.failures)][0]


def _in_short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0].rstrip(".")


def _refusal(found: list[Path], error: BaseException) -> str:
    """Why the newest of these checkpoints is not loaded, and what to do."""
    then = (
        f"goes on from {found[-2].name}" if len(found) > 1 else "starts anew: no older one is left"
    )
    return (
        f"{found[-1]} cannot be loaded: {_in_short(error)}. Give the sizes it was saved with, "
        f"or remove this folder; the run then {then}"
    )


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
