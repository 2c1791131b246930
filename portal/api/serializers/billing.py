"""Prices, statements and months. Amounts and prices are texts: a JSON number would be a float."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from budgets import models
from budgets.charging import FloorHours
from budgets.selectors.billing.periods import Check
from budgets.services.billing import DrawSummary
from portal.api.serializers.base import (
    InstantField,
    RecordSerializer,
    RowSerializer,
    Strict,
    account_field,
    name_of,
    workspace_field,
)

PRICE: Any = {"max_digits": 18, "decimal_places": 8}
MOST_PRICES = 500
MOST_TIERS = 50
MOST_POINTS = 10_000


class TierSerializer(serializers.Serializer[Any]):
    """Beyond ``above`` GPU-hours of an account in a month a class costs another price."""

    of_class = serializers.CharField()
    above = serializers.IntegerField()
    price = serializers.DecimalField(**PRICE)


class PriceSerializer(serializers.Serializer[Any]):
    """Prices of one flavor per GPU-hour."""

    flavor = serializers.CharField(source="flavor.slug")
    committed = serializers.DecimalField(**PRICE)
    burst = serializers.DecimalField(**PRICE)
    lending_credit = serializers.DecimalField(**PRICE)
    is_dynamic = serializers.BooleanField()
    tiers = TierSerializer(many=True)


class RateCardSerializer(RowSerializer[models.RateCard]):
    """A whole price list; an account's own goes before the one for everybody."""

    prices = PriceSerializer(many=True)
    told = [
        "id", "account", "name", "currency", "floor_hours", "preemption_share",
        "preemption_minutes", "rounding", "state", "valid_from", "prices", "reason", "author",
        "decided_by", "decided_at", "created_at",
    ]  # fmt: skip


class TierInput(Strict):
    """A volume step; ``of_class`` is committed or burst."""

    of_class = serializers.CharField(max_length=10)
    above = serializers.IntegerField(min_value=1)
    price = serializers.CharField(max_length=30)


class PriceInput(Strict):
    """Prices of one flavor; the credit is a share of the committed price, 0 to 1."""

    flavor = serializers.CharField(max_length=63)
    committed = serializers.CharField(max_length=30)
    burst = serializers.CharField(max_length=30)
    lending_credit = serializers.CharField(max_length=30, default="0")
    is_dynamic = serializers.BooleanField(default=False)
    tiers = serializers.ListField(child=TierInput(), max_length=MOST_TIERS, default=list)


class RateCardInput(Strict):
    """A proposal."""

    name = serializers.CharField(max_length=120)
    currency = serializers.CharField(max_length=3)
    account = account_field(required=False, allow_null=True)
    floor_hours = serializers.ChoiceField(
        [row.value for row in FloorHours], default=FloorHours.ACTUAL.value
    )
    preemption_share = serializers.CharField(max_length=30, default="0")
    preemption_minutes = serializers.IntegerField(min_value=0, max_value=1440, default=0)
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)
    prices = serializers.ListField(child=PriceInput(), max_length=MOST_PRICES)


class ActivationInput(Strict):
    """From which whole UTC hour a card holds."""

    valid_from = InstantField()
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class SpotPriceSerializer(RowSerializer[models.SpotPrice]):
    """The burst price of a dynamic flavor from an hour on."""

    told = ["id", "start", "price", "currency", "recorded_at"]


class SpotPointInput(Strict):
    """One point of a time series."""

    start = InstantField()
    price = serializers.CharField(max_length=30)


class SpotPricesInput(Strict):
    """Points of a time series; what stands already is left alone."""

    currency = serializers.CharField(max_length=3)
    prices = serializers.ListField(child=SpotPointInput(), max_length=MOST_POINTS)


class CountSerializer(serializers.Serializer[Any]):
    """How many were new."""

    count = serializers.IntegerField()


class ExchangeRateSerializer(RowSerializer[models.ExchangeRate]):
    """1 base was worth so much quote on a day."""

    told = ["id", "base", "quote", "day", "rate", "recorded_at"]


