"""Can the environment be made on this machine? Run before anything is installed, by any Python.

The pinned torch has wheels for some systems only; elsewhere pip would fail late and unclearly.
Standard library and old syntax alone, so that an old Python can read this file and say no.
"""

import platform
import sys

OLDEST, NEWEST = (3, 10), (3, 14)


def why_not(python, system, machine, macos):
    """One line on why not, or None. ``python`` is a pair, ``macos`` the version as text."""
    if not OLDEST <= python <= NEWEST:
        return (
            "the book needs Python 3.10 to 3.14, and this is {}.{}; "
            "name another: make book PYTHON=python3.12"
        ).format(*python)
    if system == "Darwin" and machine != "arm64":
        return (
            "this Python is an x86-64 build: on an Intel Mac current torch has no build, on Apple "
            "silicon it runs under Rosetta; install a native arm64 Python, then name it: "
            "make book PYTHON=/path/to/python3"
        )
    if system == "Darwin" and int(macos.split(".")[0]) < 14:
        return "current torch needs macOS 14.0 or newer, and this is {}; update macOS".format(macos)
    return None


if __name__ == "__main__":
    sys.exit(
        why_not(
            tuple(sys.version_info[:2]),
            platform.system(),
            platform.machine(),
            platform.mac_ver()[0],
        )
    )
