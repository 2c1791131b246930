"""A month by account before anything is drawn up, beside the last; whom statements are for."""

from __future__ import annotations

from decimal import Decimal

import pytest
import time_machine
from django.db import DatabaseError, transaction
from django.test import Client

from budgets.errors import Rejected
from budgets.models import AuditEntry, BillingTerms, Statement, User
from budgets.selectors.billing import draw, month_of, statement_sheet
from budgets.selectors.billing.overview import month_overview
from budgets.selectors.billing.periods import check_list
from budgets.services import billing
from portal.web.statement_pdf import statement_pdf
from tests.billing.conftest import AFTER, Books
from tests.builders import agreed

pytestmark = pytest.mark.django_db
MONTH = "/billing/months/2026-03/"
DETAILS = {
    "invoice_address": " Acme Ltd\r\n1 High Street \r\nLondon",
    "tax_number": "GB123456789",
    "purchase_order": "PO-77",
    "cost_centre": "CC-12",
}


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def sums_of_documents(name: str) -> dict[int | None, Decimal]:
    found: dict[int | None, Decimal] = {}
    for paper in Statement.objects.filter(period__name=name):
        found[paper.account_id] = found.get(paper.account_id, Decimal(0)) + paper.payable
    return found


def test_an_open_month_is_what_its_statements_would_be(books: Books) -> None:
    march = month_of("2026-03")
    overview = month_overview(march)

    assert overview.is_drawn and not Statement.objects.exists()
    drawn = {row.account_id: row.document.payable.amount for row in draw(march).drawn}
    slugs = {books.fleet.acme.pk: "acme", books.fleet.globex.pk: "globex", None: ""}
    assert {row.slug: row.payable for row in overview.rows} == {
        slugs[key]: amount for key, amount in drawn.items()
    }
    (total,) = overview.totals.values()
    assert total.payable == sum(drawn.values()) == sum(row.payable for row in overview.rows)
    assert total.before is None and all(row.change is None for row in overview.rows)


def test_a_closed_month_is_what_its_documents_say_and_stands_beside_the_next(books: Books) -> None:
    books.issued()
    march = month_of("2026-03")
    paper = Statement.objects.get(account=books.fleet.acme)
    with time_machine.travel(AFTER, tick=True):
        agreed(billing.propose_void(books.fleet.finance, statement=paper, reason="wrong"))

    closed = month_overview(march)
    assert not closed.is_drawn
    told = {row.slug: row.payable for row in closed.rows}
    stored = sums_of_documents("2026-03")
    assert told["acme"] == stored[books.fleet.acme.pk] == paper.payable
    assert sum(told.values()) == sum(stored.values())

    april = month_of("2026-04")
    after = {row.slug: row for row in month_overview(april).rows}
    drawn = {row.account_id: row.document.payable.amount for row in draw(april).drawn}
    want = drawn[books.fleet.acme.pk] - paper.payable
    assert after["acme"].payable == want, "the credit note is of April"
    assert after["acme"].before == paper.payable
    assert after["acme"].change == want - paper.payable


def test_the_page_of_a_month_adds_up_before_anything_is_drawn_up(books: Books) -> None:
    with time_machine.travel(AFTER, tick=True):
        finance = client_of(books.fleet.finance)
        assert finance.get(MONTH).context["overview"] is None, "the page comes first"
        page = finance.get(f"{MONTH}?checks=1")
        text = page.content.decode()
        overview = page.context["overview"]
        assert 'id="accounts"' in text and "These amounts are calculated from the facts" in text
        (total,) = overview.totals.values()
        assert total.payable == sum(row.committed + row.burst + row.other for row in overview.rows)
        assert not Statement.objects.exists()
        books.issued()
        closed = finance.get(MONTH)
    assert closed.context["overview"].totals["EUR"].payable == total.payable
    assert "These amounts are those of the closed month" in closed.content.decode()


