"""Months and their close, statements and adjustments."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import status
from rest_framework.response import Response

from budgets.models import Statement, User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED
from portal.api.serializers import billing as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import MADE, View, account_named, answers, deed, pages

ZONE = OpenApiParameter("zone", str, description="IANA zone of the month; UTC when left out.")


class MonthsView(View):
    """Every month with facts, the newest first; for platform roles."""

    @answers(shapes.MonthSerializer, many=True)
    def get(self, user: User) -> Any:
        return read.billing_months(user)


class MonthView(View):
    """One month, and what stands in the way of its close."""

    query = (ZONE,)

    @answers(shapes.MonthCheckSerializer)
    def get(self, user: User, name: str) -> Any:
        month = read.period_for(user, name, self.request.query_params.get("zone", "UTC"))
        return {"month": month, "checks": () if month.closed_at else read.check_list(month)}


class DrawUpView(View):
    """Writes the drafts of a month anew."""

    @answers(shapes.DrawnSerializer, takes=shapes.MonthInput)
    def post(self, user: User, name: str, zone: str) -> Any:
        read.period_for(user, name, zone)
        return actions.draw_up_statements(user, month=name, zone=zone)


class ReviewView(View):
    """Marks every draft of a month as reviewed."""

    @answers(shapes.CountSerializer, takes=shapes.MonthInput)
    def post(self, user: User, name: str, zone: str) -> Any:
        read.period_for(user, name, zone)
        return {"count": len(actions.review_statements(user, month=name, zone=zone))}


class CloseView(View):
    """Closes a month for good, when its check list is met."""

    @answers(shapes.MonthSerializer, takes=shapes.MonthInput)
    def post(self, user: User, name: str, zone: str) -> Any:
        read.period_for(user, name, zone)
        return actions.close_period(user, month=name, zone=zone)


class IssueView(View):
    """Issues every reviewed statement of a closed month."""

    @answers(shapes.CountSerializer, takes=shapes.MonthInput)
    def post(self, user: User, name: str, zone: str) -> Any:
        read.period_for(user, name, zone)
        return {"count": len(actions.issue_statements(user, month=name, zone=zone))}


class StatementsView(View):
    """Statements and credit notes that the caller may read, the newest first."""

    query = (
        OpenApiParameter("account", str, description="Slug."),
        OpenApiParameter("month", str, description="Such as 2026-10."),
    )
    filters = {"month": "period__name"}

    @pages(shapes.StatementRowSerializer, CREATED)
    def get(self, user: User) -> Any:
        seen = read.visible_statements(user)
        account = self.request.query_params.get("account")
        return seen.filter(account=account_named(user, account)) if account else seen


class StatementPart(View):
    """One document as far as the caller sees it, with its lines."""

    code: int = status.HTTP_200_OK

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"statement": read.statement_for(user, pk)}

    def shown(self, user: User, made: Statement, pk: int) -> Response:
        shape = shapes.StatementSerializer(
            made, context={"sheet": read.statement_sheet(user, made)}
        )
        return Response(shape.data, status=self.code)


class StatementView(StatementPart):
    """One document with its lines."""

    @answers(shapes.StatementSerializer)
    def get(self, user: User, statement: Statement) -> Any:
        return self.shown(user, statement, statement.pk)


class SendBackView(StatementPart):
    """Makes a reviewed statement of an open month a draft again."""

    post = deed(actions.send_back_statement, shapes.StatementSerializer, takes=ReasonInput)


class VoidView(StatementPart):
    """Voids an issued statement; the answer is the credit note."""

    code = MADE
    post = deed(actions.void_statement, shapes.StatementSerializer, takes=ReasonInput, code=MADE)


class AdjustmentsView(View):
    """Adjustments that the caller may read, the newest first."""

    post = deed(
        actions.propose_adjustment,
        shapes.AdjustmentSerializer,
        takes=shapes.AdjustmentInput,
        code=MADE,
    )

    @pages(shapes.AdjustmentSerializer, CREATED)
    def get(self, user: User) -> Any:
        return read.visible_adjustments(user)


class DecideAdjustmentView(View):
    """Approves or declines; the proposer only declines."""

    post = deed(
        actions.decide_adjustment, shapes.AdjustmentSerializer, takes=shapes.AdjustmentDecision
    )

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"adjustment": read.visible_adjustments(user).get(pk=pk)}
