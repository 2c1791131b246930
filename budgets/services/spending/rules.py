"""Setting spend rules: who may, what a rule has to say, and a cap never below its own floor.

And breaking the glass: somebody, by name and with a reason, lets a reached rule do nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction

from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import AlertRule, BreakGlass, Budget, SpendRule, User, Workspace
from budgets.selectors.billing import portal_currency
from budgets.selectors.budget.beginning import beginning_faults
from budgets.selectors.spending import may_add, may_change
from budgets.services.audit import state_of
from budgets.services.budget.in_force import generations_follow
from budgets.services.budget.versions import close_budget, open_budget
from budgets.services.guards import require_reason, roles_for, save_checked
from budgets.services.spending.floors import floor_faults
from budgets.services.spending.settle import settle_locked

MOST_RULES = 10
CHANGEABLE = ("amount", "action", "grace_minutes", "warn_at_percent", "grant_end")


@dataclass(frozen=True, slots=True)
class RuleDraft:
    """A rule as somebody types it.

    Attributes:
        unit: ``gpu_hours`` or ``money``, the latter in the currency of the rate cards.
        amount: Above zero, two places.
        window: ``day``, ``week``, ``month`` or ``grant``, in the account's billing zone.
        counts: ``above_floor`` or ``everything``.
        action: ``warn``, ``drop_to_floor``, ``hold`` or ``hold_and_drain``.
        grace_minutes: Between reaching the cap and stopping running jobs.
        warn_at_percent: Of the amount; an alert is raised there and at the cap itself.
        grant_start: Of a grant, UTC.
        grant_end: Likewise; None for no end.
    """

    unit: str
    amount: Decimal
    window: str = SpendRule.Window.MONTH
    counts: str = SpendRule.Counts.ABOVE_FLOOR
    action: str = SpendRule.Action.WARN
    grace_minutes: int = 0
    warn_at_percent: int = 80
    grant_start: datetime | None = None
    grant_end: datetime | None = None


@transaction.atomic
def create_spend_rule(
    actor: User | None, *, workspace: Workspace, draft: RuleDraft, reason: str
) -> SpendRule:
    """Put a cap on a workspace's budget; it is looked at at once.

    A rule that finance or an admin sets is the platform's: owners see it and cannot change it.
    """
    roles = roles_for(actor)
    if not may_add(roles, workspace):
        raise NotAllowed("Only an owner, finance or a platform admin can set spend caps.")
    require_reason(reason)
    budget, now = open_budget(workspace.budget.pk)
    rule = SpendRule(
        **asdict(draft),
        budget=budget,
        currency=portal_currency() if draft.unit == SpendRule.Unit.MONEY else "",
        is_platform=roles.is_admin or roles.is_finance,
        created_by=actor,
    )
    faults = [*_rule_faults(rule), *_budget_faults(rule, workspace)]
    if not faults:
        faults = floor_faults(rule, workspace, now)
    with generations_follow(workspace.account.slug):
        save_checked(rule, also=faults)
    _follow_with_alerts(rule, workspace, actor)
    settle_locked(budget, now=now)
    _close(budget, actor, f"set the spend cap {rule}", reason, after=rule)
    return rule


@transaction.atomic
def change_spend_rule(
    actor: User | None, *, rule: SpendRule, reason: str, **changes: Any
) -> SpendRule:
    """Change amount, action, grace, warning or the end of a grant; a raise lets go at once.

    Args:
        actor: Who may change it.
        rule: In force.
        reason: Kept in the log.
        **changes: Of :data:`CHANGEABLE`; what a cap counts, and when, needs a new rule.
    """
    _require_right(actor, rule)
    require_reason(reason)
    unknown = sorted(set(changes) - set(CHANGEABLE))
    if unknown:
        words = f"The {unknown[0]} of a cap cannot be changed. Remove the cap and set a new one."
        raise Rejected.because(unknown[0], "not_changeable", words)
    budget, now = open_budget(rule.budget_id)
    workspace = budget.workspace
    fresh = _in_force(rule)
    before = _told(fresh)
    for name, value in changes.items():
        setattr(fresh, name, value)
    if fresh.action != SpendRule.Action.HOLD_AND_DRAIN and "grace_minutes" not in changes:
        fresh.grace_minutes = 0
    faults = _rule_faults(fresh) or floor_faults(fresh, workspace, now)
    with generations_follow(workspace.account.slug):
        save_checked(fresh, also=faults)
    fresh.alert_rules.filter(removed_at=None).update(removed_at=now)
    _follow_with_alerts(fresh, workspace, actor)
    settle_locked(budget, now=now)
    _close(budget, actor, f"changed the spend cap to {fresh}", reason, before=before, after=fresh)
    return fresh


@transaction.atomic
def remove_spend_rule(actor: User | None, *, rule: SpendRule, reason: str) -> None:
    """End a rule; what it held back is let go at once.

    Raises:
        Rejected: No reason, or it has ended already.
    """
    _require_right(actor, rule)
    require_reason(reason)
    budget, now = open_budget(rule.budget_id)
    fresh = _in_force(rule)
    with generations_follow(budget.workspace.account.slug):
        fresh.removed_at = now
        fresh.save(update_fields=["removed_at"])
    fresh.alert_rules.filter(removed_at=None).update(removed_at=now)
    settle_locked(budget, now=now)
    _close(budget, actor, f"removed the spend cap {fresh}", reason, before=_told(fresh))


def _rule_faults(rule: SpendRule) -> list[Fault]:
    """What a row of this table must say, beside their fields."""
    found: list[Fault] = []
    if rule.amount <= 0:
        words = (
            f"A cap of {rule.amount} is not possible. Enter more than 0, or remove the burst GPUs "
            "instead."
        )
        found.append(Fault("amount", "not_above_zero", words))
    is_grant = rule.window == SpendRule.Window.GRANT
    if is_grant and rule.grant_start is None:
        words = "Enter the day on which the grant begins."
        found.append(Fault("grant_start", "required", words))
    if not is_grant and (rule.grant_start or rule.grant_end):
        words = f"Only a grant has a start and an end; a {rule.window} begins by itself."
        found.append(Fault("grant_start", "not_a_grant", words))
    if rule.grant_start and rule.grant_end and rule.grant_end <= rule.grant_start:
        words = f"The grant ends {rule.grant_end:%Y-%m-%d}, not after it begins; enter a later day."
        found.append(Fault("grant_end", "ends_before_start", words))
    if rule.grace_minutes and rule.action != SpendRule.Action.HOLD_AND_DRAIN:
        words = "Only a cap that stops running jobs has a grace period. Leave it at 0."
        found.append(Fault("grace_minutes", "no_grace", words))
    if rule.unit == SpendRule.Unit.MONEY and not rule.currency:
        words = "There is no rate card yet, so use has no price. Cap GPU-hours instead."
        found.append(Fault("unit", "no_prices", words))
    return found


def _budget_faults(rule: SpendRule, workspace: Workspace) -> list[Fault]:
    found: list[Fault] = []
    if workspace.archived_at is not None:
        found.append(Fault("", "archived_workspace", f"{workspace.name} is archived."))
    same = SpendRule.objects.filter(budget=rule.budget_id, removed_at=None)
    if same.count() >= MOST_RULES:
        words = f"There are already {MOST_RULES} spend caps. Remove one first."
        found.append(Fault("", "too_many", words))
    alike = ("unit", "amount", "window", "counts", "action", "grant_start")
    if same.filter(**{name: getattr(rule, name) for name in alike}).exists():
        found.append(Fault("amount", "exists", "This cap already exists."))
    if rule.grant_start is not None:
        found += beginning_faults("grant_start", rule.grant_start, workspace)
    return found


def _follow_with_alerts(rule: SpendRule, workspace: Workspace, actor: User | None) -> None:
    """One alert before the cap and one at it, raised once in each window."""
    for percent in sorted({rule.warn_at_percent, 100}):
        AlertRule.objects.create(
            workspace=workspace,
            account=workspace.account,
            spend_rule=rule,
            measure=AlertRule.Measure.CAP,
            window=rule.window,
            limit=rule.amount,
            at_percent=percent,
            created_by=actor,
        )


def _require_right(actor: User | None, rule: SpendRule) -> None:
    if not may_change(roles_for(actor), rule):
        who = "finance or a platform admin" if rule.is_platform else "an owner"
        raise NotAllowed(f"Only {who} can change this spend cap.")


def _in_force(rule: SpendRule) -> SpendRule:
    """The row as it stands under the lock."""
    fresh = SpendRule.objects.select_for_update().get(pk=rule.pk)
    if fresh.removed_at is not None:
        raise Rejected.because("", "removed", f"The rule {fresh} has already been removed.")
    return fresh


def _told(rule: SpendRule) -> dict[str, Any]:
    return {"rule": rule.pk} | state_of(rule, "unit", "window", "counts", *CHANGEABLE)


def _close(
    budget: Budget,
    actor: User | None,
    summary: str,
    reason: str,
    *,
    before: dict[str, Any] | None = None,
    after: SpendRule | None = None,
) -> None:
    budget.refresh_from_db(fields=["generation"])
    close_budget(
        budget,
        actor,
        action="budget.spend_rule",
        reason=reason,
        summary=summary,
        before=before,
        after=_told(after) if after is not None else {},
    )


LONGEST_BREAK = timedelta(days=7)


@transaction.atomic
def break_glass(actor: User, *, rule: SpendRule, until: datetime, reason: str) -> BreakGlass:
    """Suspend a rule until an instant; it goes on counting, and acts again afterwards.

    Args:
        actor: Who answers for it; whoever may change the rule. Never the portal itself.
        rule: In force; it need not be reached yet.
        until: UTC, within :data:`LONGEST_BREAK`.
        reason: Kept in the log and shown on the page.

    Raises:
        Rejected: No reason, no such rule any more, or an end that is past or too far away.
    """
    if not may_change(roles_for(actor), rule):
        raise NotAllowed("Only people who may change a spend cap can suspend it.")
    require_reason(reason)
    budget, now = open_budget(rule.budget_id)
    if not now < until <= now + LONGEST_BREAK:
        words = f"{until:%Y-%m-%d %H:%M} UTC is past or too far away; choose within seven days."
        raise Rejected.because("until", "out_of_range", words)
    if not SpendRule.objects.filter(pk=rule.pk, removed_at=None).exists():
        raise Rejected.because("", "removed", "The cap has been removed, so it holds nothing back.")
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
        summary=f"suspended the spend cap {rule} until {until:%Y-%m-%d %H:%M} UTC",
    )
    return row


@transaction.atomic
def mend_glass(actor: User, *, rule: SpendRule, reason: str) -> None:
    """Let a suspended rule act again now; grace begins anew.

    Raises:
        Rejected: No reason, or it is not suspended.
    """
    if not may_change(roles_for(actor), rule):
        raise NotAllowed("Only people who may change a spend cap can end its suspension.")
    require_reason(reason)
    budget, now = open_budget(rule.budget_id)
    if not _end_all(rule, now):
        raise Rejected.because("", "not_suspended", "The cap is not suspended.")
    settle_locked(budget, now=now)
    close_budget(
        budget,
        actor,
        action="budget.mend_glass",
        reason=reason,
        summary=f"let the spend cap {rule} act again",
    )


def _end_all(rule: SpendRule, now: datetime) -> int:
    return BreakGlass.objects.filter(rule=rule, until__gt=now).update(until=now)
