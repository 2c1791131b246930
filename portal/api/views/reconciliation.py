"""Do the books agree with the clusters: identities by hour, discrepancies and their settling."""

from __future__ import annotations

from datetime import date
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from budgets.errors import Fault, Rejected
from budgets.models import User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED
from portal.api.serializers import reconciliation as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, answers, deed, pages

CLUSTER = OpenApiParameter("cluster", str, description="Slug; the first that is sampled if empty.")
DAY = OpenApiParameter("day", str, description="UTC day, such as 2026-10-31; today if empty.")


class ReconciliationView(View):
    """The capacity identity of one cluster and day, hour by hour; for platform roles."""

    query = (CLUSTER, DAY)

    @answers(shapes.ReconciliationSerializer)
    def get(self, user: User) -> Any:
        given = self.request.query_params
        try:
            day = date.fromisoformat(given["day"]) if given.get("day") else None
        except ValueError:
            message = f"{given['day'][:20]!r} is no day; write it like 2026-10-31."
            raise Rejected([Fault("day", "invalid", message)]) from None
        return read.reconciliation(user, cluster=given.get("cluster", ""), day=day)


class DiscrepanciesView(View):
    """What disagrees with the ledger, the newest first; for platform roles."""

    @pages(shapes.DiscrepancySerializer, CREATED)
    def get(self, user: User) -> Any:
        return read.visible_discrepancies(user)


class DiscrepancyPart(View):
    """One visible discrepancy."""

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"discrepancy": read.visible_discrepancies(user).get(pk=pk)}


class ProposeAcceptanceView(DiscrepancyPart):
    """Says why a discrepancy may stand."""

    post = deed(actions.propose_acceptance, shapes.DiscrepancySerializer, takes=ReasonInput)


class DecideAcceptanceView(DiscrepancyPart):
    """Accepts it, or puts it back; the proposer only puts it back."""

    post = deed(
        actions.decide_acceptance, shapes.DiscrepancySerializer, takes=shapes.AcceptanceDecision
    )
