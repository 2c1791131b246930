"""What a statement's page says about changes since the reader's last look."""

from __future__ import annotations

from decimal import Decimal

import pytest

from budgets.models import Statement, StatementLook
from budgets.selectors import billing as read
from budgets.services import billing
from tests.billing.conftest import Books, held, meter, store
from tests.billing.test_pages import client_of, text

pytestmark = pytest.mark.django_db
WORDS = "Changed since you looked"


def drawn(books: Books) -> Statement:
    billing.draw_up_statements(books.fleet.finance, month="2026-03")
    return Statement.objects.get(account=books.fleet.acme, period__name="2026-03")


def test_a_draft_says_what_moved_until_its_reader_has_seen_it(books: Books):
    finance = client_of(books.fleet.finance)
    paper = drawn(books)
    address = f"/billing/statements/{paper.pk}/"
    assert WORDS not in text(finance, address)
    assert WORDS not in text(finance, address)
    before = paper.payable
    store(held("late", 100, 110, gpus=16))
    meter()
    paper = drawn(books)

    found = text(finance, address)
    assert found == text(finance, address) or WORDS in text(finance, address)
    assert WORDS in found
    sheet = read.statement_sheet(books.fleet.finance, paper)
    changes = read.changes_since_look(books.fleet.finance, sheet)
    assert changes is not None
    assert changes.difference == paper.payable - before != 0
    kinds = {row.place[2]: row for row in changes.lines}
    assert kinds["burst"].gpu_seconds == 80 * 3600
    assert kinds["burst"].difference == Decimal(240)

    assert finance.post(address, {"deed": "seen"}).status_code == 302
    assert WORDS not in text(finance, address)


def test_lines_that_came_and_went_are_named(books: Books):
    finance = books.fleet.finance
    paper = drawn(books)
    billing_note(books, paper)
    row = billing.propose_adjustment(
        finance, account=books.fleet.acme, month="2026-03", amount="-5", reason="Goodwill"
    )
    billing.decide_adjustment(books.second, adjustment=row, is_approved=True)
    store(held("b", 2, 3))
    meter()
    paper = drawn(books)

    found = read.changes_since_look(finance, read.statement_sheet(finance, paper))
    assert found is not None
    came = next(row for row in found.lines if row.before is None)
    assert (came.place[2], came.after) == ("adjustment", Decimal(-5))
    assert "Adjustment: Goodwill" in text(client_of(finance), f"/billing/statements/{paper.pk}/")


def billing_note(books: Books, paper: Statement) -> None:
    billing.note_look(books.fleet.finance, read.statement_sheet(books.fleet.finance, paper))


def test_each_reader_has_their_own_look_of_what_they_see(books: Books):
    paper = drawn(books)
    billing_note(books, paper)
    owner = books.fleet.owner
    sheet = read.statement_sheet(owner, paper)
    assert read.changes_since_look(owner, sheet) is None
    billing.note_look(owner, sheet)
    mine = StatementLook.objects.get(user=owner)
    assert {row[0] for row in mine.content} == {"acme-vision"}
