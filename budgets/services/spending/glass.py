"""Breaking the glass: somebody, by name and with a reason, lets a reached rule do nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from budgets.errors import NotAllowed, Rejected
from budgets.models import BreakGlass, SpendRule, User
from budgets.selectors.spending import may_change
from budgets.services.budget.versions import close_budget, open_budget
from budgets.services.guards import require_reason, roles_for
from budgets.services.spending.settle import settle_locked

LONGEST = timedelta(days=7)


@transaction.atomic
def break_glass(actor: User, *, rule: SpendRule, until: datetime, reason: str) -> BreakGlass:
    """Suspend a rule until an instant; it goes on counting, and acts again afterwards.

    Args:
        actor: Who answers for it; whoever may change the rule. Never the portal itself.
        rule: In force; it need not be reached yet.
        until: UTC, within :data:`LONGEST`.
        reason: Kept in the log and shown on the page.

    Raises:
        Rejected: No reason, no such rule any more, or an end that is past or too far away.
    """
    if not may_change(roles_for(actor), rule):
        raise NotAllowed("Only those who may change a spend rule can break its glass.")
    require_reason(reason)
    budget, now = open_budget(rule.budget_id)
    if not now < until <= now + LONGEST:
        words = f"{until:%Y-%m-%d %H:%M} UTC is past or too far away; choose within seven days."
        raise Rejected.because("until", "out_of_range", words)
    if not SpendRule.objects.filter(pk=rule.pk, removed_at=None).exists():
        raise Rejected.because("", "removed", "The rule was removed; nothing holds you back.")
    _end_all(rule, now)
    row = BreakGlass.objects.create(
        rule=rule, person=actor, reason=reason[:500], since=now, until=until
    )
    settle_locked(budget, now=now)
    close_budget(
        budget,
        actor,
        action="budget.break_glass",
        reason=reason,
        summary=f"suspended the spend rule {rule} until {until:%Y-%m-%d %H:%M} UTC",
    )
    return row


@transaction.atomic
def mend_glass(actor: User, *, rule: SpendRule, reason: str) -> None:
    """Let a suspended rule act again now; grace begins anew.

    Raises:
        Rejected: No reason, or it is not suspended.
    """
    if not may_change(roles_for(actor), rule):
        raise NotAllowed("Only those who may change a spend rule can mend its glass.")
    require_reason(reason)
    budget, now = open_budget(rule.budget_id)
    if not _end_all(rule, now):
        raise Rejected.because("", "not_suspended", "The rule is not suspended.")
    settle_locked(budget, now=now)
    close_budget(
        budget,
        actor,
        action="budget.mend_glass",
        reason=reason,
        summary=f"let the spend rule {rule} act again",
    )


def _end_all(rule: SpendRule, now: datetime) -> int:
    return BreakGlass.objects.filter(rule=rule, until__gt=now).update(until=now)
