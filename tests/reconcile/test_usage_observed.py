"""What the watch tells, in order, and until when it told everything. No cluster, no database."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from clusters.kube import resources as r
from clusters.reconcile.runtime.watches import Change, Seen
from clusters.reconcile.usage.record import (
    Completeness,
    Listed,
    Observation,
    Observer,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass
class Clock:
    at: datetime = NOON

    def now(self) -> datetime:
        return self.at

    def pass_s(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Watch:
    is_watching: bool = True
    objects: list = field(default_factory=list)

    def snapshot(self) -> list:
        return self.objects


def workload(uid: str = "u1", version: str = "5") -> dict:
    return {
        "metadata": {
            "uid": uid,
            "resourceVersion": version,
            "name": "a",
            "namespace": "acme-vision",
        }
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def contact(clock: Clock) -> Completeness:
    return Completeness(clock.now, until=NOON)


@pytest.fixture
def watch() -> Watch:
    return Watch()


class Inbox:
    """An observer, told by hand, and what it put down."""

    def __init__(self, clock: Clock, contact: Completeness, watch: Watch) -> None:
        self._items: list = []
        self._observer = Observer(
            clock.now,
            contact,
            watch=lambda: watch,  # type: ignore[arg-type, return-value]  # says what is asked
            put=lambda item: self._items.append(item),
        )

    def take(self) -> list:
        items, self._items = self._items, []
        return items

    def upsert(self, document: dict) -> None:
        self._observer.tell(Seen(Change.UPSERT, "east", r.WORKLOAD, document))

    def deleted(self, document: dict) -> None:
        self._observer.tell(Seen(Change.DELETED, "east", r.WORKLOAD, document))

    def synced(self) -> None:
        self._observer.tell(Seen(Change.SYNCED, "east", r.WORKLOAD, {}))


@pytest.fixture
def inbox(clock: Clock, contact: Completeness, watch: Watch) -> Inbox:
    return Inbox(clock, contact, watch)


def told(inbox: Inbox) -> list[Observation]:
    return [item for item in inbox.take() if isinstance(item, Observation)]


def test_inbox_keeps_the_order_and_gives_everything_once(inbox: Inbox) -> None:
    inbox.upsert(workload(version="5"))
    inbox.upsert(workload(version="6"))
    inbox.deleted(workload(version="7"))
    assert [(row.type, row.document["metadata"]["resourceVersion"]) for row in told(inbox)] == [
        ("SEEN", "5"),
        ("SEEN", "6"),
        ("DELETED", "7"),
    ]
    assert inbox.take() == []


def test_inbox_deletion_that_a_list_found_is_a_missing(
    inbox: Inbox, clock: Clock, watch: Watch
) -> None:
    inbox.upsert(workload(version="5"))
    inbox.take()
    watch.is_watching = False
    clock.pass_s(30)
    inbox.deleted(workload(version="5"))
    (row,) = told(inbox)
    assert (row.type, row.last_seen_at, row.at) == ("MISSING", NOON, NOON + timedelta(seconds=30))


def test_inbox_missing_was_alive_when_it_was_last_told(
    inbox: Inbox, clock: Clock, watch: Watch
) -> None:
    clock.pass_s(3)
    inbox.upsert(workload(version="5"))
    watch.is_watching = False
    clock.pass_s(30)
    inbox.deleted(workload(version="5"))
    assert told(inbox)[-1].last_seen_at == NOON + timedelta(seconds=3)


def test_inbox_deletion_told_by_a_watch_is_exact(inbox: Inbox, clock: Clock) -> None:
    inbox.upsert(workload(version="5"))
    clock.pass_s(1)
    inbox.deleted(workload(version="9"))
    row = told(inbox)[-1]
    assert (row.type, row.after_gap, row.last_seen_at) == ("DELETED", False, None)


@pytest.mark.parametrize(
    ("gap_s", "wait_s", "want_late"),
    [
        pytest.param(2, 0, False, id="no gap worth the name"),
        pytest.param(60, 0, True, id="right after a gap"),
        pytest.param(60, 2, True, id="while the gap is told"),
        pytest.param(60, 5, False, id="after it was told"),
    ],
)
def test_contact_news_after_a_gap_are_late(
    contact: Completeness, clock: Clock, gap_s: float, wait_s: float, want_late: bool
) -> None:
    clock.pass_s(gap_s)
    contact.sample(0)
    clock.pass_s(wait_s)
    contact.sample(0)
    assert contact.is_late_news(clock.now()) is want_late


def test_contact_never_goes_back(contact: Completeness, clock: Clock) -> None:
    clock.pass_s(5)
    assert contact.sample(1) == NOON + timedelta(seconds=4)
    assert contact.sample(3) == NOON + timedelta(seconds=4)
    assert contact.sample(None) == NOON + timedelta(seconds=4)


def test_inbox_first_list_is_marked_as_such(inbox: Inbox, watch: Watch) -> None:
    watch.objects = [workload("u1"), workload("u2")]
    inbox.synced()
    inbox.synced()
    marker, later = inbox.take()
    assert isinstance(marker, Listed)
    assert (marker.uids, marker.last_seen_at) == (frozenset({"u1", "u2"}), NOON)
    assert later.uids is None
