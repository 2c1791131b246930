"""Taking away raw events that nothing can come of any more.

From its raw events a Workload's state, intervals and waiting times are worked out, and from those
the hour facts, charges and corrections. So a Workload's events go only when to work it out once
more would change nothing and could not matter: all that hangs together with it is over, all of it
lies in closed months, and what stands in the tables is what the events say. From then on it is
worked out never again (:func:`clusters.reconcile.usage.build.build`); what comes later of it is
kept and told to finance.

Each batch is a transaction of its own, with its entry in the audit log: whoever is killed has taken
a batch whole or not at all, and two of these wait for each other's rows.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from budgets import intervals as ledger
from budgets.models import Account, Flavor, Workspace
from budgets.models.reading import read_rows
from budgets.selectors.billing.months import closed_edges
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.billing.chain import verify_chain
from budgets.services.usage.batches import uncollected
from budgets.services.usage.ledger import not_as_stored
from budgets.services.usage.rows import among
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.build import (
    all_clusters,
    managers_of,
    origins_of,
    reader_of,
    related,
    work_out,
)
from clusters.reconcile.usage.reading import Place
from clusters.reconcile.usage.states import Recorded

log = structlog.stdlib.get_logger(__name__)

BATCH: Final = 1_000
"""Workloads that are looked at together; with what hangs together with them."""
RUN_S: Final = 2_400
"""No new batch is begun after so long; the next run goes on."""
KEYS_AT_ONCE: Final = 5_000
FOREVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Retired:
    """What a run took away, and how many Workloads it looked at and left."""

    workloads: int = 0
    events: int = 0
    left: int = 0

    def __add__(self, other: Retired) -> Retired:
        return Retired(
            self.workloads + other.workloads,
            self.events + other.events,
            self.left + other.left,
        )


class Row(NamedTuple):
    """What counts of a state row, which is locked."""

    pk: int
    cluster: str
    uid: str
    namespace: str
    name: str
    job_kind: str
    job_name: str
    finished_at: datetime | None
    retired_at: datetime | None

    @property
    def place(self) -> Place:
        return self.cluster, self.uid


COLUMNS: Final = (
    "pk",
    "cluster_id",
    "uid",
    "namespace",
    "name",
    "job_kind",
    "job_name",
    "finished_at",
    "events_retired_at",
)


@dataclass(frozen=True, slots=True)
class Closed:
    """Until when the use of a namespace is closed.

    Attributes:
        by_namespace: Of workspaces; None where no month of the account is closed.
        of_others: Until when that of every account is closed; None while one has no closed month.
    """

    by_namespace: Mapping[str, datetime | None]
    of_others: datetime | None

    @property
    def newest(self) -> datetime | None:
        """Nothing after it is closed for anybody; None while nothing is."""
        return max(filter(None, (*self.by_namespace.values(), self.of_others)), default=None)

    def holds(self, namespace: str, at: datetime) -> bool:
        """Whether a time is closed for the account of a namespace."""
        edge = self.by_namespace.get(namespace, self.of_others)
        return edge is not None and at < edge


def closed_until() -> Closed:
    """As of now; what is closed stays closed. Five queries."""
    edges = closed_edges()
    accounts = Workspace.objects.values_list("namespace", "account_id")
    is_each_closed = edges.keys() >= set(Account.objects.values_list("pk", flat=True))
    return Closed(
        {namespace: edges.get(account) for namespace, account in accounts},
        min(edges.values(), default=None) if is_each_closed else None,
    )


def retire_events(now: datetime | None = None) -> Retired:
    """Take the raw events away that are older than PORTAL_EVENT_DAYS and of no more use.

    Args:
        now: UTC; None for the present.

    Returns:
        Counts. Nothing is taken with the setting 0, or while the ledger is not as it was closed.
    """
    closed = closed_until()
    if not settings.PORTAL_EVENT_DAYS or closed.newest is None:
        return Retired()
    before = (now or utc_now()) - timedelta(days=settings.PORTAL_EVENT_DAYS)
    candidates = _candidates(min(before, closed.newest))
    if not candidates.exists():
        return Retired()
    # Raw events are what a ledger that was changed could be worked out from anew.
    broken = verify_chain().broken
    if broken is not None:
        log.error("events_kept", broken=str(broken))
        return Retired()
    done, after, until = Retired(), 0, time.monotonic() + RUN_S
    while time.monotonic() < until:
        keys = list(candidates.filter(pk__gt=after).values_list("pk", flat=True)[:BATCH])
        if not keys:
            break
        done += _retire(keys, before=before, closed=closed)
        after = keys[-1]
    log.info("events_retired", workloads=done.workloads, events=done.events, left=done.left)
    return done


def _candidates(before: datetime) -> QuerySet[WorkloadState]:
    rows = WorkloadState.objects.filter(finished_at__lt=before, events_retired_at__isnull=True)
    return rows.order_by("pk")


@uncollected
@transaction.atomic
def _retire(keys: Collection[int], *, before: datetime, closed: Closed) -> Retired:
    """Take away the events of some Workloads whose time has come.

    Numbered, because each step stands on the one before:
        1. whatever hangs together with them is locked, so that nobody builds meanwhile;
        2. it is worked out from its events once more, as a builder would;
        3. families of which nothing speaks against it are marked, and their events go;
        4. the audit log says which these were.
    """
    clusters = all_clusters()
    rows = _locked(keys, {row.pk: row.slug for row in clusters})
    work = _work_out([row for row in rows if row.retired_at is None], clusters)
    ready = [
        row
        for family in families(rows)
        if all(row.retired_at or _may_go(row, work, before, closed) for row in family)
        for row in family
        if row.retired_at is None
    ]
    marked = {row.pk for row in ready}
    left = len({row.pk for row in rows if row.retired_at is None} & set(keys) - marked)
    if not ready:
        return Retired(left=left)
    states = WorkloadState.objects.filter(among("pk", marked))
    states.update(events_retired_at=utc_now())
    gone = sorted(event.pk for row in ready for event in work.histories[row.place])
    told = _take_away(gone)
    after = {"days": settings.PORTAL_EVENT_DAYS, "workloads": len(ready), **told}
    audit(None, "usage.retire_events", "usage", after=after)
    return Retired(len(ready), len(gone), left)


def _locked(keys: Collection[int], slugs: Mapping[int, str]) -> list[Row]:
    """State rows with all that hang together with them, however far; in the builders' order."""
    found: set[int] = set()
    new = set(keys)
    while new:
        found |= new
        rows = WorkloadState.objects.filter(among("pk", new))
        names = list(rows.values_list("namespace", "name", "job_kind", "job_name"))
        new = related(names)[0] - found
    locked = WorkloadState.objects.select_for_update().filter(among("pk", found))
    return [
        Row(pk, slugs[cluster], *rest)
        for pk, cluster, *rest in read_rows(locked.order_by("pk").values_list(*COLUMNS))
    ]


