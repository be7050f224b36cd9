"""Two hosts: torchrun in two network namespaces of this machine, joined by a virtual cable."""

import json
import os
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass, field

import psutil
import pytest

from macgpu.parallel.launch import PROGRAM, environment, host_command

PORT = 29531
LIMIT_S = 120
"""For a run to end by itself."""
WAIT_S = 15
"""What a rank waits for another."""


@dataclass
class Host:
    """One side of the cable."""

    namespace: str
    interface: str
    address: str


@dataclass
class Started:
    """A host's torchrun, and what it has printed so far."""

    process: subprocess.Popen
    lines: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for(self, text: str) -> None:
        for _ in range(LIMIT_S * 10):
            if any(text in line for line in self.lines):
                return
            assert self.process.poll() is None, "".join(self.lines)
            self.reader.join(0.1)
        pytest.fail(f"{text!r} did not come:\n" + "".join(self.lines))

    def end(self) -> tuple[int, str]:
        status = self.process.wait(LIMIT_S)
        self.reader.join(10)
        return status, "".join(self.lines)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def hosts():
    if shutil.which("ip") is None:
        pytest.skip("no ip command here: two networks cannot be made")
    number = os.getpid() % 10000
    pair = [
        Host(f"macgpu{side}{number}", f"mg{side}{number}", f"10.77.31.{n}")
        for n, side in enumerate("ab", start=1)
    ]
    try:
        for host in pair:
            ip("netns", "add", host.namespace)
        ip("link", "add", pair[0].interface, "type", "veth", "peer", "name", pair[1].interface)
        for host in pair:
            ip("link", "set", host.interface, "netns", host.namespace)
            within = ("-n", host.namespace)
            ip(*within, "addr", "add", f"{host.address}/24", "dev", host.interface)
            ip(*within, "link", "set", host.interface, "up")
            ip(*within, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        _remove(pair)
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
    yield pair
    _remove(pair)


def _remove(pair: list[Host]) -> None:
    for host in pair:
        subprocess.run(["ip", "netns", "del", host.namespace], check=False, capture_output=True)


@pytest.fixture
def begin(hosts):
    """Starts a task on both hosts; whatever is left of it at the end is killed."""
    started: list[Started] = []

    def both(*task: str) -> list[Started]:
        meeting = f"{hosts[0].address}:{PORT}"
        for host in hosts:
            program = ["-m", PROGRAM, *task, "--timeout", str(WAIT_S)]
            command = host_command(program, 2, meeting, host.address, host is hosts[0])
            process = subprocess.Popen(
                ["ip", "netns", "exec", host.namespace, *command],
                env=environment({"GLOO_SOCKET_IFNAME": host.interface}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started.append(Started(process))
        return started[-2:]

    yield both
    for one in started:
        if one.process.poll() is None:
            for member in psutil.Process(one.process.pid).children(recursive=True):
                member.kill()
            one.process.kill()


def test_the_hosts_reach_each_other_and_nobody_else(hosts):
    done = subprocess.run(
        ["ip", "-n", hosts[0].namespace, "-brief", "addr"], capture_output=True, text=True
    )
    names = [line.split()[0].partition("@")[0] for line in done.stdout.splitlines()]
    assert sorted(names) == sorted(["lo", hosts[0].interface])


def test_two_hosts_train_as_one_machine_does(begin, tmp_path):
    result = tmp_path / "train.json"
    ends = [one.end() for one in begin("train", "--json", str(result), "--steps", "20")]
    assert [status for status, _ in ends] == [0, 0], ends
    found = json.loads(result.read_text())
    assert found["degree"] == 2 and len(found["losses"]) == 20
    assert found["weights apart"] < 1e-10


def test_a_rank_that_dies_ends_the_other_and_the_run_goes_on_from_its_checkpoint(begin, tmp_path):
    result, saved = tmp_path / "train.json", tmp_path / "saved"
    task = ("train", "--json", str(result), "--folder", str(saved), "--save-every", "5")
    first, second = begin(*task, "--steps", "1000000")
    printing = _first_to_save(first, second)
    other = second if printing is first else first
    worker = _worker(other.process)
    worker.send_signal(signal.SIGKILL)
    status, output = printing.end()
    assert status != 0
    # gloo's own words are about a connection; which rank failed is said before them.
    assert "macgpu: rank 0 failed: " in output
    assert other.end()[0] != 0
    assert not result.exists()

    last = int(max(path.parent.name for path in saved.glob("*/.metadata"))[-6:])
    ends = [one.end() for one in begin(*task, "--resume", "--steps", str(last + 5))]
    assert [status for status, _ in ends] == [0, 0], ends
    found = json.loads(result.read_text())
    assert found["from step"] == last and len(found["losses"]) == 5
    assert found["weights apart"] < 1e-9


def _first_to_save(*pair: Started) -> Started:
    """The host of the first rank, which prints; it has written a checkpoint when this returns."""
    for _ in range(LIMIT_S * 10):
        for one in pair:
            if any("saved step 10" in line for line in one.lines):
                return one
            one.reader.join(0.05)
    pytest.fail("no checkpoint was written:\n" + "".join(pair[0].lines + pair[1].lines))


def _worker(agent: subprocess.Popen) -> psutil.Process:
    """The process that computes: the one below torchrun."""
    family = psutil.Process(agent.pid).children(recursive=True)
    (worker,) = [one for one in family if "--json" in one.cmdline() and _is_worker(one)]
    return worker


def _is_worker(process: psutil.Process) -> bool:
    return "torch.distributed.run" not in process.cmdline()
