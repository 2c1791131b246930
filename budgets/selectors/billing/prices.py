"""Which prices hold for whom: stored cards and time series as the pure core knows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from django.db.models import Q, QuerySet

from budgets.charging import (
    FloorHours,
    PreemptionTerms,
    Price,
    PriceList,
    Rate,
    Rates,
    SpotPoint,
    Tier,
    merged_rates,
)
from budgets.models import (
    BillingTerms,
    ExchangeRate,
    RateCard,
    RatePrice,
    RateTier,
    SpotPrice,
    User,
)
from budgets.selectors.roles import roles_of
from budgets.units import FlavorName, Period, utc_hour


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Rate cards of many accounts; those without prices of their own share one.

    Attributes:
        currency: Of every price; empty while no card is active.
        shared: The card for everybody.
        own: Account key -> its card, with the shared prices of flavors that it leaves out.
    """

    currency: str
    shared: Rates | None
    own: Mapping[int, Rates]

    def of(self, account_id: int) -> Rates | None:
        """The card of one account; None while there are no prices at all."""
        return self.own.get(account_id, self.shared)

    def cards(self) -> list[Rates]:
        """Every card that holds for somebody."""
        return [card for card in (self.shared, *self.own.values()) if card is not None]

    def edges(self, window: Period) -> dict[FlavorName, set[datetime]]:
        """Hours inside the window in which some account's rate changes, by flavor."""
        found: dict[FlavorName, set[datetime]] = {}
        for card in self.cards():
            for flavor, edges in card.edges(window).items():
                found.setdefault(flavor, set()).update(edges)
        return found


def rate_card_at(account_id: int | None, window: Period) -> Rates | None:
    """The prices that hold for one account (None: for everybody) up to a window's end."""
    accounts = () if account_id is None else (account_id,)
    book = price_book(window, accounts=accounts)
    return book.shared if account_id is None else book.of(account_id)


def rates_now(account_id: int | None, instant: datetime) -> Mapping[FlavorName, Rate]:
    """The rate of every priced flavor in the hour of an instant; for previews."""
    hour = instant.replace(minute=0, second=0, microsecond=0)
    card = rate_card_at(account_id, Period(hour, hour.replace(minute=59)))
    if card is None:
        return {}
    flavors = RatePrice.objects.values_list("flavor__slug", flat=True).distinct().order_by()
    rates = {FlavorName(slug): card.rate_at(FlavorName(slug), hour) for slug in flavors}
    return {flavor: rate for flavor, rate in rates.items() if rate is not None}


def price_book(
    window: Period, *, accounts: Collection[int] | None = None, trial: RateCard | None = None
) -> PriceBook:
    """All prices that begin before the end of a window. Four queries.

    Args:
        window: Rates that begin before its end.
        accounts: Only own cards of these; None for those of all accounts.
        trial: A card that is taken for active for the whole window, in its own scope.
    """
    cards = RateCard.objects.filter(state=RateCard.State.ACTIVE, valid_from__lt=window.end)
    if accounts is not None:
        cards = cards.filter(Q(account__isnull=True) | Q(account__in=accounts))
    rows = list(cards.order_by("valid_from", "decided_at", "pk"))
    if trial is not None:
        rows = [*_besides(rows, trial, window), trial]
    if not rows:
        return PriceBook("", None, {})
    lists = _lists(rows, trial, window)
    spot = _spot(window)
    by_scope: dict[int | None, list[RateCard]] = {}
    for row in rows:
        by_scope.setdefault(row.account_id, []).append(row)
    everybody = [lists[row.pk] for row in by_scope.get(None, [])]
    currency = rows[-1].currency

    def card_of(scope: int | None) -> Rates:
        own = [lists[row.pk] for row in by_scope.get(scope, [])] if scope is not None else []
        chosen = _leading(
            (*by_scope.get(None, []), *by_scope.get(scope, [])), lists, at=utc_hour(window.start)
        )
        return Rates(
            merged_rates(everybody, own, spot=spot),
            currency=currency,
            floor_hours=FloorHours(chosen.floor_hours) if chosen else FloorHours.ACTUAL,
            preemption=PreemptionTerms(chosen.preemption_share, chosen.preemption_minutes)
            if chosen
            else PreemptionTerms(),
        )

    return PriceBook(
        currency,
        card_of(None),
        {scope: card_of(scope) for scope in by_scope if scope is not None},
    )


def portal_currency() -> str:
    """The currency of every rate card; empty while none is active."""
    row = RateCard.objects.filter(state=RateCard.State.ACTIVE).order_by("pk").first()
    return row.currency if row else ""


def exchange_rate(base: str, quote: str, day: date) -> Decimal | None:
    """What 1 ``base`` was worth in ``quote`` on a day; None when nobody recorded it.

    The newest row of the day counts; a rate the other way round is not turned around.
    """
    if base == quote:
        return Decimal(1)
    row = ExchangeRate.objects.filter(base=base, quote=quote, day=day).order_by("-pk").first()
    return row.rate if row else None


def account_currency(account_id: int) -> str:
    """The currency of an account's statements."""
    terms = BillingTerms.objects.filter(account=account_id).first()
    return (terms.currency if terms else "") or portal_currency()


def as_fraction(rate: Decimal | None) -> Fraction:
    """An exchange rate as a factor; 1 without one."""
    return Fraction(1) if rate is None else Fraction(rate)


