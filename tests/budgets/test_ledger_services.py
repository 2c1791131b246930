"""Intervals stored once, hour facts rewritten where they changed."""

from __future__ import annotations

from datetime import datetime

import pytest
import time_machine
from msgspec.structs import replace

from budgets import intervals as ledger
from budgets import selectors, services, tasks
from budgets.models import (
    AccountUsage,
    Interval,
    MeterState,
    PendingSpan,
    UsageRecord,
    WorkloadUsage,
)
from budgets.plan import RevisionDraft
from tests.builders import SmallFleet, agreed, hours, line

pytestmark = pytest.mark.django_db


def held(
    uid: str,
    start: float,
    end: float | None,
    *,
    gpus: int = 8,
    namespace: str = "acme-vision",
    flavor: str = "h100",
    role: ledger.IntervalKind = ledger.IntervalKind.BILLABLE,
    seq: int = 1,
    cluster: str = "gpu-east",
) -> ledger.Interval:
    return ledger.Interval(
        cluster=cluster,
        uid=uid,
        epoch=1,
        pod_set="main",
        flavor=flavor,
        seq=seq,
        gpus=gpus,
        admitted_at=hours(start),
        start=hours(start),
        end=None if end is None else hours(end),
        state=ledger.IntervalState.OPEN if end is None else ledger.IntervalState.CLOSED,
        role=role,
        namespace=namespace,
        workload=f"job-{uid}",
        cluster_queue=namespace,
    )


def store(*rows: ledger.Interval, workloads=None, pending=()) -> tuple[int, int, int]:
    summary = services.store_intervals(
        rows,
        workloads=workloads or {(row.cluster, row.uid) for row in rows},
        pending=pending,
    )
    return summary.new, summary.changed, summary.superseded


def complete(until: datetime, *clusters: str) -> None:
    for cluster in clusters or ("gpu-east",):
        services.record_progress(cluster=cluster, complete_until=until)


@pytest.fixture
def promised(fleet: SmallFleet):
    """acme-vision has 8 committed, 24 as ceiling; acme-speech 8 to lend, from hour 0."""
    with time_machine.travel(hours(0), tick=False):
        fleet.revise(fleet.vision, line("h100", 8, 24))
        fleet.revise(fleet.speech, line("h100", 8))
    return fleet


def fact(workspace, hour: float, flavor: str = "h100") -> dict[str, int]:
    return (
        UsageRecord.objects.filter(workspace=workspace, hour=hours(hour), flavor__slug=flavor)
        .values("committed", "committed_used", "burst", "borrowed", "lent", "idle", "pending")
        .get()
    )


def test_names_as_long_as_kueue_allows_are_kept_whole(fleet: SmallFleet):
    long = "q" * 253
    row = held("a", 0, 1, flavor=long, namespace="elsewhere")
    assert store(replace(row, cluster_queue=long)) == (1, 0, 0)
    kept = Interval.objects.get()
    assert (kept.flavor, kept.cluster_queue) == (long, long)


def test_store_twice_writes_once(promised: SmallFleet):
    assert store(held("a", 1, 2), held("b", 1, None)) == (2, 0, 0)
    assert store(held("a", 1, 2), held("b", 1, None)) == (0, 0, 0)
    assert store(held("b", 1, 3)) == (0, 1, 0)
    assert Interval.objects.count() == 2
    assert Interval.objects.get(uid="b").state == "closed"


def test_a_note_longer_than_its_column_is_stored_once(promised: SmallFleet):
    row = replace(held("a", 1, 2), note="x" * 400)
    assert [store(row), store(row)] == [(1, 0, 0), (0, 0, 0)]


def test_interval_that_a_rebuild_does_not_confirm_is_superseded_never_deleted(
    promised: SmallFleet,
):
    store(held("a", 1, 2), held("a", 2, 3, seq=2))
    assert store(held("a", 1, 2)) == (0, 0, 1)
    assert store(held("a", 1, 2)) == (0, 0, 0)
    assert set(Interval.objects.values_list("seq", "state")) == {
        (1, "closed"),
        (2, "superseded"),
    }


