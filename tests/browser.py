"""A browser for the site's tests and for the PDF: found, else installed, else its absence is said.

``python -m tests.browser`` installs one where it can; ``make test`` and ``make pdf`` call
it first.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

from macgpu.publish.browser import find


def install() -> None:
    """Install Debian's Chromium where we are root on Debian, else Playwright's own."""
    if platform.system() == "Linux" and shutil.which("apt-get") and os.geteuid() == 0:
        update = _succeeds("apt-get", "update", "-qq")
        if update and _succeeds(
            "apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"
        ):
            return
    _succeeds(sys.executable, "-m", "playwright", "install", "chromium")


def _succeeds(*command: str) -> bool:
    print("+", " ".join(command), flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0


def main() -> None:
    if find() is None:
        install()
    path = find()
    if path:
        print(f"browser for the site's tests: {path}")
    else:
        print("NO BROWSER: no Chrome or Chromium was found, and none could be installed.")
        print("The tests in tests/site do not run; everything else does.")


if __name__ == "__main__":
    main()
