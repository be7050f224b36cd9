"""The wire: what is counted on it, its model and predictions, and the way that is taken to it."""

import os
import sys

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from macgpu.parallel import launch, layers
from macgpu.parallel.launch import LOCAL, environment, run, torchrun
from macgpu.parallel.network import through
from macgpu.parallel.ranks import joined
from macgpu.parallel.traffic import Line, Traffic, break_even, fit, mlp_cost, ring_bytes
from tests.parallel.threads import on_ranks

SAFE = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""What turns NVLink multicast off, by the manuals of NCCL, PyTorch and NVSHMEM."""


@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.float16, 2), (torch.float64, 8)])
def test_the_bytes_that_a_rank_gives_to_a_collective_are_counted(dtype, itemsize):
    def counted(ranks):
        mine, whole = torch.zeros(2, 5, dtype=dtype), torch.zeros(4, 5, dtype=dtype)
        with Traffic() as traffic:
            dist.all_reduce(mine, group=ranks.control)
            dist.all_reduce(whole, group=ranks.control)
            layers._all_gather(whole, mine, group=ranks.control)
            layers._reduce_scatter(mine, whole, group=ranks.control)
        return traffic.calls, traffic.bytes

    part = 2 * 5 * itemsize
    calls = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}
    sizes = {"all-reduce": 3 * part, "all-gather": part, "reduce-scatter": 2 * part}
    assert on_ranks(2, counted) == [(calls, sizes)] * 2


def test_the_fit_finds_the_line_that_times_were_made_from():
    line = Line(20e-6, 5e9)
    sizes = [1 << k for k in range(10, 28, 2)]
    found = fit(sizes, [line.seconds(size) for size in sizes])
    assert found.latency_s == pytest.approx(20e-6)
    assert found.bytes_per_s == pytest.approx(5e9)


def test_each_time_counts_by_its_relative_error():
    # A straight line through none of them; by seconds, the largest alone would decide.
    sizes, seconds = [1000, 10_000, 100_000], [2e-3, 3e-3, 80e-3]
    per_byte, latency = np.polyfit(sizes, seconds, 1, w=1 / np.array(seconds))
    found = fit(sizes, seconds)
    assert found.latency_s == pytest.approx(latency)
    assert 1 / found.bytes_per_s == pytest.approx(per_byte)


def test_noise_makes_no_message_free():
    falling = fit([1000, 2000], [2e-3, 1e-3])
    assert falling.latency_s > 0
    assert falling.bytes_per_s == 2000 / 1e-3
    steep = fit([1000, 2000], [1e-3, 9e-3])
    assert steep.latency_s == 1e-3
    # The latency is that of the smallest message, whichever was the fastest or came first.
    assert fit([4000, 1000, 2000], [3e-3, 8e-3, 1e-3]).latency_s == 8e-3


def test_a_ring_sends_everything_twice_but_one_share():
    # Reduce-scatter and all-gather: each passes on all parts but one.
    assert ring_bytes(100, 1) == 0
    assert ring_bytes(100, 2) == 100
    assert ring_bytes(100, 4) == 150


def test_weights_and_work_divide_and_traffic_does_not():
    one, four = mlp_cost(64, 10, 1, 4), mlp_cost(64, 10, 4, 4)
    assert one.weights == 2 * 64 * 256 * 4
    assert one.flops == 3 * 2 * 10 * 2 * 64 * 256
    assert (four.weights, four.flops) == (one.weights / 4, one.flops / 4)
    assert one.sent == 0
    assert four.sent == 2 * 1.5 * 10 * 64 * 4


@pytest.mark.parametrize("degree", [2, 4])
def test_at_the_break_even_width_both_take_as_long(degree):
    rate, line, tokens = 1e11, Line(50e-6, 2e9), 256
    width = break_even(rate, line, tokens, degree)
    whole = 3 * 2 * tokens * 8 * width**2 / rate
    split = whole / degree + 2 * line.seconds(tokens * width * 4)
    assert split == pytest.approx(whole)


def test_multicast_is_off_whatever_the_environment_says(monkeypatch):
    for name, value in SAFE.items():
        monkeypatch.setenv(name, str(1 - int(value)))
    assert environment({}).items() >= SAFE.items()


def test_a_rank_turns_multicast_off_before_it_touches_a_card(monkeypatch):
    for name, value in SAFE.items():
        monkeypatch.setenv(name, str(1 - int(value)))
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)

    def touched(device):
        assert os.environ.items() >= SAFE.items()
        raise InterruptedError

    monkeypatch.setattr(torch.cuda, "set_device", touched)
    with pytest.raises(InterruptedError), joined("cuda"):
        pass


def test_the_interface_of_an_address_is_found(monkeypatch):
    name = through(LOCAL)["GLOO_SOCKET_IFNAME"]
    # gloo itself can use it.
    dist.ProcessGroupGloo.create_device(interface=name)
    card = psutil.net_if_addrs()[name][0]
    found = {
        "lo": [card._replace(address=LOCAL)],
        "en0": [card._replace(address="fe80::1"), card._replace(address="10.0.0.2")],
        "en1": [card._replace(address="10.0.0.3")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    for address, name in ((LOCAL, "lo"), ("10.0.0.2", "en0"), ("10.0.0.3", "en1")):
        assert through(address) == {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    assert through("10.0.0.4") == {}


def test_ranks_get_interface_and_safe_settings_and_sleep_while_they_wait(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    wanted = {**SAFE, **through(LOCAL), "OMP_WAIT_POLICY": "PASSIVE"}
    names = sorted(wanted)

    def print_instead(command, *arguments, **named):
        code = f"import os\nfor name in {names}: print(os.environ.get(name))"
        return run([sys.executable, "-c", code], *arguments, **named)

    monkeypatch.setattr(launch, "run", print_instead)
    assert torchrun([], 2, 60).output.split() == [wanted[name] for name in names]


def test_a_readers_own_way_of_waiting_is_kept(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert environment({})["OMP_WAIT_POLICY"] == "ACTIVE"
