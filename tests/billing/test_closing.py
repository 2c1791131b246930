"""Closing a month: what stands in its way, what holds afterwards, and who would notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from io import StringIO

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import Model

from budgets.errors import Rejected
from budgets.intervals import IntervalKind
from budgets.models import (
    AccountUsage,
    BillingPeriod,
    BillingTerms,
    Correction,
    LedgerBlock,
    MeterState,
    StatementLine,
    UsageRecord,
    WorkloadUsage,
)
from budgets.models.triggers import create_triggers, drop_triggers
from budgets.selectors import billing as read
from budgets.services import billing
from tests.billing.conftest import (
    AFTER,
    APRIL,
    Books,
    activated,
    active_card,
    held,
    meter,
    price,
    store,
)
from tests.builders import hours
from tests.databases import as_owner

pytestmark = pytest.mark.django_db
GUARDED = (
    "approval",
    "proposal",
    "usagerecord",
    "workloadusage",
    "accountusage",
    "statement",
    "statementline",
    "ledgerblock",
    "billingperiod",
    "auditentry",
    "billingterms",
    "seal",
    "ratecard",
    "rateprice",
    "exchangerate",
    "adjustment",
)
# What the triggers say; a constraint says something else.
TOLD = "never|fixed|is closed|not opened again"


def unmet(month: str = "2026-03", now=AFTER) -> set[str]:
    checks = read.check_list(read.month_of(month), now=now)
    return {check.key for check in checks if not check.is_met}


@contextmanager
def unguarded() -> Iterator[None]:
    """Somebody with the rights of the database's owner takes the triggers off."""
    if connection.vendor == "sqlite":
        drop_triggers(connection)
        yield
        create_triggers(connection)
        return
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in GUARDED:
            cursor.execute(f"ALTER TABLE budgets_{table} DISABLE TRIGGER USER")
        yield
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in GUARDED:
            cursor.execute(f"ALTER TABLE budgets_{table} ENABLE TRIGGER USER")


