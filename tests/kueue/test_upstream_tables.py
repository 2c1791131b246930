"""The cases of Kueue's own table tests, and those of them that another rule of the API decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.kueue.cycle.replay import replay_scenario
from tests.kueue.test_conformance import scenarios

TABLES = "upstream-tables-kueue-0.19.2.jsonl.gz"
CASES = {"TestSchedule": 64, "TestScheduleForFairSharing": 22, "TestScheduleForAFS": 6}
# What differs; the page says of each what, and why it may.
PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0001-own-scheduler.md"
OTHERWISE = {
    "TestSchedule/block preemptions and signal `BlockedOnPreemptionGates` when a preemption gate "
    "is present",
    "TestScheduleForAFS/schedules normally when queues have equal usage",
    "TestScheduleForFairSharing/multiple preemptions within cq when fair sharing",
}


@pytest.mark.parametrize("table", CASES)
def test_cases_of_the_scheduler_tables_match_but_for_those_named(table):
    total, differing = 0, set()
    for scenario in scenarios(TABLES):
        if scenario["name"].partition("/")[0] != table:
            continue
        total += 1
        if not replay_scenario(scenario).is_match:
            differing.add(scenario["name"])
    assert total == CASES[table]
    assert differing == {name for name in OTHERWISE if name.partition("/")[0] == table}


def test_the_page_names_each_case_that_differs():
    rows = (line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    assert {row[0].strip("| `") for row in rows} == {name.replace("`", "") for name in OTHERWISE}
