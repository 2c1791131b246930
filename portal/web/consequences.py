"""What a draft of a budget would do, as the form and the decision of a request show it."""

from __future__ import annotations

from typing import Any

from budgets import selectors
from budgets.models import Workspace
from budgets.plan import RevisionDraft
from budgets.selectors.budget.cost_preview import preview_costs
from budgets.selectors.clock import utc_now
from clusters import selectors as seen
from portal.web.bars import draw_room
from portal.web.forms import PortalForm


def consequences(
    user: Any, workspace: Workspace, draft: RevisionDraft, form: PortalForm | None = None
) -> dict[str, Any]:
    """The context of ``budgets/consequences.html``; faults of the draft come into the form.

    Args:
        user: Who looks; decides what of the fleet is shown.
        workspace: One that they may see.
        draft: As typed.
        form: Bound; what it was typed in, where it was.
    """
    preview = selectors.preview_revision(user, workspace, draft)
    if form is not None:
        form.take(preview.faults)
    names = {row.slug: row.name for row in selectors.visible_flavors(user, include_archived=True)}
    context = {"preview": preview, "names": names}
    if preview.faults:
        return context
    in_force = workspace.budget.in_force
    rows = in_force.lines.select_related("flavor") if in_force is not None else ()
    bars = {
        kind: [
            draw_room(room, names.get(room.flavor, room.flavor))
            for room in preview.rooms
            if room.kind == kind
        ]
        for kind in ("envelope", "fleet")
    }
    return {
        **context,
        **bars,
        "costs": preview_costs(
            workspace, [[row.as_plan() for row in rows], draft.lines], utc_now()
        ),
        "manifests": seen.preview_manifests(user, preview.promises_before, preview.promises_after),
        "reached": [entry for entry in preview.reach if entry.ceiling],
        "losers": [row for row in preview.impact if row.after < row.before],
        "gainers": [row for row in preview.impact if row.after > row.before],
    }
