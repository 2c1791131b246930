"""What holds the queue of a budget by its own records: people, archiving, spend caps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.db.models import OuterRef, Subquery

from budgets.models import AuditEntry, Budget, SpendRule, Workspace
from budgets.plan import StopPolicy
from budgets.selectors.clock import utc_now
from budgets.selectors.spending import active_rules, cap_windows, latest_glasses, verdict_of
from budgets.spending import NO_EFFECT, QueueEffect


@dataclass(frozen=True, slots=True)
class PersonsHold:
    """Somebody holds, or drains, a budget.

    Attributes:
        policy: What they asked for.
        by: Who; empty when it is not known.
        since: UTC; None when it is not known.
        reason: The one that they gave.
    """

    policy: StopPolicy
    by: str
    since: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class ReachedCap:
    """A spend rule that was reached and does something to the queue.

    Attributes:
        rule: With budget and workspace joined.
        effect: On the queue.
        since: When it was first seen reached, UTC.
        until: The end of its window, UTC; None for a grant without an end.
    """

    rule: SpendRule
    effect: QueueEffect
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class BudgetHolds:
    """Everything that holds one budget, or makes its floor its ceiling, now.

    Attributes:
        person: None while nobody holds it; not told of an archived workspace, whose hold stays.
        archived_at: UTC; None for a workspace that is in use.
        caps: Reached ones that do something, the oldest first.
    """

    person: PersonsHold | None = None
    archived_at: datetime | None = None
    caps: tuple[ReachedCap, ...] = ()


def budget_holds(namespaces: Collection[str]) -> dict[str, BudgetHolds]:
    """What holds budgets; four queries at most, whatever their number.

    Args:
        namespaces: Of workspaces whose jobs the caller may explain.

    Returns:
        Namespace → its holds; a namespace without a budget is not in it.
    """
    if not namespaces:
        return {}
    entries = AuditEntry.objects.filter(
        workspace=OuterRef("pk"), action="budget.stop_policy"
    ).order_by("-at", "-pk")
    rows = (
        Workspace.objects.filter(namespace__in=namespaces, budget__isnull=False)
        .select_related("budget")
        .annotate(
            held_at=Subquery(entries.values("at")[:1]),
            held_by=Subquery(entries.values("actor_name")[:1]),
        )
        .order_by("namespace")
    )
    caps = _reached_caps(namespaces, utc_now())
    return {
        row.namespace: BudgetHolds(_persons(row), row.archived_at, caps.get(row.namespace, ()))
        for row in rows
    }


def _persons(row: Workspace) -> PersonsHold | None:
    budget = row.budget
    if row.archived_at is not None or budget.stop_policy == Budget.StopPolicy.NONE:
        return None
    return PersonsHold(
        policy=StopPolicy(budget.stop_policy),
        by=getattr(row, "held_by", None) or "",
        since=getattr(row, "held_at", None),
        reason=budget.stop_reason,
    )


def _reached_caps(namespaces: Collection[str], now: datetime) -> dict[str, tuple[ReachedCap, ...]]:
    """By what the last look remembered; nothing is summed up anew. Three queries at most."""
    known = active_rules().filter(
        budget__workspace__namespace__in=namespaces, reached_at__isnull=False
    )
    rules = list(known.order_by("reached_at", "pk"))
    if not rules:
        return {}
    windows = cap_windows(rules, now)
    glasses = latest_glasses(rules, windows)
    found: dict[str, tuple[ReachedCap, ...]] = {}
    for rule in rules:
        window, glass = windows[rule.pk], glasses.get(rule.pk)
        if rule.reached_at is None or rule.reached_window != window.start:
            continue  # its window has turned since
        verdict = verdict_of(rule, Fraction(rule.amount), window, glass, now)
        if verdict.effect == NO_EFFECT:
            continue
        is_endless = rule.window == SpendRule.Window.GRANT and rule.grant_end is None
        cap = ReachedCap(rule, verdict.effect, rule.reached_at, None if is_endless else window.end)
        namespace = rule.budget.workspace.namespace
        found[namespace] = (*found.get(namespace, ()), cap)
    return found
