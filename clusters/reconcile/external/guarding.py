"""The guard at work: looks at workloads one by one, tells, and cures where it may.

It lives in the shift that watches a manager under a live Kueue. What it finds is told after the
patience of the defect; with the cluster's setting on ``cure`` it acts, in a place of its own.

What is done about a defect: read everything again, decide again, then one careful write or two.
Each cure runs in a thread, returns what it did in words, and does nothing when the fresh look does
not show the defect any more. Only objects with this manager's origin are deleted on a worker.

What was found and done is kept in memory for decisions, in rows for people. One thread owns it. A
database that refuses is asked again later; nothing the guard decides hangs on a row.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import DatabaseError, connection, transaction

from budgets import services as promises
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document
from clusters.errors import ClusterError, NotFound
from clusters.jobs import remote
from clusters.kueue.multikueue.steps import RemoveCopy
from clusters.models import Cluster, GuardIncident
from clusters.reconcile.external.defects import PATIENCE, Defect, Diagnosis, diagnose
from clusters.reconcile.external.watched_workers import WatchedWorkers
from clusters.reconcile.multikueue.controller import ManagerController, Place, read_workload
from clusters.reconcile.multikueue.copies import Copies
from clusters.reconcile.multikueue.local import Local, attempt_of, chosen_of
from clusters.reconcile.multikueue.workers import MANAGER
from clusters.reconcile.reactivation import reactivation
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.pool import Answer, Sender
from clusters.reconcile.runtime.rows import prune_ended
from clusters.reconcile.runtime.writer import Write

log = structlog.stdlib.get_logger(__name__)

KEPT: Final = timedelta(days=90)
MOST_ROWS: Final = 20_000
_FOUND, _DONE = 1000, 500
_PRUNE_EVERY: Final = timedelta(minutes=10)
_AGAIN: Final = timedelta(seconds=1)
State = GuardIncident.State

Mark = tuple[Defect, str, str]
"""Defect, key of the workload, worker."""


class Incidents:
    """Incidents of one manager.

    Args:
        cluster_id: Of its row; 0 keeps everything in memory only.
        slug: Its name, for the audit log.
    """

    def __init__(self, cluster_id: int, *, slug: str = "") -> None:
        self._cluster_id, self._slug = cluster_id, slug
        self._open: dict[Mark, GuardIncident] = {}
        self._dirty: list[GuardIncident] = []
        self._deeds: list[tuple[GuardIncident, str]] = []
        self._pruned_at: datetime | None = None
        self._refused_at: datetime | None = None

    def load(self) -> None:
        """Take over what an earlier shift left open. One query."""
        if not self._cluster_id:
            return
        for row in GuardIncident.objects.filter(cluster=self._cluster_id, ended_at=None):
            mark = Defect(row.defect), f"{row.namespace}/{row.name}", row.worker
            self._open[mark] = row

    def keys(self) -> Iterable[str]:
        """Workloads with open incidents."""
        return {key for _, key, _ in self._open}

    def of(self, key: str) -> tuple[Mark, ...]:
        """Marks of a workload's open incidents."""
        return tuple(mark for mark in self._open if mark[1] == key)

    def note(self, key: str, local: Document, finding: Diagnosis, now: datetime) -> None:
        """A defect stands: begin an incident, or take in what is new about it."""
        mark = finding.defect, key, finding.worker
        row = self._open.get(mark)
        if row is None:
            namespace, _, name = key.partition("/")
            row = self._open[mark] = GuardIncident(
                cluster_id=self._cluster_id,
                defect=finding.defect.value,
                workload_uid=local["metadata"]["uid"],
                namespace=namespace,
                name=name,
                worker=finding.worker,
                noticed_at=now,
            )
            log.warning(
                "guard_found",
                cluster=self._slug,
                defect=finding.defect,
                workload=key,
                worker=finding.worker or "-",
            )
        if row.found != finding.found[:_FOUND]:
            row.found = finding.found[:_FOUND]
            self._note(row)

    def acted(self, mark: Mark, done: str, now: datetime) -> None:
        """Something was done about it; it goes to the audit log, too."""
        row = self._open.get(mark)
        if row is None:
            return
        row.done, row.acted_at = done[:_DONE], now
        log.info("guard_acted", cluster=self._slug, defect=mark[0], workload=mark[1])
        self._deeds.append((row, done))
        self._note(row)

    def leave(self, mark: Mark, why: str) -> None:
        """Nothing was done, and why; what was done before stays."""
        row = self._open.get(mark)
        if row is not None and row.acted_at is None and row.done != why[:_DONE]:
            row.done = why[:_DONE]
            self._note(row)

    def end(self, mark: Mark, now: datetime) -> None:
        """The defect is not seen any more."""
        row = self._open.pop(mark, None)
        if row is None:
            return
        row.state = State.CURED if row.acted_at is not None else State.PASSED
        row.ended_at = now
        self._note(row)

    def flush(self, now: datetime) -> None:
        """Write what is due."""
        if not self._cluster_id or not (self._dirty or self._deeds):
            return
        if self._refused_at is not None and now - self._refused_at < _AGAIN:
            return
        try:
            with transaction.atomic():
                for row in self._dirty:
                    row.save()
                for row, done in self._deeds:
                    promises.audit(
                        None,
                        action="guard.cure",
                        subject=f"workload:{row.namespace}/{row.name}",
                        cluster=self._slug,
                        reason=done,
                        after={"defect": row.defect, "worker": row.worker, "found": row.found},
                    )
            self._dirty.clear()
            self._deeds.clear()
            if self._pruned_at is None or now - self._pruned_at > _PRUNE_EVERY:
                self._pruned_at = now
                prune(self._cluster_id, now)
        except DatabaseError as error:
            self._refused_at = now
            log.warning("guard_incidents_not_written", error=type(error).__name__)
            connection.close()

    def _note(self, row: GuardIncident) -> None:
        if self._cluster_id and row not in self._dirty:
            self._dirty.append(row)


