"""The guard at work: looks at workloads one by one, tells, and cures where it may.

It lives in the shift that watches a manager under a live Kueue. What it finds is told after the
patience of the defect; with the cluster's setting on ``cure`` it acts, in a lane of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from clusters.documents.keys import Document
from clusters.models import Cluster
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.lanes import Effect, Lanes, Report
from clusters.reconcile.dispatch.timing import Holds
from clusters.reconcile.guard.cures import MANAGER, Cures
from clusters.reconcile.guard.defects import PATIENCE, Defect, Finding, diagnose
from clusters.reconcile.guard.incidents import Incidents, Mark
from clusters.reconcile.guard.sighted import Sighted
from clusters.reconcile.runtime.writer import Hook, Writer

Place = tuple[str, str]
_LANE: Final = "guard:"
_NOT_ALLOWED: Final = "Nothing: the guard of this cluster is set to tell only."


class Guard:
    """Guards the workloads of one manager.

    Args:
        context: The shift.
        sight: What it sees.
        lanes: Where it acts.
        holds: Lanes that wait after a failure.
        writer: Of the manager.
        alarm: Asks for a look at a key at a time.
        hook: Called around every write on a worker.
    """

    def __init__(
        self,
        context: ShiftContext,
        *,
        sight: Sighted,
        lanes: Lanes,
        holds: Holds,
        writer: Writer,
        alarm: Callable[[str, datetime], None],
        hook: Hook,
    ) -> None:
        self._context, self._sight = context, sight
        self._lanes, self._holds, self._alarm = lanes, holds, alarm
        self._cures = Cures(context, sight=sight, writer=writer, hook=hook)
        self._incidents = Incidents(context.cluster.pk, slug=context.cluster.slug)
        self._since: dict[Mark, datetime] = {}
        self._acting: dict[Place, tuple[Mark, list[str]]] = {}

    def load(self) -> Iterable[str]:
        """Take over what an earlier shift left open; keys to look at."""
        self._incidents.load()
        return self._incidents.keys()

    def flush(self) -> None:
        """Write incidents that are due."""
        self._incidents.flush(self._context.now())

    def examine(self, key: str, local: Document | None, now: datetime) -> None:
        """Look at one workload.

        Args:
            key: Of the workload.
            local: The manager's Workload; None when it is gone.
            now: Current time.
        """
        is_on = self._context.cluster.guard != Cluster.Guard.OFF
        findings = diagnose(self._sight.patient(key, local, now)) if local and is_on else ()
        marks = {(item.defect, key, item.worker): item for item in findings}
        self._settle(key, marks, now, is_known=local is not None and is_on)
        for mark, finding in marks.items():
            due = self._since.setdefault(mark, now) + PATIENCE[finding.defect]
            if now < due:
                self._alarm(key, due)
                continue
            assert local is not None
            self._incidents.note(key, local, finding, now)
            self._act(mark, now)

    def _settle(
        self, key: str, marks: dict[Mark, Finding], now: datetime, *, is_known: bool
    ) -> None:
        """End what is not seen any more.

        A worker that is out of sight proves nothing, and a cure under way tells first what it did.
        """
        for mark in [mark for mark in self._since if mark[1] == key and mark not in marks]:
            del self._since[mark]
        under_way = {mark for mark, _ in self._acting.values()}
        for mark in self._incidents.of(key):
            if mark in under_way:
                continue
            is_hidden = bool(mark[2]) and not self._sight.answers(mark[2])
            if mark not in marks and not (is_known and is_hidden):
                self._incidents.end(mark, now)

    def _act(self, mark: Mark, now: datetime) -> None:
        cluster = self._context.cluster
        defect, key, worker = mark
        place = f"{_LANE}{key}", worker or MANAGER
        if cluster.guard != Cluster.Guard.CURE:
            self._incidents.leave(mark, _NOT_ALLOWED)
            return
        if not cluster.may_write:
            self._incidents.leave(mark, "Nothing: writing to this cluster is stopped.")
            return
        if self._lanes.is_busy(place) or self._holds.is_held(place):
            return
        told: list[str] = []

        def work(effects: list[Effect]) -> None:
            told.append(self._carry_out(defect, key, worker, effects))

        self._acting[place] = mark, told
        self._lanes.start(place, work)

    def _carry_out(self, defect: Defect, key: str, worker: str, effects: list[Effect]) -> str:
        match defect:
            case Defect.STALE_COPY:
                return self._cures.remove_stale(key, worker, effects)
            case Defect.STUCK_QUOTA:
                return self._cures.free_quota(key, effects)
            case Defect.NOT_REQUEUED:
                return self._cures.requeue(key, effects)

    def take_report(self, report: Report) -> str:
        """What became of a cure.

        Returns:
            Key of the workload to look at again; empty when the report is not the guard's.
        """
        mine = self._acting.pop(report.place, None)
        if mine is None:
            return ""
        mark, told = mine
        if report.error is not None:
            text = f"Tried and refused: {report.error.reason}: {report.error.message}"
            self._incidents.leave(mark, text)
        elif told and told[0]:
            self._incidents.acted(mark, told[0], self._context.now())
        if not (told and told[0]):
            # Not again at once: what was seen and what is there have to meet first.
            self._holds.fail(report.place)
        return mark[1]
