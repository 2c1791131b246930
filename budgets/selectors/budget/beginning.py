"""How long ago a budget of a workspace, or a grant, can have begun.

What is used before the portal was there can be brought in later, and a grant may be of a year that
was under way; so neither is bound to the day on which the workspace was made. But every hour from
such a beginning on is metered, and one of another century is a slip of the pen.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Min

from budgets.errors import Fault
from budgets.models import Interval, Workspace
from budgets.units import BOOKS_BEGIN, time_text

LONGEST_BEFORE: Final = timedelta(days=366)
"""Before there was anything of a workspace."""


def beginning_faults(field: str, moment: datetime, workspace: Workspace) -> list[Fault]:
    """One fault where a beginning lies more than a year before anything of the workspace.

    Args:
        field: Where it stands.
        moment: Aware.
        workspace: Known to the portal since it was made, or since the first use that was brought in
            for it.
    """
    used = Interval.objects.filter(workspace=workspace).aggregate(first=Min("start"))["first"]
    known = workspace.created_at if used is None else min(used, workspace.created_at)
    first = max(BOOKS_BEGIN, known - LONGEST_BEFORE)
    if moment >= first:
        return []
    words = (
        f"{time_text(moment)} is more than a year before anything of {workspace.name} is known. "
        f"Choose {time_text(first)} or later."
    )
    return [Fault(field, "too_early", words)]
