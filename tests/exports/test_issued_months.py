"""FOCUS files of closed months: their payables, then corrections and credit notes in the next."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import time_machine
from django.db import transaction

from budgets import services
from budgets.exports.focus import Version
from budgets.exports.focus.check import check_file
from budgets.exports.focus.reading import Texts, open_focus
from budgets.models import Export, Statement
from budgets.services import billing
from budgets.services.exports import runs as exports
from budgets.services.exports.plans import request_export
from tests.billing.conftest import AFTER, Books, active_card, held, meter, promise, store
from tests.builders import PASSWORD, agreed, small_fleet

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
VERSION = Version.V1_4


@pytest.fixture(scope="module")
def issued(django_db_setup, django_db_blocker) -> Iterator[Books]:
    """March of the billing tests, with an adjustment of each kind, issued on 3 April."""
    with django_db_blocker.unblock(), transaction.atomic():
        fleet = promise(small_fleet())
        second = services.create_user(
            None, username="fay", email="fay@example.org", password=PASSWORD
        )
        services.grant_role(None, user=second, role="finance")
        active_card(fleet)
        store(held("a", 0, 10), held("b", 2, 12), held("c", 700, 701, namespace="globex-search"))
        meter()
        for amount, reason in (("-100.00", "outage of the 3rd"), ("7.00", "support")):
            row = billing.propose_adjustment(
                fleet.finance, account=fleet.acme, month="2026-03", amount=amount, reason=reason
            )
            billing.decide_adjustment(second, adjustment=row, is_approved=True)
        books = Books(fleet, second)
        books.issued()
        yield books
        transaction.set_rollback(True)


@pytest.fixture
def books(issued: Books, db, settings, tmp_path: Path) -> Books:
    settings.PORTAL_SPOOL_FOLDER = str(tmp_path / "spool")
    return deepcopy(issued)


def focus(books: Books, month: str) -> list[Texts]:
    """The month's file as finance gets it; the checker has nothing to say about it."""
    with time_machine.travel(AFTER + timedelta(hours=3), tick=True):
        made = request_export(
            books.fleet.finance, dataset=f"focus-{VERSION}", format="parquet", period=month
        )
        exports.run_exports()
    export = Export.objects.get(pk=made.pk)
    papers = Statement.objects.filter(period__name=month).exclude(number="")
    payables = {row.number: row.payable for row in papers}
    with open_focus(exports.spool_path(export)) as opened:
        assert list(check_file(opened, VERSION, payables=payables)) == []
    with open_focus(exports.spool_path(export)) as opened:
        return list(opened.rows)


def billed(rows: list[Texts]) -> Decimal:
    return sum((Decimal(row["BilledCost"] or 0) for row in rows), Decimal(0))


def test_invoices_of_an_issued_month_sum_to_the_statements(books: Books):
    rows = focus(books, "2026-03")

    numbers = set(Statement.objects.filter(period__name="2026-03").values_list("number", flat=True))
    assert {row["InvoiceId"] for row in rows} == numbers
    assert billed(rows) == sum(row.payable for row in Statement.objects.all())
    credit = next(row for row in rows if row["BilledCost"] == "-100.0")
    charge = next(row for row in rows if row["BilledCost"] == "7.0")
    assert credit["ChargeCategory"] == "Credit"
    assert credit["ChargeDescription"].endswith(": outage of the 3rd")
    assert charge["ChargeCategory"] == "Adjustment"


def test_late_use_is_a_correction_in_the_open_month(books: Books):
    store(held("late", 600, 604, namespace="globex-search"))
    meter(AFTER + timedelta(hours=1))
    meter(AFTER + timedelta(hours=2))

    rows = [row for row in focus(books, "2026-04") if row["ChargeClass"] == "Correction"]

    assert billed(rows) == 4 * 8 * 3
    assert {row["BillingPeriodStart"] for row in rows} == {"2026-04-01T00:00:00Z"}
    assert {row["ChargePeriodStart"][:10] for row in rows} == {"2026-03-26"}
    assert {row["InvoiceId"] for row in rows} == {"PROVISIONAL-globex-2026-04"}


def test_credit_note_takes_the_statement_back_as_corrections(books: Books):
    statement = Statement.objects.get(account__slug="acme")
    with time_machine.travel(AFTER, tick=False):
        agreed(billing.propose_void(books.fleet.finance, statement=statement, reason="terms"))
    note = Statement.objects.get(credits=statement)

    rows = [row for row in focus(books, "2026-04") if row["InvoiceId"] == note.number]

    assert billed(rows) == note.payable == -statement.payable
    assert {row["ChargeClass"] for row in rows} <= {"Correction", None}
    dated = [row for row in rows if row["ChargePeriodStart"] < row["BillingPeriodStart"]]
    assert {row["ChargeClass"] for row in dated} == {"Correction"}
