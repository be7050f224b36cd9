"""The doctor judges injected facts: every case on any machine."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from macgpu import doctor, variables
from macgpu.cli import app
from macgpu.doctor import FAIL, OK, WARN, Facts, Torch
from macgpu.troubleshooting import entries
from tests.machines import LINUX, MAC

GOOD_TORCH = Torch(
    version="2.14.1",
    installer="pip",
    mps_built=True,
    mps_available=True,
    mps_problem=None,
    gpu_cores=19,
    cuda_name=None,
    cuda_problem=None,
)
GOOD_MAC = Facts(
    machine=MAC,
    torch=GOOD_TORCH,
    torch_error=None,
    environment={},
    late=(),
    start_method="spawn",
    free_bytes=100 * 10**9,
    data_problem=None,
)
NO_MPS = replace(GOOD_TORCH, version="2.14.1+cu130", mps_built=False, mps_available=False)
GOOD_LINUX = replace(GOOD_MAC, machine=LINUX, torch=NO_MPS)


def levels(facts: Facts) -> dict[str, str]:
    """The worst level of each topic."""
    worst: dict[str, str] = {}
    for check in doctor.examine(facts):
        order = [OK, WARN, FAIL]
        if check.topic not in worst or order.index(check.level) > order.index(worst[check.topic]):
            worst[check.topic] = check.level
    return worst


def text(facts: Facts) -> str:
    return doctor.as_text(doctor.examine(facts))


def test_apple_silicon_in_order_has_nothing_but_ok():
    assert set(levels(GOOD_MAC).values()) == {OK}
    assert "8 performance and 4 efficiency cores" in text(GOOD_MAC)
    assert "build 24F74" in text(GOOD_MAC)
    assert "19 GPU cores" in text(GOOD_MAC)
    assert doctor.can_train(doctor.examine(GOOD_MAC))


@pytest.mark.parametrize(
    ("facts", "topic", "words"),
    [
        (
            replace(
                GOOD_MAC,
                machine=replace(MAC, os_version="13.6"),
                torch=replace(GOOD_TORCH, mps_available=False),
            ),
            "machine",
            "macOS 14.0",
        ),
        (
            replace(
                GOOD_MAC,
                machine=replace(MAC, architecture="x86_64", translated=True),
                torch=replace(GOOD_TORCH, version="2.2.2", mps_built=False, mps_available=False),
            ),
            "python",
            "native arm64",
        ),
        (
            replace(
                GOOD_MAC,
                machine=replace(MAC, architecture="x86_64", apple_silicon=False),
                torch=replace(GOOD_TORCH, version="2.2.2", mps_built=False, mps_available=False),
            ),
            "machine",
            "an Intel Mac",
        ),
        (
            replace(GOOD_MAC, torch=replace(GOOD_TORCH, mps_problem="a product differs")),
            "mps",
            "computes wrongly: a product differs",
        ),
        (replace(GOOD_MAC, torch=None, torch_error="No module named 'torch'"), "torch", "pip"),
        (
            replace(GOOD_MAC, data_problem="data/x is not the file that was shipped"),
            "data",
            "not the file that was shipped",
        ),
        (replace(GOOD_MAC, free_bytes=10**8), "disk", "free at least 1 GB"),
        (
            replace(GOOD_MAC, environment={variables.HIGH: "0.9"}),
            "variables",
            variables.LOW,
        ),
        (
            replace(GOOD_LINUX, torch=replace(NO_MPS, cuda_name="A card", cuda_problem="no")),
            "cuda",
            "nvidia-smi",
        ),
    ],
)
def test_what_stops_training_fails_and_says_what_to_do(facts, topic, words):
    assert levels(facts)[topic] == FAIL
    assert words in text(facts)
    assert not doctor.can_train(doctor.examine(facts))


NOT_IN_ORDER = {
    "no-mac": GOOD_LINUX,
    "intel-mac": replace(
        GOOD_MAC, machine=replace(MAC, architecture="x86_64", apple_silicon=False)
    ),
    "old-macos": replace(GOOD_MAC, machine=replace(MAC, os_version="13.6")),
    "virtual-mac": replace(GOOD_MAC, machine=replace(MAC, virtual=True)),
    "rosetta": replace(GOOD_MAC, machine=replace(MAC, architecture="x86_64", translated=True)),
    "old-python": replace(GOOD_MAC, machine=replace(MAC, python="3.9.6")),
    "no-torch": replace(GOOD_MAC, torch=None, torch_error="No module named 'torch'"),
    "old-torch": replace(GOOD_MAC, torch=replace(GOOD_TORCH, version="2.7.1")),
    "mps-unavailable": replace(GOOD_MAC, torch=replace(GOOD_TORCH, mps_available=False)),
    "mps-computes-wrongly": replace(GOOD_MAC, torch=replace(GOOD_TORCH, mps_problem="zeros")),
    "cuda-broken": replace(
        GOOD_LINUX, torch=replace(NO_MPS, cuda_name="A card", cuda_problem="no")
    ),
    "bad-watermark": replace(GOOD_MAC, environment={variables.HIGH: "0.9"}),
    "invented-variable": replace(GOOD_MAC, environment={"PYTORCH_MPS_LOG_LEVEL": "DEBUG"}),
    "late-variable": replace(
        GOOD_MAC, environment={variables.FALLBACK: "1"}, late=(variables.FALLBACK,)
    ),
    "fork": replace(GOOD_MAC, start_method="fork"),
    "disk-full": replace(GOOD_MAC, free_bytes=10**8),
    "damaged-data": replace(GOOD_MAC, data_problem="damaged"),
}
"""By the entry of the troubleshooting page that explains it."""


@pytest.mark.parametrize("anchor", NOT_IN_ORDER)
def test_what_is_not_in_order_says_where_the_book_explains_it(anchor):
    facts = NOT_IN_ORDER[anchor]
    checks = doctor.examine(facts)
    assert anchor in {check.anchor for check in checks}
    assert all(bool(check.anchor) == (check.level != OK) for check in checks)
    assert {check.anchor for check in checks} <= {"", *(entry.anchor for entry in entries())}
    assert f"  book: troubleshooting.html#{anchor}\n" in doctor.as_text(checks) + "\n"
    books = {check["book"] for check in json.loads(doctor.as_json(facts, checks))["checks"]}
    assert f"troubleshooting.html#{anchor}" in books


def test_linux_with_cuda_says_that_it_is_no_mac_and_can_train():
    facts = replace(GOOD_LINUX, torch=replace(NO_MPS, cuda_name="NVIDIA H200"))
    assert levels(facts) == {
        "machine": WARN,
        "python": OK,
        "torch": OK,
        "cuda": OK,
        "variables": OK,
        "workers": OK,
        "disk": OK,
        "data": OK,
    }
    assert "this is no Mac" in text(facts)
    assert doctor.can_train(doctor.examine(facts))


def test_linux_without_a_gpu_warns_and_can_train():
    assert levels(GOOD_LINUX)["gpu"] == WARN
    assert doctor.can_train(doctor.examine(GOOD_LINUX))


def test_a_virtual_mac_whose_gpu_works_only_warns():
    facts = replace(GOOD_MAC, machine=replace(MAC, virtual=True))
    assert levels(facts)["machine"] == WARN
    assert doctor.can_train(doctor.examine(facts))


def test_a_torch_without_the_scaler_warns():
    facts = replace(GOOD_MAC, torch=replace(GOOD_TORCH, version="2.7.1"))
    assert levels(facts)["torch"] == WARN
    assert "2.8" in text(facts)


def test_a_variable_that_came_too_late_warns():
    facts = replace(GOOD_MAC, environment={variables.FALLBACK: "1"}, late=(variables.FALLBACK,))
    assert levels(facts)["variables"] == WARN
    assert "before `import torch`" in text(facts)


def test_an_invented_variable_warns():
    facts = replace(GOOD_MAC, environment={"PYTORCH_MPS_LOG_LEVEL": "DEBUG"})
    assert levels(facts)["variables"] == WARN
    assert "torch never reads it" in text(facts)


def test_a_bad_watermark_stops_nothing_where_there_is_no_mps():
    facts = replace(GOOD_LINUX, environment={variables.HIGH: "0.9"})
    found = [check for check in doctor.examine(facts) if check.topic == "variables"]
    assert [check.level for check in found] == [WARN], "one line about it, not two that disagree"


def test_fork_on_a_mac_warns():
    assert levels(replace(GOOD_MAC, start_method="fork"))["workers"] == WARN
    assert levels(replace(GOOD_LINUX, start_method="fork"))["workers"] == OK


@pytest.mark.parametrize(
    ("ratios", "wrong"),
    [
        ({}, False),
        ({variables.HIGH: "0.0"}, False),
        ({variables.HIGH: "1.2", variables.LOW: "1.0"}, False),
        ({variables.HIGH: "1.2"}, True),
        ({variables.HIGH: "much"}, True),
        ({variables.LOW: "1.8"}, True),
        ({variables.HIGH: "-1"}, True),
    ],
)
def test_watermarks_follow_the_allocators_rule(ratios, wrong):
    assert (variables.watermark_problem(ratios) is not None) is wrong


def test_a_late_variable_is_seen_in_a_real_process():
    code = (
        "import os, torch; os.environ['PYTORCH_ENABLE_MPS_FALLBACK'] = '1'\n"
        "from macgpu import doctor; print(doctor.collect().late)"
    )
    late = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert variables.FALLBACK in late.stdout


@pytest.mark.parametrize(("good", "status"), [(True, 0), (False, 1)])
def test_the_command_fails_where_training_would(monkeypatch, good, status):
    facts = GOOD_LINUX if good else replace(GOOD_LINUX, data_problem="damaged")
    monkeypatch.setattr(doctor, "collect", lambda: facts)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == status
    assert "workers" in result.output


def test_json_holds_the_checks_and_nothing_that_names_the_machine():
    import getpass
    import platform

    facts = doctor.collect()
    report = json.loads(doctor.as_json(facts, doctor.examine(facts)))
    assert {check["topic"] for check in report["checks"]} >= {"machine", "python", "torch"}
    values = json.dumps(report)
    for private in (platform.node(), getpass.getuser()):
        assert private not in values or len(private) < 3
