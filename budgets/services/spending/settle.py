"""Letting spend rules take effect: every look compares what was spent with every cap.

The state is rows: when a cap was reached, and what that does to the queue. Whoever looks next, beat
or the check's shift or a person's change, finds it and goes on; a look that changes nothing writes
nothing. Before an effect is written it is worked out once more under the budget's lock, so that a
raise that was just saved is never answered with the hold of the old amount.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import transaction

from budgets.models import Budget, SpendEffect, SpendRule
from budgets.plan import StopPolicy
from budgets.selectors.clock import utc_now
from budgets.selectors.spending import CapState, active_rules, cap_states
from budgets.services.audit import audit
from budgets.services.budget.in_force import generations_follow, lock_budget
from budgets.spending import NO_EFFECT, QueueEffect, strongest

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settled:
    """What one look came to.

    Attributes:
        looked_at: Rules.
        changed: Namespaces whose queue is treated differently from now on, sorted.
    """

    looked_at: int
    changed: tuple[str, ...] = ()


def settle_spending(
    now: datetime | None = None, *, namespaces: Collection[str] | None = None
) -> Settled:
    """Look at every rule; idempotent, and safe to run beside itself.

    Args:
        now: UTC; None for the present.
        namespaces: Only those of these workspaces; None for all.

    Raises:
        ExceptionGroup: Some budgets could not be settled; the others were.
    """
    rules, effects = active_rules(), SpendEffect.objects.all()
    if namespaces is not None:
        rules = rules.filter(budget__workspace__namespace__in=namespaces)
        effects = effects.filter(budget__workspace__namespace__in=namespaces)
    states = cap_states(rules, now)
    by_budget: dict[int, list[CapState]] = {}
    for state in states:
        by_budget.setdefault(state.rule.budget_id, []).append(state)
    stored = {row.budget_id: _of(row) for row in effects}
    due = [
        budget
        for budget in sorted(by_budget.keys() | stored.keys())
        if _is_due(by_budget.get(budget, []), stored.get(budget, NO_EFFECT))
    ]
    changed: list[str] = []
    errors: list[Exception] = []
    for budget in due:
        try:
            changed += _settle(budget, now)
        except Exception as error:  # noqa: BLE001, RUF100  collected and raised below: one never stops the rest
            log.exception("spend_not_settled", budget=budget)
            errors.append(error)
    if errors:
        raise ExceptionGroup("some spend rules could not take effect", errors)
    return Settled(len(states), tuple(sorted(changed)))


def settle_workspace(namespace: str, now: datetime | None = None) -> QueueEffect:
    """Look at the rules of one workspace, let them take effect, and say what that is.

    Nothing for a namespace without rules. Two dozen queries at most; about three without rules.
    """
    budget = (
        Budget.objects.filter(workspace__namespace=namespace, workspace__archived_at=None)
        .values_list("pk", "spend_effect__stop_policy", "spend_effect__floor_only")
        .first()
    )
    if budget is None:
        return NO_EFFECT
    key, policy, floor_only = budget
    states = cap_states(active_rules().filter(budget=key), now)
    before = QueueEffect(StopPolicy(policy), bool(floor_only)) if policy else NO_EFFECT
    if _is_due(states, before):
        _settle(key, now)
        states = cap_states(active_rules().filter(budget=key), now)
    return strongest(state.verdict.effect for state in states)


@transaction.atomic
def _settle(budget_id: int, now: datetime | None) -> list[str]:
    """Work it out again under the lock, and write what differs."""
    budget = lock_budget(budget_id)
    return settle_locked(budget, now=now or utc_now())


def settle_locked(budget: Budget, *, now: datetime) -> list[str]:
    """The same for a caller that holds the locks of ``lock_budget``.

    Returns:
        The namespace when its queue is treated differently from now on.
    """
    states = cap_states(active_rules().filter(budget=budget), now)
    for state in states:
        _remember(state)
    row = SpendEffect.objects.filter(budget=budget).first()
    before = _of(row) if row is not None else NO_EFFECT
    wanted = strongest(state.verdict.effect for state in states)
    if before == wanted:
        return []
    workspace = budget.workspace
    reason = _reason(states)
    with generations_follow(workspace.account.slug):
        if wanted == NO_EFFECT:
            SpendEffect.objects.filter(budget=budget).delete()
        else:
            SpendEffect.objects.update_or_create(
                budget=budget,
                defaults={
                    "stop_policy": wanted.stop_policy.value,
                    "floor_only": wanted.floor_only,
                    "reason": reason[:300],
                    "since": now,
                },
            )
    budget.refresh_from_db(fields=["generation"])
    audit(
        None,
        "budget.spend_effect",
        budget,
        reason=reason,
        before=_told(before),
        after=_told(wanted) | {"generation": budget.generation},
    )
    log.info(
        "spend_effect",
        workspace=workspace.namespace,
        stop_policy=wanted.stop_policy,
        floor_only=wanted.floor_only,
        generation=budget.generation,
    )
    return [workspace.namespace]


def _is_due(states: Iterable[CapState], stored: QueueEffect) -> bool:
    """Whether anything would be written."""
    found = list(states)
    return strongest(state.verdict.effect for state in found) != stored or any(
        _memory(state) != (state.rule.reached_window, state.rule.reached_at) for state in found
    )


def _memory(state: CapState) -> tuple[datetime | None, datetime | None]:
    reached = state.verdict.reached_at
    return (None, None) if reached is None else (state.window.start, reached)


def _remember(state: CapState) -> None:
    window, reached = _memory(state)
    rule = state.rule
    if (window, reached) != (rule.reached_window, rule.reached_at):
        SpendRule.objects.filter(pk=rule.pk).update(reached_window=window, reached_at=reached)


def _of(row: SpendEffect) -> QueueEffect:
    return QueueEffect(StopPolicy(row.stop_policy), row.floor_only)


def _told(effect: QueueEffect) -> dict[str, object]:
    return {"stop_policy": effect.stop_policy.value, "floor_only": effect.floor_only}


def _reason(states: Iterable[CapState]) -> str:
    acting = [str(state.rule) for state in states if state.verdict.effect != NO_EFFECT]
    if not acting:
        return "no cap is reached any more"
    return f"cap reached: {'; '.join(acting)}"
