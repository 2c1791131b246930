"""Credit for burst that was lost to a preemption: never more than was charged, and funded."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import call_command
from msgspec.structs import replace

from budgets.errors import Rejected
from budgets.models import StatementLine
from budgets.selectors import billing as read
from budgets.services import billing
from tests.billing.conftest import Books, active_card, held, meter, price, store
from tests.billing.test_pages import client_of, text

pytestmark = pytest.mark.django_db
TERMS = {"preemption_share": "0.5", "preemption_minutes": 30}


def preempted(uid: str, start: float, end: float, **more):
    return replace(held(uid, start, end, **more), ended_by="Preempted")


def credits() -> list[StatementLine]:
    billing_month = StatementLine.objects.filter(statement__period__name="2026-03")
    return list(billing_month.filter(kind="preempted").order_by("pk"))


@pytest.fixture
def credited(books: Books) -> Books:
    active_card(books.fleet, price(), **TERMS)
    return books


def draw(books: Books) -> None:
    meter()
    billing.draw_up_statements(books.fleet.finance, month="2026-03")


def test_burst_that_was_preempted_soon_is_credited_and_the_platform_carries_it(credited: Books):
    # Globex has no floor: all of it is burst, 8 GPUs for a quarter of an hour at 3.00.
    store(preempted("p", 100.25, 100.5, namespace="globex-search"))
    draw(credited)

    (row,) = credits()
    assert (row.amount, row.gpu_seconds) == (Decimal("-3"), 2 * 3600)
    assert row.workspace == credited.fleet.search
    assert row.text == "H100, within 30 minutes"
    funding = StatementLine.objects.get(kind="preempt_funding")
    assert funding.statement.account is None
    assert funding.amount == -row.amount
    rows = list(read.charge_lines(credited.fleet.finance, period=read.month_of("2026-03")))
    assert sum(part.amount for part in rows if part.kind == "preempted") == row.amount
    papers = read.visible_statements(credited.fleet.finance).filter(period__name="2026-03")
    assert sum(part.amount for part in rows) == sum(paper.payable for paper in papers)
    page = text(client_of(credited.fleet.finance), f"/billing/statements/{row.statement_id}/")
    assert "Credit for preempted work: H100, within 30 minutes" in page
    credited.issued()
    call_command("verify_ledger", stdout=StringIO())


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(preempted("p", 100, 100.6, namespace="globex-search"), id="too late"),
        pytest.param(held("p", 100, 100.25, namespace="globex-search"), id="not preempted"),
        pytest.param(preempted("p", 100, 100.25), id="the floor is paid used or not"),
    ],
)
def test_what_is_not_credited(credited: Books, row):
    store(row)
    draw(credited)
    assert credits() == []


def test_no_more_is_credited_than_was_charged(credited: Books):
    # Vision has a floor of 8 and asks for 12: four GPUs of it are burst.
    store(preempted("p", 100, 100.5, gpus=12))
    draw(credited)
    (row,) = credits()
    assert row.gpu_seconds == 4 * 1800
    assert row.amount == Decimal("-3")


def test_a_card_without_the_terms_gives_nothing(books: Books):
    store(preempted("p", 100, 100.25, namespace="globex-search"))
    draw(books)
    assert credits() == []


def test_terms_that_cannot_be_are_refused(books: Books):
    with pytest.raises(Rejected) as refused:
        billing.propose_rate_card(
            books.fleet.finance,
            name="x",
            currency="EUR",
            prices=[price()],
            preemption_share="1.5",
            preemption_minutes=30,
        )
    assert {fault.field for fault in refused.value.faults} == {"preemption_share"}
