"""Discrepancies: noted by the checks, cleared by a later look, or accepted by two people.

Source: spec money, section 1.4 ("cleared by a matching rebuild or by finance's sign-off").
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from budgets.errors import Rejected
from budgets.models import Discrepancy, User
from budgets.models.reconciliation import UNSETTLED
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.billing.approvals import approve
from budgets.services.billing.guards import lock_billing
from budgets.services.guards import by_finance, require_reason

State = Discrepancy.State


def note_discrepancy(found: Discrepancy) -> Discrepancy | None:
    """Write down what a check found, or let what is known of it grow.

    The same again changes nothing; one that goes on where an open one ended makes that one
    longer. What was accepted stays accepted, and only the time after it is new.

    Args:
        found: Not stored; its amount has a sign that says which way.

    Returns:
        The open row; None when all of it is accepted already.
    """
    found.subject, found.message = found.subject[:253], found.message[:500]
    same = Discrepancy.objects.filter(
        kind=found.kind, cluster=found.cluster, subject=found.subject, flavor=found.flavor
    )
    start = found.start
    accepted = same.filter(state=State.ACCEPTED).exclude(start__gt=start)
    for end in accepted.order_by("start").values_list("end", flat=True):
        if end is None or (found.end is not None and end >= found.end):
            return None
        start = max(start, end)
    touching = same.filter(Q(end__isnull=True) | Q(end__gte=start), state__in=UNSETTLED)
    if found.end is not None:
        touching = touching.filter(start__lte=found.end)
    row = touching.order_by("start").first()
    if row is None:
        found.start = start
        found.save()
        return found
    grown = {
        "start": min(row.start, start),
        "end": None if found.end is None or row.end is None else max(row.end, found.end),
        "amount": max(row.amount, found.amount, key=abs),
        "message": found.message if abs(found.amount) >= abs(row.amount) else row.message,
        "samples": _joined(row.samples, found.samples),
    }
    changed = {name: value for name, value in grown.items() if getattr(row, name) != value}
    if row.state == State.PROPOSED and {"start", "end"} & set(changed):
        # What somebody wanted to accept is not what it was.
        changed |= {"state": State.OPEN, "reason": "", "proposed_by": None, "proposed_at": None}
    for name, value in changed.items():
        setattr(row, name, value)
    if changed:
        row.save(update_fields=list(changed))
    return row


def end_discrepancies(rows: QuerySet[Discrepancy], *, at: datetime) -> int:
    """Say that what was found goes on no more; it still has to be settled."""
    return rows.filter(end__isnull=True, state__in=UNSETTLED, start__lte=at).update(end=at)


def clear_discrepancies(rows: QuerySet[Discrepancy]) -> int:
    """Settle what a later look does not find any more; returns how many."""
    cleared = 0
    for row in rows.filter(state__in=UNSETTLED).order_by("pk"):
        row.state, row.cleared_at = State.CLEARED, utc_now()
        row.end = row.end or max(row.start, row.cleared_at)
        row.save(update_fields=["state", "cleared_at", "end"])
        audit(None, "discrepancy.clear", row, after=_facts(row))
        cleared += 1
    return cleared


@by_finance
def propose_acceptance(actor: User | None, *, discrepancy: Discrepancy, reason: str) -> Discrepancy:
    """Say why a discrepancy shall not stand in the way; somebody else approves it.

    Args:
        actor: The proposer, who cannot approve it.
        discrepancy: Open, and over.
        reason: Kept with it for good.

    Raises:
        Rejected: It is settled or proposed already, still goes on, or there is no reason.
    """
    require_reason(reason)
    lock_billing()
    row = Discrepancy.objects.select_for_update().get(pk=discrepancy.pk)
    if row.state != State.OPEN:
        message = f"It is no longer open: it is {row.get_state_display().lower()}."
        raise Rejected.because("", "decided", message)
    if row.end is None:
        message = "It is still going on. Find its cause, and accept it when it is over."
        raise Rejected.because("", "goes_on", message)
    row.state, row.reason = State.PROPOSED, reason.strip()[:500]
    row.proposed_by, row.proposed_at = actor, utc_now()
    row.save()
    _audit(actor, "propose", row)
    return row


@by_finance
def decide_acceptance(
    actor: User | None, *, discrepancy: Discrepancy, is_approved: bool
) -> Discrepancy:
    """Accept it, or put it back; who proposed it can take it back, never accept it.

    Raises:
        NotAllowed: For the proposer's own approval.
        Rejected: Nobody proposed it.
    """
    lock_billing()
    row = Discrepancy.objects.select_for_update().get(pk=discrepancy.pk)
    if row.state != State.PROPOSED:
        message = f"It does not wait for approval: it is {row.get_state_display().lower()}."
        raise Rejected.because("", "decided", message)
    if is_approved:
        row.approval = approve(actor, author_id=row.proposed_by_id, deed="discrepancy.accept")
        row.state, row.decided_by, row.decided_at = State.ACCEPTED, actor, utc_now()
        row.save()
        _audit(actor, "accept", row)
        return row
    _audit(actor, "decline", row)
    row.state, row.reason, row.proposed_by, row.proposed_at = State.OPEN, "", None, None
    row.save()
    return row


def _joined(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Samples of both, each begun with its time: a watch that began anew saw only the later."""
    first = min((row[0] for row in after), default=None)
    return [*(row for row in before if first is None or row[0] < first), *after]


def _audit(actor: User | None, deed: str, row: Discrepancy) -> None:
    audit(
        actor, f"discrepancy.{deed}", row, cluster=row.cluster, reason=row.reason, after=_facts(row)
    )


def _facts(row: Discrepancy) -> dict[str, Any]:
    return state_of(row, "kind", "state", "start", "end", "amount", "message")
