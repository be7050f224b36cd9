"""The processes that share a model: how one joins the others, and a clock that all read alike."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from macgpu.parallel.network import MULTICAST_OFF


@dataclass(frozen=True)
class Ranks:
    """This process among those that torchrun started."""

    rank: int
    count: int
    device: torch.device
    control: dist.ProcessGroup
    """Over gloo on the CPU, whatever the device: for agreements, so that GPUs idle meanwhile."""

    @property
    def first(self) -> bool:
        return self.rank == 0

    def largest(self, number: float) -> float:
        """The largest of the ranks' numbers; all ranks must call."""
        found = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return float(found)

    def gathered(self, thing: object) -> list:
        """What every rank gave, in the order of the ranks."""
        things: list = [None] * self.count
        dist.all_gather_object(things, thing, group=self.control)
        return things


@contextmanager
def joined(device_type: str, timeout_s: float = 60) -> Iterator[Ranks]:
    """Join the other processes that torchrun started, and leave them at the end.

    NCCL serves cuda, gloo the CPU. Whoever waits longer than ``timeout_s`` for another rank fails.

    Raises:
        KeyError: where torchrun has not set its variables.
    """
    rank, count, local = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    timeout = timedelta(seconds=timeout_s)
    if device_type == "cuda":
        os.environ.update(MULTICAST_OFF)
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=timeout, device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", timeout=timeout)
    # After an error the others may wait in a collective, and leaving would wait for them.
    yield Ranks(rank, count, device, dist.new_group(backend="gloo", timeout=timeout))
    dist.destroy_process_group()


class SharedClock:
    """Seconds that pass alike on all ranks: between two readings, as many as the slowest took.

    All ranks must read it in step. Each reading is a meeting, and the time of the meeting itself
    does not count.
    """

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self.now = 0.0
        self.released = time.perf_counter()

    def __call__(self) -> float:
        self.now += self.ranks.largest(time.perf_counter() - self.released)
        self.released = time.perf_counter()
        return self.now
