"""Months and their close, statements and adjustments."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets.models import BillingPeriod, Statement, User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import billing as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, account_named, actor, checked, workspace_named

MADE = status.HTTP_201_CREATED
ZONE = OpenApiParameter("zone", str, description="IANA zone of the month; UTC when left out.")


class MonthsView(View):
    """Every month with facts, the newest first; for platform roles."""

    @extend_schema(responses=shapes.MonthSerializer(many=True))
    def get(self, request: Request) -> Response:
        rows = read.billing_months(actor(request))
        return Response(shapes.MonthSerializer(rows, many=True).data)


class MonthView(View):
    """One month, and what stands in the way of its close."""

    query = (ZONE,)

    @extend_schema(responses=shapes.MonthCheckSerializer)
    def get(self, request: Request, name: str) -> Response:
        month = read.period_for(actor(request), name, request.query_params.get("zone", "UTC"))
        return Response(self.shown(month))

    def shown(self, month: BillingPeriod) -> dict[str, Any]:
        checks = () if month.closed_at else read.check_list(month)
        return dict(shapes.MonthCheckSerializer({"month": month, "checks": checks}).data)


class MonthDeed(View):
    """A deed on one month; who sees no month finds none."""

    def zone(self, request: Request, name: str) -> tuple[User, str]:
        user = actor(request)
        zone = checked(shapes.MonthInput, request)["zone"]
        read.period_for(user, name, zone)
        return user, zone


class DrawUpView(MonthDeed):
    """Writes the drafts of a month anew."""

    @extend_schema(request=shapes.MonthInput, responses=shapes.DrawnSerializer)
    def post(self, request: Request, name: str) -> Response:
        user, zone = self.zone(request, name)
        done = actions.draw_up_statements(user, month=name, zone=zone)
        return Response(shapes.DrawnSerializer(done).data)


class ReviewView(MonthDeed):
    """Marks every draft of a month as reviewed."""

    @extend_schema(request=shapes.MonthInput, responses=shapes.CountSerializer)
    def post(self, request: Request, name: str) -> Response:
        user, zone = self.zone(request, name)
        return Response({"count": len(actions.review_statements(user, month=name, zone=zone))})


class CloseView(MonthDeed):
    """Closes a month for good, when its check list is met."""

    @extend_schema(request=shapes.MonthInput, responses=shapes.MonthSerializer)
    def post(self, request: Request, name: str) -> Response:
        user, zone = self.zone(request, name)
        closed = actions.close_period(user, month=name, zone=zone)
        return Response(shapes.MonthSerializer(closed).data)


class IssueView(MonthDeed):
    """Issues every reviewed statement of a closed month."""

    @extend_schema(request=shapes.MonthInput, responses=shapes.CountSerializer)
    def post(self, request: Request, name: str) -> Response:
        user, zone = self.zone(request, name)
        return Response({"count": len(actions.issue_statements(user, month=name, zone=zone))})


class StatementsView(View):
    """Statements and credit notes that the caller may read, the newest first."""

    query = (
        *PAGED,
        OpenApiParameter("account", str, description="Slug."),
        OpenApiParameter("month", str, description="Such as 2026-10."),
    )

    @extend_schema(responses=paged(shapes.StatementRowSerializer))
    def get(self, request: Request) -> Response:
        seen = read.visible_statements(actor(request))
        if account := request.query_params.get("account"):
            seen = seen.filter(account=account_named(actor(request), account))
        if month := request.query_params.get("month"):
            seen = seen.filter(period__name=month)
        return page(request, seen, shapes.StatementRowSerializer, CREATED)


class StatementPart(View):
    """One document as far as the caller sees it."""

    def paper(self, request: Request, pk: int) -> Statement:
        return read.statement_for(actor(request), pk)

    def shown(self, request: Request, paper: Statement) -> Response:
        sheet = read.statement_sheet(actor(request), paper)
        shape = shapes.StatementSerializer(paper, context={"sheet": sheet})
        return Response(shape.data)


class StatementView(StatementPart):
    """One document with its lines."""

    @extend_schema(responses=shapes.StatementSerializer)
    def get(self, request: Request, pk: int) -> Response:
        return self.shown(request, self.paper(request, pk))


class SendBackView(StatementPart):
    """Makes a reviewed statement of an open month a draft again."""

    @extend_schema(request=ReasonInput, responses=shapes.StatementSerializer)
    def post(self, request: Request, pk: int) -> Response:
        paper = self.paper(request, pk)
        reason = checked(ReasonInput, request)["reason"]
        done = actions.send_back_statement(actor(request), statement=paper, reason=reason)
        return self.shown(request, done)


class VoidView(StatementPart):
    """Voids an issued statement; the answer is the credit note."""

    @extend_schema(request=ReasonInput, responses={201: shapes.StatementSerializer})
    def post(self, request: Request, pk: int) -> Response:
        paper = self.paper(request, pk)
        reason = checked(ReasonInput, request)["reason"]
        note = actions.void_statement(actor(request), statement=paper, reason=reason)
        answer = self.shown(request, note)
        answer.status_code = MADE
        return answer


class AdjustmentsView(View):
    """Adjustments that the caller may read, the newest first."""

    query = PAGED

    @extend_schema(responses=paged(shapes.AdjustmentSerializer))
    def get(self, request: Request) -> Response:
        rows = read.visible_adjustments(actor(request))
        return page(request, rows, shapes.AdjustmentSerializer, CREATED)

    @extend_schema(request=shapes.AdjustmentInput, responses={201: shapes.AdjustmentSerializer})
    def post(self, request: Request) -> Response:
        user = actor(request)
        given = checked(shapes.AdjustmentInput, request)
        workspace = given.pop("workspace", None)
        made = actions.propose_adjustment(
            user,
            **{**given, "account": account_named(user, given["account"])},
            workspace=workspace_named(user, workspace) if workspace else None,
        )
        return Response(shapes.AdjustmentSerializer(made).data, status=MADE)


class DecideAdjustmentView(View):
    """Approves or declines; the proposer only declines."""

    @extend_schema(request=shapes.AdjustmentDecision, responses=shapes.AdjustmentSerializer)
    def post(self, request: Request, pk: int) -> Response:
        row = read.visible_adjustments(actor(request)).get(pk=pk)
        given = checked(shapes.AdjustmentDecision, request)
        done = actions.decide_adjustment(
            actor(request), adjustment=row, is_approved=given["approve"], reason=given["reason"]
        )
        return Response(shapes.AdjustmentSerializer(done).data)