def sql(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def broken() -> str:
    with pytest.raises(CommandError) as error:
        call_command("verify_ledger", stdout=StringIO())
    return str(error.value)


def test_the_check_list_of_a_month_in_order_is_met(books: Books):
    assert unmet() == set()


def late_cluster(books: Books) -> None:
    MeterState.objects.filter(cluster="gpu-west").update(complete_until=APRIL - timedelta(hours=1))


def dirty(books: Books) -> None:
    MeterState.objects.filter(cluster="gpu-west").update(dirty_from=APRIL - timedelta(hours=1))


def undecided(books: Books) -> None:
    store(held("u", 50, 60, role=IntervalKind.UNDECIDED))
    meter()


def unpriced(books: Books) -> None:
    store(held("u", 50, 60, flavor="a100"))
    meter()


def unexchanged(books: Books) -> None:
    billing.set_billing_terms(books.fleet.finance, account=books.fleet.acme, currency="USD")


def waiting(books: Books) -> None:
    billing.propose_adjustment(
        books.fleet.finance, account=books.fleet.acme, month="2026-03", amount="1", reason="x"
    )


def misadded(books: Books) -> None:
    WorkloadUsage.objects.filter(uid="b").delete()


def misbooked(books: Books) -> None:
    sql("UPDATE budgets_usagerecord SET borrowed = borrowed + 1 WHERE burst > 0")


def stale(books: Books) -> None:
    billing.draw_up_statements(books.fleet.finance, month="2026-03")
    billing.review_statements(books.fleet.finance, month="2026-03")
    active_card(books.fleet, price(committed="9.00"), start=hours(700))


@pytest.mark.parametrize(
    ("spoil", "want"),
    [
        pytest.param(late_cluster, "complete", id="a cluster is not complete to the end"),
        pytest.param(dirty, "complete", id="a change waits for the meter"),
        pytest.param(undecided, "undecided", id="nobody knows yet which copy is billed"),
        pytest.param(unpriced, "priced", id="a used flavor has no price"),
        pytest.param(unexchanged, "exchange", id="no exchange rate"),
        pytest.param(waiting, "approvals", id="an adjustment waits"),
        pytest.param(misadded, "identities", id="workloads are missing"),
        pytest.param(misbooked, "identities", id="borrowed is not lent"),
        pytest.param(stale, "reviewed", id="reviewed before a price changed"),
    ],
)
def test_whatever_is_open_blocks_the_close(books: Books, spoil: Callable[[Books], None], want):
    spoil(books)

    assert unmet() == {want}
    with pytest.raises(Rejected) as refused:
        books.close()
    assert {fault.code for fault in refused.value.faults} == {want}
    assert not BillingPeriod.objects.filter(closed_at__isnull=False).exists()


def test_a_month_is_closed_after_its_end_and_after_the_one_before(books: Books):
    assert unmet(now=APRIL - timedelta(seconds=1)) == {"over"}
    assert "earlier" in unmet("2026-04", now=AFTER)


def copied(model: type[Model], **changed: str) -> str:
    """What adds a copy of a row with other values, as SQL, in some columns."""
    table = model._meta.db_table
    columns = [field.column for field in model._meta.concrete_fields if not field.primary_key]
    values = ", ".join(changed.get(column, column) for column in columns)
    first = f"SELECT {values} FROM {table} WHERE id = (SELECT MIN(id) FROM {table})"
    return f"INSERT INTO {table} ({', '.join(columns)}) {first}"


def test_after_the_close_the_database_refuses_every_change(books: Books):
    """No other constraint of the database stands in the way of any of them."""
    books.issued()
    late = {"start": "'2026-03-02 10:30:00'"}
    attempts = [
        "UPDATE budgets_usagerecord SET pending = 1",
        "DELETE FROM budgets_usagerecord",
        copied(UsageRecord, **late),
        "UPDATE budgets_workloadusage SET burst = 0",
        "DELETE FROM budgets_workloadusage",
        copied(WorkloadUsage, **late),
        "UPDATE budgets_accountusage SET hour = hour",
        "DELETE FROM budgets_accountusage",
        copied(AccountUsage, **late),
        "UPDATE budgets_statement SET payable = 0",
        "UPDATE budgets_statement SET number = 'ST-2026-9'"
        " WHERE id = (SELECT MIN(id) FROM budgets_statement)",
        "DELETE FROM budgets_statement",
        "UPDATE budgets_statementline SET amount = 0",
        "DELETE FROM budgets_statementline",
        copied(StatementLine, position="position + 1000"),
        "UPDATE budgets_billingperiod SET closed_at = NULL, close_number = NULL, head = ''",
        "DELETE FROM budgets_billingperiod",
        "UPDATE budgets_billingterms SET closed_until = NULL",
        "UPDATE budgets_billingterms SET zone = 'Asia/Tokyo'",
        "DELETE FROM budgets_billingterms",
        "UPDATE budgets_ledgerblock SET digest = ''",
        "DELETE FROM budgets_ledgerblock",
    ]
    for statement in attempts:
        with as_owner(), pytest.raises(IntegrityError, match=TOLD), transaction.atomic():
            sql(statement)
    with pytest.raises(Rejected) as again:
        books.close()
    assert {fault.code for fault in again.value.faults} == {"closed_period"}


def test_no_statement_skips_its_review(books: Books):
    books.close()
    with as_owner(), pytest.raises(IntegrityError, match=r"state|go from"), transaction.atomic():
        sql(
            "UPDATE budgets_statement SET state = 'issued', number = 'ST-2026-9'"
            " WHERE id = (SELECT MIN(id) FROM budgets_statement)"
        )


def test_facts_of_the_open_month_still_change(books: Books):
    books.close()
    store(held("april", 750, 760))
    meter(AFTER + timedelta(hours=1))

    assert UsageRecord.objects.filter(hour=hours(755), committed_used__gt=0).exists()
    assert not Correction.objects.exists()


def test_no_price_reaches_into_a_closed_month(books: Books):
    books.close()
    finance, flavor = books.fleet.finance, books.fleet.flavors["h100"]
    card = billing.propose_rate_card(finance, name="x", currency="EUR", prices=[price()])
    with pytest.raises(Rejected) as refused:
        billing.propose_activation(finance, card=card, valid_from=APRIL - timedelta(hours=1))
    assert {fault.code for fault in refused.value.faults} == {"closed_period"}
    with pytest.raises(Rejected) as spot:
        billing.record_spot_prices(
            finance, flavor=flavor, prices=[(hours(1), "1.00")], currency="EUR"
        )
    assert {fault.code for fault in spot.value.faults} == {"closed_period"}
    with pytest.raises(Rejected) as adjusted:
        waiting(books)
    assert {fault.code for fault in adjusted.value.faults} == {"closed_period"}
    assert activated(finance, card, APRIL).valid_from == APRIL


def test_late_facts_become_corrections_that_are_billed_in_the_open_month(books: Books):
    books.issued()
    closed = list(UsageRecord.objects.filter(hour__lt=APRIL).order_by("pk").values())
    # Globex ran eight GPUs for four more hours in March, at March's price; April is dearer.
    active_card(books.fleet, price(burst="9.00"), start=APRIL)
    store(held("late", 600, 604, namespace="globex-search"))
    meter(AFTER + timedelta(hours=1))
    meter(AFTER + timedelta(hours=2))

    assert list(UsageRecord.objects.filter(hour__lt=APRIL).order_by("pk").values()) == closed
    rows = Correction.objects.filter(table="usage")
    assert sum(row.burst for row in rows) == 4 * 8 * 3600
    assert {row.booked_in.name for row in rows} == {"2026-04"}
    billing.draw_up_statements(books.fleet.finance, month="2026-04")
    row = StatementLine.objects.get(statement__period__name="2026-04", kind="correction")
    assert (row.class_of, row.amount, row.text) == ("burst", Decimal(4 * 8 * 3), "of 2026-03")
    for statement in ("UPDATE budgets_correction SET burst = 0", "DELETE FROM budgets_correction"):
        with as_owner(), pytest.raises(IntegrityError, match=TOLD), transaction.atomic():
            sql(statement)
    charged = [
        part
        for part in read.charge_lines(books.fleet.finance, period=read.month_of("2026-04"))
        if part.kind == "correction"
    ]
    assert sum(part.amount for part in charged) == row.amount
    assert {part.start.date().month for part in charged} == {3}
    assert call_command("verify_ledger", stdout=StringIO()) is None


def test_a_correction_is_taken_back_by_another_one(books: Books):
    books.close()
    store(held("late", 600, 604, namespace="globex-search"))
    meter(AFTER + timedelta(hours=1))
    store(held("late", 600, 602, namespace="globex-search"))
    meter(AFTER + timedelta(hours=2))

    amounts = [row.burst for row in Correction.objects.filter(table="usage").order_by("pk")]
    assert sum(amounts) == 2 * 8 * 3600
    assert min(amounts) == -8 * 3600


def test_the_use_of_an_account_made_later_is_a_correction_too(books: Books):
    from tests.factories import AccountFactory, WorkspaceFactory

    books.close()
    account = AccountFactory(slug="late")
    WorkspaceFactory(account=account, slug="x", home_flavor=books.fleet.flavors["h100"])
    store(held("import", 600, 604, namespace="late-x"))
    meter(AFTER + timedelta(hours=1))

    assert not UsageRecord.objects.filter(workspace__account=account).exists()
    assert Correction.objects.filter(account=account, table="usage").count() == 4
    assert call_command("verify_ledger", stdout=StringIO()) is None


def test_the_chain_goes_on_from_month_to_month(books: Books):
    books.close()
    meter(hours(24 * 70))
    books.close("2026-04", now=hours(24 * 70))
    out = StringIO()
    call_command("verify_ledger", stdout=out)

    first, second = BillingPeriod.objects.order_by("close_number")
    assert LedgerBlock.objects.get(period=second, number=1).previous == first.head
    assert out.getvalue().startswith("2 closed months")
    assert {row.closed_until for row in BillingTerms.objects.all()} == {second.end}


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        pytest.param(
            "UPDATE budgets_usagerecord SET committed_used = committed_used - 3600,"
            " idle = idle + 3600 WHERE hour = '2026-03-01 05:00:00'"
            " AND workspace_id = (SELECT id FROM budgets_workspace"
            " WHERE namespace = 'acme-vision')",
            "2026-03: usage acme-vision, 2026-03-01T05:00:00Z h100: "
            "the row was changed after the close",
            id="an hour is changed",
        ),
        pytest.param(
            "DELETE FROM budgets_workloadusage WHERE uid = 'b' AND hour = '2026-03-01 04:00:00'",
            "2026-03: workload acme-vision, 2026-03-01T05:00:00Z h100 gpu-east a: "
            "a row before it is missing",
            id="a workload's hour is deleted",
        ),
        pytest.param(
            "DELETE FROM budgets_workloadusage",
            "2026-03: workload acme-vision: every row of it is missing",
            id="a whole block is deleted",
        ),
        pytest.param(
            "UPDATE budgets_statementline SET amount = amount - 1 WHERE kind = 'burst'",
            "2026-03: statement acme, line 4: the row was changed after the close",
            id="a statement's line is changed",
        ),
        pytest.param(
            "UPDATE budgets_statement SET payable = payable - 1 WHERE account_id IS NULL",
            "2026-03: statement (platform), head: the row was changed after the close",
            id="a payable is changed",
        ),
        pytest.param(
            "UPDATE budgets_billingperiod SET head = 'x'",
            "2026-03: period 2026-03: its head is not that of its blocks",
            id="the head is changed",
        ),
        pytest.param(
            "UPDATE budgets_ledgerblock SET digest = 'x' WHERE number = 2",
            "2026-03: usage acme-speech: a row was changed",
            id="a block is changed",
        ),
        pytest.param(
            "UPDATE budgets_statement SET number = 'ST-2026-000009'"
            " WHERE number = 'ST-2026-000002'",
            "ST-2026: statement ST-2026-000003: number ST-2026-000002 is missing",
            id="a number is missing",
        ),
    ],
)
def test_tampering_is_named_by_its_first_row(books: Books, statement: str, want: str):
    with time_machine.travel(AFTER, tick=False):
        books.issued()
    with unguarded():
        sql(statement)

    assert want in broken()


