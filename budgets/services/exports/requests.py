"""Asking for an export: everything that is wrong with the wish, or a row that the workers find.

Source: issue 6, section 3.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from budgets.announcements import Work, announce
from budgets.errors import Fault, reject_any
from budgets.models import Export, ExportPlan, Operation, User
from budgets.selectors.exports.wishes import ExportWish, faults_of_wish
from budgets.services.audit import audit, state_of
from budgets.services.operations import start_operation

KIND = "export"
MOST_WAITING = 5
TOLD = ("dataset", "format", "zone", "account", "workspace")


def request_export(actor: User, **wanted: Any) -> Export:
    """Ask for a file of one month; a worker writes it.

    Args:
        actor: Sees in the file what they see on the pages.
        **wanted: The fields of :class:`ExportWish`.
    """
    wish = ExportWish(**wanted)
    waiting = Export.objects.filter(
        requested_by=actor, operation__state=Operation.State.RUNNING
    ).count()
    faults = [*faults_of_wish(actor, wish)]
    if waiting >= MOST_WAITING:
        message = f"{waiting} of your exports are still being written; wait for one of them."
        faults.append(Fault("", "too_many", message))
    reject_any(faults)
    return store_export(actor, wish)


@transaction.atomic
def store_export(
    actor: User, wish: ExportWish, *, plan: ExportPlan | None = None, run_key: str = ""
) -> Export:
    """Write the row of a wish without faults; the workers look for it.

    Args:
        actor: Whose eyes decide about the rows.
        wish: What it shall hold.
        plan: That asks for it again and again; its maker is told of the file.
        run_key: Which run of the plan it is; each is made once.
    """
    export = wish.as_export(actor)
    export.operation = start_operation(actor, kind=KIND, subject=f"{wish.dataset} {wish.period}")
    export.plan, export.run_key = plan, run_key
    export.save()
    announce(Work.EXPORTS)
    audit(
        actor,
        "export.request",
        export,
        after=state_of(wish, *TOLD, "period") | ({"plan": plan.pk} if plan else {}),
    )
    return export