def test_queue_of_no_workspace_is_outside_and_unmetered(promised: SmallFleet):
    store(held("a", 1, 2, namespace="stranger"), held("b", 1, 2, role=ledger.IntervalKind.RACE))
    kinds = dict(Interval.objects.values_list("uid", "kind"))
    assert kinds == {"a": "outside", "b": "race"}
    assert store(held("a", 1, 2, namespace="stranger")) == (0, 0, 0)
    complete(hours(3))
    services.meter_usage(hours(3))
    assert not WorkloadUsage.objects.exists()
    assert fact(promised.vision, 1)["committed_used"] == 0


def test_meter_splits_committed_burst_lent_and_idle(promised: SmallFleet):
    store(held("a", 0, 1), held("b", 0.5, 1, gpus=8))
    complete(hours(1))
    summary = services.meter_usage(hours(1))
    assert (summary.start, summary.end) == (hours(0), hours(1))
    assert fact(promised.vision, 0) == {
        "committed": 28_800,
        "committed_used": 28_800,
        "burst": 14_400,
        "borrowed": 14_400,
        "lent": 0,
        "idle": 0,
        "pending": 0,
    }
    speech = fact(promised.speech, 0)
    assert (speech["lent"], speech["idle"]) == (14_400, 14_400)
    account = AccountUsage.objects.get(hour=hours(0))
    assert (account.burst, account.lent, account.uncovered) == (14_400, 14_400, 0)
    by_uid = dict(WorkloadUsage.objects.values_list("uid", "burst"))
    assert by_uid == {"a": 0, "b": 14_400}


def test_meter_again_writes_nothing(promised: SmallFleet):
    store(held("a", 0, 1))
    complete(hours(3))
    assert services.meter_usage(hours(3)).written > 0
    before = list(UsageRecord.objects.order_by("pk").values())
    again = services.meter_usage(hours(3))
    assert (again.start, again.written, again.removed) == (None, 0, 0)
    MeterState.objects.update(dirty_from=hours(0))
    forced = services.meter_usage(hours(3))
    assert (forced.written, forced.removed) == (0, 0)
    assert list(UsageRecord.objects.order_by("pk").values()) == before


def test_end_of_a_long_job_dirties_its_end_not_its_days(promised: SmallFleet):
    store(held("a", 0, None))
    complete(hours(50))
    services.meter_usage(hours(50))
    store(held("a", 0, 49.5))
    assert MeterState.objects.get().dirty_from == hours(49.5)
    services.meter_usage(hours(50))
    assert fact(promised.vision, 49)["committed_used"] == 14_400
    assert fact(promised.vision, 48)["committed_used"] == 28_800
    assert MeterState.objects.get().dirty_from is None


def test_metering_in_steps_equals_metering_at_once(promised: SmallFleet):
    rows = [held("a", 0, 30), held("b", 3.5, 40, gpus=16), held("c", 7.25, 9)]
    store(*rows)
    for until in (0.5, 2, 8.2, 33, 41):
        complete(hours(until))
        services.meter_usage(hours(until))
    names = ("hour", "committed", "committed_used", "burst", "lent", "idle", "workspace_id")
    in_steps = list(UsageRecord.objects.values_list(*names))
    UsageRecord.objects.all().delete()
    MeterState.objects.update(dirty_from=hours(0))
    services.meter_usage(hours(41))
    assert list(UsageRecord.objects.values_list(*names)) == in_steps


def test_late_superseding_takes_back_what_was_metered(promised: SmallFleet):
    store(held("a", 0, 2))
    complete(hours(2))
    services.meter_usage(hours(2))
    store(workloads={("gpu-east", "a")})
    summary = services.meter_usage(hours(2))
    assert summary.removed == 2
    assert not WorkloadUsage.objects.exists()
    assert fact(promised.vision, 0)["idle"] == 28_800


