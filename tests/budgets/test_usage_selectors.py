"""Usage as people see it: sums, isolation, freshness, CSV."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import selectors
from budgets.models import Interval
from budgets.selectors import UsageFilter
from budgets.units import gpu_hours
from tests.builders import SmallFleet
from tests.factories import (
    NOON,
    IntervalFactory,
    MeterStateFactory,
    UsageRecordFactory,
    WorkloadUsageFactory,
)

pytestmark = pytest.mark.django_db


def chosen(**terms) -> UsageFilter:
    day = NOON.replace(hour=0)
    return UsageFilter(**{"start": day, "end": day + timedelta(days=2), **terms})


@pytest.fixture
def used(fleet: SmallFleet) -> SmallFleet:
    """Hours 12 and 13 of one day and 12 of the next, in two workspaces and two flavors."""
    for hours in (0, 1, 24):
        hour = NOON + timedelta(hours=hours)
        for workspace in (fleet.vision, fleet.search):
            for slug in ("h100", "l4"):
                UsageRecordFactory(
                    workspace=workspace,
                    flavor=fleet.flavors[slug],
                    hour=hour,
                    burst=3_600,
                    borrowed=1_800,
                    pending=60,
                )
            WorkloadUsageFactory(
                workspace=workspace, uid=f"u-{workspace.slug}", hour=hour, burst=10
            )
    return fleet


@pytest.mark.parametrize("step", ["hour", "day"])
@pytest.mark.parametrize("split_by", ["none", "workspace", "flavor"])
def test_rows_add_up_to_totals_whatever_the_split(used: SmallFleet, step: str, split_by: str):
    table = selectors.usage_table(used.admin, chosen(step=step, split_by=split_by))
    for name in ("committed", "committed_used", "burst", "borrowed", "lent", "idle", "pending"):
        assert getattr(table.totals, name) == sum(getattr(row, name) for row in table.rows)
    assert table.totals.committed == 12 * 57_600
    assert table.totals.committed == (
        table.totals.committed_used + table.totals.lent + table.totals.idle
    )
    keys = {"none": 1, "workspace": 2, "flavor": 2}[split_by]
    assert len(table.rows) == keys * {"hour": 3, "day": 2}[step]


def test_cluster_split_knows_no_floor(used: SmallFleet):
    table = selectors.usage_table(used.admin, chosen(split_by="cluster"))
    assert {row.key for row in table.rows} == {"gpu-east"}
    assert (table.totals.committed, table.totals.idle, table.totals.burst) == (None, None, 60)


def test_owner_sees_own_usage_only_also_by_guessing(used: SmallFleet):
    everything = selectors.usage_table(used.admin, chosen(split_by="workspace"))
    own = selectors.usage_table(used.owner, chosen(split_by="workspace"))
    assert {row.key for row in everything.rows} == {"acme-vision", "globex-search"}
    assert {row.key for row in own.rows} == {"acme-vision"}
    for split_by in ("none", "workspace", "flavor", "cluster"):
        guessed = chosen(workspaces=("globex-search", "no-such"), split_by=split_by)
        assert selectors.usage_table(used.owner, guessed).rows == ()
        assert list(selectors.usage_csv(used.owner, guessed))[1:] == []
    assert selectors.workload_usage(used.owner, chosen(workspaces=("globex-search",))) == []


def test_filter_by_flavor_and_range(used: SmallFleet):
    first_hour = chosen(start=NOON, end=NOON + timedelta(hours=1), flavors=("l4",))
    table = selectors.usage_table(used.owner, first_hour)
    assert (len(table.rows), table.totals.committed) == (1, 57_600)


def test_unknown_step_or_split_is_refused():
    with pytest.raises(ValueError, match="no such"):
        chosen(step="minute")


def test_csv_is_exact_and_no_formula(used: SmallFleet):
    used.vision.name = "=cmd()"
    used.vision.save()
    rows = list(selectors.usage_csv(used.owner, chosen(split_by="workspace")))
    header, first = rows[0], dict(zip(rows[0], rows[1], strict=True))
    assert header[:3] == ("start", "key", "name")
    assert first["start"] == "2026-03-02T12:00:00Z"
    assert first["name"] == "'=cmd()"
    assert first["committed_gpu_seconds"] == "115200"
    assert first["committed_gpu_hours"] == "32.0000"
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0.0000"), (1, "0.0003"), (3600, "1.0000"), (123_456_789, "34293.5525")],
)
def test_gpu_hours_without_a_float(seconds: int, want: str):
    assert gpu_hours(seconds) == want


def test_workloads_behind_the_table_have_names_and_add_up(used: SmallFleet):
    IntervalFactory(workspace=used.vision, uid="u-vision", workload="train-1")
    (row,) = selectors.workload_usage(used.owner, chosen())
    assert (row.workload, row.cluster, row.burst) == ("train-1", "gpu-east", 30)
    assert (row.first, row.last) == (NOON, NOON + timedelta(hours=24))


def test_freshness_names_late_clusters_and_estimates(used: SmallFleet):
    now = NOON + timedelta(hours=2)
    MeterStateFactory(cluster="gpu-east", complete_until=now - timedelta(minutes=1))
    MeterStateFactory(cluster="gpu-west", complete_until=now - timedelta(minutes=9))
    fresh = selectors.usage_table(used.owner, chosen(), now=now).freshness
    assert fresh.complete_until == now - timedelta(minutes=9)
    assert (fresh.late_clusters, fresh.estimated) == (("gpu-west",), False)
    MeterStateFactory(cluster="gpu-new", complete_until=None)
    IntervalFactory(
        workspace=used.vision,
        state=Interval.State.ESTIMATED,
        end=NOON + timedelta(hours=1),
    )
    fresh = selectors.usage_table(used.owner, chosen(), now=now).freshness
    assert (fresh.complete_until, fresh.estimated) == (None, True)
    assert fresh.late_clusters == ("gpu-new", "gpu-west")


def test_usage_queries_are_bounded(used: SmallFleet):
    def count(user) -> int:
        with CaptureQueriesContext(connection) as captured:
            selectors.usage_table(user, chosen(split_by="workspace"))
            selectors.workload_usage(user, chosen())
        return len(captured)

    few = count(used.admin)
    for hours in range(2, 20):
        UsageRecordFactory(
            workspace=used.speech,
            flavor=used.flavors["h100"],
            hour=NOON + timedelta(hours=hours),
        )
    assert count(used.admin) == few <= 10
