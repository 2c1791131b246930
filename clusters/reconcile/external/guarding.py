"""The guard at work: looks at workloads one by one, tells, and cures where it may.

It lives in the shift that watches a manager under a live Kueue. What it finds is told after the
patience of the defect; with the cluster's setting on ``cure`` it acts, in a place of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from clusters.documents.keys import Document
from clusters.errors import ClusterError
from clusters.models import Cluster
from clusters.reconcile.external.cures import Cures
from clusters.reconcile.external.defects import PATIENCE, Diagnosis, diagnose
from clusters.reconcile.external.incidents import Incidents, Mark
from clusters.reconcile.external.watched_workers import WatchedWorkers
from clusters.reconcile.multikueue.controller import ManagerController, Place
from clusters.reconcile.multikueue.workers import MANAGER
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.pool import Answer

CURE: Final = "cure:"
"""Before the key of a workload: the place where it is cured."""
_NOT_ALLOWED: Final = "Nothing: the guard of this cluster is set to tell only."


@dataclass(slots=True)
class _Cure:
    """A cure under way; ``did`` is told by the thread that carries it out."""

    mark: Mark
    did: str = ""

    @property
    def step(self) -> str:
        return f"cure-{self.mark[0]}"


class DefectGuard:
    """Guards the workloads of one manager."""

    def __init__(self, shift: ManagerController, *, workers: WatchedWorkers) -> None:
        self._shift, self._context, self._workers = shift, shift.context, workers
        self._cures = Cures(shift, workers=workers)
        self._incidents = Incidents(self._context.cluster.pk, slug=self._context.cluster.slug)
        self._since: dict[Mark, datetime] = {}

    def load(self) -> Iterable[str]:
        """Take over what an earlier shift left open; keys to look at."""
        self._incidents.load()
        return self._incidents.keys()

    def flush(self) -> None:
        """Write incidents that are due."""
        self._incidents.flush(self._context.now())

    def examine(self, key: str, local: Document | None, now: datetime) -> None:
        """Look at one workload; None when it is gone."""
        is_on = self._context.cluster.guard != Cluster.Guard.OFF
        findings = diagnose(self._workers.patient(key, local, now)) if local and is_on else ()
        marks = {(item.defect, key, item.worker): item for item in findings}
        self._settle(key, marks, now, is_known=local is not None and is_on)
        for mark, finding in marks.items():
            due = self._since.setdefault(mark, now) + PATIENCE[finding.defect]
            if now < due:
                self._shift.queue.add_at((key, MANAGER), due)
                continue
            assert local is not None
            self._incidents.note(key, local, finding, now)
            self._act(mark)

    def _settle(
        self, key: str, marks: dict[Mark, Diagnosis], now: datetime, *, is_known: bool
    ) -> None:
        """End what is not seen any more.

        A worker that is out of sight proves nothing, and a cure under way tells first what it did.
        """
        for mark in [mark for mark in self._since if mark[1] == key and mark not in marks]:
            del self._since[mark]
        for mark in self._incidents.of(key):
            if self._shift.queue.is_busy(_place_of(mark)):
                continue
            is_hidden = bool(mark[2]) and not self._workers.answers(mark[2])
            if mark not in marks and not (is_known and is_hidden):
                self._incidents.end(mark, now)

    def _act(self, mark: Mark) -> None:
        cluster, place, cure = self._context.cluster, _place_of(mark), _Cure(mark)

        def work(effects: list[Effect]) -> None:
            cure.did = self._cures.carry_out(*mark, effects)

        if cluster.guard != Cluster.Guard.CURE:
            self._incidents.leave(mark, _NOT_ALLOWED)
        elif not cluster.may_write:
            self._incidents.leave(mark, "Nothing: writing to this cluster is stopped.")
        elif self._shift.queue.is_free(place):
            self._shift.start(place, work, about=cure, lane=place[1])

    def places(self, key: str) -> tuple[Place, ...]:
        """Where cures of a workload may be under way."""
        return (f"{CURE}{key}", MANAGER), *((f"{CURE}{key}", name) for name in self._workers.links)

    def answered(self, answer: Answer[Place]) -> None:
        """Tell what a cure did; where it found nothing to do, not again at once."""
        if not isinstance(answer.about, _Cure):
            return
        if answer.about.did:
            self._incidents.acted(answer.about.mark, answer.about.did, self._context.now())
        else:
            # What was seen and what is there have to meet first.
            self._shift.queue.retry(answer.key, time.monotonic())

    def failed(self, answer: Answer[Place]) -> None:
        """Tell why a cure was refused."""
        if isinstance(answer.about, _Cure) and isinstance(answer.error, ClusterError):
            text = f"Tried and refused: {answer.error.reason}: {answer.error.message}"
            self._incidents.leave(answer.about.mark, text)


def _place_of(mark: Mark) -> Place:
    _, key, worker = mark
    return f"{CURE}{key}", worker or MANAGER