def test_a_row_that_was_added_is_named(books: Books):
    books.close()
    with unguarded():
        UsageRecord.objects.create(
            workspace=books.fleet.vision,
            flavor=books.fleet.flavors["a100"],
            hour=hours(5),
            start=hours(5),
            burst=3600,
        )

    assert "usage acme-vision, 2026-03-01T05:00:00Z a100: the row was added" in broken()


def test_an_empty_month_is_closed_and_verified_but_not_behind_a_later_one(books: Books):
    assert unmet("2026-01") == set()
    books.close("2026-01")
    assert call_command("verify_ledger", "--month=2026-01", stdout=StringIO()) is None

    books.close()
    assert unmet("2026-02") == {"earlier"}


def test_use_of_a_closed_time_without_a_price_takes_the_first_price_given(books: Books):
    books.close()
    store(held("late", 600, 602, flavor="a100"), held("old", -100, -98, flavor="a100"))
    meter(AFTER + timedelta(hours=1))
    assert "priced" in unmet("2026-04", now=hours(24 * 70))

    active_card(books.fleet, price(), price("a100", burst="7"), start=APRIL)
    billing.draw_up_statements(books.fleet.finance, month="2026-04")
    rows = StatementLine.objects.filter(kind="correction", flavor="a100").order_by("text")
    # February was never closed, but it lies before March, which was.
    assert [(row.text, row.amount) for row in rows] == [
        ("of 2026-02", Decimal(2 * 8 * 7)),
        ("of 2026-03", Decimal(2 * 8 * 7)),
    ]
    charged = [
        part.amount
        for part in read.charge_lines(books.fleet.finance, period=read.month_of("2026-04"))
        if part.kind == "correction"
    ]
    assert sum(charged) == 2 * 2 * 8 * 7
