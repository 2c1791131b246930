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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from budgets.models import Workspace
from budgets.models.reading import Written, ask, written
from clusters.models import PendingReason, Question, QueueShare, ShadowDifference, ShadowTally
from clusters.reconcile.runtime import threads
from clusters.reconcile.runtime.rows import store_apart

log = structlog.stdlib.get_logger(__name__)

POLL_S: Final = 0.5
RETRY_S: Final = 2.0
ANSWERABLE: Final = timedelta(seconds=30)
"""An older question has nobody waiting for it any more."""
MOST_DIFFERENCES: Final = 1000
_BATCH: Final = 200
_REFUSED: Final = (DataError, IntegrityError)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to write, and uids of workloads that wait no longer.

    Attributes:
        rows: Without cluster, workspace and time, which the store knows.
    """

    at: datetime
    rows: Sequence[PendingReason] = ()
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Decisions compared, those passed over, and what differed, without cluster and time."""

    at: datetime
    compared: int = 0
    passed_over: int = 0
    differences: Sequence[ShadowDifference] = ()


class ReasonStore:
    """Reads and writes of one cluster; ``start`` and ``close`` are the shift's.

    Args:
        cluster: Slug.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._batch: Batch | None = None
        self._shares: Sequence[QueueShare] | None = None
        self._comparisons: deque[Comparison] = deque()
        self._answers: deque[Question] = deque()
        self._asked: deque[Question] = deque()
        self._handed: set[UUID] = set()
        self._refused: deque[str] = deque()
        self._thread = threading.Thread(target=self._run, name=f"{cluster}-explained", daemon=True)

    def start(self) -> None:
        """Begin to poll for questions."""
        threads.start(self._thread)

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

    @property
    def takes_shares(self) -> bool:
        """Whether shares would be taken."""
        return self._shares is None

    def put_shares(self, rows: Sequence[QueueShare]) -> None:
        """Have all shares of the cluster written, without cluster and time; while it takes them."""
        assert self.takes_shares
        self._shares = rows
        self._wake.set()

    def take_refused(self) -> list[str]:
        """Uids whose rows the database refused since the last call."""
        return [self._refused.popleft() for _ in range(len(self._refused))]

    def put_comparison(self, comparison: Comparison) -> None:
        """Have the result of a comparison counted."""
        self._comparisons.append(comparison)
        self._wake.set()

    def take_question(self) -> Question | None:
        """The oldest question that nobody has taken yet."""
        return self._asked.popleft() if self._asked else None

    def answer(self, asked: Question, document: Mapping[str, Any] | None, problem: str) -> None:
        """Have an answer written, or why there is none."""
        asked.answer, asked.problem = document, problem[:500]
        self._answers.append(asked)
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

    def _tell_refusal(self, what: str, error: Exception) -> None:
        log.error("explained_refused", cluster=self._cluster, what=what, error=error)

    def _poll(self) -> None:
        if not ask(_is_asked(self._cluster)):
            return
        for question in _waiting(self._cluster).order_by("created_at"):
            if question.pk not in self._handed:
                self._handed.add(question.pk)
                self._asked.append(question)

    def _write(self) -> None:
        while self._answers:
            self._write_answer(self._answers[0])
            self._handed.discard(self._answers.popleft().pk)
        if self._batch is not None:
            self._write_reasons(self._batch)
            self._batch = None
        if self._shares is not None:
            try:
                self._write_shares(self._shares)
            except _REFUSED as error:
                self._tell_refusal("shares", error)
            self._shares = None
        while self._comparisons:
            try:
                self._write_comparison(self._comparisons[0])
            except _REFUSED as error:
                self._tell_refusal("comparison", error)
            self._comparisons.popleft()

    def _write_reasons(self, batch: Batch) -> None:
        store_apart(
            batch.rows, lambda rows: self._write_batch(replace(batch, rows=rows)), self._refuse
        )

    @transaction.atomic
    def _write_batch(self, batch: Batch) -> None:
        names = {row.namespace for row in batch.rows}
        found = Workspace.objects.filter(namespace__in=names).values_list("namespace", "pk")
        workspaces = dict(found)
        for row in batch.rows:
            row.cluster, row.updated_at = self._cluster, batch.at
            row.workspace_id = workspaces.get(row.namespace)
        PendingReason.objects.bulk_create(
            batch.rows,
            batch_size=_BATCH,
            update_conflicts=True,
            unique_fields=["cluster", "uid"],
            update_fields=["evidence", "since", "updated_at", "workspace"],
        )
        for start in range(0, len(batch.gone), _BATCH):
            gone = batch.gone[start : start + _BATCH]
            PendingReason.objects.filter(cluster=self._cluster, uid__in=gone).delete()

    @transaction.atomic
    def _write_shares(self, rows: Sequence[QueueShare]) -> None:
        at = timezone.now()
        for row in rows:
            row.cluster, row.updated_at = self._cluster, at
        QueueShare.objects.bulk_create(
            rows,
            batch_size=_BATCH,
            update_conflicts=True,
            unique_fields=["cluster", "is_cohort", "name"],
            update_fields=[
                "parent", "weight", "resource", "borrowed", "lendable", "share", "updated_at",
            ],
        )  # fmt: skip
        QueueShare.objects.filter(cluster=self._cluster).exclude(updated_at=at).delete()

    def _refuse(self, row: PendingReason, error: Exception) -> None:
        self._tell_refusal(f"reason uid={row.uid}", error)
        self._refused.append(row.uid)

    def _write_answer(self, question: Question) -> None:
        try:
            _store_answer(question)
        except _REFUSED as error:
            self._tell_refusal(f"answer question={question.pk}", error)
            question.answer, question.problem = None, "The answer could not be stored."
            _store_answer(question)

    @transaction.atomic
    def _write_comparison(self, comparison: Comparison) -> None:
        counts = {
            "compared": comparison.compared,
            "passed_over": comparison.passed_over,
            "different": len(comparison.differences),
        }
        more = {name: F(name) + count for name, count in counts.items()}
        now = {"updated_at": comparison.at}
        ShadowTally.objects.update_or_create(
            cluster=self._cluster,
            defaults=more | now,
            create_defaults=counts | now | {"since": comparison.at},
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
        oldest = list(rows.values_list("pk", flat=True)[MOST_DIFFERENCES : MOST_DIFFERENCES * 2])
        ShadowDifference.objects.filter(pk__in=oldest).delete()


def _store_answer(question: Question) -> None:
    Question.objects.filter(pk=question.pk, answered_at=None).update(
        answer=question.answer, problem=question.problem, answered_at=timezone.now()
    )


def _waiting(cluster: str) -> QuerySet[Question]:
    """Questions that somebody still waits for."""
    return Question.objects.filter(
        cluster=cluster, answered_at=None, created_at__gt=Now() - ANSWERABLE
    )


@lru_cache(maxsize=64)
def _is_asked(cluster: str) -> Written:
    """The query for whether there is one: it is asked twice a second."""
    return written(_waiting(cluster).order_by().values_list("pk")[:1])
