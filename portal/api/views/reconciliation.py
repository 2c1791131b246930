"""Do the books agree with the clusters: identities by hour, discrepancies and their settling."""

from __future__ import annotations

from datetime import date

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from budgets.errors import Fault, Rejected
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import reconciliation as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, actor, checked

CLUSTER = OpenApiParameter("cluster", str, description="Slug; the first that is sampled if empty.")
DAY = OpenApiParameter("day", str, description="UTC day, such as 2026-10-31; today if empty.")


class ReconciliationView(View):
    """The capacity identity of one cluster and day, hour by hour; for platform roles."""

    query = (CLUSTER, DAY)

    @extend_schema(responses=shapes.ReconciliationSerializer)
    def get(self, request: Request) -> Response:
        given = request.query_params
        try:
            day = date.fromisoformat(given["day"]) if given.get("day") else None
        except ValueError:
            message = f"{given['day'][:20]!r} is no day; write it like 2026-10-31."
            raise Rejected([Fault("day", "invalid", message)]) from None
        found = read.reconciliation(actor(request), cluster=given.get("cluster", ""), day=day)
        return Response(shapes.ReconciliationSerializer(found).data)


class DiscrepanciesView(View):
    """What disagrees with the ledger, the newest first; for platform roles."""

    query = PAGED

    @extend_schema(responses=paged(shapes.DiscrepancySerializer))
    def get(self, request: Request) -> Response:
        rows = read.visible_discrepancies(actor(request))
        return page(request, rows, shapes.DiscrepancySerializer, CREATED)


class ProposeAcceptanceView(View):
    """Says why a discrepancy may stand."""

    @extend_schema(request=ReasonInput, responses=shapes.DiscrepancySerializer)
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        row = read.visible_discrepancies(user).get(pk=pk)
        reason = checked(ReasonInput, request)["reason"]
        done = actions.propose_acceptance(user, discrepancy=row, reason=reason)
        return Response(shapes.DiscrepancySerializer(done).data)


class DecideAcceptanceView(View):
    """Accepts it, or puts it back; the proposer only puts it back."""

    @extend_schema(request=shapes.AcceptanceDecision, responses=shapes.DiscrepancySerializer)
    def post(self, request: Request, pk: int) -> Response:
        user = actor(request)
        row = read.visible_discrepancies(user).get(pk=pk)
        is_approved = checked(shapes.AcceptanceDecision, request)["approve"]
        done = actions.decide_acceptance(user, discrepancy=row, is_approved=is_approved)
        return Response(shapes.DiscrepancySerializer(done).data)
