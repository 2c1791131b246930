"""The recorded runs of the real scheduler: a quick sample always, all of them on demand."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.kueue.cycle.replay import replay_scenario

QUOTA = "admission-kueue-0.19.2.jsonl.gz"
NEWER = "admission-tas-afs-kueue-0.19.2.jsonl.gz"
FOLLOWED = {"tas": 400, "tasmix": 300, "afs": 250, "partial": 150, "elastic": 100}
UPSTREAM = "upstream-tables-kueue-0.19.2.jsonl.gz"
TOPOLOGY_TABLES = {
    "TestScheduleForTAS": 60,
    "TestScheduleForTASPreemption": 11,
    "TestScheduleForTASCohorts": 26,
}
SAMPLE_EVERY = 4


def recordings(name: str) -> Path:
    path = Path(__file__).resolve().parents[3] / "shared" / "conformance" / name
    if path.exists():
        return path
    reason = f"the recorded scenarios ../shared/conformance/{name} are not here"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def scenarios(name: str, *, every: int = 1, family: str = "") -> Iterator[dict[str, Any]]:
    """Every so many scenarios of a file, or of one family in it."""
    with gzip.open(recordings(name), "rt", encoding="utf-8") as lines:
        found = (line for line in lines if not family or f'"family":"{family}"' in line[:200])
        for index, line in enumerate(found):
            if index % every == 0:
                yield json.loads(line)


def differing(found: Iterator[dict[str, Any]]) -> tuple[int, list[str]]:
    """Number of scenarios replayed, and the names of those that differ."""
    total, names = 0, []
    for scenario in found:
        total += 1
        result = replay_scenario(scenario)
        if not result.is_match:
            names.append(f"{result.name}: {result.differences[0]}")
    return total, names


def test_sample_of_the_recorded_scenarios_matches():
    total, names = differing(scenarios(QUOTA, every=SAMPLE_EVERY))
    assert total > 500
    assert names == []


@pytest.mark.slow
def test_all_recorded_scenarios_match():
    total, names = differing(scenarios(QUOTA))
    assert total == 2392
    assert names == []


@pytest.mark.parametrize("family", FOLLOWED)
def test_sample_of_a_newer_family_matches(family):
    total, names = differing(scenarios(NEWER, every=SAMPLE_EVERY, family=family))
    assert total >= FOLLOWED[family] // SAMPLE_EVERY
    assert names == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FOLLOWED)
def test_all_of_a_newer_family_match(family):
    total, names = differing(scenarios(NEWER, family=family))
    assert total == FOLLOWED[family]
    assert names == []


@pytest.mark.parametrize("table", TOPOLOGY_TABLES)
def test_cases_of_upstreams_own_topology_tables_match(table):
    found = (item for item in scenarios(UPSTREAM) if item["name"].partition("/")[0] == table)
    total, names = differing(found)
    assert total == TOPOLOGY_TABLES[table]
    assert names == []