def test_a_statement_keeps_whom_it_was_for(books: Books) -> None:
    finance = books.fleet.finance
    billing.set_invoice_details(finance, account=books.fleet.acme, **DETAILS)
    books.issued()
    billing.set_invoice_details(finance, account=books.fleet.acme, **DETAILS | {"tax_number": "X"})

    paper = Statement.objects.get(account=books.fleet.acme)
    want = DETAILS | {"invoice_address": "Acme Ltd\n1 High Street\nLondon"}
    assert paper.billed_to == want
    page = client_of(finance).get(f"/billing/statements/{paper.pk}/").content.decode()
    assert "1 High Street<br>London" in page and "GB123456789" in page and "CC-12" in page
    assert (
        "PO-77"
        not in client_of(books.fleet.owner).get(f"/billing/statements/{paper.pk}/").content.decode()
    ), "who sees a part of a statement sees no address"
    told = statement_pdf(statement_sheet(finance, paper))
    assert told != statement_pdf(statement_sheet(books.fleet.owner, paper))
    with pytest.raises(DatabaseError), transaction.atomic():
        Statement.objects.filter(pk=paper.pk).update(billed_to={"tax_number": "forged"})
    with time_machine.travel(AFTER, tick=True):
        agreed(billing.propose_void(finance, statement=paper, reason="wrong"))
    assert Statement.objects.get(credits=paper).billed_to == want


def test_details_that_changed_since_the_review_are_in_the_way_of_the_close(books: Books) -> None:
    finance = books.fleet.finance
    billing.draw_up_statements(finance, month="2026-03")
    with time_machine.travel(AFTER, tick=True):
        billing.review_statements(finance, month="2026-03")
    billing.set_invoice_details(finance, account=books.fleet.acme, cost_centre="CC-13")

    (check,) = [row for row in check_list(month_of("2026-03"), now=AFTER) if row.key == "reviewed"]
    assert check.details == (
        "Something changed after the statement of Acme was reviewed. Send it back.",
    )


@pytest.mark.parametrize(
    ("details", "field"),
    [
        pytest.param({"tax_number": "1\n2"}, "tax_number", id="a line break in a number"),
        pytest.param({"purchase_order": "x" * 61}, "purchase_order", id="too long"),
        pytest.param({"invoice_address": "\n".join("x" * 9)}, "invoice_address", id="nine lines"),
        pytest.param({"invoice_address": "a\x07b"}, "invoice_address", id="a bell"),
        pytest.param({"invoice_address": "x" * 501}, "invoice_address", id="a long address"),
    ],
)
def test_details_that_fit_on_no_statement_are_refused(books: Books, details, field) -> None:
    with pytest.raises(Rejected) as raised:
        billing.set_invoice_details(books.fleet.finance, account=books.fleet.acme, **details)
    assert {fault.field for fault in raised.value.faults} == {field}
    assert not BillingTerms.objects.filter(account=books.fleet.acme).exclude(tax_number="").exists()


def test_finance_sets_the_details_by_page_and_api_and_the_log_has_both(books: Books) -> None:
    finance, acme = client_of(books.fleet.finance), books.fleet.acme
    given = {"section": "invoice", "account": "acme", **DETAILS}
    answer = finance.post("/billing/terms/", given)
    assert answer.status_code == 302, answer.content.decode()[-2000:]
    page = finance.get("/billing/terms/?account=acme").content.decode()
    assert "Acme Ltd, 1 High Street, London" in page and 'value="GB123456789"' in page

    api = "/api/v1/accounts/acme/invoice-details"
    changed = finance.put(api, DETAILS | {"tax_number": "EU1"}, content_type="application/json")
    assert changed.status_code == 200 and changed.json()["tax_number"] == "EU1"
    assert finance.get(api).json()["invoice_address"].startswith("Acme Ltd\n")
    assert client_of(books.fleet.owner).get(api).status_code == 404
    assert client_of(books.fleet.owner).put(
        api, DETAILS, content_type="application/json"
    ).status_code in (403, 404)
    entries = AuditEntry.objects.filter(action="invoice_details.set")
    assert [entry.after["tax_number"] for entry in entries.order_by("pk")] == ["GB123456789", "EU1"]
    assert BillingTerms.objects.get(account=acme).cost_centre == "CC-12"
