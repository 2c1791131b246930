"""Do the books agree with the clusters: identities by hour, discrepancies and their settling."""

from __future__ import annotations

from datetime import date
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from budgets import models
from budgets.errors import Fault, Rejected
from budgets.metering import CapacityFact
from budgets.models import User
from budgets.selectors import billing as read
from budgets.selectors.billing.reconciliation import Reconciliation
from budgets.services import billing as actions
from portal.api.paging import CREATED
from portal.api.shapes import ReasonInput, RecordSerializer, RowSerializer, Strict
from portal.api.views import Noun, View, answers, deed, finds, lists

CLUSTER = OpenApiParameter("cluster", str, description="Slug; the first that is sampled if empty.")
DAY = OpenApiParameter("day", str, description="UTC day, such as 2026-10-31; today if empty.")


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
            message = f"{given['day'][:20]!r} is no day; write it like 2026-10-31."
            raise Rejected([Fault("day", "invalid", message)]) from None
        return read.reconciliation(user, cluster=given.get("cluster", ""), day=day)


class Discrepancies(Noun):
    """What disagrees with the ledger, the newest first; for platform roles."""

    shape = DiscrepancySerializer
    found = finds("discrepancy", lambda user, pk: read.visible_discrepancies(user).get(pk=pk))
    list = lists(read.visible_discrepancies, CREATED)
    propose = deed(
        actions.propose_acceptance, takes=ReasonInput, text="Says why a discrepancy may stand."
    )
    decide = deed(
        actions.decide_acceptance,
        takes=AcceptanceDecision,
        text="Accepts it, or puts it back; the proposer only puts it back.",
    )
