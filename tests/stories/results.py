"""Which story last passed in which column, and on what day: what tables of stories are made of.

``STORY_RESULTS=1`` (set by ``make stories``) lets a story that passes write its day down, beside a
digest of the story and of what it is compared with. A story that was changed since counts as one
that never ran.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")
RECORDS = os.environ.get("STORY_RESULTS") == "1"


def passed(column: str, story: str, *files: Path) -> None:
    """Write down that a story passed today."""
    if not RECORDS:
        return
    known = read()
    day = datetime.now(UTC).date().isoformat()
    known.setdefault(column, {})[story] = {"passed": day, "digest": _digest(files)}
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def last_passed(column: str, story: str, *files: Path) -> str:
    """The day, as YYYY-MM-DD; empty when it never passed as it is now."""
    found = read().get(column, {}).get(story, {})
    return found.get("passed", "") if found.get("digest") == _digest(files) else ""


def read() -> dict[str, dict[str, dict[str, str]]]:
    """Column → story → day and digest."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _digest(files: tuple[Path, ...]) -> str:
    found = hashlib.sha256()
    for path in files:
        found.update(path.read_bytes() if path.exists() else b"")
    return found.hexdigest()[:16]
