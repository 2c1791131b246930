"""What people want to be told about."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from django.db import transaction

from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import Account, AlertRule, User, Workspace
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.guards import roles_for, save_checked

LONGEST_SNOOZE = timedelta(days=92)
MOST_RULES = 50
REMINDER_DAYS = Decimal(14)
SHARES = (AlertRule.Measure.BURST_SHARE, AlertRule.Measure.IDLE_SHARE)


@transaction.atomic
def create_rule(
    actor: User | None,
    *,
    measure: str,
    limit: Decimal,
    window: str = AlertRule.Window.MONTH,
    at_percent: int = 100,
    workspace: Workspace | None = None,
    account: Account | None = None,
) -> AlertRule:
    """Watch a workspace, or a whole account.

    Args:
        actor: Owner of what is watched, finance or an admin.
        measure: One of ``AlertRule.Measure``.
        limit: In the unit of the measure.
        window: It is told at most once in each.
        at_percent: Of the limit, so that 80 warns before it is reached.
        workspace: What is watched.
        account: All workspaces of it instead.
    """
    if (workspace is None) == (account is None):
        raise Rejected.because("workspace", "one_subject", "Name a workspace or an account.")
    watched = workspace.account if workspace is not None else account
    assert watched is not None
    _require_right(actor, watched, workspace)
    rule = AlertRule(
        workspace=workspace,
        account=watched,
        measure=measure,
        window=window,
        limit=limit,
        at_percent=at_percent,
        created_by=actor,
    )
    save_checked(rule, also=_rule_faults(rule))
    _audit(actor, rule, "alert.create_rule")
    return rule


def _rule_faults(rule: AlertRule) -> list[Fault]:
    """What stands in the way of a new rule, beside its fields."""
    found = []
    if rule.measure in SHARES and not 0 < rule.limit <= 100:
        words = f"{rule.limit} is not a percentage; write a number from 1 to 100."
        found.append(Fault("limit", "not_a_share", words))
    if rule.measure == AlertRule.Measure.BUDGET_END and rule.workspace is None:
        words = "Each workspace has its own budget; name one workspace."
        found.append(Fault("workspace", "one_workspace", words))
    if rule.measure == AlertRule.Measure.CAP or rule.window == AlertRule.Window.GRANT:
        words = "Caps are set on the workspace's page Spend caps; set one there."
        found.append(Fault("measure", "spend_rule", words))
    subject = rule.workspace or rule.account
    if subject.archived_at is not None:
        found.append(Fault("workspace", "archived", f"{subject.name} is archived."))
    active = AlertRule.objects.filter(
        account=rule.account, workspace=rule.workspace, removed_at=None
    )
    if active.count() >= MOST_RULES:
        words = f"There are already {MOST_RULES} rules. Remove one first."
        found.append(Fault("", "too_many", words))
    alike = ("measure", "window", "limit", "at_percent")
    if active.filter(**{name: getattr(rule, name) for name in alike}).exists():
        found.append(Fault("measure", "exists", "This rule already exists."))
    return found


def remind_of_end(workspace: Workspace) -> None:
    """Tell the owners before a budget ends, unless somebody ever chose when, or not to."""
    watching = AlertRule.objects.filter(workspace=workspace, measure=AlertRule.Measure.BUDGET_END)
    if not watching.exists():
        create_rule(
            None, measure=AlertRule.Measure.BUDGET_END, limit=REMINDER_DAYS, workspace=workspace
        )


@transaction.atomic
def remove_rule(actor: User | None, *, rule: AlertRule) -> None:
    """Stop watching; the alerts that were raised stay."""
    _require_right(actor, rule.account, rule.workspace)
    if rule.spend_rule_id is not None:
        words = "This rule belongs to a spend cap. Snooze it, or remove the cap."
        raise Rejected.because("", "spend_rule", words)
    if rule.removed_at is None:
        rule.removed_at = utc_now()
        rule.save(update_fields=["removed_at"])
        _audit(actor, rule, "alert.remove_rule")


@transaction.atomic
def snooze_rule(actor: User | None, *, rule: AlertRule, until: datetime | None) -> None:
    """Be quiet until an instant; None wakes it.

    Raises:
        Rejected: The instant is past, or beyond three months.
    """
    _require_right(actor, rule.account, rule.workspace)
    now = utc_now()
    if until is not None and not now < until <= now + LONGEST_SNOOZE:
        words = "Choose a time between now and three months from now."
        raise Rejected.because("until", "out_of_range", words)
    rule.snoozed_until = until
    rule.save(update_fields=["snoozed_until"])
    _audit(actor, rule, "alert.snooze_rule")


def _require_right(actor: User | None, account: Account, workspace: Workspace | None) -> None:
    roles = roles_for(actor)
    is_owner = account.pk in roles.owned_accounts or (
        workspace is not None and workspace.pk in roles.owned_workspaces
    )
    if not (roles.is_admin or roles.is_finance or is_owner):
        raise NotAllowed("Only an owner, finance or a platform admin can change alerts.")


def _audit(actor: User | None, rule: AlertRule, action: str) -> None:
    audit(
        actor,
        action,
        f"alert rule:{rule.pk}",
        account=rule.account,
        workspace=rule.workspace,
        after=state_of(rule, "measure", "window", "limit", "at_percent", "snoozed_until"),
    )
