"""Ranks as threads of this process, joined by gloo: real collectives, and no start of torchrun."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from macgpu.parallel.ranks import Ranks

LIMIT_S = 30
"""What a rank waits for another."""
CPU = torch.device("cpu")


def on_ranks(count: int, work: Callable[[Ranks], object]) -> list:
    """What ``work`` returns on each rank, in their order; the first error of one is raised.

    A rank that does not end is left behind and fails the test.
    """
    store = dist.HashStore()
    returned: list = [None] * count
    errors: list[Exception] = []

    def one(rank: int) -> None:
        try:
            returned[rank] = work(Ranks(rank, count, CPU, _group(store, rank, count)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT_S)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank did not end"
    return returned


def _group(store: dist.Store, rank: int, count: int) -> dist.ProcessGroup:
    """A group that torch's own list of groups, which is the process's, knows nothing of."""
    group = dist.ProcessGroup(store, rank, count)
    gloo = dist.ProcessGroupGloo(store, rank, count, timedelta(seconds=LIMIT_S))
    group._register_backend(CPU, dist.ProcessGroup.BackendType.GLOO, gloo)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    return group


class Virtual:
    """In place of the module ``time``: seconds of each thread's own, that pass when told to."""

    def __init__(self):
        self._own = threading.local()

    def perf_counter(self) -> float:
        return getattr(self._own, "now", 0.0)

    def pass_by(self, seconds: float) -> None:
        self._own.now = self.perf_counter() + seconds
