"""Where the environment cannot be made, the first command says so in one line."""

import subprocess
import sys

import pytest

from macgpu import bootstrap


@pytest.mark.parametrize(
    ("python", "system", "machine", "macos", "words"),
    [
        ((3, 9), "Linux", "x86_64", "", "Python 3.10 to 3.14, and this is 3.9"),
        ((2, 7), "Darwin", "arm64", "15.1", "and this is 2.7"),
        ((3, 15), "Linux", "x86_64", "", "and this is 3.15"),
        ((3, 12), "Darwin", "x86_64", "15.1", "native arm64 Python"),
        ((3, 12), "Darwin", "arm64", "13.6.1", "macOS 14.0 or newer, and this is 13.6.1"),
    ],
)
def test_each_reason_has_its_line(python, system, machine, macos, words):
    reason = bootstrap.why_not(python, system, machine, macos)
    assert words in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("python", "system", "machine", "macos"),
    [
        ((3, 10), "Linux", "x86_64", ""),
        ((3, 14), "Darwin", "arm64", "14.0"),
        ((3, 12), "Darwin", "arm64", "26.1"),
    ],
)
def test_where_it_can_be_made_nothing_is_said(python, system, machine, macos):
    assert bootstrap.why_not(python, system, machine, macos) is None


def test_this_machine_passes():
    subprocess.run([sys.executable, bootstrap.__file__], check=True)
