"""The Chrome or Chromium that opens the pages: for the site's tests, and to print the book."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


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
