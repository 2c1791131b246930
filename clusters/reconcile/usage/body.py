"""The role *usage*: what happens to Workloads on one cluster, written down, then built.

On workers a thread besides counts GPUs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import DatabaseError

from budgets.models import Flavor, MeterState
from budgets.selectors.usage.labels import kept_labels
from budgets.services import record_progress
from budgets.services.usage.labels import store_labels
from budgets.services.usage.reconciliation import note_problems
from clusters.documents.keys import key_of, uid_of
from clusters.errors import ClusterError
from clusters.kube.resources import WORKLOAD
from clusters.models import WorkloadEvent
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime import threads
from clusters.reconcile.runtime.controller import Controller, Watched
from clusters.reconcile.runtime.faults import Doing
from clusters.reconcile.runtime.rows import is_away, is_refusal, store_apart
from clusters.reconcile.runtime.watches import Seen
from clusters.reconcile.usage import build as building
from clusters.reconcile.usage.counting import Counting
from clusters.reconcile.usage.record import (
    Backlog,
    Completeness,
    Listed,
    Observation,
    Observer,
    Type,
    event_of,
    missing_event,
    seen_spans,
    store_events,
)
from clusters.reconcile.usage.unwatched import (
    back_fill,
    ended_at,
    newest_of_missing,
    note_unwatched,
    replay,
)

log = structlog.stdlib.get_logger(__name__)

REPORT_S = 2.0
LOOK_S = 2.0
LATE_S = 15.0
FLAVORS_S = 10.0
BACK_FILL_S = 10.0
BATCH = building.BATCH
# An event may be under way while a later answer is already here.
MARGIN = timedelta(seconds=1)
# Rows of another writer may have been committed behind the mark that a shift left.
OVERLAP = 500


class UsageBody(Controller[str]):
    """One shift of usage on one cluster; its keys are the UIDs of Workloads.

    Args:
        context: The shift.
    """

    pause_s = 0.5
    waits_for_lists = False

    def __init__(self, context: ShiftContext) -> None:
        super().__init__(context)
        state = MeterState.objects.filter(cluster=self.cluster).first()
        mark = max(0, state.last_event_id - OVERLAP) if state else 0
        self._backlog = Backlog(self.cluster, mark)
        self._has_news, self._looked_at = True, 0.0
        self._message = state.message if state else ""
        self.counting = Counting(context)
        self._contact = Completeness(self._second, until=state.complete_until if state else None)
        self._observer = Observer(
            self._second, self._contact, watch=lambda: self.watches.of(WORKLOAD), put=self.inbox.put
        )
        self._waiting: deque[Observation | Listed] = deque()
        self._aside: dict[str, Observation] = {}
        self._names: dict[str, str] = {}
        self._has_listed = False
        self._resumes_at = state.watched_version if state else ""
        self._is_whole = False
        self._problems: set[tuple[str, str, str]] = set()
        self._reported_at = 0.0
        self._asked_at = -BACK_FILL_S
        self._gpu_resources: tuple[float, frozenset[str]] | None = None
        self._labels: Mapping[str, int] = {}

    def _second(self) -> datetime:
        return self.context.now().replace(microsecond=0)

    def run(self) -> None:
        """Works until the shift ends; what was told until then is written before it returns.

        Raises:
            LeaseLost: Somebody else works here now.
        """
        name = f"{self.cluster}-usage-measure"
        counting = threading.Thread(target=self.counting.run, name=name, daemon=True)
        if self.context.cluster.runs_jobs:
            threads.start(counting)
        try:
            super().run()
            self.turn_with_database()
        finally:
            self.context.stop.set()
            if counting.is_alive():
                counting.join(timeout=5)

    def watched(self) -> Iterable[Watched]:
        """Workloads."""
        return (Watched(WORKLOAD),)

    def open(self) -> bool:
        """First what happened since the shift before, as far as the cluster remembers it."""
        if self._resumes_at:
            try:
                found = replay(
                    self.context.client,
                    since=self._resumes_at,
                    floor=self._contact.began_with,
                    now=self._second,
                )
            except ClusterError as error:
                log.warning("not_replayed", cluster=self.cluster, reason=error.reason)
                found = None
            self._is_whole = found is not None
            if found is not None:
                self._waiting.extend(found.states)
                self._contact.began_with = found.until
        return super().open()

    def tell(self, seen: Seen) -> None:
        """Note when it was told, at once."""
        self._observer.tell(seen)

    def take_other(self, item: Observation | Listed) -> None:
        """Keep what was told until it is written."""
        self._waiting.append(item)

    def says(self, key: str) -> str:
        """The Workload by its name."""
        return f"Workload {self._names.get(key, key)}"

    def turn(self) -> None:
        """Write down what was told, build what changed, say how far it goes.

        Raises:
            LeaseLost: Somebody else works here now; nothing was written.
            DatabaseError: it is tried again, nothing is lost.
        """
        # 1. Until when everything was told, before anything is taken out of the inbox.
        age, version = self.watches.age(), self.watches.of(WORKLOAD).version
        known = self._contact.sample(age) if self.watches.is_synced else None
        self.take_in(everything=True)
        self.pass_time()
        # 2. Events first; whatever fails after this finds them.
        self.context.fence()
        self._again(self.queue.take())
        while self._waiting:
            self._store_next()
        # 3. Then think.
        self._build_new()
        # 4. Only now is it true.
        self._report(known, age, version)

    def _again(self, uids: Sequence[str]) -> None:
        """Try what was set aside once more."""
        try:
            self._waiting.extend(self._aside[uid] for uid in uids if uid in self._aside)
            self._build({uid for uid in uids if uid not in self._aside})
        except DatabaseError:
            self.queue.add_all(uids)
            raise

    def _store_next(self) -> None:
        """Write down what stands first in the queue, which keeps it until it is written."""
        first = self._waiting[0]
        if isinstance(first, Listed):
            self._build_new()
            self._store_missing(first)
            self._waiting.popleft()
            self._has_listed = True
            return
        batch: list[Observation] = []
        for item in self._waiting:
            if isinstance(item, Listed) or len(batch) == BATCH:
                break
            batch.append(item)
        self._store(batch)
        for _ in batch:
            self._waiting.popleft()

    def _store(self, batch: Sequence[Observation]) -> None:
        """Write some observations down; what cannot be read or written is set aside."""
        resources = self._resources()
        rows: list[tuple[Observation, WorkloadEvent]] = []
        for seen in batch:
            try:
                rows.append((seen, self._event(seen, resources)))
            except Exception as error:
                self._set_aside(seen, error, doing=Doing.READING)
        again = [uid_of(seen.document) for seen, _ in rows if self._aside]
        for uid in again:
            self._aside.pop(uid, None)
        store_apart(
            rows,
            self._write,
            lambda row, error: self._set_aside(row[0], error, doing=Doing.WRITING),
        )
        for uid in again:
            if uid not in self._aside:
                self.went_well(uid)

    def _write(self, part: Sequence[tuple[Observation, WorkloadEvent]]) -> None:
        store_events(event for _, event in part)
        self._has_news = True
        told = [seen.document for seen, _ in part if seen.type == Type.SEEN]
        store_labels(told, cluster=self.cluster, labels=self._labels)

    def _event(self, seen: Observation, resources: frozenset[str]) -> WorkloadEvent:
        is_missing = seen.type == Type.MISSING
        end = ended_at(self.context.client, seen.document) if is_missing else None
        return event_of(seen, cluster=self.cluster, gpu_resources=resources, completed_at=end)

    def _set_aside(self, seen: Observation, error: Exception, *, doing: Doing) -> None:
        uid = uid_of(seen.document)
        self._aside[uid] = seen
        self._names[uid] = key_of(seen.document)
        self.park(uid, error, doing=doing)

    def _store_missing(self, listed: Listed) -> None:
        """What an earlier shift saw alive and the first list of this one lacks."""
        # A shift of before 0.1 left no version to go on from.
        is_whole = self._is_whole or (listed.uids is not None and not self._resumes_at)
        self._is_whole = False
        if listed.last_seen_at is not None and not is_whole:
            note_unwatched(self.cluster, start=listed.last_seen_at, end=listed.at)
        if listed.uids is None:
            return
        gone = newest_of_missing(self.context.cluster.pk, self.cluster, listed.uids)
        store_events(
            missing_event(
                last,
                at=listed.at,
                last_seen_at=listed.last_seen_at,
                completed_at=ended_at(self.context.client, last.payload),
            )
            for last in gone
        )
        if gone:
            self._has_news = True
            log.info("workloads_missing", cluster=self.cluster, count=len(gone))

    def _build_new(self) -> None:
        """Build every Workload with an event beyond the mark, and move the mark.

        Where there was none they are looked for again once some were stored here, and now and then:
        the shift before may have stored some late.
        """
        if not self._has_news and time.monotonic() - self._looked_at < LOOK_S:
            return
        while (uids := self._backlog.take()) is not None:
            self._build(uids)
            self._backlog.advance()
            record_progress(cluster=self.cluster, last_event_id=self._backlog.mark)
        self._has_news, self._looked_at = False, time.monotonic()

    def _build(self, uids: Collection[str]) -> None:
        """Build some Workloads; one that cannot be built does not keep the others back."""
        if not uids:
            return
        source = building.Source(self.context.cluster.pk, self.cluster, self._resources())
        try:
            found = building.build(source, uids)
        except Exception as error:
            if is_away(error):
                raise
            self._build_apart(sorted(uids), error)
            return
        self._backlog.note(found.events)
        self._note_problems(uids, found)
        for uid in uids if self.faults.standing.parked else ():
            if uid not in self._aside:
                self.went_well(uid)

    def _build_apart(self, uids: Sequence[str], error: Exception) -> None:
        """Build in halves what cannot be built together, until the culprits stand alone."""
        if len(uids) > 1:
            half = len(uids) // 2
            self._build(uids[:half])
            self._build(uids[half:])
            return
        events = WorkloadEvent.objects.filter(cluster=self.cluster, uid=uids[0])
        name = events.order_by("pk").values_list("namespace", "name").last()
        self._names[uids[0]] = "/".join(name or (uids[0],))
        self.park(uids[0], error, doing=Doing.WRITING if is_refusal(error) else Doing.DECIDING)

    def _note_problems(self, uids: Collection[str], found: building.Built) -> None:
        own = [row for row in found.problems if row.is_blocking and row.cluster == self.cluster]
        spans = seen_spans(self.cluster, {row.uid for row in own})
        note_problems(cluster=self.cluster, uids=uids, problems=own, spans=spans)
        for problem in found.problems:
            # Told once a shift: every build of the workload finds it again.
            key = problem.cluster, problem.uid, problem.code
            if key not in self._problems:
                self._problems.add(key)
                log.warning(
                    "workload_history_problem",
                    cluster=problem.cluster,
                    uid=problem.uid,
                    code=problem.code,
                    blocking=problem.is_blocking,
                    message=problem.message,
                )

    def _report(self, known: datetime | None, age: float | None, version: str) -> None:
        """How far the events of this cluster are known and built."""
        if time.monotonic() - self._reported_at < REPORT_S:
            return
        if age is None or age > LATE_S:
            error: Any = self.watches.last_error()
            reason = f"{error.reason}: {error.message}" if error else "no answer yet"
            self._tell(f"The cluster is not being watched: {reason}")
        else:
            self._tell(self.faults.standing.says)
        if known is not None and self._has_listed:
            until = known - MARGIN
            record_progress(cluster=self.cluster, complete_until=until, watched_version=version)
            if time.monotonic() - self._asked_at >= BACK_FILL_S:
                self._back_fill()
        self._reported_at = time.monotonic()

    def _back_fill(self) -> None:
        self._asked_at = time.monotonic()
        try:
            if back_fill(self.cluster, self.context.client_for):
                self._has_news = True
        except ClusterError as error:
            log.warning("manager_not_asked", cluster=self.cluster, error=error)

    def _tell(self, message: str) -> None:
        if message[:300] != self._message:
            record_progress(cluster=self.cluster, message=message)
            self._message = message[:300]

    def _resources(self) -> frozenset[str]:
        """Device resources that any flavor counts, archived ones too: their history stands.

        The labels that are kept are read with them.
        """
        now = time.monotonic()
        if self._gpu_resources is None or now - self._gpu_resources[0] > FLAVORS_S:
            names = frozenset(Flavor.objects.values_list("resource_name", flat=True))
            self._gpu_resources, self._labels = (now, names), kept_labels()
        return self._gpu_resources[1]
