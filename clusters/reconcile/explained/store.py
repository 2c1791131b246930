"""Between a shift and the database: rows to write, questions to answer, in a thread of its own.

The deciding thread never waits for the database; what cannot be written now is tried again. What
the database refuses for what stands in it is set aside alone, and holds nothing else up. One batch
of reasons is under way at most: whoever has more waits until the store is free.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from django.db.models import F
from django.utils import timezone

from budgets.models import Workspace
from clusters.models import PendingReason, Question, ShadowDifference, ShadowTally

log = structlog.stdlib.get_logger(__name__)

POLL_S: Final = 0.25
RETRY_S: Final = 2.0
ANSWERABLE: Final = timedelta(seconds=30)
"""An older question has nobody waiting for it any more."""
MOST_DIFFERENCES: Final = 1000
_BATCH: Final = 200
_REFUSED: Final = (DataError, IntegrityError)


@dataclass(frozen=True, slots=True)
class Row:
    """One pending workload; ``since`` is when its reason was first seen."""

    uid: str
    namespace: str
    name: str
    evidence: Mapping[str, Any]
    since: datetime


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to write, and uids of workloads that wait no longer."""

    at: datetime
    rows: Sequence[Row] = ()
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that waits: changes as in ``clusters.kueue.explanation.asking``."""

    id: UUID
    changes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Differing:
    """One workload of which engine and Kueue say different things; kinds are the model's."""

    uid: str
    kind: str
    namespace: str
    name: str
    portal_says: Mapping[str, Any]
    kueue_did: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Decisions compared, those passed over, and what differed."""

    at: datetime
    compared: int = 0
    passed_over: int = 0
    differences: Sequence[Differing] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    id: UUID
    document: Mapping[str, Any] | None
    problem: str


class Store:
    """Reads and writes of one cluster; ``start`` and ``close`` are the shift's.

    Args:
        cluster: Slug.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._batch: Batch | None = None
        self._comparisons: deque[Comparison] = deque()
        self._answers: deque[_Answer] = deque()
        self._asked: deque[Asked] = deque()
        self._handed: set[UUID] = set()
        self._refused: deque[str] = deque()
        self._thread = threading.Thread(target=self._run, name=f"{cluster}-explained", daemon=True)

    def start(self) -> None:
        """Begin to poll for questions."""
        self._thread.start()

    def close(self) -> None:
        """Write what is left and end."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def known(self) -> dict[str, tuple[str, datetime]]:
        """What is stored: uid → reason and since when. One query, in the caller's thread."""
        rows = PendingReason.objects.filter(cluster=self._cluster)
        found = rows.values_list("uid", "evidence__reason", "since")
        return {uid: (str(reason), since) for uid, reason, since in found}

    @property
    def is_free(self) -> bool:
        """Whether a batch would be taken."""
        return self._batch is None

    def put(self, batch: Batch) -> None:
        """Have a batch written; only while the store is free."""
        assert self.is_free
        self._batch = batch
        self._wake.set()

    def take_refused(self) -> list[str]:
        """Uids whose rows the database refused since the last call."""
        return [self._refused.popleft() for _ in range(len(self._refused))]

    def put_comparison(self, comparison: Comparison) -> None:
        """Have the result of a comparison counted."""
        self._comparisons.append(comparison)
        self._wake.set()

    def take_question(self) -> Asked | None:
        """The oldest question that nobody has taken yet."""
        try:
            return self._asked.popleft()
        except IndexError:
            return None

    def answer(self, asked: Asked, document: Mapping[str, Any] | None, problem: str) -> None:
        """Have an answer written, or why there is none."""
        self._answers.append(_Answer(asked.id, document, problem))
        self._wake.set()

    def _run(self) -> None:
        polled_at = 0.0
        try:
            while not self._stop.is_set():
                self._wake.wait(POLL_S)
                self._wake.clear()
                try:
                    self._write()
                    if time.monotonic() - polled_at >= POLL_S:
                        polled_at = time.monotonic()
                        self._poll()
                except DatabaseError as error:
                    # What the database could not take now stays here.
                    log.warning("explained_waits", cluster=self._cluster, error=error)
                    connection.close()
                    self._stop.wait(RETRY_S)
            self._write()
        except DatabaseError as error:
            log.warning("explained_lost", cluster=self._cluster, error=error)
        finally:
            connection.close()

    def _tell_refusal(self, what: str, error: DatabaseError) -> None:
        log.error("explained_refused", cluster=self._cluster, what=what, error=error)

    def _poll(self) -> None:
        waiting = Question.objects.filter(
            cluster=self._cluster, answered_at=None, created_at__gt=timezone.now() - ANSWERABLE
        )
        for pk, asked in waiting.order_by("created_at").values_list("pk", "asked"):
            if pk not in self._handed:
                self._handed.add(pk)
                self._asked.append(Asked(pk, asked["changes"]))

    def _write(self) -> None:
        while self._answers:
            self._write_answer(self._answers[0])
            self._handed.discard(self._answers.popleft().id)
        if self._batch is not None:
            self._write_reasons(self._batch)
            self._batch = None
        while self._comparisons:
            try:
                self._write_comparison(self._comparisons[0])
            except _REFUSED as error:
                self._tell_refusal("comparison", error)
            self._comparisons.popleft()

    def _write_reasons(self, batch: Batch) -> None:
        """All rows at once; where one of them is refused, each by itself."""
        try:
            self._write_batch(batch)
        except _REFUSED as error:
            if len(batch.rows) == 1 and not batch.gone:
                uid = batch.rows[0].uid
                self._tell_refusal(f"reason uid={uid}", error)
                self._refused.append(uid)
                return
            self._write_batch(Batch(batch.at, gone=batch.gone))
            for row in batch.rows:
                self._write_reasons(Batch(batch.at, [row]))

    def _write_answer(self, answer: _Answer) -> None:
        try:
            self._store_answer(answer)
        except _REFUSED as error:
            self._tell_refusal(f"answer question={answer.id}", error)
            self._store_answer(_Answer(answer.id, None, "The answer could not be stored."))

    def _store_answer(self, answer: _Answer) -> None:
        Question.objects.filter(pk=answer.id, answered_at=None).update(
            answer=answer.document, problem=answer.problem[:500], answered_at=timezone.now()
        )

    def _write_batch(self, batch: Batch) -> None:
        names = {row.namespace for row in batch.rows}
        workspaces = dict(
            Workspace.objects.filter(namespace__in=names).values_list("namespace", "pk")
        )
        rows = [
            PendingReason(
                cluster=self._cluster,
                uid=row.uid,
                namespace=row.namespace,
                name=row.name,
                workspace_id=workspaces.get(row.namespace),
                evidence=row.evidence,
                since=row.since,
                updated_at=batch.at,
            )
            for row in batch.rows
        ]
        with transaction.atomic():
            PendingReason.objects.bulk_create(
                rows,
                batch_size=_BATCH,
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=["evidence", "since", "updated_at", "workspace"],
            )
            for start in range(0, len(batch.gone), _BATCH):
                gone = batch.gone[start : start + _BATCH]
                PendingReason.objects.filter(cluster=self._cluster, uid__in=gone).delete()

    @transaction.atomic
    def _write_comparison(self, comparison: Comparison) -> None:
        different = len(comparison.differences)
        first = {"compared": comparison.compared, "different": different}
        first["passed_over"] = comparison.passed_over
        ShadowTally.objects.update_or_create(
            cluster=self._cluster,
            defaults={
                **{name: F(name) + count for name, count in first.items()},
                "updated_at": comparison.at,
            },
            create_defaults={**first, "since": comparison.at, "updated_at": comparison.at},
        )
        for item in comparison.differences:
            said = {
                "portal_says": item.portal_says,
                "kueue_did": item.kueue_did,
                "seen_at": comparison.at,
            }
            named = {"namespace": item.namespace, "name": item.name}
            ShadowDifference.objects.update_or_create(
                cluster=self._cluster,
                uid=item.uid,
                kind=item.kind,
                defaults={**said, "count": F("count") + 1},
                create_defaults={**said, **named, "first_seen_at": comparison.at},
            )
        if comparison.differences:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        rows = ShadowDifference.objects.filter(cluster=self._cluster).order_by("-seen_at", "-pk")
        kept = rows.values_list("pk", flat=True)[MOST_DIFFERENCES : MOST_DIFFERENCES * 2]
        oldest = list(kept)
        if oldest:
            ShadowDifference.objects.filter(pk__in=oldest).delete()