def prune(cluster_id: int, now: datetime) -> int:
    """Remove the oldest ended incidents of a manager; returns how many."""
    mine = GuardIncident.objects.filter(cluster=cluster_id, ended_at__isnull=False)
    return prune_ended(mine, before=now - KEPT, most=MOST_ROWS)


CURE: Final = "cure:"
"""Before the key of a workload: the place where it is cured."""
_NOT_ALLOWED: Final = "Nothing, because the guard of this cluster is set to report only."


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
            self._incidents.leave(mark, "Nothing, because writing to this cluster is stopped.")
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


class Cures:
    """Cures on a manager and its workers."""

    def __init__(self, shift: ManagerController, *, workers: WatchedWorkers) -> None:
        self._shift, self._context, self._workers = shift, shift.context, workers

    def carry_out(self, defect: Defect, key: str, worker: str, effects: list[Effect]) -> str:
        """Cure one defect of one workload; an old copy on a worker.

        Returns:
            What was done; empty when there is nothing to do any more.
        """
        local = read_workload(self._context.client, key)
        if local is None:
            return ""
        sender = Sender(MANAGER, self._context.client, self._shift.writer, effects)
        match defect:
            case Defect.STALE_COPY:
                return self._remove_stale(key, local, worker, effects)
            case Defect.STUCK_QUOTA:
                return self._free_quota(key, local, sender)
            case _:
                return self._requeue(local, sender)

    def _remove_stale(self, key: str, local: Document, worker: str, effects: list[Effect]) -> str:
        """Delete an old copy, its job first: before Kueue takes it, or to give the job back."""
        link, origin = self._workers.links.get(worker), self._workers.origin
        if link is None or link.client is None:
            return ""
        copy = read_workload(link.client, key)
        chosen = chosen_of(local)
        if copy is None or not chosen or chosen == worker or is_true(local, "Finished"):
            return ""
        if not remote.is_ours(copy, origin) or not is_true(copy, "Admitted"):
            return ""
        jobs = self._workers.kinds.with_resources(link.cache.jobs_for(key))
        marks = remote.CopyMarks(origin, attempt_of(local))
        Copies(Local(key, local, None, None, "", marks), copy, jobs).carry_out(
            RemoveCopy(worker, "stale"),
            Sender(worker, link.client, self._shift.writer_on(link, link.client), effects),
            is_gone=lambda: True,
        )
        return f"Deleted the old copy on {worker}, its job first; {chosen} keeps the job."

    def _free_quota(self, key: str, local: Document, sender: Sender) -> str:
        """Write into the manager's job that no pod runs: Kueue then gives the quota back.

        It starts nothing anywhere. Kinds whose status cannot say so stay as they are.
        """
        kind, _, name = self._workers.kinds.owner_of(local)
        if kind is None:
            return ""
        try:
            job = sender.client.get(kind.resource, name, namespace=local["metadata"]["namespace"])
        except NotFound:
            return ""
        now = self._context.now()
        patient = self._workers.patient(key, local, now)
        stands = any(item.defect is Defect.STUCK_QUOTA for item in diagnose(patient))
        patch = kind.inactive_patch(job, now=now)
        if not stands or not kind.is_active(job) or patch is None:
            return ""
        sender.send(Write.patch("free-quota", kind.resource, job, patch, subresource="status"))
        return f"Wrote into {kind.resource.kind} {name} that no pod of it runs."

    def _requeue(self, local: Document, sender: Sender) -> str:
        """Take the mark of the rejection away, so that Kueue queues the workload again."""
        write = reactivation(local)
        # A workload that somebody deactivated again is left alone.
        if write is None or not write.subresource:
            return ""
        sender.send(write)
        return "Removed the condition Requeued, so that Kueue queues the job again."