def test_a_budget_dated_back_is_metered_again(promised: SmallFleet):
    store(held("a", 0, 4))
    complete(hours(4))
    services.meter_usage(hours(4))
    with time_machine.travel(hours(4), tick=False):
        draft = RevisionDraft(
            lines=(line("h100", 4, 24),), valid_from=hours(2.5), reason="agreed on the phone"
        )
        promised.vision.budget.refresh_from_db()
        version = promised.vision.budget.version
        agreed(
            services.propose_dating_back(
                promised.finance, workspace=promised.vision, draft=draft, expected_version=version
            )
        )
        services.meter_usage()
    assert [fact(promised.vision, hour)["committed"] for hour in range(4)] == [
        28_800,
        28_800,
        21_600,
        14_400,
    ]
    assert fact(promised.vision, 3)["burst"] == 14_400


def test_meter_task_reports_what_it_wrote(promised: SmallFleet):
    store(held("a", 0, 1))
    complete(hours(1))
    assert tasks.meter_usage()["written"] > 0
    assert tasks.meter_usage() == {"written": 0, "removed": 0}


def test_a_lost_cluster_does_not_stop_the_meter(promised: SmallFleet):
    store(held("a", 0, None), held("b", 0, None, cluster="gpu-west"))
    complete(hours(1), "gpu-west")
    complete(hours(5), "gpu-east")
    services.meter_usage(hours(6))
    assert fact(promised.vision, 4)["burst"] == 28_800
    assert selectors.freshness(now=hours(6)).late_clusters == ("gpu-east", "gpu-west")


def test_progress_never_goes_back(promised: SmallFleet):
    complete(hours(5))
    services.record_progress(
        cluster="gpu-east", complete_until=hours(3), last_event_id=7, message="slow"
    )
    services.record_progress(cluster="gpu-east", last_event_id=5)
    state = MeterState.objects.get()
    assert (state.complete_until, state.last_event_id, state.message) == (hours(5), 7, "slow")


def test_pools_cover_burst_before_lenders(promised: SmallFleet):
    with time_machine.travel(hours(0), tick=False):
        pool = services.create_pool(None, slug="acme-pool", name="Pool", account=promised.acme)
        services.set_pool_amount(None, pool=pool, flavor=promised.flavors["h100"], gpus=8)
    store(held("a", 0, 1, gpus=20))
    complete(hours(1))
    services.meter_usage(hours(1))
    account = AccountUsage.objects.get(hour=hours(0))
    assert (account.burst, account.from_pool, account.lent) == (43_200, 28_800, 14_400)


def test_waiting_is_counted_on_the_home_flavor_and_can_vanish(promised: SmallFleet):
    span = ledger.PendingSpan(
        cluster="hub",
        uid="a",
        start=hours(0.5),
        end=hours(1.5),
        gpus=8,
        namespace="acme-vision",
        workload="job-a",
        queue="default",
        requeued=False,
    )
    store(workloads={("hub", "a")}, pending=[span])
    store(workloads={("hub", "a")}, pending=[span])
    assert PendingSpan.objects.count() == 1
    complete(hours(2))
    services.meter_usage(hours(2))
    assert [fact(promised.vision, hour)["pending"] for hour in (0, 1)] == [14_400, 14_400]
    store(workloads={("hub", "a")})
    services.meter_usage(hours(2))
    assert [fact(promised.vision, hour)["pending"] for hour in (0, 1)] == [0, 0]


def test_clock_settings_are_dated(fleet: SmallFleet):
    with time_machine.travel(hours(5), tick=False):
        services.edit_flavor(None, flavor=fleet.flavors["h100"], clock_start="PodsReady")
    clock = selectors.clock_settings()
    seen = [clock.start_of("h100", reserved_at=hours(h)) for h in (-99999, 0, 5)]
    assert seen == ["Admitted", "Admitted", "PodsReady"]
    assert clock.start_of("l4", reserved_at=hours(9)) == "Admitted"
