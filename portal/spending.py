"""What pages and API do about spend rules: the service, then a nudge to the clusters.

Names and arguments are those of the services.
"""

from __future__ import annotations

from typing import Any

from budgets.models import BreakGlass, SpendRule, User
from budgets.services import spending as promises
from portal.actions import nudge

Actor = User | None


def create_spend_rule(actor: Actor, **arguments: Any) -> SpendRule:
    """Put a cap on a budget."""
    made = promises.create_spend_rule(actor, **arguments)
    nudge()
    return made


def change_spend_rule(actor: Actor, **arguments: Any) -> SpendRule:
    """Raise or lower a cap, or change what it does."""
    changed = promises.change_spend_rule(actor, **arguments)
    nudge()
    return changed


def remove_spend_rule(actor: Actor, **arguments: Any) -> None:
    """End a cap."""
    promises.remove_spend_rule(actor, **arguments)
    nudge()


def break_glass(actor: User, **arguments: Any) -> BreakGlass:
    """Suspend a cap, by name and for a while."""
    row = promises.break_glass(actor, **arguments)
    nudge()
    return row


def mend_glass(actor: User, **arguments: Any) -> None:
    """Let a suspended cap act again."""
    promises.mend_glass(actor, **arguments)
    nudge()
