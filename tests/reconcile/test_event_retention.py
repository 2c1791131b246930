"""Raw events that nothing can come of any more are taken away, and the ledger stays as it is."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from budgets import services
from budgets.models import AuditEntry, Correction, Interval, PendingSpan, UsageRecord
from budgets.services import billing
from budgets.services.billing import verify_chain
from budgets.services.budget.versions import mark_dirty
from budgets.services.usage.hour_facts import count_wrong_totals
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage import retention
from clusters.reconcile.usage.build import build
from clusters.reconcile.usage.record import Backlog
from clusters.reconcile.usage.retention import Retired, retire_events
from clusters.services.back_fill import import_runs, read_runs
from tests.billing.conftest import AFTER, Books, active_card, meter, promise
from tests.billing.test_closing import sql, unguarded
from tests.builders import START, SmallFleet, hours, second_of_finance
from tests.databases import as_owner
from tests.reconcile.fleet_rows import register
from tests.reconcile.test_usage_build import RUNS, recorded, source
from tests.reconcile.usage_hand import build_next
from tests.waiting import PATIENCE_S, eventually

JULY = hours(24 * 150)
DONE = {**RUNS, "Finished": 3}
APRIL = 24 * 60 * 33
"""Of `recorded`, a version that is seen in April."""


@pytest.fixture
def books(fleet: SmallFleet, settings: Any) -> Books:
    settings.PORTAL_EVENT_DAYS = 90
    promise(fleet)
    active_card(fleet)
    return Books(fleet, second_of_finance())


@pytest.fixture
def hub(fleet: SmallFleet) -> Cluster:
    return register("hub", "apiVersion: v1", role="manager")


@pytest.fixture
def east(fleet: SmallFleet) -> Cluster:
    return register("gpu-east", "apiVersion: v1")


def ran(east: Cluster, uid: str = "job", *, last: int = 4, **facts: Any) -> None:
    """A job of that worker alone: it waited, ran for two hours, and was deleted."""
    facts = {"name": uid, "flavor": "h100", **facts}
    recorded(east, uid, 1, **{**facts, "flavor": ""})
    recorded(east, uid, 2, **facts, conditions=RUNS)
    recorded(east, uid, 3, **facts, conditions=DONE)
    recorded(east, uid, last, **facts, conditions=DONE, type="DELETED")


def ran_dispatched(hub: Cluster, east: Cluster) -> None:
    """A job of the manager, whose copy on the worker ran."""
    own = {"flavor": "h100", "worker": east.slug}
    copy = {"flavor": "h100", "is_copy": True}
    recorded(hub, "own", 1)
    recorded(east, "copy", 1, is_copy=True)
    recorded(east, "copy", 2, **copy, conditions=RUNS)
    recorded(hub, "own", 2, **own, conditions=RUNS)
    recorded(east, "copy", 3, **copy, conditions=DONE)
    recorded(hub, "own", 3, **own, conditions=DONE)
    recorded(east, "copy", 4, **copy, conditions=DONE, type="DELETED")


def built(*clusters: Cluster) -> None:
    for cluster in clusters:
        backlog = Backlog(cluster.slug, 0)
        while build_next(source(cluster), backlog) is not None:
            pass


def ledger() -> list[Any]:
    """All that is worked out from events, row by row."""
    tables = (Interval, PendingSpan, UsageRecord)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def closed(books: Books) -> None:
    services.record_progress(cluster="hub", complete_until=AFTER)
    meter()
    books.close()


@pytest.mark.django_db
def test_events_of_closed_months_go_and_the_ledger_stays(
    books: Books, hub: Cluster, east: Cluster
) -> None:
    ran_dispatched(hub, east)
    ran(east)
    built(hub, east)
    closed(books)
    before = ledger()
    rows = WorkloadEvent.objects.order_by("pk")
    told = "".join(
        f"{row.cluster}|{row.uid}|{row.resource_version}|{row.type}|{row.observed_at.isoformat()}|"
        f"{row.digest}\n"
        for row in rows
    )
    assert retire_events(JULY) == Retired(workloads=3, events=11, left=0)
    assert not WorkloadEvent.objects.exists()
    assert not WorkloadState.objects.filter(events_retired_at=None).exists()
    after = AuditEntry.objects.get(action="usage.retire_events").after
    assert (after["workloads"], after["events"], after["days"]) == (3, 11, 90)
    assert after["clusters"] == ["gpu-east", "hub"]
    assert after["sha256"] == hashlib.sha256(told.encode()).hexdigest()
    # Whatever is worked out anew comes to the same.
    for cluster, uids in ((hub, ["own"]), (east, ["copy", "job"])):
        assert build(source(cluster), uids).problems == ()
    mark_dirty(START)
    meter()
    assert ledger() == before
    assert not Correction.objects.exists()
    assert count_wrong_totals() == 0
    assert verify_chain().broken is None
    assert retire_events(JULY) == Retired()


def not_closed(books: Books, east: Cluster) -> None:
    meter()


def closed_for_others(books: Books, east: Cluster) -> None:
    billing.set_billing_terms(books.fleet.finance, account=books.fleet.acme, zone="Europe/Berlin")
    closed(books)


def seen_in_an_open_month(books: Books, east: Cluster) -> None:
    ran(east, "other", last=APRIL)
    built(east)
    closed(books)
    assert retire_events(JULY) == Retired(workloads=1, events=4, left=1)


def outside_while_one_account_is_open(books: Books, east: Cluster) -> None:
    ran(east, "other", namespace="of-nobody")
    built(east)
    closed_for_others(books, east)


def not_over(books: Books, east: Cluster) -> None:
    recorded(east, "second", 2, name="job", flavor="h100", conditions=RUNS)
    built(east)
    closed(books)


def put_aside(books: Books, east: Cluster) -> None:
    """One of the name waits for nothing now, and may be put back in its queue."""
    recorded(east, "second", 2, name="job", spec={"active": False})
    built(east)
    closed(books)


def slice_not_over(books: Books, east: Cluster) -> None:
    owner = {"kind": "Job", "name": "elastic", "controller": True}
    ran(east, "first", owners=[owner])
    recorded(east, "second", 2, name="second", owners=[owner], flavor="h100", conditions=RUNS)
    built(east)
    WorkloadState.objects.filter(uid="first").update(reason="WorkloadSliceReplaced")
    closed(books)
    assert retire_events(JULY) == Retired(workloads=1, events=4, left=1)


def tables_say_otherwise(books: Books, east: Cluster) -> None:
    closed(books)
    Interval.objects.filter(uid="job").update(gpus=7)


def waited_otherwise(books: Books, east: Cluster) -> None:
    closed(books)
    PendingSpan.objects.filter(uid="job").update(gpus=7)


def not_readable(books: Books, east: Cluster) -> None:
    recorded(east, "job", 5, name="job", flavor="h100", conditions=DONE, gpus="a few")
    built(east)
    closed(books)


def with_a_fault(books: Books, east: Cluster) -> None:
    """It was admitted before quota was reserved for it."""
    odd = {"QuotaReserved": 2, "Admitted": 1, "Finished": 3}
    recorded(east, "odd", 1, name="odd", flavor="h100", conditions=odd)
    built(east)
    closed(books)
    assert retire_events(JULY) == Retired(workloads=1, events=4, left=1)


def ledger_was_changed(books: Books, east: Cluster) -> None:
    closed(books)
    with unguarded():
        sql("UPDATE budgets_billingperiod SET head = %s WHERE close_number = 1", "0" * 64)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "so",
    [
        not_closed,
        closed_for_others,
        seen_in_an_open_month,
        outside_while_one_account_is_open,
        not_over,
        put_aside,
        slice_not_over,
        tables_say_otherwise,
        waited_otherwise,
        not_readable,
        with_a_fault,
        ledger_was_changed,
    ],
)
def test_events_that_something_may_come_of_stay(
    books: Books, east: Cluster, so: Callable[[Books, Cluster], None]
) -> None:
    ran(east)
    built(east)
    so(books, east)
    before = list(WorkloadEvent.objects.order_by("pk").values())
    assert retire_events(JULY).events == 0
    assert list(WorkloadEvent.objects.order_by("pk").values()) == before
    assert WorkloadEvent.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("days", "now", "want"),
    [
        pytest.param(0, JULY, 0, id="for ever"),
        pytest.param(90, hours(24 * 90), 0, id="younger"),
        pytest.param(90, hours(24 * 91), 4, id="older"),
    ],
)
def test_events_are_kept_for_so_many_days(
    books: Books, east: Cluster, settings: Any, days: int, now: Any, want: int
) -> None:
    settings.PORTAL_EVENT_DAYS = days
    ran(east)
    built(east)
    closed(books)
    assert retire_events(now).events == want


@pytest.mark.django_db
def test_a_family_goes_when_the_last_of_it_is_over(
    books: Books, hub: Cluster, east: Cluster
) -> None:
    ran_dispatched(hub, east)
    west = register("gpu-west", "apiVersion: v1")
    recorded(west, "lost", 2, is_copy=True, flavor="h100", conditions=RUNS)
    built(hub, east, west)
    closed(books)
    assert retire_events(JULY).events == 0
    recorded(west, "lost", 5, is_copy=True, flavor="h100", conditions=DONE, type="DELETED")
    built(west)
    assert retire_events(JULY) == Retired(workloads=3, events=9, left=0)


@pytest.fixture
def retired(books: Books, east: Cluster) -> list[Any]:
    """The ledger after the events of a job were taken away."""
    ran(east)
    built(east)
    closed(books)
    assert retire_events(JULY).events == 4
    return ledger()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("facts", "is_news"),
    [
        pytest.param({"conditions": RUNS, "flavor": "h100"}, True, id="it runs again"),
        pytest.param({"conditions": DONE, "flavor": "h100"}, False, id="it is listed still"),
        pytest.param({"conditions": RUNS, "type": "DELETED"}, False, id="it is deleted"),
    ],
)
def test_what_comes_later_changes_nothing_and_is_told(
    retired: list[Any], east: Cluster, facts: dict[str, Any], is_news: bool
) -> None:
    late = recorded(east, "job", 9, name="job", **facts)
    found = build(source(east), ["job"])
    assert ledger() == retired
    assert found.events == {late.pk}
    assert [(row.uid, row.code, row.is_blocking) for row in found.problems] == [
        ("job", "events_retired", True)
    ] * is_news
    assert retire_events(JULY) == Retired()
    assert WorkloadEvent.objects.get() == late


@pytest.mark.django_db
def test_a_name_that_is_used_again_leaves_the_first_job_as_it_is(
    retired: list[Any], east: Cluster
) -> None:
    recorded(east, "again", 20, name="job", flavor="h100", conditions={"QuotaReserved": 40})
    assert build(source(east), ["again"]).problems == ()
    assert list(Interval.objects.exclude(uid="again").order_by("pk").values()) == retired[0]
    assert Interval.objects.filter(uid="again").exists()


@pytest.mark.django_db
def test_a_file_that_was_imported_is_known_when_its_events_are_gone(
    books: Books, east: Cluster
) -> None:
    lines = [
        "cluster,namespace,workload,flavor,gpus,start,end\n",
        "gpu-east,acme-vision,train,h100,8,2026-03-01T01:00:00Z,2026-03-01T03:30:00Z\n",
    ]
    import_runs(None, read_runs(lines, now=hours(100)))
    closed(books)
    assert retire_events(JULY).events == 1
    before = ledger()
    again = import_runs(None, read_runs(lines, now=hours(100)))
    assert (again.placed, again.new) == (1, 0)
    assert ledger() == before


@pytest.mark.django_db
def test_who_is_killed_has_taken_whole_batches_and_the_next_one_goes_on(
    books: Books, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid in ("a", "b", "c"):
        ran(east, uid)
    built(east)
    closed(books)
    monkeypatch.setattr(retention, "BATCH", 1)
    real, done = retention.audit, []

    def killed(*given: Any, **named: Any) -> Any:
        if done:
            raise SystemExit
        done.append(real(*given, **named))

    monkeypatch.setattr(retention, "audit", killed)
    with pytest.raises(SystemExit):
        retire_events(JULY)
    assert WorkloadEvent.objects.count() == 8
    assert WorkloadState.objects.filter(events_retired_at=None).count() == 2
    monkeypatch.setattr(retention, "audit", real)
    assert retire_events(JULY) == Retired(workloads=2, events=8, left=0)
    entries = AuditEntry.objects.filter(action="usage.retire_events")
    assert [row.after["events"] for row in entries] == [4, 4, 4]


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE NOT granted AND datname = current_database()"
        )
        return cursor.fetchone() is not None


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_two_at_once_take_each_event_once(
    books: Books, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid in ("a", "b", "c"):
        ran(east, uid)
    built(east)
    closed(books)
    has_marked, may_go_on = threading.Event(), threading.Event()
    real = retention._take_away
    done: list[Retired] = []

    def slow(keys: Any) -> Any:
        if threading.current_thread().name == "first":
            has_marked.set()
            may_go_on.wait(PATIENCE_S)
        return real(keys)

    monkeypatch.setattr(retention, "_take_away", slow)

    def work() -> None:
        try:
            done.append(retire_events(JULY))
        finally:
            connection.close()

    first = threading.Thread(target=work, name="first")
    second = threading.Thread(target=work, name="second")
    first.start()
    assert has_marked.wait(PATIENCE_S)
    second.start()
    eventually(somebody_waits_for_a_lock)
    may_go_on.set()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    assert sorted(row.events for row in done) == [0, 12]
    assert not WorkloadEvent.objects.exists()
    assert AuditEntry.objects.get(action="usage.retire_events").after["events"] == 12


@pytest.mark.postgres
@pytest.mark.django_db
def test_postgres_lets_no_event_go_that_is_not_marked_or_of_an_open_month(
    books: Books, east: Cluster
) -> None:
    ran(east)
    ran(east, "other", last=APRIL)
    built(east)
    WorkloadState.objects.update(events_retired_at=JULY)
    with pytest.raises(IntegrityError, match="goes only after"), transaction.atomic():
        WorkloadEvent.objects.all().retire()
    closed(books)
    WorkloadState.objects.update(events_retired_at=None)
    with pytest.raises(IntegrityError, match="goes only after"), transaction.atomic():
        WorkloadEvent.objects.filter(uid="job").retire()
    WorkloadState.objects.update(events_retired_at=JULY)
    with pytest.raises(IntegrityError, match="goes only after"), transaction.atomic():
        WorkloadEvent.objects.all().retire()
    with as_owner(), pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        sql("UPDATE clusters_workloadevent SET digest = ''")
    assert WorkloadEvent.objects.filter(uid="job").retire() == 4
