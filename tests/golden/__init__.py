"""Files that answers are compared with; ``UPDATE_GOLDEN=1 pytest`` writes them anew."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_SHOWN = 40


def assert_golden(name: str, text: str) -> None:
    """Compare with a golden file, or write it when the update switch is set."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    golden = path.read_text() if path.exists() else ""
    if text != golden:
        change = difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", n=1)
        shown = "\n".join(list(change)[:_SHOWN])
        raise AssertionError(f"{name} differs; UPDATE_GOLDEN=1 writes it anew\n{shown}")
