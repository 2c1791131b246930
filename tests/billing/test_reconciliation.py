"""What disagrees with the ledger: noted, in the way of the close, cleared or accepted by two."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.intervals import IntervalKind, Problem, ProblemCode
from budgets.metering import QueueSample
from budgets.models import AuditEntry, Capacity, CapacityHour, CapacityWatch, Discrepancy
from budgets.selectors import billing as read
from budgets.services import HeldNow, billing
from budgets.services.usage.reconciliation import (
    QueueSight,
    QueueWatch,
    check_capacity,
    note_problems,
    note_skew,
)
from budgets.units import Period
from tests.billing.conftest import AFTER, Books, held, meter, store
from tests.builders import hours

pytestmark = pytest.mark.django_db
EAST = "gpu-east"
STEP = timedelta(minutes=5)


def sampled(first: float, last: float, *, ready: int = 32, down: int = 0, **more) -> None:
    """Nodes and pods of one cluster in a range, as the ledger of the fixture has them."""
    at = hours(first)
    while at <= hours(last):
        busy = 8 * (at >= hours(0)) + 8 * (at >= hours(2))
        used = more.get("used", busy)
        services.record_measured_capacity(
            cluster=EAST,
            rows={"h100": (ready, down, used, 4)},
            measured_at=at,
            beside=HeldNow(
                held={"h100": more.get("held", busy)},
                outside={"h100": more.get("outside", 0)},
                by_pods=more.get("by_pods", True),
            ),
        )
        at += STEP


def check(until: float = 4) -> None:
    check_capacity(since=hours(0), now=hours(until))


def unmet() -> set[str]:
    checks = read.check_list(read.month_of("2026-03"), now=AFTER)
    return {row.key for row in checks if not row.is_met}


def found() -> list[tuple[str, int, str]]:
    rows = Discrepancy.objects.order_by("start", "pk")
    return [(row.kind, row.amount // 3600, row.state) for row in rows]


def test_hours_that_add_up_are_no_discrepancy(books: Books):
    sampled(0, 4)
    check()

    facts = read.capacity_facts(EAST, Period(hours(0), hours(4)))
    assert [(row.committed_used + row.burst, row.free) for row in facts] == [
        (8 * 3600, 24 * 3600),
        (8 * 3600, 24 * 3600),
        (16 * 3600, 16 * 3600),
        (16 * 3600, 16 * 3600),
    ]
    assert {row.unexplained for row in facts} == {0}
    assert found() == []
    assert unmet() == set()


@pytest.mark.parametrize(
    ("more", "want"),
    [
        pytest.param({"used": 24}, [("capacity", 16, "open")], id="pods of no workload"),
        pytest.param({"used": 0}, [("capacity", -16, "open")], id="billed and free at once"),
        pytest.param({"used": 24, "outside": 8}, [("capacity", 8, "open")], id="some are foreign"),
        pytest.param({"ready": 0, "down": 32}, [], id="nodes went away under the work"),
        pytest.param({"used": 0, "by_pods": False}, [], id="pods cannot be seen"),
    ],
)
def test_what_the_ledger_does_not_explain_blocks_the_close(books: Books, more, want):
    sampled(0, 4, **more)
    check()

    assert found() == want
    assert unmet() == ({"reconciled"} if want else set())
    if want:
        with pytest.raises(Rejected) as refused:
            books.close()
        assert {fault.code for fault in refused.value.faults} == {"reconciled"}


def test_pods_of_foreign_namespaces_and_foreign_queues_count_once(books: Books):
    store(held("f", 0, 4, namespace="somebody", gpus=4))
    sampled(0, 2, used=12, outside=4, held=12)
    check(2)

    first = read.capacity_facts(EAST, Period(hours(0), hours(1)))[0]
    assert (first.outside, first.unexplained) == (4 * 3600, 0)


def test_race_and_undecided_copies_are_held_too(books: Books):
    store(
        held("r", 0, 1, role=IntervalKind.RACE),
        held("u", 0, 1, role=IntervalKind.UNDECIDED, gpus=4),
    )
    sampled(0, 1, used=20, held=20)
    check(1)

    first = read.capacity_facts(EAST, Period(hours(0), hours(1)))[0]
    assert (first.race, first.undecided, first.unexplained) == (8 * 3600, 4 * 3600, 0)


def test_an_hour_without_samples_is_a_discrepancy_after_the_first_that_has(books: Books):
    sampled(1, 2)
    sampled(3, 4)
    check()

    assert found() == [("unmeasured", 0, "open")]
    row = Discrepancy.objects.get()
    assert (row.start, row.end) == (hours(2), hours(3))
    check()
    assert Discrepancy.objects.count() == 1


def test_an_hour_still_waits_for_its_last_sample(books: Books):
    sampled(0, 1.9)
    check_capacity(now=hours(2) + timedelta(minutes=5))
    assert not Discrepancy.objects.filter(start__gte=hours(1)).exists()

    check_capacity(now=hours(2) + timedelta(minutes=20))
    assert found() == [("unmeasured", 0, "open")]


def test_a_flavor_whose_nodes_went_has_no_capacity_and_no_fault(books: Books):
    sampled(0, 1)
    services.record_measured_capacity(cluster=EAST, rows={}, measured_at=hours(12))
    for minute in range(5, 65, 5):
        at = hours(12) + timedelta(minutes=minute)
        services.record_measured_capacity(cluster=EAST, rows={}, measured_at=at)

    assert not CapacityHour.objects.filter(hour=hours(12)).exclude(flavor="").exists()
    assert CapacityHour.objects.get(hour=hours(12), flavor="").measured_s == 3600


def test_a_later_fact_clears_it(books: Books):
    sampled(0, 2, used=16, held=16)
    check(2)
    assert found() == [("capacity", 8, "open")]

    store(held("late", 0, 2))
    meter()
    assert found()[0][2] == "cleared"
    assert AuditEntry.objects.filter(action="discrepancy.clear").exists()


def accepted(books: Books, row: Discrepancy) -> Discrepancy:
    billing.propose_acceptance(books.fleet.finance, discrepancy=row, reason="A bench ran there.")
    return billing.decide_acceptance(books.second, discrepancy=row, is_approved=True)


def test_two_people_accept_it_with_a_reason_and_the_month_can_be_closed(books: Books):
    sampled(0, 4, used=24)
    check()
    row = Discrepancy.objects.get()
    finance = books.fleet.finance
    with pytest.raises(Rejected):
        billing.propose_acceptance(finance, discrepancy=row, reason=" ")
    with pytest.raises(NotAllowed):
        billing.propose_acceptance(books.fleet.owner, discrepancy=row, reason="x")
    billing.propose_acceptance(finance, discrepancy=row, reason="A bench ran there.")
    assert unmet() == {"reconciled"}
    with pytest.raises(NotAllowed):
        billing.decide_acceptance(finance, discrepancy=row, is_approved=True)
    billing.decide_acceptance(books.second, discrepancy=row, is_approved=True)

    assert unmet() == set()
    entry = AuditEntry.objects.get(action="discrepancy.accept")
    assert (entry.actor, entry.reason) == (books.second, "A bench ran there.")
    check()
    assert [row.state for row in Discrepancy.objects.all()] == ["accepted"]
    books.close()


def test_a_declined_acceptance_is_open_again(books: Books):
    sampled(0, 1, used=24)
    check(1)
    row = Discrepancy.objects.get()
    billing.propose_acceptance(books.fleet.finance, discrepancy=row, reason="x")
    billing.decide_acceptance(books.fleet.finance, discrepancy=row, is_approved=False)

    assert found()[0][2] == "open"
    with pytest.raises(Rejected):
        billing.decide_acceptance(books.second, discrepancy=row, is_approved=True)


def test_what_grows_after_it_was_proposed_is_open_again(books: Books):
    sampled(0, 1, used=24)
    check(1)
    billing.propose_acceptance(
        books.fleet.finance, discrepancy=Discrepancy.objects.get(), reason="x"
    )
    sampled(1 + 1 / 12, 2, used=24)
    check(2)

    assert found() == [("capacity", 16, "open")]


def test_the_database_keeps_the_four_eyes(books: Books):
    sampled(0, 1, used=24)
    check(1)
    row = Discrepancy.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        Discrepancy.objects.filter(pk=row.pk).update(
            state="accepted",
            reason="x",
            proposed_by=books.second,
            decided_by=books.second,
        )


def looked(watch: QueueWatch, minute: int, total: int, *, borrowed: int = 0, nominal: int = 8):
    sample = QueueSample(hours(1) + timedelta(minutes=minute), total, borrowed, nominal)
    return watch.look([QueueSight("acme-vision", "h100", sample)], at=sample.at)


def test_a_queue_that_is_gone_disagrees_no_longer(books: Books):
    watch = QueueWatch(EAST)
    for minute in range(4):
        looked(watch, minute, 12, borrowed=4)
    watch.look([], at=hours(2))
    assert Discrepancy.objects.get().end == hours(2)


def test_what_goes_on_ends_with_the_cluster(books: Books):
    note_skew(cluster=EAST, at=hours(1), skew_s=90)
    services.retire_capacity(None, cluster=EAST, reason="gone")
    row = Discrepancy.objects.get()
    assert row.end is not None
    assert accepted(books, row).state == "accepted"


def test_a_queue_that_differs_for_more_than_three_samples_blocks_the_close(books: Books):
    watch = QueueWatch(EAST)
    for minute in range(3):
        assert looked(watch, minute, 12, borrowed=4) == 1
    assert unmet() == set()
    looked(watch, 3, 12, borrowed=4)

    assert unmet() == {"reconciled"}
    row = Discrepancy.objects.get()
    assert (row.kind, row.subject, row.amount, row.end) == ("queue", "acme-vision", 4, None)
    with pytest.raises(Rejected, match="still going on"):
        billing.propose_acceptance(books.fleet.finance, discrepancy=row, reason="x")
    assert looked(watch, 4, 8) == 0
    row.refresh_from_db()
    assert row.end == hours(1) + timedelta(minutes=4)
    assert unmet() == {"reconciled"}
    accepted(books, row)
    assert unmet() == set()


def test_a_rebuild_that_matches_clears_a_queue(books: Books):
    watch = QueueWatch(EAST)
    for minute in range(5):
        looked(watch, minute, 12, borrowed=4)
    looked(watch, 5, 8)
    assert unmet() == {"reconciled"}

    store(held("late", 1, 1 + 5 / 60, gpus=4))
    looked(watch, 6, 8)
    assert Discrepancy.objects.get().state == "cleared"


def test_borrowing_over_the_applied_floor_is_compared(books: Books):
    watch = QueueWatch(EAST)
    for minute in range(4):
        looked(watch, minute, 8, borrowed=3, nominal=8)
    assert Discrepancy.objects.filter(kind="queue").exists()


def test_quota_that_is_only_reserved_counts_where_the_clock_starts_there(books: Books):
    store(held("waits", 0, 3, role=IntervalKind.RESERVED, gpus=4))
    watch = QueueWatch(EAST)
    assert looked(watch, 0, 8) == 0
    books.fleet.flavors["h100"].clock_start = "PodsReady"
    books.fleet.flavors["h100"].save()
    assert looked(watch, 1, 12, borrowed=4) == 0


def test_a_clock_beyond_its_bound_blocks_until_it_is_accepted(books: Books):
    note_skew(cluster=EAST, at=hours(1), skew_s=60)
    assert not Discrepancy.objects.exists()
    for minute in range(3):
        note_skew(cluster=EAST, at=hours(1) + timedelta(minutes=minute), skew_s=-61)
    assert unmet() == {"reconciled"}
    note_skew(cluster=EAST, at=hours(2), skew_s=0)

    row = Discrepancy.objects.get()
    assert (row.kind, row.amount, row.end) == ("clock", -61, hours(2))
    accepted(books, row)
    assert unmet() == set()


def test_a_history_that_was_refused_blocks_until_it_can_be_read(books: Books):
    problem = Problem(EAST, "uid-9", ProblemCode.NEGATIVE_DURATION, "it ends before it starts")
    spans = {"uid-9": (hours(1), hours(2))}
    note_problems(cluster=EAST, uids={"uid-9", "uid-8"}, problems=[problem], spans=spans)
    assert unmet() == {"reconciled"}

    note_problems(cluster=EAST, uids={"uid-9"}, problems=[], spans={})
    assert unmet() == set()


def test_what_lies_in_another_month_does_not_block_this_one(books: Books):
    note_skew(cluster=EAST, at=AFTER, skew_s=90)
    assert unmet() == set()


def test_a_cluster_that_is_retired_is_watched_no_more(books: Books):
    sampled(0, 1)
    Capacity.objects.create(
        cluster=EAST, flavor=books.fleet.flavors["h100"], gpus=8, valid_from=hours(0)
    )
    services.retire_capacity(None, cluster=EAST, reason="gone")
    assert not CapacityWatch.objects.exists()
