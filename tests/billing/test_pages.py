"""The pages of finance, and what others see of them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from budgets import services
from budgets.models import (
    Adjustment,
    BillingPeriod,
    BillingTerms,
    ExchangeRate,
    MeterState,
    Proposal,
    RateCard,
    Role,
    SpotPrice,
    Statement,
    User,
)
from budgets.services import billing
from portal.web.tags import with_times
from tests.billing.conftest import AFTER, APRIL, Books, active_card, price
from tests.web.figures import tables_of
from tests.web.normal_form import parsed

pytestmark = pytest.mark.django_db
MONTH = "/billing/months/2026-03/"


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def now():
    with time_machine.travel(AFTER, tick=True):
        yield


@pytest.fixture
def finance(books: Books, now) -> Client:
    return client_of(books.fleet.finance)


def approve(books: Books, waits: Proposal) -> None:
    """By the page, as somebody who did not propose it."""
    second, address = client_of(books.second), f"/billing/approvals/{waits.pk}/"
    assert "Approve it" in text(second, address)
    assert "Approve it" not in text(client_of(books.fleet.finance), address)
    assert second.post(address, {"decision": "approve"}).status_code == 302
    waits.refresh_from_db()
    assert with_times(waits.outcome) in text(second, address)


def text(client: Client, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, address
    return answer.content.decode()


def test_a_month_that_goes_on_offers_statements_and_no_close(books: Books):
    MeterState.objects.update(complete_until=APRIL - timedelta(days=3), message="")
    with time_machine.travel(APRIL - timedelta(days=2), tick=True):
        page = text(client_of(books.fleet.finance), f"{MONTH}?checks=1")
    assert 'value="close"' not in page
    assert '<button class="primary" name="deed" value="draw_up">' in page
    assert "the cluster is late" not in page
    assert "the month has not ended" in page


def test_a_statement_of_a_month_that_goes_on_offers_no_review(books: Books):
    with time_machine.travel(APRIL - timedelta(days=2), tick=True):
        finance = client_of(books.fleet.finance)
        finance.post(MONTH, {"deed": "draw_up"})
        paper = Statement.objects.filter(state="draft").first()
        page, month = text(finance, f"/billing/statements/{paper.pk}/"), text(finance, MONTH)
    assert 'value="review"' not in page
    assert "2026-03 runs until" in page
    assert 'value="review"' not in month and "Draw up the drafts again" in month
    with time_machine.travel(AFTER, tick=True):
        assert 'value="review"' in text(client_of(books.fleet.finance), MONTH)


def test_finance_closes_a_month_by_its_page(books: Books, finance: Client):
    assert "2026-03" in text(finance, "/billing/")
    assert 'hx-trigger="load"' in text(finance, MONTH)
    page = text(finance, f"{MONTH}?checks=1")
    assert page.count('class="tag good">yes') == 10
    for deed in ("draw_up", "review", "close", "issue"):
        answer = finance.post(MONTH, {"deed": deed})
        assert (answer.status_code, answer.url) == (302, MONTH), deed

    assert {row.state for row in Statement.objects.all()} == {"issued"}
    assert "Closed" in text(finance, MONTH)
    assert finance.post(MONTH, {"deed": "close"}).status_code == 422
    assert finance.post(MONTH, {"deed": "burn"}).status_code == 404


def test_the_page_of_a_month_says_what_is_missing(books: Books, finance: Client):
    books.fleet.revise(books.fleet.search)
    billing.propose_adjustment(
        books.fleet.finance, account=books.fleet.acme, month="2026-03", amount="5", reason="x"
    )
    assert "The adjustment of 5" in text(finance, f"{MONTH}?checks=1")

    answer = finance.post(MONTH, {"deed": "close"})
    assert answer.status_code == 422
    assert "Nothing waits for approval: The adjustment of 5" in answer.content.decode()
    assert not BillingPeriod.objects.filter(closed_at__isnull=False).exists()
    assert text(finance, "/billing/months/2026-13/", 404)
    assert text(finance, f"{MONTH}?zone=Mars/Olympus", 404)


def test_statements_sort_by_their_columns_and_for_owners_by_no_sum(books: Books, finance: Client):
    books.issued()
    fleet = books.fleet
    services.grant_role(None, user=fleet.owner, role=Role.OWNER, workspace=fleet.search)
    owner = client_of(fleet.owner)

    def shown(client: Client, sort: str) -> list[int]:
        return [paper.pk for paper in client.get(f"/billing/?sort={sort}").context["papers"]]

    for column in ("number", "payable"):
        want = list(Statement.objects.order_by(column).values_list("pk", flat=True))
        assert shown(finance, column) == want and len(want) > 1
        assert shown(finance, f"-{column}") == want[::-1]
    assert shown(finance, "state") == shown(finance, "pk") == shown(finance, "")
    link = '<th scope="col" class="num" aria-sort="descending"><a href="?sort=payable#statements">'
    assert link in text(finance, "/billing/?sort=-payable")

    assert len(shown(owner, "")) == 2
    assert shown(owner, "account") == shown(owner, "-account")[::-1]
    assert shown(owner, "payable") == shown(owner, "-payable") == shown(owner, "")
    assert "sort=-payable" not in text(owner, "/billing/")


def test_jobs_of_the_use_sort_by_their_columns_and_still_add_up(
    books: Books, finance: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("portal.web.usage.WORKLOADS", 1)
    address = "/usage/?start=2026-03-01&until=2026-03-31&sort="

    def first(sort: str) -> str:
        page = finance.get(f"{address}{sort}")
        tables = tables_of(parsed(page.content.decode()))
        (jobs,) = [table for table in tables if "Between" in table.headings]
        assert not list(jobs.faults())
        return page.context["jobs"]["rows"][0][1].uid

    # a has 80 GPU-hours committed, b 16 and 64 of burst, c 8 of burst, the last of the month.
    assert [first(sort) for sort in ("", "-cost", "cost")] == ["b", "b", "c"]
    assert [first(sort) for sort in ("-committed", "-burst", "burst")] == ["a", "b", "a"]
    assert [first(sort) for sort in ("first", "-first")] == ["a", "c"]
    assert 'aria-sort="descending"><a href="' in text(finance, address)
    assert finance.get(f"{address}uid").status_code == 422


def test_a_statement_shows_lines_that_add_up_and_leads_to_jobs(books: Books, finance: Client):
    books.issued()
    statement = Statement.objects.get(account=books.fleet.acme)
    page = text(finance, f"/billing/statements/{statement.pk}/")
    assert "ST-2026-" in page
    assert "23,936.00 EUR" in page  # two floors of 11,904, 192 of burst, 64 back
    burst = statement.lines.get(kind="burst")
    line = f"/billing/statements/{statement.pk}/lines/{burst.position}/"
    assert line in page
    assert "?day=2026-03-01" in text(finance, line)
    day = text(finance, f"{line}?day=2026-03-01")
    assert "/jobs/gpu-east/b/" in day
    assert 'title="230,400 GPU-seconds">64.0<' in day
    assert text(finance, f"{line}?day=yesterday", 404)

    amounts = re.findall(r'class="num">(−?[\d,.]+) EUR</td></tr></tfoot>', page)
    total = sum(float(a.replace("−", "-").replace(",", "")) for a in amounts)
    assert total == pytest.approx(23_936)


def test_prices_that_are_not_shown_one_by_one_are_in_the_sum(
    books: Books, finance: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("portal.web.billing.MOST_STEPS", 0)
    books.issued()
    line = Statement.objects.get(account=books.fleet.acme).lines.get(kind="burst")
    page = text(finance, f"/billing/statements/{line.statement_id}/lines/{line.position}/")
    assert "1 more price; it is in the exports" in page
    prices = tables_of(parsed(page))[0]
    assert len(prices.totals) == 1
    assert not list(prices.faults())


def test_an_owner_sees_their_part_only(books: Books, finance: Client):
    books.issued()
    owner = client_of(books.fleet.owner)
    statement = Statement.objects.get(account=books.fleet.acme)
    page = text(owner, f"/billing/statements/{statement.pk}/")

    assert "acme-vision" in page
    assert "acme-speech" not in page
    assert "12,096.00 EUR" in page
    assert "23,936" not in page
    assert "23,936" not in text(owner, "/billing/")
    speech = statement.lines.filter(workspace=books.fleet.speech).first()
    assert text(owner, f"/billing/statements/{statement.pk}/lines/{speech.position}/", 404)
    assert text(owner, MONTH, 404)
    for foreign in Statement.objects.exclude(pk=statement.pk):
        assert text(owner, f"/billing/statements/{foreign.pk}/", 404)
    answer = owner.post(f"/billing/statements/{statement.pk}/", {"deed": "void", "reason": "x"})
    assert answer.status_code == 403


def test_a_statement_is_sent_back_issued_and_voided_by_its_page(books: Books, finance: Client):
    billing.draw_up_statements(books.fleet.finance, month="2026-03")
    statement = Statement.objects.get(account=books.fleet.acme)
    address = f"/billing/statements/{statement.pk}/"
    assert finance.post(address, {"deed": "review"}).status_code == 302
    assert finance.post(address, {"deed": "send_back"}).status_code == 422
    assert finance.post(address, {"deed": "send_back", "reason": "typo"}).status_code == 302
    assert finance.post(address, {"deed": "review"}).status_code == 302
    assert "not closed" in finance.post(address, {"deed": "issue"}, follow=True).content.decode()
    books.close()
    assert finance.post(address, {"deed": "issue"}).status_code == 302
    assert finance.post(address, {"deed": "void", "reason": "wrong"}).status_code == 302
    assert "that waits for approval" in text(finance, address)
    approve(books, Proposal.objects.get(state="waiting"))

    note = Statement.objects.get(kind="credit_note")
    assert "Void by credit note" in text(finance, address)
    page = text(finance, f"/billing/statements/{note.pk}/")
    assert "−23,936.00 EUR" in page
    burst = note.lines.get(kind="burst")
    trace = text(finance, f"/billing/statements/{note.pk}/lines/{burst.position}/")
    assert "−192.00 EUR" in trace


def test_a_rate_card_is_proposed_tried_and_activated_by_its_pages(books: Books, finance: Client):
    assert "in force" in text(finance, "/billing/rates/")
    form = text(finance, "/billing/rates/new/")
    assert 'name="h100.committed" value="2.00"' in form
    typed = {
        "name": "April",
        "currency": "eur",
        "floor_hours": "actual",
        "h100.committed": "2.5",
        "h100.burst": "3.75",
        "h100.lending_credit": "2",
        "a100.burst": "x",
    }
    wrong = finance.post("/billing/rates/new/", typed)
    assert wrong.status_code == 422
    errors = wrong.context["form"].errors
    assert set(errors) == {"h100.lending_credit", "a100.burst"}
    right = typed | {"h100.lending_credit": "0.5", "a100.burst": "1"}
    answer = finance.post("/billing/rates/new/", right)
    card = RateCard.objects.get(name="April")
    assert answer.url == f"/billing/rates/{card.pk}/"

    page = text(finance, answer.url)
    assert "Tried on 2026-03" in page
    # Vision: floor 11,904 → 14,880 and burst 192 → 240.
    assert "12,096.00 EUR" in page
    assert "15,120.00 EUR" in page
    late = {"deed": "activate", "valid_from": "2026-04-03T10:30", "reason": "x"}
    assert finance.post(answer.url, late).status_code == 422
    late["valid_from"] = "2026-04-03T11:00"
    assert finance.post(answer.url, late).status_code == 302
    assert "it waits for approval" in text(finance, answer.url)
    approve(books, Proposal.objects.get(state="waiting"))
    card.refresh_from_db()
    assert card.valid_from == APRIL + timedelta(days=2, hours=11)


def test_a_card_is_withdrawn_with_a_reason(books: Books, finance: Client):
    card = billing.propose_rate_card(
        books.fleet.finance, name="No", currency="EUR", prices=[price()]
    )
    address = f"/billing/rates/{card.pk}/"
    assert finance.post(address, {"deed": "withdraw"}).status_code == 422
    answer = finance.post(address, {"deed": "withdraw", "withdraw-reason": "typo"})
    assert answer.status_code == 302
    card.refresh_from_db()
    assert card.state == "withdrawn"


def test_people_see_prices_of_theirs_and_change_none(books: Books, now):
    own = active_card(books.fleet, price(burst="1.5"), account=books.fleet.globex, start=APRIL)
    proposed = billing.propose_rate_card(
        books.fleet.finance, name="x", currency="EUR", prices=[price()]
    )
    owner = client_of(books.fleet.owner)
    assert "Prices" in text(owner, "/billing/rates/")
    for hidden in (own, proposed):
        assert text(owner, f"/billing/rates/{hidden.pk}/", 404)
    assert text(owner, "/billing/rates/new/", 403)
    assert text(owner, "/billing/terms/", 403)
    auditor = client_of(books.fleet.auditor)
    assert text(auditor, f"/billing/rates/{proposed.pk}/")
    refused = auditor.post(f"/billing/rates/{proposed.pk}/", {"deed": "withdraw"})
    assert refused.status_code == 403


def test_an_adjustment_goes_through_two_people(books: Books, finance: Client):
    typed = {
        "section": "new",
        "account": "acme",
        "workspace": "acme-vision",
        "month": "2026-03",
        "amount": "-12.50",
        "reason": "outage",
    }
    assert finance.post("/billing/adjustments/", typed | {"amount": "1.005"}).status_code == 422
    assert finance.post("/billing/adjustments/", typed).status_code == 302
    row = Adjustment.objects.get()
    address = f"/billing/adjustments/{row.pk}/"
    assert "somebody else has to approve it" in text(finance, address)
    assert finance.post(address, {"decision": "approve"}).status_code == 403
    second = client_of(books.second)
    assert second.post(address, {"decision": "decline"}).status_code == 422
    assert second.post(address, {"decision": "approve"}).status_code == 302
    assert "−12.50 EUR" in text(client_of(books.fleet.owner), address)


@pytest.mark.parametrize("month", ["٢٠٢٦-٠٣", "2026-0３", "२०२६-03"])
def test_a_month_has_no_second_name_in_digits_of_another_script(
    books: Books, finance: Client, month: str
):
    new = {"section": "new", "account": "acme", "month": month, "amount": "5", "reason": "x"}
    assert finance.post("/billing/adjustments/", new).status_code == 404
    body = {name: value for name, value in new.items() if name != "section"}
    answer = finance.post("/api/v1/adjustments", body, content_type="application/json")
    assert answer.status_code == 404
    assert not BillingPeriod.objects.exclude(name__in=["2026-02", "2026-03", "2026-04"]).exists()
    assert "2026-03" in text(finance, "/billing/")


def test_terms_rates_and_series_are_recorded(books: Books, finance: Client):
    terms = {"section": "terms", "account": "globex", "zone": "Europe/Berlin", "currency": "usd"}
    assert finance.post("/billing/terms/", terms).status_code == 302
    half = terms | {"zone": "Asia/Kolkata"}
    assert "18:30 UTC" in finance.post("/billing/terms/", half).content.decode()
    rate = {
        "section": "exchange",
        "base": "eur",
        "quote": "usd",
        "rate": "1.1",
        "day": "2026-03-31",
    }
    assert finance.post("/billing/terms/", rate).status_code == 302
    series = {"section": "series", "flavor": "h100-spot", "prices": "2026-04-03T00:00:00Z,1.5\n"}
    assert finance.post("/billing/terms/", series).status_code == 302
    assert not ExchangeRate.objects.exists()
    for waits in Proposal.objects.filter(state="waiting"):
        approve(books, waits)
    tolerance = {"section": "tolerance", "percent": "25", "reason": "currencies move"}
    assert finance.post("/billing/terms/", tolerance | {"percent": "101"}).status_code == 422
    assert finance.post("/billing/terms/", tolerance).status_code == 302
    approve(books, Proposal.objects.first())
    assert finance.post("/billing/terms/", rate | {"rate": "1.3"}).status_code == 302
    broken = series | {"prices": "yesterday,1\n2026-04-03T00:30:00Z,1"}
    answer = finance.post("/billing/terms/", broken).content.decode()
    assert "Line 1 is not of the form" in answer

    assert BillingTerms.objects.get(account=books.fleet.globex).currency == "USD"
    assert [row.rate for row in ExchangeRate.objects.order_by("pk")] == [Decimal("1.1")]
    assert "up to 25 % off" in text(finance, "/billing/terms/")
    assert SpotPrice.objects.count() == 1
    assert "1.50 EUR" in text(finance, "/billing/terms/")


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("/billing/", 9),
        (f"{MONTH}?checks=1", 33),
        ("/billing/statements/{}/", 12),
        ("/billing/rates/", 8),
        ("/billing/adjustments/", 7),
    ],
)
def test_pages_ask_the_database_so_often(books: Books, finance: Client, address: str, want: int):
    if "statements" in address:
        books.issued()
    paper = Statement.objects.filter(account=books.fleet.acme).first()
    address = address.format(paper.pk if paper else 0)
    text(finance, address)  # the first look at a statement is written down
    with CaptureQueriesContext(connection) as queries:
        text(finance, address)

    assert len(queries) == want


@pytest.fixture
def cells_of_default_length() -> Iterator[None]:
    """Whoever read a FOCUS file in this process has raised the limit."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("prices", "want"),
    [
        pytest.param(
            "2026-10-01T00:00:00Z," + "1" * 140_000, "Line 1 has a cell that is", id="long"
        ),
        pytest.param(
            'yesterday,1\n"' + "1" * 140_000 + '"\nnever,2',
            "Line 3 is not of the form",
            id="after it",
        ),
        pytest.param("0001-01-01T00:00:00+14:00,1", "The year 0001 is out", id="no such time"),
        pytest.param("9999-12-31T23:00:00-05:00,1", "The year 9999 is out of range", id="neither"),
        pytest.param("1999-12-31T23:00:00Z,1", "from 2000 to 2199", id="early"),
        pytest.param("2200-01-01T00:00:00Z,1", "from 2000 to 2199", id="late"),
    ],
)
def test_points_that_cannot_be_read_are_said_by_their_line(
    finance: Client, cells_of_default_length: None, prices: str, want: str
):
    given = {"section": "series", "flavor": "h100-spot", "prices": prices}
    before = Proposal.objects.count()
    answer = finance.post("/billing/terms/", given)
    assert answer.status_code == 422 and want in answer.content.decode()
    assert not SpotPrice.objects.exists() and Proposal.objects.count() == before
