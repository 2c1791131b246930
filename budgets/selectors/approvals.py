"""What waits for a second person of finance, and what is told to all of finance."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import QuerySet

from budgets.models import (
    Adjustment,
    AuditEntry,
    Discrepancy,
    Installation,
    Proposal,
    User,
)
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of

TOLD = "finance.told"
TOLD_FOR = timedelta(days=14)


def installation() -> Installation:
    """What holds for the installation; as it begins while nothing was set."""
    return Installation.objects.first() or Installation(pk=1)


def visible_proposals(user: User) -> QuerySet[Proposal]:
    """Proposals that a user may read, the newest first: platform roles all, others none."""
    found = Proposal.objects.select_related("proposed_by", "decided_by", "approval")
    return found if roles_of(user).sees_everything else found.none()


def open_proposals() -> QuerySet[Proposal]:
    """Those that can still be decided."""
    return Proposal.objects.filter(state=Proposal.State.WAITING, expires_at__gt=utc_now())


def open_proposal(deed: str, subject: str) -> Proposal | None:
    """The proposal of a deed that waits; None when none does."""
    return open_proposals().filter(deed=deed, subject=subject).first()


def waiting_for(user: User) -> int:
    """How many deeds wait for this one of finance; 0 for everybody else. One query, or two."""
    if not roles_of(user).is_finance:
        return 0
    waiting = open_proposals().order_by().values_list("proposed_by")
    for rows in (
        Adjustment.objects.filter(state=Adjustment.State.PROPOSED),
        Discrepancy.objects.filter(state=Discrepancy.State.PROPOSED),
    ):
        waiting = waiting.union(rows.order_by().values_list("proposed_by"), all=True)
    authors = [author for (author,) in waiting]
    own = authors.count(user.pk)
    return len(authors) if own and installation().is_one_person else len(authors) - own


def told_to_finance(user: User) -> QuerySet[AuditEntry]:
    """What all of finance was told of late, the newest first; for platform roles."""
    found = AuditEntry.objects.filter(action=TOLD, at__gt=utc_now() - TOLD_FOR)
    return found if roles_of(user).sees_everything else found.none()


def approves_from(user: User) -> datetime | None:
    """When somebody may approve again; None: now."""
    held = user.approves_from
    return held if held is not None and held > utc_now() else None
