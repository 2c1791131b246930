"""Prices: rate cards, time series, exchange rates, and the terms of an account."""

from __future__ import annotations

from typing import Any

from budgets import selectors
from budgets.models import Account, BillingTerms, ExchangeRate, Flavor, SpotPrice, User
from budgets.selectors import billing as read
from budgets.services import billing as actions
from portal.api.paging import CREATED
from portal.api.serializers import billing as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import MADE, View, answers, deed, pages, shows


class RateCardsView(View):
    """Price lists, the newest first; finance proposes."""

    @pages(shapes.RateCardSerializer, CREATED)
    def get(self, user: User) -> Any:
        return read.visible_rate_cards(user).prefetch_related("prices__flavor", "prices__tiers")

    @answers(shapes.RateCardSerializer, takes=shapes.RateCardInput, code=MADE)
    def post(self, user: User, prices: list[dict[str, Any]], **given: Any) -> Any:
        drafts = [
            actions.PriceDraft(
                **{**row, "tiers": [actions.TierDraft(**tier) for tier in row["tiers"]]}
            )
            for row in prices
        ]
        return actions.propose_rate_card(user, **given, prices=drafts)


class RateCardPart(View):
    """One visible card."""

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"card": read.visible_rate_cards(user).get(pk=pk)}


class RateCardView(RateCardPart):
    """One price list."""

    get = shows(shapes.RateCardSerializer)


class ActivateRateCardView(RateCardPart):
    """Lets a proposed card hold from a whole UTC hour of an open month on."""

    post = deed(actions.activate_rate_card, shapes.RateCardSerializer, takes=shapes.ActivationInput)


class WithdrawRateCardView(RateCardPart):
    """Takes a proposal back."""

    post = deed(actions.withdraw_rate_card, shapes.RateCardSerializer, takes=ReasonInput)


class SpotPricesView(View):
    """The time series of a flavor's burst price, the newest record first."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        is_read = self.request.method == "GET"
        rows = selectors.visible_flavors(user, include_archived=is_read)
        return {"flavor": rows.get(slug=slug)}

    @pages(shapes.SpotPriceSerializer, CREATED)
    def get(self, user: User, flavor: Flavor) -> Any:
        return SpotPrice.objects.filter(flavor=flavor)

    @answers(shapes.CountSerializer, takes=shapes.SpotPricesInput, code=MADE)
    def post(self, user: User, prices: list[dict[str, Any]], **given: Any) -> Any:
        points = [(row["start"], row["price"]) for row in prices]
        return {"count": actions.record_spot_prices(user, prices=points, **given)}


class ExchangeRatesView(View):
    """What currencies were worth, the newest record first."""

    post = deed(
        actions.record_exchange_rate,
        shapes.ExchangeRateSerializer,
        takes=shapes.ExchangeRateInput,
        code=MADE,
    )

    @pages(shapes.ExchangeRateSerializer, CREATED)
    def get(self, user: User) -> Any:
        return ExchangeRate.objects.all()


class BillingTermsView(View):
    """In which months and money an account is billed."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        return {"account": selectors.account_for(user, slug)}

    @answers(shapes.BillingTermsSerializer)
    def get(self, user: User, account: Account) -> Any:
        return BillingTerms.objects.filter(account=account).first() or BillingTerms(account=account)

    put = deed(
        actions.set_billing_terms, shapes.BillingTermsSerializer, takes=shapes.BillingTermsInput
    )
