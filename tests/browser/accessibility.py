"""Basic accessibility checks that need no library: names, labels, headings, ids, contrast.

Contrast follows WCAG 2.2 (1.4.3): 4.5 to 1 for text, 3 to 1 for large text, against the nearest
opaque background.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

SCRIPT = Path(__file__).with_suffix(".js").read_text()


def findings(page: Page) -> list[str]:
    """Everything found wrong on the page as it stands now, in words."""
    found: list[str] = page.evaluate(SCRIPT)
    return found
