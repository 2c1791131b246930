"""A rate card tried on the last month comes to what the month's statements come to."""

from __future__ import annotations

from decimal import Decimal

import pytest
import time_machine
from msgspec.structs import replace

from budgets.models import BillingTerms, RateCard, StatementLine, Workspace
from budgets.selectors import billing as read
from budgets.services import billing
from budgets.services.billing import TierDraft
from tests.billing.conftest import AFTER, Books, activated, active_card, held, meter, price, store
from tests.billing.test_pages import client_of, text
from tests.builders import hours

pytestmark = pytest.mark.django_db
STEPS = (TierDraft("burst", 32, "2.33"), TierDraft("burst", "48", "1.07"))
TERMS = {"preemption_share": "0.7", "preemption_minutes": 30}


def charged(card: RateCard) -> dict[str, tuple[Decimal, Decimal]]:
    """Namespace → before and after."""
    spaces = Workspace.objects.select_related("account").order_by("namespace")
    _, rows = read.try_card(card, spaces, now=AFTER)
    return {row.workspace.namespace: (row.before, row.after) for row in rows}


def stated(month: str = "2026-03") -> dict[str, Decimal]:
    """Namespace → what the statements of a month have on the lines of a workspace."""
    sums: dict[str, Decimal] = {}
    rows = StatementLine.objects.filter(statement__period__name=month, workspace__isnull=False)
    for row in rows.select_related("workspace"):
        namespace = row.workspace.namespace
        sums[namespace] = sums.get(namespace, Decimal(0)) + row.amount
    return {name: amount for name, amount in sums.items() if amount}


@pytest.fixture
def card(books: Books) -> RateCard:
    """In force all month, with volume steps and a credit; search loses burst to a preemption."""
    made = active_card(books.fleet, price(tiers=STEPS), start=hours(0), **TERMS)
    lost = held("p", 100.25, 100.5, namespace="globex-search", gpus=7)
    store(replace(lost, ended_by="Preempted"))
    store(held("s", 200, 207, namespace="acme-speech", gpus=13))
    meter()
    return made


def test_card_in_force_comes_to_the_statements_to_the_cent(books: Books, card: RateCard):
    billing.draw_up_statements(books.fleet.finance, month="2026-03")
    credit = StatementLine.objects.get(kind="preempted")
    assert credit.amount < 0, "the month has a credit"
    assert StatementLine.objects.filter(kind="burst", amount__gt=0).exists()
    tried = charged(card)
    assert {name: after for name, (_, after) in tried.items()} == stated()
    assert {name: before for name, (before, _) in tried.items()} == stated()


@pytest.mark.parametrize(
    ("tiers", "terms"),
    [
        pytest.param((), TERMS, id="without steps"),
        pytest.param(STEPS, {}, id="without a credit"),
        pytest.param(STEPS, {"floor_hours": "fixed_730", **TERMS}, id="another month of floor"),
    ],
)
def test_proposed_card_comes_to_what_its_statements_would(
    books: Books, card: RateCard, tiers: tuple[TierDraft, ...], terms: dict[str, object]
):
    """Tried first, then put in force for the same month and billed."""
    proposed = billing.propose_rate_card(
        books.fleet.finance, name="Next", currency="EUR", prices=[price(tiers=tiers)], **terms
    )
    tried = {name: after for name, (_, after) in charged(proposed).items()}
    activated(books.fleet.finance, proposed, hours(0))
    billing.draw_up_statements(books.fleet.finance, month="2026-03")
    assert tried == stated()


def test_card_that_begins_within_the_month_does_not_cut_the_trial_short(
    books: Books, card: RateCard
):
    proposed = billing.propose_rate_card(
        books.fleet.finance, name="Next", currency="EUR", prices=[price(tiers=STEPS)], **TERMS
    )
    whole = charged(proposed)["acme-speech"][1]
    active_card(books.fleet, price(burst="90.00"), start=hours(150))
    before, after = charged(proposed)["acme-speech"]
    assert before > after == whole


def test_accounts_of_another_zone_are_tried_on_their_own_month(books: Books, card: RateCard):
    BillingTerms.objects.create(account=books.fleet.acme, zone="Asia/Tokyo")
    store(held("edge", 735, 740, namespace="acme-vision", gpus=20))  # April in Tokyo, March in UTC
    meter()
    billing.draw_up_statements(books.fleet.finance, month="2026-03", zone="Asia/Tokyo")
    assert charged(card)["acme-vision"][1] == stated()["acme-vision"]


def test_page_shows_the_trial_with_its_credit(books: Books, card: RateCard):
    proposed = billing.propose_rate_card(
        books.fleet.finance, name="Next", currency="EUR", prices=[price()], **TERMS
    )
    with time_machine.travel(AFTER, tick=False):
        page = text(client_of(books.fleet.finance), f"/billing/rates/{proposed.pk}/")
    assert "Tried on 2026-03" in page
    before, after = charged(proposed)["acme-vision"]
    assert f"{before:,.2f}" in page and f"{after:,.2f}" in page
