"""Prices: the pure merge of cards, own cards and time series; and how cards come about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
import time_machine
from django.db import IntegrityError, connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.charging import (
    Charges,
    Item,
    Price,
    PriceList,
    Rates,
    RowKind,
    SpotPoint,
    assemble,
    merged_rates,
)
from budgets.errors import Rejected
from budgets.models import AuditEntry, Proposal, RatePrice, SpotPrice
from budgets.models.base import ImmutableError
from budgets.selectors import billing as read
from budgets.services import billing
from budgets.services.billing import TierDraft
from budgets.units import Money, Period
from tests.billing.conftest import AFTER, APRIL, MARCH, active_card, held, meter, price, store
from tests.builders import SmallFleet, agreed, hours
from tests.databases import as_owner

D = Decimal
H = timedelta(hours=1)
T = datetime(2026, 3, 1, tzinfo=UTC)


def listed(card: int, hour: int, **prices: Price) -> PriceList:
    return PriceList(card, T + hour * H, prices)


def burst_at(rates, hour: int, flavor: str = "a"):
    rate = Rates(rates, currency="EUR").rate_at(flavor, T + hour * H)
    return None if rate is None else (rate.burst, rate.card)


def flat(burst: str, *, is_dynamic: bool = False) -> Price:
    return Price(D("2"), D(burst), D("0.5"), is_dynamic)


def test_a_later_card_supersedes_and_an_own_one_goes_first():
    everybody = [listed(1, 0, a=flat("3"), b=flat("9")), listed(2, 10, a=flat("4"), b=flat("9"))]
    own = [listed(3, 5, a=flat("1")), listed(4, 20)]
    rates = merged_rates(everybody, own)

    assert [burst_at(rates, hour) for hour in (-1, 0, 4, 5, 10, 19, 20)] == [
        None,
        (D(3), 1),
        (D(3), 1),
        (D(1), 3),
        (D(1), 3),
        (D(1), 3),
        (D(4), 2),
    ]
    assert burst_at(rates, 30, "b") == (D(9), 2)


def test_a_time_series_sets_the_burst_price_of_a_dynamic_flavor_only():
    spot = {"a": [SpotPoint(T + 2 * H, D("1.5")), SpotPoint(T + 2 * H, D("1.6"))]}
    dynamic = merged_rates([listed(1, 0, a=flat("3", is_dynamic=True))], spot=spot)
    steady = merged_rates([listed(1, 0, a=flat("3"))], spot=spot)

    assert [burst_at(dynamic, hour) for hour in (1, 2, 9)] == [
        (D(3), 1),
        (D("1.6"), 1),
        (D("1.6"), 1),
    ]
    assert burst_at(steady, 9) == (D(3), 1)
    assert len(steady) == 1


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", ""]), st.integers(-(10**9), 10**9), st.integers(1, 10**6)
        ),
        max_size=12,
    ),
    st.sampled_from(["JPY", "EUR", "KWD"]),
)
def test_a_document_adds_up_to_the_exact_sum_of_each_workspace(rows, currency):
    items = [
        Item(workspace, f"f{at}", RowKind.BURST, Fraction(numerator, denominator))
        for at, (workspace, numerator, denominator) in enumerate(rows)
    ]
    document = assemble(items, currency=currency)

    zero = Money.zero(currency)
    assert document.payable == sum((amount for _, amount in document.lines), zero)
    for name in {item.workspace for item in items}:
        exact = sum((item.exact for item in items if item.workspace == name), Fraction(0))
        of_name = [amount for item, amount in document.lines if item.workspace == name]
        assert sum(of_name, zero) == Money.rounded(exact, currency=currency)
        assert sum(item.kind is RowKind.ROUNDING for item, _ in document.lines) <= 3


def test_nothing_to_charge_is_an_empty_document():
    assert assemble([], currency="EUR").payable == Money.zero("EUR")
    assert Charges((), (), Money.zero("EUR"), Money.zero("EUR"), ()).lines == ()


def refused(call) -> set[tuple[str, str]]:
    with pytest.raises(Rejected) as error:
        call()
    return {(fault.field, fault.code) for fault in error.value.faults}


@pytest.mark.django_db
def test_everything_wrong_with_a_card_is_told_at_once(fleet: SmallFleet):
    prices = [
        price("h100", committed="-1", burst="x", credit="1.5"),
        price("h100"),
        price("b300"),
        price("l4", committed="0.123456789"),
    ]
    assert refused(
        lambda: billing.propose_rate_card(
            fleet.finance, name=" ", currency="EURO", prices=prices, floor_hours="some"
        )
    ) == {
        ("name", "blank"),
        ("currency", "unknown_currency"),
        ("currency", "max_length"),
        ("floor_hours", "unknown"),
        ("floor_hours", "invalid_choice"),
        ("prices.0.committed", "out_of_range"),
        ("prices.0.burst", "not_a_number"),
        ("prices.0.lending_credit", "out_of_range"),
        ("prices.1.flavor", "repeated"),
        ("prices.2.flavor", "unknown"),
        ("prices.3.committed", "too_fine"),
    }
    assert refused(
        lambda: billing.propose_rate_card(fleet.finance, name="x", currency="EUR", prices=[])
    ) == {("prices", "required")}


@pytest.mark.django_db
def test_a_card_is_activated_once_from_a_whole_hour_and_keeps_every_price(fleet: SmallFleet):
    finance = fleet.finance
    first = active_card(fleet, price("h100"), price("l4"))
    assert refused(lambda: billing.propose_activation(finance, card=first, valid_from=APRIL)) == {
        ("", "decided")
    }
    other = billing.propose_rate_card(finance, name="x", currency="EUR", prices=[price("h100")])
    half = MARCH + timedelta(minutes=30)
    assert refused(lambda: billing.propose_activation(finance, card=other, valid_from=half)) == {
        ("valid_from", "not_a_whole_hour")
    }
    assert refused(lambda: billing.propose_activation(finance, card=other, valid_from=APRIL)) == {
        ("prices", "price_lost")
    }
    assert refused(
        lambda: billing.propose_rate_card(finance, name="x", currency="USD", prices=[price()])
    ) == {("currency", "other_currency")}
    own = active_card(fleet, price("h100", burst="1"), account=fleet.acme, start=MARCH)
    assert read.rates_now(fleet.acme.pk, AFTER)["h100"].card == own.pk
    assert read.rates_now(fleet.acme.pk, AFTER)["l4"].card == first.pk
    assert read.rates_now(None, AFTER)["h100"].card == first.pk
    assert read.rates_now(None, MARCH - H) == {}
    actions = AuditEntry.objects.filter(action__startswith="rate_card.").values_list(
        "action", flat=True
    )
    assert sorted(actions) == [
        "rate_card.activate",
        "rate_card.activate",
        "rate_card.propose",
        "rate_card.propose",
        "rate_card.propose",
    ]


@pytest.mark.django_db
def test_a_card_of_the_same_hour_takes_the_place_of_the_one_before(fleet: SmallFleet):
    active_card(fleet, price(burst="3"))
    second = active_card(fleet, price(burst="4"))
    rate = read.rate_card_at(None, Period(MARCH, APRIL)).rate_at("h100", MARCH)

    assert (rate.burst, rate.card) == (4, second.pk)
    difference = read.card_difference(second, at=MARCH)[0]
    assert (difference.before.burst, difference.after.burst) == (3, 4)


@pytest.mark.django_db
def test_a_price_is_never_changed_in_place(fleet: SmallFleet):
    card = active_card(fleet)
    row = RatePrice.objects.get()
    row.burst = D("9")
    with pytest.raises(ImmutableError):
        row.save()
    with pytest.raises(ImmutableError):
        RatePrice.objects.update(burst=9)
    card.currency = "USD"
    with pytest.raises(Exception, match="never changed"):
        card.save()


@pytest.mark.django_db
@pytest.mark.postgres
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE budgets_rateprice SET burst = 9",
        "DELETE FROM budgets_rateprice",
        "UPDATE budgets_ratecard SET currency = 'USD'",
        "UPDATE budgets_ratecard SET valid_from = valid_from + interval '1 hour'",
        "INSERT INTO budgets_rateprice (card_id, flavor_id, committed, burst, lending_credit,"
        " is_dynamic) SELECT card_id, (SELECT id FROM budgets_flavor WHERE slug = 'l4'), 1, 1, 0,"
        " false FROM budgets_rateprice",
        "UPDATE budgets_ratetier SET above = 9",
        "DELETE FROM budgets_ratetier",
        "UPDATE budgets_spotprice SET price = 9",
        "DELETE FROM budgets_spotprice",
        "UPDATE budgets_exchangerate SET rate = 9",
        "DELETE FROM budgets_exchangerate",
    ],
)
def test_postgres_refuses_to_change_a_price(fleet: SmallFleet, statement: str):
    active_card(fleet, price(tiers=[TierDraft("burst", 32, "2.00")]))
    agreed(
        billing.record_spot_prices(
            fleet.finance, flavor=fleet.flavors["h100"], prices=[(MARCH, "1")], currency="EUR"
        )
    )
    agreed(
        billing.record_exchange_rate(
            fleet.finance, base="EUR", quote="USD", day=MARCH.date(), rate="1.1"
        )
    )
    with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
        connection.cursor().execute(statement)


@pytest.mark.django_db
def test_owners_read_the_cards_that_hold_for_them_and_no_others(fleet: SmallFleet):
    everybodys = active_card(fleet)
    own, of_others = (active_card(fleet, account=row) for row in (fleet.acme, fleet.globex))
    billing.propose_rate_card(fleet.finance, name="x", currency="EUR", prices=[price()])

    assert set(read.visible_rate_cards(fleet.owner)) == {everybodys, own}
    assert of_others in read.visible_rate_cards(fleet.auditor)
    assert read.visible_rate_cards(fleet.auditor).count() == 4


@pytest.mark.django_db
def test_a_time_series_is_billed_by_the_hour_and_recorded_once(promised: SmallFleet):
    finance, flavor = promised.finance, promised.flavors["h100"]
    active_card(promised, price(burst="3.00", is_dynamic=True))
    # More changes than are summed apart: hours 0 to 39 cost 1.00, 1.01 … 1.39.
    points = [(hours(hour), D(1) + D(hour) / 100) for hour in range(40)]

    def record() -> int | Proposal:
        return billing.record_spot_prices(finance, flavor=flavor, prices=points, currency="EUR")

    agreed(record())
    assert SpotPrice.objects.count() == 40
    assert record() == 0
    store(held("a", 5, 7), held("b", 5, 7), held("c", 100, 101), held("d", 100, 101))
    meter()
    cost = read.costs([promised.vision], MARCH, APRIL)[promised.vision.pk]

    assert cost.burst == 8 * (D("1.05") + D("1.06") + D("1.39"))
    assert cost.floor == 8 * 744 * 2
    assert cost.payable == Money(D("11932.00"), "EUR")
    assert refused(
        lambda: billing.record_spot_prices(
            finance, flavor=flavor, prices=[(hours(0.5), "1"), (MARCH, "x")], currency="EUR"
        )
    ) == {("prices.0.start", "not_a_whole_hour"), ("prices.1.price", "not_a_number")}


@pytest.mark.django_db
def test_the_cost_of_a_part_of_a_month_for_many_workspaces_at_once(promised: SmallFleet):
    assert read.costs([promised.vision], MARCH, APRIL)[promised.vision.pk].currency == ""
    active_card(promised)
    store(held("a", 0, 10, flavor="a100"))
    meter()
    with time_machine.travel(AFTER, tick=False):
        found = read.costs([promised.vision, promised.search], MARCH, MARCH + 24 * H)

    assert found[promised.vision.pk].floor == 8 * 24 * 2
    assert found[promised.vision.pk].unpriced == ("a100",)
    assert found[promised.search.pk].exact == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("terms", "want"),
    [
        ({"zone": "Mars/Olympus"}, {("zone", "unknown")}),
        ({"zone": "Asia/Kolkata"}, {("zone", "cuts_an_hour")}),
        ({"currency": "EURO"}, {("currency", "unknown_currency"), ("currency", "max_length")}),
    ],
)
def test_terms_are_checked(fleet: SmallFleet, terms, want):
    assert (
        refused(lambda: billing.set_billing_terms(fleet.finance, account=fleet.acme, **terms))
        == want
    )
