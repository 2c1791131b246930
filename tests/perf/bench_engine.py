"""The admission engine alone: all recorded scenarios, replayed in one process."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

from clusters.kueue.replay import replay_line
from tests.perf.bench import Figure

RECORDINGS = (
    Path(__file__).resolve().parents[3]
    / "shared"
    / "conformance"
    / "admission-kueue-0.19.2.jsonl.gz"
)


def measure() -> list[Figure]:
    """Seconds for the whole file on one core, and milliseconds of each scenario."""
    with gzip.open(RECORDINGS, "rt") as lines:
        records = lines.readlines()
    each: list[float] = []
    matches = 0
    begun = time.perf_counter()
    for record in records:
        start = time.perf_counter()
        matches += replay_line(record).is_match
        each.append(1000 * (time.perf_counter() - start))
    total = time.perf_counter() - begun
    notes = {"scenarios": len(records), "matches": matches}
    return [
        Figure("all_scenarios_one_core", [total], limit=60, of="max", notes=notes),
        Figure("scenario", each, unit="ms"),
    ]
