"""The body of the shift *usage*: what happens to Workloads on one cluster, written down, built.

Two threads besides: the watch, which only puts things down, and on workers the count of GPUs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from datetime import datetime, timedelta

from django.db import DatabaseError, DataError, IntegrityError, connection

from budgets.models import Flavor, MeterState
from budgets.services import record_progress
from budgets.services.usage.reconciliation import note_problems
from clusters.kube.resources import WORKLOAD
from clusters.kube.watch import Reflector
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.usage import build as building
from clusters.reconcile.usage.backlog import Backlog
from clusters.reconcile.usage.counting import Counting
from clusters.reconcile.usage.inbox import ClusterClock, Contact, Inbox, Listed, Observation, Type
from clusters.reconcile.usage.missing import ended_at, newest_of_missing
from clusters.reconcile.usage.record import event_of, missing_event, seen_spans, store_events

log = logging.getLogger(__name__)

TURN_S = 0.5
RETRY_S = 1.0
REPORT_S = 2.0
LATE_S = 15.0
FLAVORS_S = 10.0
BATCH = building.BATCH
# An event may be under way while a later answer is already here.
MARGIN = timedelta(seconds=1)
# Rows of another writer may have been committed behind the mark that a shift left.
OVERLAP = 500


class UsageBody:
    """One shift of usage on one cluster.

    Args:
        context: The shift.
    """

    def __init__(self, context: ShiftContext) -> None:
        self._context = context
        self._slug = context.cluster.slug
        state = MeterState.objects.filter(cluster=self._slug).first()
        mark = max(0, state.last_event_id - OVERLAP) if state else 0
        self._backlog = Backlog(self._slug, mark)
        self._message = state.message if state else ""
        clock = ClusterClock(context.now, pulse=context.pulse)
        self.counting = Counting(context, clock)
        self._contact = Contact(clock.now, until=state.complete_until if state else None)
        self._inbox = Inbox(clock, self._contact)
        self.watch = Reflector(context.client, WORKLOAD, self._inbox, pulse=context.pulse)
        self._inbox.attend(self.watch)
        self._waiting: deque[Observation | Listed] = deque()
        self._has_listed = False
        self._refused = ""
        self._problems: set[tuple[str, str, str]] = set()
        self._reported_at = 0.0
        self._gpu_resources: tuple[float, frozenset[str]] | None = None
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Works until the shift ends; what was told until then is written before it returns.

        Raises:
            LeaseLost: Somebody else works here now.
        """
        stop = self._context.stop
        self.start()
        try:
            while not stop.is_set():
                stop.wait(TURN_S if self._turn_safely() else RETRY_S)
                if not self._threads[0].is_alive() and not stop.is_set():
                    raise RuntimeError(f"the watch on the workloads of {self._slug} ended")
            self._turn_safely()
        finally:
            self.close()

    def start(self) -> None:
        """Begins to watch, and on a worker to count."""
        context = self._context
        context.report_watch_age(self.watch.age)
        work = [("watch", lambda: self.watch.run(context.stop))]
        if not context.cluster.is_manager:
            work.append(("measure", self.counting.run))
        for what, target in work:
            thread = threading.Thread(target=target, name=f"{self._slug}-usage-{what}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Ends the threads, and the shift if an error did not end it yet."""
        self._context.stop.set()
        self.watch.interrupt()
        for thread in self._threads:
            thread.join(timeout=5)

    def turn(self) -> None:
        """Write down what was told, build what changed, say how far it goes.

        Raises:
            LeaseLost: Somebody else works here now; nothing was written.
        """
        # 1. Until when everything was told, before anything is taken out of the inbox.
        age = self.watch.age()
        known = self._contact.sample(age) if self.watch.is_synced else None
        self._waiting.extend(self._inbox.take())
        # 2. Events first; whatever fails after this finds them.
        self._context.fence()
        while self._waiting:
            self._store_next()
        # 3. Then think.
        self._build_new()
        # 4. Only now is it true.
        self._report(known, age)

    def _turn_safely(self) -> bool:
        """Whether a turn went well; with a broken database it is tried again, nothing is lost."""
        try:
            self.turn()
        except DatabaseError as error:
            log.warning(
                "usage_turn_failed cluster=%s waiting=%s error=%s",
                self._slug, len(self._waiting), error,
            )  # fmt: skip
            connection.close()
            return False
        return True

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
        resources = self._resources()
        store_events(
            event_of(
                seen,
                cluster=self._slug,
                gpu_resources=resources,
                completed_at=self._ended_at(seen),
            )
            for seen in batch
        )
        for _ in batch:
            self._waiting.popleft()

    def _ended_at(self, seen: Observation) -> str | None:
        if seen.type != Type.MISSING:
            return None
        return ended_at(self._context.client, seen.document)

    def _store_missing(self, listed: Listed) -> None:
        """What an earlier shift saw alive and the first list of this one lacks."""
        gone = newest_of_missing(self._context.cluster.pk, self._slug, listed)
        store_events(
            missing_event(
                last,
                at=listed.at,
                last_seen_at=listed.last_seen_at,
                completed_at=ended_at(self._context.client, last.payload),
            )
            for last in gone
        )
        if gone:
            log.info("workloads_missing cluster=%s count=%s", self._slug, len(gone))

    def _build_new(self) -> None:
        """Build every Workload with an event beyond the mark, and move the mark."""
        while (uids := self._backlog.take()) is not None:
            if uids:
                self._build(set(uids))
            self._backlog.advance()
            record_progress(cluster=self._slug, last_event_id=self._backlog.mark)

    def _build(self, uids: set[str]) -> None:
        """Build some Workloads; one that the database refuses does not keep the others back."""
        source = building.Source(self._context.cluster.pk, self._slug, self._resources())
        try:
            found = building.build(source, uids)
        except (DataError, IntegrityError) as error:
            if len(uids) > 1:
                for uid in sorted(uids):
                    self._build({uid})
                return
            log.error("workload_not_built cluster=%s uid=%s error=%s", self._slug, *uids, error)
            self._refused = f"A workload cannot be stored: {error}"
            return
        self._backlog.note(found.events)
        own = [row for row in found.problems if row.is_blocking and row.cluster == self._slug]
        spans = seen_spans(self._slug, {row.uid for row in own})
        note_problems(cluster=self._slug, uids=uids, problems=own, spans=spans)
        for problem in found.problems:
            # Told once a shift: every build of the workload finds it again.
            key = problem.cluster, problem.uid, problem.code
            if key not in self._problems:
                self._problems.add(key)
                log.warning(
                    "workload_history_problem cluster=%s uid=%s code=%s blocking=%s message=%s",
                    *key, problem.is_blocking, problem.message,
                )  # fmt: skip

    def _report(self, known: datetime | None, age: float | None) -> None:
        """How far the events of this cluster are known and built."""
        if time.monotonic() - self._reported_at < REPORT_S:
            return
        if age is None or age > LATE_S:
            error = self.watch.last_error
            reason = f"{error.reason}: {error.message}" if error else "no answer yet"
            self._tell(f"The cluster is not being watched: {reason}")
        else:
            self._tell(self._refused)
        if known is not None and self._has_listed:
            record_progress(cluster=self._slug, complete_until=known - MARGIN)
        self._reported_at = time.monotonic()

    def _tell(self, message: str) -> None:
        if message[:300] != self._message:
            record_progress(cluster=self._slug, message=message)
            self._message = message[:300]

    def _resources(self) -> frozenset[str]:
        """Device resources that any flavor counts, archived ones too: their history stands."""
        now = time.monotonic()
        if self._gpu_resources is None or now - self._gpu_resources[0] > FLAVORS_S:
            names = frozenset(Flavor.objects.values_list("resource_name", flat=True))
            self._gpu_resources = now, names
        return self._gpu_resources[1]
