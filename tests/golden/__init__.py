"""Files that answers are compared with; ``UPDATE_GOLDEN=1 pytest`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def assert_golden(name: str, text: str) -> None:
    """Compare with a golden file, or write it when the update switch is set."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; UPDATE_GOLDEN=1 writes it anew"
