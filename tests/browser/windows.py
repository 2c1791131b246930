"""The browser, the sizes of its windows, and when a page stands still; needs nothing of Django."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Page, ViewportSize, expect

MISSING = "no chromium: install Debian's chromium, or set CHROMIUM to its path"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES: dict[str, ViewportSize] = {
    "desk": {"width": 1440, "height": 900},
    "phone": {"width": 390, "height": 844},
}
UNSETTLED = ".htmx-request, [hx-trigger=load], [data-chart]:not([data-drawn])"


def chromium_path() -> str | None:
    """Where the browser is on this machine."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium")


def settle(page: Page) -> None:
    """Wait until all that a page asks for by itself is there, and its charts are drawn."""
    expect(page.locator(UNSETTLED)).to_have_count(0)