def visible_rate_cards(user: User) -> QuerySet[RateCard]:
    """Cards that a user may read: platform roles all, others the active ones that hold for them."""
    roles = roles_of(user)
    found = RateCard.objects.select_related("account", "author", "decided_by").order_by(
        "-valid_from", "-pk"
    )
    if roles.sees_everything:
        return found
    if roles.user_id is None:
        return found.none()
    seen = Q(account__isnull=True) | roles.within("account", "account__workspaces")
    return found.filter(seen, state=RateCard.State.ACTIVE).distinct()


@dataclass(frozen=True, slots=True)
class PriceDifference:
    """Prices of one flavor on a card and on the one that it would replace; None: not there."""

    flavor: str
    name: str
    before: Price | None
    after: Price | None

    @property
    def is_changed(self) -> bool:
        """Whether anything differs."""
        return self.before != self.after


def card_difference(card: RateCard, *, at: datetime) -> list[PriceDifference]:
    """A card beside the one of its scope that is in force at an instant, flavor by flavor.

    For an account's first own card that is the card for everybody.
    """
    names = dict(
        RatePrice.objects.order_by().values_list("flavor__slug", "flavor__name").distinct()
    )
    after = prices_of(card)
    current = card_in_force(card.account_id, at, besides=card)
    if current is None and card.account_id is not None:
        current = card_in_force(None, at)
        before = {f: p for f, p in prices_of(current).items() if f in after} if current else {}
    else:
        before = prices_of(current) if current else {}
    return [
        PriceDifference(flavor, names.get(flavor, flavor), before.get(flavor), after.get(flavor))
        for flavor in sorted({*before, *after})
    ]


def card_in_force(
    account_id: int | None, at: datetime, *, besides: RateCard | None = None
) -> RateCard | None:
    """The active card of one scope at an instant; ``besides`` is left out."""
    rows = RateCard.objects.filter(
        account=account_id, state=RateCard.State.ACTIVE, valid_from__lte=at
    )
    if besides is not None:
        rows = rows.exclude(pk=besides.pk)
    return rows.order_by("-valid_from", "-decided_at", "-pk").first()


def cards_in_force(cards: Iterable[RateCard], at: datetime) -> dict[int | None, RateCard]:
    """Account key (None: everybody) -> the card in force at an instant, of loaded cards."""
    begun = [
        row
        for row in cards
        if row.state == RateCard.State.ACTIVE
        and row.valid_from is not None
        and row.valid_from <= at
    ]
    ordered = sorted(begun, key=lambda row: (row.valid_from, row.decided_at, row.pk))
    return {row.account_id: row for row in ordered}


def prices_of(card: RateCard) -> dict[str, Price]:
    """Flavor slug -> prices of one card."""
    rows = card.prices.select_related("flavor").prefetch_related("tiers")
    return {row.flavor.slug: _price(row) for row in rows}


def _lists(
    rows: Iterable[RateCard], trial: RateCard | None, window: Period
) -> dict[int, PriceList]:
    prices: dict[int, dict[FlavorName, Price]] = {row.pk: {} for row in rows}
    starts = {row.pk: row.valid_from or utc_hour(window.start) for row in rows}
    if trial is not None:
        starts[trial.pk] = utc_hour(window.start)
    tiered = RatePrice.objects.filter(card__in=prices).prefetch_related("tiers")
    for price in tiered.select_related("flavor"):
        prices[price.card_id][FlavorName(price.flavor.slug)] = _price(price)
    return {pk: PriceList(pk, starts[pk], found) for pk, found in prices.items()}


def _price(row: RatePrice) -> Price:
    tiers: dict[str, list[Tier]] = {name: [] for name in RateTier.Class.values}
    for tier in sorted(row.tiers.all(), key=lambda tier: tier.above):
        tiers[tier.of_class].append(Tier(tier.above, tier.price))
    return Price(
        row.committed,
        row.burst,
        row.lending_credit,
        row.is_dynamic,
        committed_tiers=tuple(tiers[RateTier.Class.COMMITTED]),
        burst_tiers=tuple(tiers[RateTier.Class.BURST]),
    )


def _spot(window: Period) -> dict[FlavorName, list[SpotPoint]]:
    """Time series up to the end of a window; before it only the newest point is needed."""
    found: dict[FlavorName, list[SpotPoint]] = {}
    rows = SpotPrice.objects.filter(start__lt=window.end).order_by("flavor", "start", "pk")
    for slug, start, price in rows.values_list("flavor__slug", "start", "price"):
        points = found.setdefault(FlavorName(slug), [])
        if points and start <= window.start:
            points.clear()
        points.append(SpotPoint(start, price))
    return found


def _besides(rows: Iterable[RateCard], trial: RateCard, window: Period) -> list[RateCard]:
    """Cards that count beside one that is tried: of its own scope none that begins after it."""
    start = utc_hour(window.start)
    return [
        row
        for row in rows
        if row.pk != trial.pk
        and (row.account_id != trial.account_id or (row.valid_from or start) <= start)
    ]


def _leading(
    rows: Iterable[RateCard], lists: Mapping[int, PriceList], *, at: datetime
) -> RateCard | None:
    """The card whose terms hold for a whole window: that in force at its start, an own one first;
    else the first.
    """
    chosen: RateCard | None = None
    for row in rows:
        if chosen is None or lists[row.pk].start <= at:
            chosen = row
    return chosen