@dataclass(frozen=True, slots=True)
class _Work:
    """What the events of some Workloads come to now.

    Attributes:
        histories: Their events.
        last: The latest time that any of these, or what they come to, names.
        unsettled: Those that have a fault, or of which the tables say otherwise.
    """

    histories: Mapping[Place, Sequence[Recorded]]
    last: Mapping[Place, datetime]
    unsettled: frozenset[Place]


def _work_out(rows: Sequence[Row], clusters: Collection[Cluster]) -> _Work:
    resources = frozenset(Flavor.objects.values_list("resource_name", flat=True))
    reader = reader_of(resources, clusters)
    places = {row.place for row in rows}
    histories = reader.all_of(places)
    found = work_out(histories, managers_of(histories, clusters), origins_of(clusters))
    last: dict[Place, datetime] = {}
    for place, at in _times(rows, histories, found):
        last[place] = max(at, last.get(place, at))
    return _Work(
        histories,
        last,
        frozenset(
            {
                *not_as_stored(found.intervals, workloads=places, pending=found.pending),
                *((row.cluster, row.uid) for row in found.problems if row.is_blocking),
                *reader.unreadable,
            }
        ),
    )


def _times(
    rows: Iterable[Row], histories: Mapping[Place, Sequence[Recorded]], found: ledger.History
) -> Iterator[tuple[Place, datetime]]:
    for row in rows:
        if row.finished_at is not None:
            yield row.place, row.finished_at
    for place, events in histories.items():
        yield place, max(event.seen.observed_at for event in events)
    spans: tuple[Any, ...] = (*found.intervals, *found.pending)
    for span in spans:
        # What still goes on is in no closed month.
        yield (span.cluster, span.uid), span.end or FOREVER


def _may_go(row: Row, work: _Work, before: datetime, closed: Closed) -> bool:
    """Whether nothing of one Workload speaks against it; the others of its family have a say."""
    if row.finished_at is None or row.finished_at >= before:
        return False
    if row.place not in work.histories or row.place in work.unsettled:
        return False
    return closed.holds(row.namespace, work.last[row.place])


def families(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that hang together: by namespace and name, or by the job where it has several."""
    _, _, jobs = related([(row.namespace, row.name, row.job_kind, row.job_name) for row in rows])
    leader: dict[tuple[str, ...], tuple[str, ...]] = {}

    def first(key: tuple[str, ...]) -> tuple[str, ...]:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    for row in rows:
        job = row.namespace, row.job_kind, row.job_name
        if job in jobs:
            leader[first(job)] = first((row.namespace, row.name))
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(first((row.namespace, row.name)), []).append(row)
    return list(found.values())


def _take_away(keys: Sequence[int]) -> dict[str, Any]:
    """Delete events; returns what is told of them: how many, from when until when, a digest.

    The digest is SHA-256 over a line for each event in the order of keys, so that whoever has them
    in a backup can prove that these are they.
    """
    digest, clusters = hashlib.sha256(), set()
    first: datetime | None = None
    last: datetime | None = None
    count = 0
    columns = ("cluster", "uid", "resource_version", "type", "observed_at", "digest")
    for at in range(0, len(keys), KEYS_AT_ONCE):
        rows = WorkloadEvent.objects.filter(among("pk", keys[at : at + KEYS_AT_ONCE]))
        for cluster, *parts, seen, body in read_rows(rows.order_by("pk").values_list(*columns)):
            line = "|".join((cluster, *parts, seen.isoformat(), body))
            digest.update(f"{line}\n".encode())
            clusters.add(cluster)
            first, last = min(seen, first or seen), max(seen, last or seen)
        count += rows.retire()
    return {
        "events": count,
        "clusters": sorted(clusters),
        "seen_from": first.isoformat() if first else None,
        "seen_until": last.isoformat() if last else None,
        "sha256": digest.hexdigest(),
    }
