"""A browser for the site's tests: found, else installed, else its absence is said.

``python -m tests.browser`` installs one where it can; ``make test`` calls it first.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def find() -> str | None:
    """The path of a Chrome or Chromium, the system's own or Playwright's; ``None`` without one."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    for path in MAC_APPS:
        if Path(path).exists():
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


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
