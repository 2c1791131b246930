"""The cases of Kueue's own table tests, and those of them that another rule of the API decides."""

from __future__ import annotations

import pytest

from clusters.kueue.cycle.replay import replay_scenario
from tests.kueue.test_conformance import scenarios

TABLES = "upstream-tables-kueue-0.19.2.jsonl.gz"
CASES = {"TestSchedule": 64, "TestScheduleForFairSharing": 22, "TestScheduleForAFS": 6}
# What differs, and why it may.
OTHERWISE = {
    # Behind MultiKueueOrchestratedPreemption; a Configuration that turns it on is refused.
    "TestSchedule/block preemptions and signal `BlockedOnPreemptionGates` when a preemption gate "
    "is present",
    # No UIDs and no times of creation, which the API server always gives: a heap's layout decides.
    "TestScheduleForAFS/schedules normally when queues have equal usage",
    # An empty reclaimWithinCohort counts as not Never; the API server makes it Never.
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
