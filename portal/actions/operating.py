"""What operators do: windows of maintenance, and single jobs stopped, put back or deleted."""

from __future__ import annotations

from typing import Any

from budgets.models import User
from clusters import services as enforcement
from clusters.models import MaintenanceWindow, WorkloadAction
from clusters.selectors.maintenance import WindowPreview
from clusters.services import JobAtStake
from portal.actions.nudges import Actor, announce_actions, nudge


def preview_maintenance(actor: Actor, **arguments: Any) -> WindowPreview:
    """Say what a window of maintenance would mean to whom; nothing is saved."""
    return enforcement.preview_maintenance(actor, **arguments)


def plan_maintenance(actor: Actor, **arguments: Any) -> MaintenanceWindow:
    """Cordon a worker or a flavor for a while."""
    done = enforcement.plan_maintenance(actor, **arguments)
    nudge()
    announce_actions()
    return done


def end_maintenance(actor: Actor, **arguments: Any) -> MaintenanceWindow:
    """End a window before its time, or call it off."""
    done = enforcement.end_maintenance(actor, **arguments)
    nudge()
    return done


def jobs_at_stake(actor: User, **arguments: Any) -> list[JobAtStake]:
    """Say what an action on jobs would touch; nothing is saved."""
    return enforcement.jobs_at_stake(actor, **arguments)


def act_on_workloads(actor: Actor, **arguments: Any) -> list[WorkloadAction]:
    """Cancel jobs, put them back in their queue, or delete them."""
    done = enforcement.act_on_workloads(actor, **arguments)
    announce_actions()
    return done


def withdraw_action(actor: Actor, **arguments: Any) -> WorkloadAction:
    """Take back an action that was not carried out yet."""
    return enforcement.withdraw_action(actor, **arguments)
