"""How long a workload waited: from creation or requeue to its admission on a worker.

Source: spec money, section 3.5 (pending).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from budgets.intervals.epochs import Copy
from budgets.intervals.model import PendingSpan


def pending_of(
    copy: Copy, *, admitted: Iterable[tuple[datetime, datetime | None]]
) -> Iterator[PendingSpan]:
    """Yield the times in which an object waited for its devices.

    Args:
        copy: The object that its owner made: the manager's, or a worker's local one.
        admitted: When it was admitted on a worker, [start, end), any order.
    """
    facts = copy.facts
    gpus = facts.requested_gpus
    if not gpus:
        return
    over_at = _over_at(copy)
    since: datetime | None = facts.created_at
    is_requeued = False
    for start, end in sorted(admitted, key=lambda span: span[0]):
        if since is not None and since < start:
            yield _span(copy, since, start, gpus, is_requeued)
        if end is None:
            return
        since, is_requeued = (end if since is None else max(since, end)), True
    if since is not None and (over_at is None or since < over_at):
        yield _span(copy, since, over_at, gpus, is_requeued)


def _over_at(copy: Copy) -> datetime | None:
    """When it stopped waiting without being admitted: over, or deactivated by its owner."""
    if copy.over_at is not None:
        return copy.over_at
    stopped: datetime | None = None
    for event in copy.events:
        stopped = None if event.facts.is_active else stopped or event.observed_at
    return stopped


def _span(
    copy: Copy, start: datetime, end: datetime | None, gpus: int, is_requeued: bool
) -> PendingSpan:
    facts = copy.facts
    return PendingSpan(
        cluster=copy.cluster,
        uid=copy.uid,
        start=start,
        end=end,
        gpus=gpus,
        namespace=facts.namespace,
        workload=facts.name,
        queue=facts.queue,
        requeued=is_requeued,
    )
