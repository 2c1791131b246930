"""Months and their close, statements and adjustments; do the books agree with the clusters.

The latter by identities of each hour, and by discrepancies and their settling.

Amounts are texts: a JSON number would be a float.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from budgets import models
from budgets.errors import Fault, Rejected
from budgets.metering import CapacityFact
from budgets.models import Statement, User
from budgets.selectors import billing as read
from budgets.selectors.billing.periods import Check
from budgets.selectors.billing.reconciliation import Reconciliation
from budgets.services import billing as actions
from budgets.services.billing import DrawSummary
from budgets.units import year_fault
from clusters.selectors import cluster_names
from portal.api.paging import CREATED
from portal.api.proposals import ProposalDecision, ProposalSerializer
from portal.api.shapes import (
    ReasonInput,
    RecordSerializer,
    RowSerializer,
    Strict,
    account_field,
    name_of,
    workspace_field,
)
from portal.api.views import ASKED, MADE, Noun, View, account_named, answers, deed, finds, lists

ZONE = OpenApiParameter("zone", str, description="IANA time zone of the month; UTC when left out.")


class ClosingCheckSerializer(RecordSerializer[Check]):
    """One entry of the check list; details say what is missing."""

    is_met = serializers.BooleanField()


class MonthSerializer(RowSerializer[models.BillingPeriod]):
    """A month of a zone, closed or open."""

    told = "name zone start end closed_at close_number head"


class MonthCheckSerializer(serializers.Serializer[Any]):
    """A month with what stands in the way of its close."""

    month = MonthSerializer()
    checks = ClosingCheckSerializer(many=True)


class MonthInput(Strict):
    """The zone whose month it is."""

    zone = serializers.CharField(max_length=64, default="UTC")


class CountSerializer(serializers.Serializer[Any]):
    """How many it was done to."""

    count = serializers.IntegerField()


class DrawnSerializer(RecordSerializer[DrawSummary]):
    """How many statements were drawn up, kept because they are reviewed, and removed."""


class StatementLineSerializer(RowSerializer[models.StatementLine]):
    """One line: exact as a fraction, and rounded once."""

    exact = serializers.CharField(source="exact_text")
    told = "position workspace flavor kind class_of gpu_seconds exact amount text parts"


class StatementRowSerializer(RowSerializer[models.Statement]):
    """A document in a list; its lines and total are at its own address."""

    month = serializers.CharField(source="period.name")
    zone = serializers.CharField(source="period.zone")
    credits = name_of("credits.number")
    told = "id account month zone kind state number currency credits issued_at"


class StatementSerializer(StatementRowSerializer):
    """A statement or credit note; a null account is the platform itself.

    ``total`` adds up the lines that the reader sees, which ``is_whole`` tells to be all.
    ``is_one_person``: at some time since the month began nobody else looked at what one person did.
    """

    total = serializers.SerializerMethodField()
    is_whole = serializers.SerializerMethodField()
    is_one_person = serializers.SerializerMethodField()
    lines = serializers.SerializerMethodField()
    told = (
        f"{StatementRowSerializer.told} priced_in exchange_rate exchange_day reason drawn_at "
        "reviewed_at total is_whole is_one_person lines"
    )

    @extend_schema_field(serializers.DecimalField(max_digits=20, decimal_places=4))
    def get_total(self, row: models.Statement) -> str:
        return f"{self._sheet.total:.4f}"

    def get_is_whole(self, row: models.Statement) -> bool:
        return bool(self._sheet.is_whole)

    def get_is_one_person(self, row: models.Statement) -> bool:
        return bool(self._sheet.is_one_person)

    @property
    def _sheet(self) -> Any:
        return self.context["sheet"]

    @extend_schema_field(StatementLineSerializer(many=True))
    def get_lines(self, row: models.Statement) -> Any:
        lines = [line for part in self._sheet.parts for line in part.lines]
        return StatementLineSerializer(lines, many=True).data


class AdjustmentSerializer(RowSerializer[models.Adjustment]):
    """An amount that no meter knows."""

    account = name_of("account.slug")
    month = serializers.CharField(source="period.name")
    told = (
        "id account workspace month amount currency reason state proposed_by decided_by "
        "decided_at decision_reason created_at"
    )


class AdjustmentInput(Strict):
    """A proposal; negative gives money back."""

    account = account_field()
    workspace = workspace_field(required=False, allow_null=True)
    month = serializers.CharField(max_length=7)
    zone = serializers.CharField(max_length=64, default="UTC")
    amount = serializers.CharField(max_length=30)
    reason = serializers.CharField(max_length=500)


class AdjustmentDecision(ProposalDecision):
    """Approve, by somebody else than the proposer, or decline with a reason."""


class Months(Noun):
    """Every month with facts, the newest first; for platform roles."""

    each = "One month, and what keeps it from being closed."
    shape = MonthSerializer
    lookup_field, lookup_value_converter = "name", "slug"

    list = deed(read.billing_months, many=True)

    @answers(MonthCheckSerializer, query=(ZONE,))
    def retrieve(self, user: User, name: str) -> Any:
        month = read.period_for(user, name, self.request.query_params.get("zone", "UTC"))
        if month.closed_at:
            return {"month": month, "checks": ()}
        checks = read.check_list(month, clusters=cluster_names())
        return {"month": month, "checks": checks}

    @answers(DrawnSerializer, takes=MonthInput)
    def draw_up(self, user: User, name: str, zone: str) -> Any:
        """Writes the drafts of a month anew."""
        read.period_for(user, name, zone)
        return actions.draw_up_statements(user, month=name, zone=zone)

    @answers(CountSerializer, takes=MonthInput)
    def review(self, user: User, name: str, zone: str) -> Any:
        """Marks every draft of a month as reviewed."""
        read.period_for(user, name, zone)
        return {"count": len(actions.review_statements(user, month=name, zone=zone))}

    @answers(takes=MonthInput)
    def close(self, user: User, name: str, zone: str) -> Any:
        """Closes a month for good, when its check list is met."""
        read.period_for(user, name, zone)
        return actions.close_period(user, month=name, zone=zone)

    @answers(CountSerializer, takes=MonthInput)
    def issue(self, user: User, name: str, zone: str) -> Any:
        """Issues every reviewed statement of a closed month."""
        read.period_for(user, name, zone)
        return {"count": len(actions.issue_statements(user, month=name, zone=zone))}


class Statements(Noun):
    """Statements and credit notes that the caller may read, the newest first."""

    each = "One document with its lines."
    shape = StatementSerializer
    found = finds("statement", read.statement_for)
    send_back = deed(
        actions.send_back_statement,
        takes=ReasonInput,
        text="Makes a reviewed statement of an open month a draft again.",
    )
    void = deed(
        actions.propose_void,
        ProposalSerializer,
        takes=ReasonInput,
        code=ASKED,
        text="Proposes to void an issued statement by a credit note.",
    )

    @answers(
        order=CREATED,
        shape=StatementRowSerializer,
        query=(
            OpenApiParameter("account", str, description="Slug."),
            OpenApiParameter("month", str, description="Such as 2026-10."),
        ),
        filters={"month": "period__name"},
    )
    def list(self, user: User) -> Any:
        seen = read.visible_statements(user)
        account = self.request.query_params.get("account")
        return seen.filter(account=account_named(user, account)) if account else seen

    @answers()
    def retrieve(self, user: User, statement: Statement) -> Any:
        return self.shown(user, statement, statement.pk)

    def shown(self, user: User, made: Any, pk: int) -> Any:
        """The document as far as the caller sees it, with its lines; or what waits about it."""
        if isinstance(made, models.Proposal):
            return made
        sheet = read.statement_sheet(user, made)
        return Response(StatementSerializer(made, context={"sheet": sheet}).data)


class Adjustments(Noun):
    """Adjustments that the caller may read, the newest first."""

    shape = AdjustmentSerializer
    found = finds("adjustment", lambda user, pk: read.visible_adjustments(user).get(pk=pk))
    list = lists(read.visible_adjustments, CREATED)
    create = deed(actions.propose_adjustment, takes=AdjustmentInput, code=MADE)
    decide = deed(
        actions.decide_adjustment,
        takes=AdjustmentDecision,
        text="Approves or declines; the proposer can only decline.",
    )


CLUSTER = OpenApiParameter(
    "cluster", str, description="Slug; the first one that is measured when left out."
)
DAY = OpenApiParameter("day", str, description="UTC day, such as 2026-10-31; today when left out.")


class DiscrepancySerializer(RowSerializer[models.Discrepancy]):
    """Something that blocks the close until it is settled; ``end`` null: it goes on."""

    told = (
        "id kind cluster subject flavor start end amount message samples state reason raised_at "
        "cleared_at proposed_by proposed_at decided_by decided_at"
    )


class AcceptanceDecision(Strict):
    """Accept, by somebody else than the proposer, or put it back."""

    approve = serializers.BooleanField(source="is_approved")


class CapacityFactSerializer(RecordSerializer[CapacityFact]):
    """One flavor on one cluster in one UTC hour, GPU-seconds.

    The parts + unexplained − over_admitted = capacity.
    """

    unexplained = serializers.IntegerField()
    tolerance = serializers.IntegerField()
    is_explained = serializers.BooleanField()


class ReconciliationSerializer(RecordSerializer[Reconciliation]):
    """One UTC day of one cluster."""

    without = ("sums",)


class ReconciliationView(View):
    """The capacity identity of one cluster and day, hour by hour; for platform roles."""

    @answers(ReconciliationSerializer, query=(CLUSTER, DAY))
    def get(self, user: User) -> Any:
        given = self.request.query_params
        try:
            day = date.fromisoformat(given["day"]) if given.get("day") else None
        except ValueError:
            message = f"{given['day'][:20]!r} is not a day; write it like 2026-10-31."
            raise Rejected([Fault("day", "invalid", message)]) from None
        if day is not None and (words := year_fault(day)):
            raise Rejected([Fault("day", "year", words)])
        return read.reconciliation(user, cluster=given.get("cluster", ""), day=day)


class Discrepancies(Noun):
    """What disagrees with the ledger, the newest first; for platform roles."""

    shape = DiscrepancySerializer
    found = finds("discrepancy", lambda user, pk: read.visible_discrepancies(user).get(pk=pk))
    list = lists(read.visible_discrepancies, CREATED)
    propose = deed(
        actions.propose_acceptance,
        takes=ReasonInput,
        text="Proposes to accept a discrepancy, with the reason.",
    )
    decide = deed(
        actions.decide_acceptance,
        takes=AcceptanceDecision,
        text="Accepts it, or puts it back; the proposer can only put it back.",
    )
