"""Keeps what the guard found and did: in memory for its decisions, in rows for people.

One thread owns it. A database that refuses is asked again later; nothing the guard decides hangs
on a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import DatabaseError, connection, transaction

from budgets import services as promises
from clusters.documents.keys import Document
from clusters.models import GuardIncident
from clusters.reconcile.external.defects import Defect, Diagnosis
from clusters.reconcile.runtime.rows import prune_ended

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
