"""Four eyes: what waits for a second person of finance, and its decision."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets.models import Adjustment, Discrepancy, Proposal, User
from budgets.selectors import approvals as found
from budgets.selectors import billing as read
from budgets.services import billing as actions
from budgets.services.billing.approvals import DEEDS
from portal.bounds import REASON
from portal.web.forms import PortalForm, ReasonField
from portal.web.htmx import render
from portal.web.numbers import money_text
from portal.web.pages import form_page, may_bill, page, require_finance, typed

PROPOSED = "It waits for approval, on Approvals."
SHOWN = 100
POINTS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Approving:
    """Whether a reader may approve what somebody proposed.

    Attributes:
        is_own: It is the reader's own, and two people are asked for.
        is_alone: It is the reader's own, and one person runs everything alone.
        held: Until when the reader approves nothing.
    """

    is_own: bool
    is_alone: bool
    held: datetime | None

    @classmethod
    def of(cls, user: User, author_id: int | None) -> Approving:
        """For one reader and one author."""
        is_author = author_id == user.pk
        is_one_person = found.installation().is_one_person
        return cls(
            is_author and not is_one_person,
            is_author and is_one_person,
            found.approves_from(user),
        )

    @property
    def may(self) -> bool:
        """Whether the button is there."""
        return not self.is_own and self.held is None


@page()
def approvals(request: HttpRequest, user: User) -> HttpResponseBase:
    """What waits, what was decided of late, and who came to finance."""
    if not selectors.roles_of(user).sees_everything:
        require_finance(user)
    now = selectors.utc_now()
    rows = list(found.visible_proposals(user)[:SHOWN])
    waiting = [_row(row) for row in found.open_proposals().select_related("proposed_by")]
    adjusted = read.visible_adjustments(user).filter(state=Adjustment.State.PROPOSED)
    accepted = read.visible_discrepancies(user).filter(state=Discrepancy.State.PROPOSED)
    context = {
        "waiting": [
            *waiting,
            *(
                {
                    "title": "Approve an adjustment",
                    "url": reverse("adjustment", args=[row.pk]),
                    "what": f"{money_text(row.amount, row.currency)} for {row.account.name}",
                    "by": row.proposed_by,
                    "at": row.created_at,
                }
                for row in adjusted
            ),
            *(
                {
                    "title": "Accept a discrepancy",
                    "url": reverse("discrepancy", args=[row.pk]),
                    "what": row.message,
                    "by": row.proposed_by,
                    "at": row.proposed_at,
                }
                for row in accepted
            ),
        ],
        "decided": [
            _row(row) | {"row": row, "phase": row.phase_at(now)}
            for row in rows
            if row.phase_at(now) != Proposal.State.WAITING
        ],
        "told": found.told_to_finance(user),
        "held": found.approves_from(user) if may_bill(user) else None,
        "installation": found.installation(),
        "user": user,
    }
    return render(request, "billing/approvals.html", context)


def _row(row: Proposal) -> dict[str, Any]:
    return {
        "title": DEEDS[row.deed].title,
        "url": reverse("proposal", args=[row.pk]),
        "what": ", ".join(f"{name}: {words}" for name, words in islice(row.seen.items(), 3)),
        "by": row.proposed_by,
        "at": row.proposed_at,
        "until": row.expires_at,
    }


class DecisionForm(PortalForm):
    """Approve, or decline with a reason."""

    reason = ReasonField(required=False, help_text="Needed to decline it.", **REASON)


@page("GET", "POST")
def proposal(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One proposal: exactly what will be done, as its proposer saw it, and its decision."""
    row = found.visible_proposals(user).get(pk=key)
    if request.method == "POST":
        require_finance(user)
    phase = row.phase_at(selectors.utc_now())
    points = row.parameters.get("prices", ())
    return form_page(
        request,
        "billing/proposal.html",
        DecisionForm(typed(request)),
        lambda given: actions.decide_proposal(
            user,
            proposal=row,
            is_approved=request.POST.get("decision") == "approve",
            **given,
        ),
        said=lambda done: done.outcome or f"It is {done.get_state_display().lower()}.",
        to=reverse("approvals"),
        context=lambda: {
            "row": row,
            "title": DEEDS[row.deed].title,
            "phase": phase,
            "is_mine": row.proposed_by_id == user.pk,
            "points": [(datetime.fromisoformat(at), price) for at, price in points[:POINTS_SHOWN]],
            "more_points": max(0, len(points) - POINTS_SHOWN),
            "may_decide": phase == Proposal.State.WAITING and may_bill(user),
            "approving": Approving.of(user, row.proposed_by_id),
        },
    )
