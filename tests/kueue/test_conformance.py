"""The recorded runs of the real scheduler: a quick sample always, all of them on demand."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from clusters.kueue.cycle.replay import replay_line

RECORDINGS = "conformance/admission-kueue-0.19.2.jsonl.gz"
SAMPLE_EVERY = 4


def recordings() -> Path:
    path = Path(__file__).resolve().parents[3] / "shared" / RECORDINGS
    if path.exists():
        return path
    reason = f"the recorded scenarios ../shared/{RECORDINGS} are not here"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def differing(*, every: int) -> tuple[int, list[str]]:
    """Number of scenarios replayed, and the names of those that differ."""
    total, names = 0, []
    with gzip.open(recordings(), "rt", encoding="utf-8") as lines:
        for index, line in enumerate(lines):
            if index % every == 0:
                total += 1
                result = replay_line(line)
                if not result.is_match:
                    names.append(f"{result.name}: {result.differences[0]}")
    return total, names


def test_sample_of_the_recorded_scenarios_matches():
    total, names = differing(every=SAMPLE_EVERY)
    assert total > 500
    assert names == []


@pytest.mark.slow
def test_all_recorded_scenarios_match():
    total, names = differing(every=1)
    assert total == 2392
    assert names == []
