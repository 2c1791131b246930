"""The commands of docs/operations.md, so that what is run is what people read."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/operations.md"


def commands(title: str) -> str:
    """The first shell commands under a heading.

    Raises:
        AssertionError: there is no such heading, or nothing to run under it.
    """
    text = DOCUMENT.read_text()
    part = re.split(rf"^#+ {re.escape(title)}$", text, maxsplit=1, flags=re.MULTILINE)[1:]
    assert part, f"no heading {title!r} in {DOCUMENT.name}"
    own = re.split(r"^#+ ", part[0], maxsplit=1, flags=re.MULTILINE)[0]
    found = re.search(r"^```sh\n(.*?)^```$", own, flags=re.MULTILINE | re.DOTALL)
    assert found, f"nothing to run under {title!r} in {DOCUMENT.name}"
    return found[1]
