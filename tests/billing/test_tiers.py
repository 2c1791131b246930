"""Volume steps on rate cards: proposed, charged per account, alike on every face."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from budgets.errors import Rejected
from budgets.models import RateTier, StatementLine
from budgets.selectors import billing as read
from budgets.services import billing
from budgets.services.billing import TierDraft
from tests.billing.conftest import AFTER, APRIL, Books, active_card, held, meter, price, store
from tests.billing.test_pages import client_of, text
from tests.builders import hours

pytestmark = pytest.mark.django_db
STEPS = (TierDraft("burst", 32, "2.00"), TierDraft("burst", "48", "1.00"))


@pytest.fixture
def stepped(books: Books) -> Books:
    active_card(books.fleet, price(tiers=STEPS), start=hours(1))
    return books


def lines(kind: str, month: str = "2026-03") -> list[StatementLine]:
    found = StatementLine.objects.filter(statement__period__name=month, kind=kind)
    return list(found.order_by("pk"))


def test_burst_of_an_account_is_charged_in_steps_and_the_hours_add_up(stepped: Books):
    # Vision bursts 8 GPUs for eight hours.
    billing.draw_up_statements(stepped.fleet.finance, month="2026-03")
    line = next(row for row in lines("burst") if row.workspace == stepped.fleet.vision)
    assert line.gpu_seconds == 64 * 3600
    assert line.amount == 32 * 3 + 16 * 2 + 16 * 1

    rows = list(read.charge_lines(stepped.fleet.finance, period=read.month_of("2026-03")))
    burst = [row for row in rows if row.kind == "burst" and row.workspace == "acme-vision"]
    assert sum(row.amount for row in burst) == line.amount
    assert {row.unit_price for row in burst} == {Decimal("2.25")}
    assert {row.list_unit_price for row in burst} == {Decimal("3")}
    trace = read.line_trace(line.statement, line)
    assert sum(day.amount for day in trace.days) == line.amount


def test_one_workspace_costs_its_part_of_the_accounts_volume(stepped: Books):
    store(held("s", 100, 110, namespace="acme-speech", gpus=16))
    meter()
    fleet = stepped.fleet
    window = read.month_of("2026-03")
    alone = read.costs([fleet.speech], window.start, window.end)[fleet.speech.pk]
    together = read.costs([fleet.vision, fleet.speech], window.start, window.end)

    # 144 GPU-hours of the account: 32 at 3, 16 at 2, 96 at 1.
    assert together[fleet.speech.pk].burst == alone.burst == Fraction(224 * 80, 144)
    assert together[fleet.vision.pk].burst == Fraction(224 * 64, 144)


def test_the_page_says_what_the_steps_came_to(stepped: Books):
    finance = client_of(stepped.fleet.finance)
    billing.draw_up_statements(stepped.fleet.finance, month="2026-03")
    line = next(row for row in lines("burst") if row.workspace == stepped.fleet.vision)
    assert "2.25 on average" in text(finance, f"/billing/statements/{line.statement_id}/")
    assert "2.00 beyond 32 GPU-hours; 1.00 beyond 48 GPU-hours" in text(finance, "/billing/rates/")


def test_a_correction_costs_what_its_month_came_to_on_the_average(stepped: Books):
    stepped.issued()
    active_card(stepped.fleet, price(burst="9.00"), start=APRIL)
    store(held("late", 600, 604, namespace="acme-speech", gpus=16))
    meter(AFTER + timedelta(hours=1))
    billing.draw_up_statements(stepped.fleet.finance, month="2026-04")

    burst = [row for row in lines("correction", "2026-04") if row.class_of == "burst"]
    assert [(row.gpu_seconds // 3600, row.amount) for row in burst] == [(32, Decimal("72"))]


def test_steps_are_proposed_by_the_page_and_read_back(books: Books):
    finance = client_of(books.fleet.finance)
    typed = {
        "name": "Steps",
        "currency": "EUR",
        "floor_hours": "actual",
        "h100.committed": "2",
        "h100.burst": "3",
        "h100.lending_credit": "0",
        "steps": "h100,burst,1000,2.5\nh100,committed,2000,1.5\n",
    }
    broken = finance.post("/billing/rates/new/", typed | {"steps": "h100,burst\na100,burst,5,1"})
    assert broken.status_code == 422
    assert "Line 1 is not of the form" in broken.content.decode()
    assert "has no price above" in broken.content.decode()
    refused = finance.post("/billing/rates/new/", typed | {"steps": "h100,lunch,0,x"})
    assert "&#x27;lunch&#x27; is not one of" in refused.content.decode()

    answer = finance.post("/billing/rates/new/", typed)
    assert answer.status_code == 302
    assert RateTier.objects.count() == 2
    page = text(finance, answer.url)
    assert "2.50 beyond 1,000 GPU-hours" in page
    assert "1.50 beyond 2,000 GPU-hours" in page


@pytest.mark.parametrize(
    ("more", "tiers", "want"),
    [
        pytest.param({}, [TierDraft("spot", 5, "1")], "unknown", id="no such class"),
        pytest.param({}, [TierDraft("burst", 0, "1")], "out_of_range", id="a bound at zero"),
        pytest.param({}, [TierDraft("burst", 5, "-1")], "out_of_range", id="a negative price"),
        pytest.param(
            {"is_dynamic": True}, [TierDraft("burst", 5, "1")], "dynamic", id="a time series"
        ),
        pytest.param(
            {}, [TierDraft("burst", 5, "1"), TierDraft("burst", 5, "2")], "repeated", id="twice"
        ),
    ],
)
def test_steps_that_cannot_be_are_refused(books: Books, more, tiers, want: str):
    with pytest.raises(Rejected) as refused:
        billing.propose_rate_card(
            books.fleet.finance, name="x", currency="EUR", prices=[price(tiers=tiers, **more)]
        )
    assert want in {fault.code for fault in refused.value.faults}
    assert not RateTier.objects.exists()


def test_a_proposed_card_with_steps_is_tried_on_the_last_month(books: Books):
    card = billing.propose_rate_card(
        books.fleet.finance, name="Next", currency="EUR", prices=[price(tiers=STEPS)]
    )
    month, rows = read.try_card(card, [books.fleet.vision], now=AFTER)
    # 64 GPU-hours of burst: 192 at 3; in steps 96 + 32 + 16.
    assert month == "2026-03"
    assert [row.change for row in rows] == [Decimal(144 - 192)]
