"""Files that are made in the background."""

from __future__ import annotations

from typing import Any

from budgets.models import Export, ExportPlan, User
from budgets.services.exports import plans as export_plans
from budgets.services.exports import runs as exports
from portal.actions import nudges


def request_export(actor: User, **arguments: Any) -> Export:
    """Ask for a file; the workers are told, and look by themselves if that is lost."""
    export = exports.request_export(actor, **arguments)
    nudges.announce_export()
    return export


def save_export_plan(actor: User, **arguments: Any) -> ExportPlan:
    """Have a file made again and again; the workers look by themselves."""
    return export_plans.save_export_plan(actor, **arguments)


def remove_export_plan(actor: User, *, plan: ExportPlan) -> None:
    """Make no more files of a plan."""
    export_plans.remove_export_plan(actor, plan=plan)
