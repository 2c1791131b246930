"""Questions to the engine of a cluster: asked here, answered by the shift that keeps it warm.

A question is a row; the shift polls for rows of its cluster and writes the answer. Nothing on the
cluster or in a promise changes. Who may ask, and what of an answer a reader may see, is decided by
whoever shows it: an answer names workloads of every account.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from django.utils import timezone

from budgets.errors import Fault, reject_any
from budgets.models import User
from clusters.kueue.explanation.asking import change_fault
from clusters.models import Cluster, Question
from clusters.selectors.fleet import cluster_names

PATIENCE: Final = timedelta(seconds=5)
"""A question that nobody answered for so long finds no shift at work."""
KEPT: Final = timedelta(days=1)
MOST_CHANGES: Final = 5000
MOST_BYTES: Final = 4_000_000
MOST_OPEN: Final = 20
MOST_OPEN_EACH: Final = 5
"""Of one person on one cluster, so that nobody takes the turns of all others."""


class ReplyState(StrEnum):
    """How far a question has come."""

    WAITING = "waiting"
    ANSWERED = "answered"
    REFUSED = "refused"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a question.

    Attributes:
        answer: As in ``Question.answer``; None unless it is answered.
        problem: One sentence, unless it is answered or waits.
    """

    state: ReplyState
    answer: dict[str, Any] | None = None
    problem: str = ""


def ask_what_if(
    cluster: Cluster,
    changes: Iterable[Mapping[str, Any]],
    by: User | None,
    *,
    at: datetime | None = None,
) -> Question:
    """Ask what changes would lead to on one cluster.

    Args:
        cluster: A registered one.
        changes: In order; shaped as ``clusters.kueue.explanation.asking.read_changes`` says.
        by: Who asks; None for a command on the server.
        at: When; the same for questions that are asked together. None for now.

    Raises:
        Rejected: the cluster is removed, a change is malformed, or too much is asked at once.
    """
    asked = [dict(change) for change in changes]
    now = at or timezone.now()
    reject_any(_faults(cluster, asked, by, now))
    Question.objects.filter(created_at__lt=now - KEPT).delete()
    return Question.objects.create(
        cluster=cluster.slug,
        kind=Question.Kind.WHAT_IF,
        asked={"changes": asked},
        asked_by=by,
        created_at=now,
    )


def answer_of(question: Question) -> Reply:
    """What became of a question, read anew. One query, two where nothing answers."""
    row = Question.objects.filter(pk=question.pk).first()
    if row is None:
        return Reply(ReplyState.REFUSED, problem="The question was asked over a day ago.")
    if row.answered_at is not None:
        if row.problem:
            return Reply(ReplyState.REFUSED, problem=row.problem)
        return Reply(ReplyState.ANSWERED, answer=row.answer)
    if timezone.now() - row.created_at > PATIENCE:
        name = cluster_names().get(row.cluster, row.cluster)
        problem = (
            f"Nothing answers for {name}, because no process of the portal works on that cluster. "
            "Tell the people who run the portal."
        )
        return Reply(ReplyState.SILENT, problem=problem)
    return Reply(ReplyState.WAITING)


def _faults(
    cluster: Cluster, asked: list[dict[str, Any]], by: User | None, now: datetime
) -> list[Fault]:
    if cluster.state == Cluster.State.REMOVED:
        return [Fault("cluster", "removed", f"The cluster {cluster.name} is no longer registered.")]
    if not asked:
        return [Fault("changes", "empty", "Name at least one change.")]
    if len(asked) > MOST_CHANGES or len(json.dumps(asked)) > MOST_BYTES:
        message = (
            f"A question can have at most {MOST_CHANGES} changes and {MOST_BYTES} bytes. Ask in "
            "parts."
        )
        return [Fault("changes", "too_large", message)]
    found = [
        Fault(f"changes.{index}", "malformed", fault)
        for index, change in enumerate(asked)
        if (fault := change_fault(change))
    ]
    askers = Question.objects.filter(
        cluster=cluster.slug, answered_at=None, created_at__gt=now - PATIENCE
    ).values_list("asked_by", flat=True)
    waiting = list(askers)
    if len(waiting) >= MOST_OPEN:
        message = (
            f"{len(waiting)} questions already wait for {cluster.name}. Try again in a moment."
        )
        found.append(Fault("cluster", "busy", message))
    elif by is not None and waiting.count(by.pk) >= MOST_OPEN_EACH:
        message = (
            f"{MOST_OPEN_EACH} of your questions already wait for {cluster.name}. Wait for "
            "an answer, then ask again."
        )
        found.append(Fault("cluster", "too_many", message))
    return found
