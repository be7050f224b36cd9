"""Joining the other ranks, the time that all of them read alike, and the limits of waiting."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from macgpu.parallel import measure, ranks
from macgpu.parallel.launch import LOCAL, free_port
from macgpu.parallel.ranks import Ranks, SharedClock, joined
from tests.parallel.threads import CPU, LIMIT_S, Virtual, on_ranks


@pytest.fixture
def alone(monkeypatch):
    """What torchrun sets for the first of so many ranks."""

    def of(count):
        place = {"RANK": "0", "WORLD_SIZE": str(count), "LOCAL_RANK": "0"}
        for name, value in {**place, "MASTER_ADDR": LOCAL, "MASTER_PORT": str(free_port())}.items():
            monkeypatch.setenv(name, value)

    return of


def test_a_rank_whose_partner_never_comes_fails_within_its_limit(alone):
    alone(2)
    errors = []

    def join():
        try:
            with joined("cpu", 1.0):
                errors.append(None)
        except RuntimeError as error:
            errors.append(error)

    # In a thread, since without the limit it would wait for half an hour.
    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert errors and "1/2 clients joined" in str(errors[0])


def test_every_group_of_a_rank_has_its_limit(alone):
    alone(1)
    with joined("cpu", 7.0) as joint:
        groups = [joint.control, dist.group.WORLD, *measure.Groups(joint, (1,), 7.0).made.values()]
        limits = {group._get_backend(CPU).options._timeout for group in groups}
    assert len(groups) == 3 and limits == {timedelta(seconds=7)}


def test_all_ranks_read_what_the_slowest_took(monkeypatch):
    time = Virtual()
    monkeypatch.setattr(ranks, "time", time)

    class Meeting(Ranks):
        """A meeting takes as long as no measurement."""

        def largest(self, number):
            time.pass_by(100.0)
            return super().largest(number)

    def read(joint):
        time.pass_by(1000.0 * joint.rank)
        joint = Meeting(joint.rank, joint.count, joint.device, joint.control)
        clock = SharedClock(joint)
        readings = []
        for seconds in ((1, 3), (5, 2), (0, 0)):
            time.pass_by(seconds[joint.rank])
            readings.append(clock())
        return readings

    assert on_ranks(2, read) == [[3, 8, 8]] * 2
