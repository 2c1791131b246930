"""The dispatcher in force with what it remembers: its rounds, and what the workers offer.

One thread owns it: the shift's own. Rounds are remembered for the decision, for people, and over a
restart: what the decision needs is in memory; rows follow in bulk, a little later. A round whose
row was lost with the process begins again, which costs a wait and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.db import DatabaseError, connection

from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document
from clusters.kueue.multikueue import steps as step
from clusters.kueue.multikueue.decide import Verdict, decide
from clusters.kueue.multikueue.dispatchers import InForce, Nomination, not_yet
from clusters.kueue.multikueue.group import Group, Round
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import DispatchRound
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.multikueue.group import group_for
from clusters.reconcile.multikueue.local import Local, attempt_of, chosen_of
from clusters.reconcile.multikueue.offers import Bidding, Prices, current_prices, no_prices
from clusters.reconcile.multikueue.workers import DispatchFleet
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.rows import prune_ended

log = structlog.stdlib.get_logger(__name__)

FLUSH_EVERY_S: Final = 0.5
PRUNE_EVERY_S: Final = 600.0
KEPT: Final = timedelta(days=90)
MOST_ROWS: Final = 200_000
ROUNDS_MOST: Final = 100
_BULK: Final = 500
_TEXT: Final = 500
_CHANGING: Final = ("losers", "outcome", "winner", "decided_at", "ended_at", "ending")
Outcome = DispatchRound.Outcome


@dataclass(slots=True)
class _Course:
    """The rounds of one reservation."""

    attempt: str
    rows: list[DispatchRound] = field(default_factory=list)
    cause: str = ""

    @property
    def winner(self) -> str:
        return next((row.winner for row in self.rows if row.winner), "")


class Trail:
    """Rounds by workload.

    Args:
        cluster_id: Of the manager's row; 0 keeps everything in memory only.
        dispatcher: Name to note.
    """

    def __init__(self, cluster_id: int, *, dispatcher: str) -> None:
        self._cluster_id, self._dispatcher = cluster_id, dispatcher
        self._courses: dict[str, _Course] = {}
        self._dirty: dict[tuple[str, int], DispatchRound] = {}
        self._flushed_at = self._pruned_at = time.monotonic()

    def load(self) -> None:
        """Take over what an earlier shift left open. One query."""
        if not self._cluster_id:
            return
        rows = DispatchRound.objects.filter(cluster=self._cluster_id, ended_at=None)
        for row in rows.order_by("started_at", "number"):
            key = f"{row.namespace}/{row.name}"
            course = self._courses.get(key)
            if course is not None and course.attempt != row.attempt:
                self._end(key, "its end was not seen", row.started_at)
                course = None
            if course is None:
                course = self._courses[key] = _Course(row.attempt)
            course.rows.append(row)

    def keys(self) -> Iterable[str]:
        """Workloads with rounds."""
        return tuple(self._courses)

    def rounds(self, key: str, attempt: str) -> tuple[Round, ...]:
        """Rounds of a reservation so far, oldest first."""
        course = self._courses.get(key)
        if course is None or course.attempt != attempt:
            return ()
        return tuple(
            Round(row.number, row.started_at, tuple(row.nominated), row.why) for row in course.rows
        )

    def open(self, key: str, local: Document, *, attempt: str, opened: Round) -> None:
        """Note that a round begins."""
        course = self._courses.get(key)
        if course is None or course.attempt != attempt:
            self._end(key, "", opened.started_at)
            course = self._courses[key] = _Course(attempt)
        if len(course.rows) >= ROUNDS_MOST:
            last = course.rows[-1]
            last.started_at = opened.started_at
            last.nominated = [*last.nominated, *opened.nominated]
            return
        for row in course.rows:
            if row.outcome == Outcome.OPEN:
                self._change(row, outcome=Outcome.PASSED, decided_at=opened.started_at)
        namespace, _, name = key.partition("/")
        row = DispatchRound(
            cluster_id=self._cluster_id,
            workload_uid=local["metadata"]["uid"],
            namespace=namespace,
            name=name,
            attempt=attempt,
            number=opened.number,
            dispatcher=self._dispatcher,
            nominated=list(opened.nominated),
            why={worker: text[:_TEXT] for worker, text in opened.why.items()},
            started_at=opened.started_at,
        )
        course.rows.append(row)
        self._note(row)

    def lost_race(self, key: str, worker: str, now: datetime) -> None:
        """A worker's copy goes because another worker has won."""
        course = self._courses.get(key)
        if course is None:
            return
        for row in course.rows:
            if worker in row.nominated and worker not in row.losers:
                self._change(row, losers={**row.losers, worker: now.isoformat()})

    def because(self, key: str, why: str) -> None:
        """Why the reservation is about to end, in the dispatcher's own words."""
        course = self._courses.get(key)
        if course is not None:
            course.cause = why

    def observe(self, key: str, local: Document | None, *, attempt: str, now: datetime) -> None:
        """Follow a workload: who won, and whether its reservation ended."""
        course = self._courses.get(key)
        if course is None:
            return
        if local is None:
            self._end(key, "deleted", now)
            return
        if course.attempt == attempt:
            self._decide(course, chosen_of(local), now)
        ending = _ending(local)
        if ending or course.attempt != attempt:
            self._end(key, ending or "quota was given back", now)

    def _decide(self, course: _Course, winner: str, now: datetime) -> None:
        if not winner or course.winner == winner:
            return
        first = next((row for row in course.rows if winner in row.nominated), course.rows[-1])
        for row in course.rows:
            if row is first:
                self._change(row, outcome=Outcome.WON, winner=winner, decided_at=now)
            elif row.outcome == Outcome.OPEN:
                self._change(row, outcome=Outcome.PASSED, decided_at=now)

    def _end(self, key: str, why: str, now: datetime) -> None:
        course = self._courses.pop(key, None)
        if course is None:
            return
        for row in course.rows:
            is_open = row.outcome == Outcome.OPEN
            outcome = Outcome.ENDED if is_open else row.outcome
            ending = (course.cause or why)[:_TEXT]
            self._change(row, outcome=outcome, ended_at=now, ending=ending)

    def _change(self, row: DispatchRound, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(row, name, value)
        self._note(row)

    def _note(self, row: DispatchRound) -> None:
        if self._cluster_id:
            self._dirty[row.attempt, row.number] = row

    # Rows

    def flush(self, now: datetime, *, is_last: bool = False) -> None:
        """Write what is due; a database that refuses is asked again later."""
        moment = time.monotonic()
        if not self._cluster_id or (moment - self._flushed_at < FLUSH_EVERY_S and not is_last):
            return
        self._flushed_at = moment
        try:
            if self._dirty:
                for row in self._dirty.values():
                    row.pk = None  # the natural key decides
                DispatchRound.objects.bulk_create(
                    self._dirty.values(),
                    batch_size=_BULK,
                    update_conflicts=True,
                    unique_fields=["cluster", "attempt", "number"],
                    update_fields=_CHANGING,
                )
                self._dirty.clear()
            if moment - self._pruned_at > PRUNE_EVERY_S:
                self._pruned_at = moment
                prune(self._cluster_id, now)
        except DatabaseError as error:
            log.warning("dispatch_rounds_not_written", error=type(error).__name__)
            connection.close()


def prune(cluster_id: int, now: datetime) -> int:
    """Remove the oldest ended rounds of a cluster; returns how many."""
    mine = DispatchRound.objects.filter(cluster=cluster_id)
    return prune_ended(mine, before=now - KEPT, most=MOST_ROWS)


def _ending(local: Document) -> str:
    for kind, word in (("Finished", "finished"), ("Evicted", "evicted")):
        if is_true(local, kind):
            found = condition(local, kind)
            return f"{word}: {found.get('reason', '')}: {found.get('message', '')}"
    return ""


class Nominating:
    """Decides with the dispatcher in force.

    One that asks offers is told prices per device and hour by flavor, those of the portal's rate
    cards unless others are given.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        settings: DispatchSettings,
        manager: JobCache,
        prices: Prices | None,
    ) -> None:
        self._context, self._settings, self._manager = context, settings, manager
        self._trail = Trail(context.cluster.pk, dispatcher=settings.dispatcher)
        stored = current_prices if context.cluster.pk else no_prices
        self._bidding = Bidding(context.client_for, prices=prices or stored)
        self._asks_offers = settings.in_force.asks_offers

    def load(self) -> Iterable[str]:
        """Take over what an earlier shift left; keys of workloads that have to be looked at."""
        self._trail.load()
        return self._trail.keys()

    def follow(self, workers: Iterable[str]) -> None:
        """Work with these workers and no others."""
        self._bidding.follow(workers if self._asks_offers else ())

    def flush(self, *, is_last: bool = False) -> None:
        """Write rounds that are due."""
        self._trail.flush(self._context.now(), is_last=is_last)

    def close(self) -> None:
        """Write the last rounds and end every watch."""
        self.flush(is_last=True)
        self._bidding.close()

    def failed(self, worker: str) -> None:
        """A worker refused what it should have taken."""
        self._bidding.failed(worker, self._context.now())

    def observe(self, local: Local) -> None:
        """Note who won a workload, and whether its reservation ended."""
        attempt, now = local.marks.attempt, self._context.now()
        self._trail.observe(local.key, local.workload, attempt=attempt, now=now)

    def group(
        self,
        local: Local,
        fleet: DispatchFleet,
        *,
        blocked: Mapping[str, str] | None = None,
        foreign: Collection[str] = (),
        read: Mapping[str, str] | None = None,
    ) -> Group:
        """Everything about one workload, its rounds and the offers of workers included.

        Arguments as of :func:`group_for`.
        """
        self.observe(local)
        now = self._context.now()
        is_asked = self._asks_offers and local.workload is not None
        return group_for(
            local,
            self._manager,
            fleet,
            now=now,
            rounds=self._trail.rounds(local.key, local.marks.attempt),
            offers=self._bidding.offers(local, fleet, self._manager, now) if is_asked else {},
            blocked=blocked or {},
            foreign=foreign,
            read=read or {},
        )

    def decide(self, key: str, group: Group) -> Verdict:
        """What has to be done for a workload; what explains it later is kept."""
        verdict = decide(group, dispatcher=self._in_force(group))
        if group.local is not None:
            self._remember(key, group.local, verdict, group)
        return verdict

    def nominate(self, key: str, group: Group) -> Nomination:
        """Who shall be nominated, where a Kueue does everything else; the round is kept."""
        found = self._in_force(group)(group)
        if group.local is not None and found.opened is not None:
            self._begin(key, group.local, found.opened, group)
        return found

    def lost_race(self, key: str, worker: str) -> None:
        """A worker's copy is gone because another worker has won."""
        self._trail.lost_race(key, worker, self._context.now())

    def _in_force(self, group: Group) -> InForce:
        return self._settings.nominate if self._bidding.is_ready(group.copies) else not_yet

    def _begin(self, key: str, local: Document, opened: Round, group: Group) -> None:
        self._trail.open(key, local, attempt=attempt_of(local), opened=opened)
        if self._asks_offers:
            for worker in opened.nominated:
                self._bidding.book(local, worker, group.offers[worker])

    def _remember(self, key: str, local: Document, verdict: Verdict, group: Group) -> None:
        if verdict.opened is not None:
            self._begin(key, local, verdict.opened, group)
        for action in verdict.actions:
            if isinstance(action, step.RemoveCopy) and action.why == "lost":
                self._trail.lost_race(key, action.cluster, group.now)
            elif isinstance(action, step.SetCheck):
                self._trail.because(key, action.message)
                if chosen_of(local):
                    self.failed(chosen_of(local))
