"""Prices: rate cards, time series, exchange rates, and the terms of an account."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets.models import Account, BillingTerms, ExchangeRate, RateCard, SpotPrice
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import billing as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, account_named, actor, checked

MADE = status.HTTP_201_CREATED


class RateCardsView(View):
    """Price lists, the newest first; finance proposes."""

    query = PAGED

    @extend_schema(responses=paged(shapes.RateCardSerializer))
    def get(self, request: Request) -> Response:
        rows = read.visible_rate_cards(actor(request)).prefetch_related(
            "prices__flavor", "prices__tiers"
        )
        return page(request, rows, shapes.RateCardSerializer, CREATED)

    @extend_schema(request=shapes.RateCardInput, responses={201: shapes.RateCardSerializer})
    def post(self, request: Request) -> Response:
        user = actor(request)
        given = checked(shapes.RateCardInput, request)
        account = given.pop("account", None)
        prices = [
            actions.PriceDraft(
                **{**row, "tiers": [actions.TierDraft(**tier) for tier in row["tiers"]]}
            )
            for row in given.pop("prices")
        ]
        made = actions.propose_rate_card(
            user,
            **given,
            prices=prices,
            account=account_named(user, account) if account else None,
        )
        return Response(shapes.RateCardSerializer(made).data, status=MADE)


class RateCardPart(View):
    """A deed on one card."""

    def card(self, request: Request, pk: int) -> RateCard:
        return read.visible_rate_cards(actor(request)).get(pk=pk)


class RateCardView(RateCardPart):
    """One price list."""

    @extend_schema(responses=shapes.RateCardSerializer)
    def get(self, request: Request, pk: int) -> Response:
        return Response(shapes.RateCardSerializer(self.card(request, pk)).data)


class ActivateRateCardView(RateCardPart):
    """Lets a proposed card hold from a whole UTC hour of an open month on."""

    @extend_schema(request=shapes.ActivationInput, responses=shapes.RateCardSerializer)
    def post(self, request: Request, pk: int) -> Response:
        card = self.card(request, pk)
        given = checked(shapes.ActivationInput, request)
        done = actions.activate_rate_card(actor(request), card=card, **given)
        return Response(shapes.RateCardSerializer(done).data)


class WithdrawRateCardView(RateCardPart):
    """Takes a proposal back."""

    @extend_schema(request=ReasonInput, responses=shapes.RateCardSerializer)
    def post(self, request: Request, pk: int) -> Response:
        card = self.card(request, pk)
        reason = checked(ReasonInput, request)["reason"]
        done = actions.withdraw_rate_card(actor(request), card=card, reason=reason)
        return Response(shapes.RateCardSerializer(done).data)


class SpotPricesView(View):
    """The time series of a flavor's burst price, the newest record first."""

    query = PAGED

    @extend_schema(responses=paged(shapes.SpotPriceSerializer))
    def get(self, request: Request, slug: str) -> Response:
        flavor = selectors.visible_flavors(actor(request), include_archived=True).get(slug=slug)
        rows = SpotPrice.objects.filter(flavor=flavor)
        return page(request, rows, shapes.SpotPriceSerializer, CREATED)

    @extend_schema(request=shapes.SpotPricesInput, responses={201: shapes.CountSerializer})
    def post(self, request: Request, slug: str) -> Response:
        user = actor(request)
        flavor = selectors.visible_flavors(user).get(slug=slug)
        given = checked(shapes.SpotPricesInput, request)
        points = [(row["start"], row["price"]) for row in given["prices"]]
        count = actions.record_spot_prices(
            user, flavor=flavor, prices=points, currency=given["currency"]
        )
        return Response({"count": count}, status=MADE)


class ExchangeRatesView(View):
    """What currencies were worth, the newest record first."""

    query = PAGED

    @extend_schema(responses=paged(shapes.ExchangeRateSerializer))
    def get(self, request: Request) -> Response:
        return page(request, ExchangeRate.objects.all(), shapes.ExchangeRateSerializer, CREATED)

    @extend_schema(request=shapes.ExchangeRateInput, responses={201: shapes.ExchangeRateSerializer})
    def post(self, request: Request) -> Response:
        given = checked(shapes.ExchangeRateInput, request)
        made = actions.record_exchange_rate(actor(request), **given)
        return Response(shapes.ExchangeRateSerializer(made).data, status=MADE)


class BillingTermsView(View):
    """In which months and money an account is billed."""

    @extend_schema(responses=shapes.BillingTermsSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return Response(self._shown(selectors.account_for(actor(request), slug)))

    @extend_schema(request=shapes.BillingTermsInput, responses=shapes.BillingTermsSerializer)
    def put(self, request: Request, slug: str) -> Response:
        user = actor(request)
        account = selectors.account_for(user, slug)
        given = checked(shapes.BillingTermsInput, request)
        actions.set_billing_terms(user, account=account, **given)
        return Response(self._shown(account))

    def _shown(self, account: Account) -> dict[str, Any]:
        row = BillingTerms.objects.filter(account=account).first() or BillingTerms(account=account)
        return dict(shapes.BillingTermsSerializer(row).data)
