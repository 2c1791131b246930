"""The admission engine alone, without an API server.

All recorded scenarios, replayed in one process; Kueue's benchmark load in virtual time; and whether
the cost of a cycle follows the number of pending workloads.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clusters.kueue.cycle.replay import replay_line
from tests.perf.bench import Figure

RECORDINGS = (
    Path(__file__).resolve().parents[3]
    / "shared"
    / "conformance"
    / "admission-kueue-0.19.2.jsonl.gz"
)


FEW, MANY, REPEATS = 1_000, 50_000, 3


def measure() -> list[Figure]:
    """Scenarios, growth of a cycle's cost, memory, and the benchmark's load in virtual time."""
    return [*_scenarios(), *_growth(), *(_virtual(shape) for shape in ("baseline", "large"))]


def _growth() -> list[Figure]:
    """The lowest of a few runs each, as whatever else runs on the machine only adds."""
    runs = {count: [_run(str(count)) for _ in range(REPEATS)] for count in (FEW, MANY)}
    costs = {count: min(run["ms_per_cycle"] for run in found) for count, found in runs.items()}
    notes = {f"ms_per_cycle_at_{count}": cost for count, cost in costs.items()}
    ratio = round(costs[MANY] / costs[FEW], 3)
    peaks = [run["peak_mb"] for run in runs[MANY]]
    return [
        Figure(f"cycle_at_{MANY}_to_{FEW}", [ratio], limit=1.1, unit="", of="max", notes=notes),
        Figure(f"memory_at_{MANY}", peaks, limit=300, unit="MiB", of="max"),
    ]


def _virtual(shape: str) -> Figure:
    notes = _run(shape)
    return Figure(f"{shape}_in_virtual_time", [notes.pop("cpu_s")], of="max", notes=notes)


def _run(what: str) -> dict[str, Any]:
    """One run in a process of its own, so that its memory is its own."""
    command = [sys.executable, "-m", "tests.kueue.bench_engine", what]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _scenarios() -> list[Figure]:
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
