"""Why mps cannot be used: each kind of machine gets its own reason and remedy."""

from dataclasses import replace

import pytest

from macgpu import machine as machines
from macgpu.machine import Power, explain_missing_mps, read_machine, read_power, version_tuple
from tests.machines import LINUX, MAC


@pytest.mark.parametrize(
    ("machine", "built", "wrong", "reason", "remedy"),
    [
        (LINUX, False, None, "this is Linux", "device auto"),
        (replace(MAC, architecture="x86_64", translated=True), False, None, "Rosetta", "arm64"),
        (
            replace(MAC, architecture="x86_64", apple_silicon=False, chip="Intel Core i7"),
            False,
            None,
            "Intel",
            "device cpu",
        ),
        (replace(MAC, os_version="13.6.1"), True, None, "macOS 13.6.1 is too old", "Update"),
        (MAC, False, None, "built without MPS", "pip install torch"),
        (replace(MAC, virtual=True), True, "all zeros", "virtual machine", "the Mac itself"),
        (MAC, True, "all zeros", "computes wrongly: all zeros", "Update macOS and torch"),
    ],
)
def test_each_kind_of_machine_gets_its_reason_and_remedy(machine, built, wrong, reason, remedy):
    explained = explain_missing_mps(machine, built, wrong)
    assert reason in explained
    assert remedy in explained
    assert "\n" not in explained


def test_description_of_a_mac_names_both_kinds_of_cores():
    assert MAC.describe() == (
        "Apple M2 Pro, 8 performance and 4 efficiency cores, 32 GiB memory, macOS 15.5"
    )


def test_this_machine_is_read():
    machine = read_machine()
    assert machine.cores >= 1
    assert machine.memory_bytes > 2**28
    assert machine.chip


def test_versions_compare_as_numbers():
    assert version_tuple("14.10") > version_tuple("14.9.2")
    assert version_tuple("2.14.1") == (2, 14, 1)
    assert version_tuple("2.14.0a1") == (2, 14)


@pytest.mark.parametrize(
    ("battery", "settings", "expected"),
    [
        ("Now drawing from 'AC Power'\n -InternalBattery-0", " lowpowermode  0", ("mains", False)),
        (
            "Now drawing from 'Battery Power'\n",
            " sleep 1\n lowpowermode         1",
            ("battery", True),
        ),
        ("Now drawing from 'AC Power'", " powermode            2\n", ("mains", False)),
        (None, None, (None, None)),
    ],
)
def test_a_macs_power_is_read_from_pmset(monkeypatch, battery, settings, expected):
    answers = {("pmset", "-g", "batt"): battery, ("pmset", "-g"): settings}
    monkeypatch.setattr(machines.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(machines, "_output", lambda *command: answers[command])
    assert read_power() == Power(*expected)


def test_a_computer_without_a_battery_does_not_say_what_it_runs_on(monkeypatch):
    monkeypatch.setattr(machines.platform, "system", lambda: "Linux")
    monkeypatch.setattr(machines.psutil, "sensors_battery", lambda: None, raising=False)
    assert read_power() == Power(None, None)
