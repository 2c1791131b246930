"""Prices: rate cards, time series, exchange rates, and the terms of an account.

Amounts and prices are texts: a JSON number would be a float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import serializers
from rest_framework.response import Response

from budgets import models, selectors
from budgets.charging import FloorHours
from budgets.models import Account, BillingTerms, ExchangeRate, Flavor, SpotPrice, User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED
from portal.api.proposals import ProposalSerializer
from portal.api.shapes import (
    DayField,
    InstantField,
    ReasonInput,
    RowSerializer,
    Strict,
    account_field,
)
from portal.api.views import ASKED, MADE, Noun, View, answers, deed, finds, lists, shows

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
    told = (
        "id account name currency floor_hours preemption_share preemption_minutes rounding "
        "state valid_from prices reason author decided_by decided_at created_at"
    )


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
    """The whole UTC hour from which a card holds."""

    valid_from = InstantField()
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class SpotPriceSerializer(RowSerializer[models.SpotPrice]):
    """The burst price of a dynamic flavor from an hour on."""

    told = "id start price currency off_by tolerance recorded_at"


class SpotPointInput(Strict):
    """One point of a time series."""

    start = InstantField()
    price = serializers.CharField(max_length=30)


class SpotPricesInput(Strict):
    """Points of a time series; what stands already is left alone."""

    currency = serializers.CharField(max_length=3)
    prices = serializers.ListField(child=SpotPointInput(), max_length=MOST_POINTS)
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class RecordedSerializer(serializers.Serializer[Any]):
    """How many were recorded; with 202 none was, and the proposal waits for a second person."""

    count = serializers.IntegerField()
    proposal = ProposalSerializer(allow_null=True)


class ExchangeRateSerializer(RowSerializer[models.ExchangeRate]):
    """1 base was worth so much quote on a day."""

    told = "id base quote day rate off_by tolerance recorded_at"


class ExchangeRateInput(Strict):
    """A further rate of a day supersedes the one before."""

    base = serializers.CharField(max_length=3)
    quote = serializers.CharField(max_length=3)
    day = DayField()
    rate = serializers.CharField(max_length=30)
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class BillingTermsSerializer(serializers.Serializer[Any]):
    """How an account is billed; an empty currency is that of the rate cards."""

    zone = serializers.CharField()
    currency = serializers.CharField(allow_blank=True)
    closed_until = serializers.DateTimeField(allow_null=True)


class BillingTermsInput(Strict):
    """Zone and currency of an account."""

    zone = serializers.CharField(max_length=64, default="UTC")
    currency = serializers.CharField(max_length=3, default="", allow_blank=True)


class InvoiceDetailsInput(Strict):
    """What the statements of an account say of whom they are for; empty is not on them."""

    invoice_address = serializers.CharField(max_length=500, default="", allow_blank=True)
    tax_number = serializers.CharField(max_length=40, default="", allow_blank=True)
    purchase_order = serializers.CharField(max_length=60, default="", allow_blank=True)
    cost_centre = serializers.CharField(max_length=60, default="", allow_blank=True)


def recorded(made: Any) -> Response:
    """What was recorded, or what waits for it."""
    waits = isinstance(made, models.Proposal)
    count = 0 if waits else made if isinstance(made, int) else 1
    told = RecordedSerializer({"count": count, "proposal": made if waits else None})
    return Response(told.data, status=ASKED if waits else MADE)


class RateCards(Noun):
    """Price lists, the newest first; finance proposes."""

    each = "One price list."
    shape = RateCardSerializer
    found = finds("card", lambda user, pk: read.visible_rate_cards(user).get(pk=pk))
    retrieve = shows()
    activate = deed(
        actions.propose_activation,
        ProposalSerializer,
        takes=ActivationInput,
        code=ASKED,
        text="Proposes that a card hold from a whole UTC hour of an open month.",
    )
    withdraw = deed(actions.withdraw_rate_card, takes=ReasonInput, text="Takes a proposal back.")

    @answers(order=CREATED)
    def list(self, user: User) -> Any:
        return read.visible_rate_cards(user).prefetch_related("prices__flavor", "prices__tiers")

    @answers(takes=RateCardInput, code=MADE)
    def create(self, user: User, prices: Sequence[Mapping[str, Any]], **given: Any) -> Any:
        drafts = [
            actions.PriceDraft(
                **{**row, "tiers": [actions.TierDraft(**tier) for tier in row["tiers"]]}
            )
            for row in prices
        ]
        return actions.propose_rate_card(user, **given, prices=drafts)


class SpotPricesView(View):
    """The time series of a flavor's burst price, the newest record first."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        is_read = self.request.method == "GET"
        rows = selectors.visible_flavors(user, include_archived=is_read)
        return {"flavor": rows.get(slug=slug)}

    @answers(order=CREATED, shape=SpotPriceSerializer)
    def get(self, user: User, flavor: Flavor) -> Any:
        return SpotPrice.objects.filter(flavor=flavor)

    @answers(RecordedSerializer, takes=SpotPricesInput, code=(MADE, ASKED))
    def post(self, user: User, prices: Sequence[Mapping[str, Any]], **given: Any) -> Any:
        """Adds points; those far off what two people agreed on, or of the past, wait for two."""
        points = [(row["start"], row["price"]) for row in prices]
        return recorded(actions.record_spot_prices(user, prices=points, **given))


class ExchangeRates(Noun):
    """What currencies were worth, the newest record first."""

    shape = ExchangeRateSerializer
    list = lists(lambda user: ExchangeRate.objects.all(), CREATED)

    @answers(RecordedSerializer, takes=ExchangeRateInput, code=(MADE, ASKED))
    def create(self, user: User, **given: Any) -> Any:
        """Records a rate; one that is far off what two people agreed on waits for two."""
        return recorded(actions.record_exchange_rate(user, **given))


class BillingTermsView(View):
    """In which months and money an account is billed."""

    shape = BillingTermsSerializer
    found = finds("account", selectors.account_for)
    put = deed(actions.set_billing_terms, takes=BillingTermsInput)

    @answers()
    def get(self, user: User, account: Account) -> Any:
        return BillingTerms.objects.filter(account=account).first() or BillingTerms(account=account)


class InvoiceDetailsView(View):
    """What the statements of an account say of whom they are for; read by the account's people."""

    shape = InvoiceDetailsInput
    found = finds("account", selectors.account_for)
    put = deed(actions.set_invoice_details, takes=InvoiceDetailsInput)

    @answers()
    def get(self, user: User, account: Account) -> Any:
        if not selectors.roles_of(user).sees_account(account.pk):
            raise Account.DoesNotExist
        return BillingTerms.objects.filter(account=account).first() or BillingTerms(account=account)
