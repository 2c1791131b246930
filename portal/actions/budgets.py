"""Budgets: revisions, requests, holds, and where a floor stands."""

from __future__ import annotations

from typing import Any

from budgets import services as promises
from budgets.models import Budget, BudgetRevision
from portal.actions.nudges import Actor, nudge


def withdraw_request(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Take back a request, or a revision that has not begun."""
    return promises.withdraw_request(actor, **arguments)


def revise_budget(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Save a revision: live, or waiting as a request."""
    done = promises.revise_budget(actor, **arguments)
    nudge()
    return done


def decide_request(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Accept or decline a request."""
    done = promises.decide_request(actor, **arguments)
    nudge()
    return done


def restore_revision(actor: Actor, **arguments: Any) -> BudgetRevision:
    """Bring an old revision back as a new one."""
    done = promises.restore_revision(actor, **arguments)
    nudge()
    return done


def set_stop_policy(actor: Actor, **arguments: Any) -> Budget:
    """Hold, drain or resume a budget."""
    done = promises.set_stop_policy(actor, **arguments)
    nudge()
    return done


def reallocate(actor: Actor, **arguments: Any) -> dict[str, Any]:
    """Split a budget over the workers anew."""
    done = promises.reallocate(actor, **arguments)
    nudge()
    return done