class ExchangeRateInput(Strict):
    """A further rate of a day supersedes the one before."""

    base = serializers.CharField(max_length=3)
    quote = serializers.CharField(max_length=3)
    day = serializers.DateField()
    rate = serializers.CharField(max_length=30)


class BillingTermsSerializer(serializers.Serializer[Any]):
    """How an account is billed; an empty currency is that of the rate cards."""

    zone = serializers.CharField()
    currency = serializers.CharField(allow_blank=True)
    closed_until = serializers.DateTimeField(allow_null=True)


class BillingTermsInput(Strict):
    """Zone and currency of an account."""

    zone = serializers.CharField(max_length=64, default="UTC")
    currency = serializers.CharField(max_length=3, default="", allow_blank=True)


class ClosingCheckSerializer(RecordSerializer[Check]):
    """One entry of the check list; details say what is missing."""

    is_met = serializers.BooleanField()


class MonthSerializer(RowSerializer[models.BillingPeriod]):
    """A month of a zone, closed or open."""

    told = ["name", "zone", "start", "end", "closed_at", "close_number", "head"]


class MonthCheckSerializer(serializers.Serializer[Any]):
    """A month with what stands in the way of its close."""

    month = MonthSerializer()
    checks = ClosingCheckSerializer(many=True)


class MonthInput(Strict):
    """The zone whose month it is."""

    zone = serializers.CharField(max_length=64, default="UTC")


class DrawnSerializer(RecordSerializer[DrawSummary]):
    """How many statements were drawn up, kept because they are reviewed, and removed."""


class StatementLineSerializer(RowSerializer[models.StatementLine]):
    """One line: exact as a fraction, and rounded once."""

    exact = serializers.CharField(source="exact_text")
    told = [
        "position", "workspace", "flavor", "kind", "class_of", "gpu_seconds", "exact",
        "amount", "text", "parts",
    ]  # fmt: skip


class StatementRowSerializer(RowSerializer[models.Statement]):
    """A document in a list; its lines and total are at its own address."""

    month = serializers.CharField(source="period.name")
    zone = serializers.CharField(source="period.zone")
    credits = name_of("credits.number")
    told = [
        "id", "account", "month", "zone", "kind", "state", "number", "currency", "credits",
        "issued_at",
    ]  # fmt: skip


class StatementSerializer(StatementRowSerializer):
    """A statement or credit note; a null account is the platform itself.

    ``total`` adds up the lines that the reader sees, which ``is_whole`` tells to be all.
    """

    total = serializers.SerializerMethodField()
    is_whole = serializers.SerializerMethodField()
    lines = serializers.SerializerMethodField()
    told = [
        *StatementRowSerializer.told, "priced_in", "exchange_rate", "exchange_day",
        "reason", "drawn_at", "reviewed_at", "total", "is_whole", "lines",
    ]  # fmt: skip

    @extend_schema_field(serializers.DecimalField(max_digits=20, decimal_places=4))
    def get_total(self, row: models.Statement) -> str:
        return f"{self._sheet.total:.4f}"

    def get_is_whole(self, row: models.Statement) -> bool:
        return bool(self._sheet.is_whole)

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
    told = [
        "id", "account", "workspace", "month", "amount", "currency", "reason", "state",
        "proposed_by", "decided_by", "decided_at", "decision_reason", "created_at",
    ]  # fmt: skip


class AdjustmentInput(Strict):
    """A proposal; negative gives money back."""

    account = account_field()
    workspace = workspace_field(required=False, allow_null=True)
    month = serializers.CharField(max_length=7)
    zone = serializers.CharField(max_length=64, default="UTC")
    amount = serializers.CharField(max_length=30)
    reason = serializers.CharField(max_length=500)


class AdjustmentDecision(Strict):
    """Approve, by somebody else than the proposer, or decline with a reason."""

    approve = serializers.BooleanField(source="is_approved")
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)
