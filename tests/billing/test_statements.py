"""Statements: what they come to, their way, their numbers, and that the books balance."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
import time_machine
from django.db import IntegrityError, connection, transaction

from budgets import services
from budgets.charging import RowKind, charge
from budgets.errors import NotAllowed, Rejected
from budgets.metering import HourFact, Usage
from budgets.models import AuditEntry, Statement, StatementLine, UsageRecord
from budgets.selectors import billing as read
from budgets.services import billing
from budgets.units import Period
from tests.billing.conftest import AFTER, Books, active_card, held, meter, price, store
from tests.builders import agreed, hours, line
from tests.databases import as_owner

pytestmark = pytest.mark.django_db
MARCH_H = 31 * 24


def statement_of(account: str | None) -> Statement:
    rows = Statement.objects.filter(kind="statement")
    return rows.get(account__slug=account) if account else rows.get(account=None)


def lines_of(account: str | None) -> dict[tuple[str, str], Decimal]:
    return {
        (row.workspace.namespace if row.workspace else "", row.kind): row.amount
        for row in statement_of(account).lines.select_related("workspace")
    }


def draw(books: Books):
    return billing.draw_up_statements(books.fleet.finance, month="2026-03")


def codes(error: pytest.ExceptionInfo[Rejected]) -> set[str]:
    return {fault.code for fault in error.value.faults}


def test_a_statement_has_floor_burst_credit_and_the_platform_funds_the_lending(books: Books):
    draw(books)

    floor = Decimal(8 * MARCH_H * 2)
    assert lines_of("acme") == {
        ("acme-vision", "floor"): floor,
        # Two jobs of 8 overlap for eight hours: 64 GPU-hours above the floor, lent by speech.
        ("acme-vision", "burst"): Decimal(64 * 3),
        ("acme-speech", "floor"): floor,
        ("acme-speech", "lending_credit"): Decimal(-64),
    }
    assert lines_of("globex") == {("globex-search", "burst"): Decimal(8 * 3)}
    assert lines_of(None) == {("", "lending_funding"): Decimal(64)}
    lending = StatementLine.objects.filter(kind__in=("lending_credit", "lending_funding"))
    assert sum(row.amount for row in lending) == 0
    assert sum(row.exact for row in lending) == 0


def test_a_revision_within_the_month_pro_rates_the_floor(books: Books):
    with time_machine.travel(hours(372), tick=False):
        books.fleet.revise(books.fleet.speech, line("h100", 4))
    services.mark_dirty(hours(372))
    meter()
    draw(books)

    assert lines_of("acme")["acme-speech", "floor"] == 2 * (8 * 372 + 4 * (MARCH_H - 372))


def test_a_rate_change_splits_a_line_and_names_both_cards(books: Books):
    second = active_card(books.fleet, price(committed="4.00"), start=hours(100))
    draw(books)

    row = statement_of("acme").lines.get(workspace=books.fleet.vision, kind="floor")
    assert row.amount == 8 * (100 * 2 + (MARCH_H - 100) * 4)
    assert [part["gpu_seconds"] for part in row.parts] == [8 * 3600 * 100, 8 * 3600 * 644]
    assert row.parts[1]["card"] == second.pk


def test_fixed_730_hours_take_the_place_of_the_calendar(books: Books):
    active_card(books.fleet, floor_hours="fixed_730")
    draw(books)

    assert lines_of("acme")["acme-vision", "floor"] == 8 * 730 * 2


def test_rounding_stands_on_a_line_of_its_own(books: Books):
    # 64 GPU-hours × 0.00015 = 0.0096 → 0.01; floors 8 × 744 × 0.0000025 = 0.01488 → 0.01.
    active_card(books.fleet, price(committed="0.0000025", burst="0.00015"), start=hours(0))
    draw(books)

    vision = [
        row for row in statement_of("acme").lines.all() if row.workspace_id == books.fleet.vision.pk
    ]
    assert [(row.kind, row.amount) for row in vision] == [
        ("floor", Decimal("0.01")),
        ("burst", Decimal("0.01")),
    ]
    assert sum(row.exact for row in vision) == Fraction("0.02448")
    active_card(books.fleet, price(committed="0.000001", burst="0.00007"), start=hours(0))
    draw(books)
    vision = statement_of("acme").lines.filter(workspace=books.fleet.vision)
    # 0.005952 → 0.01, 0.00448 → 0.00, their sum 0.010432 → 0.01: nothing to put right.
    assert sum(row.amount for row in vision) == Decimal("0.01")
    active_card(books.fleet, price(committed="0.0000007", burst="0.00007"), start=hours(0))
    draw(books)
    vision = statement_of("acme").lines.filter(workspace=books.fleet.vision)
    # 0.0041664 → 0.00 and 0.00448 → 0.00, but 0.0086464 → 0.01.
    assert [(row.kind, row.amount) for row in vision] == [
        ("floor", Decimal("0.00")),
        ("burst", Decimal("0.00")),
        ("rounding", Decimal("0.01")),
    ]
    assert statement_of("acme").payable == sum(
        row.amount for row in statement_of("acme").lines.all()
    )


def test_an_account_is_billed_in_its_own_currency_at_the_rate_of_the_last_day(books: Books):
    finance = books.fleet.finance
    billing.set_billing_terms(finance, account=books.fleet.acme, currency="JPY")
    assert read.draw(read.month_of("2026-03")).unexchanged == (("acme", "JPY"),)
    day = AFTER.date().replace(month=3, day=31)
    agreed(billing.record_exchange_rate(finance, base="EUR", quote="JPY", day=day, rate="150.5"))
    agreed(billing.record_exchange_rate(finance, base="EUR", quote="JPY", day=day, rate="160.25"))
    draw(books)

    statement = statement_of("acme")
    assert (statement.currency, statement.exchange_rate) == ("JPY", Decimal("160.25"))
    assert statement.payable == round((2 * 8 * MARCH_H * 2 + 192 - 64) * Fraction("160.25"))
    assert lines_of(None)["", "lending_funding"] == Decimal(64)


def test_an_own_card_goes_before_the_one_for_everybody(books: Books):
    active_card(books.fleet, price(burst="1.00"), account=books.fleet.acme, start=hours(0))
    draw(books)

    assert lines_of("acme")["acme-vision", "burst"] == 64
    assert lines_of("globex")["globex-search", "burst"] == 24


def test_a_month_of_a_zone_has_743_hours_in_march(books: Books):
    fleet = books.fleet
    billing.set_billing_terms(fleet.finance, account=fleet.acme, zone="Europe/Berlin")
    billing.draw_up_statements(fleet.finance, month="2026-03", zone="Europe/Berlin")

    floor = statement_of("acme").lines.get(workspace=fleet.vision, kind="floor")
    # From the first second of March in UTC, an hour after Berlin's; to 22:00 UTC of the 31st.
    assert floor.gpu_seconds == 8 * 3600 * 742
    assert read.month_of("2026-03", "Europe/Berlin").start == hours(-1)
    assert read.month_of("2026-03", "Europe/Berlin").end == hours(742)
    draw(books)
    assert {row.account.slug for row in Statement.objects.filter(period__zone="UTC")} == {"globex"}


def test_statements_go_from_draft_to_issued_with_numbers_without_holes(books: Books):
    finance = books.fleet.finance
    draw(books)
    with pytest.raises(Rejected) as early:
        billing.issue_statements(finance, month="2026-03")
    assert codes(early) == {"open_period"}
    billing.review_statements(finance, month="2026-03", only=[statement_of("acme").pk])
    books.close()
    billing.review_statements(finance, month="2026-03")
    with time_machine.travel(AFTER, tick=False):
        issued = billing.issue_statements(finance, month="2026-03")

    assert [row.number for row in issued] == ["ST-2026-000001", "ST-2026-000002", "ST-2026-000003"]
    assert AuditEntry.objects.filter(action="statement.issue").count() == 3


def test_a_draft_that_facts_have_left_behind_is_not_reviewed(books: Books):
    finance = books.fleet.finance
    draw(books)
    store(held("late", 20, 30, namespace="globex-search"))
    meter()
    with pytest.raises(Rejected) as outdated:
        billing.review_statements(finance, month="2026-03")
    assert [fault.code for fault in outdated.value.faults] == ["outdated"]
    assert "globex" in str(outdated.value)

    draw(books)
    assert len(billing.review_statements(finance, month="2026-03")) == 3


def test_a_reviewed_statement_stays_until_it_is_sent_back(books: Books):
    finance = books.fleet.finance
    draw(books)
    billing.review_statements(finance, month="2026-03", only=[statement_of("globex").pk])
    store(held("late", 20, 30, namespace="globex-search"))
    meter()
    assert draw(books).kept == 1
    assert statement_of("globex").payable == 24

    with pytest.raises(Rejected) as open_check:
        books.close()
    assert codes(open_check) == {"reviewed"}
    billing.send_back_statement(finance, statement=statement_of("globex"), reason="late use")
    draw(books)
    assert statement_of("globex").payable == 24 + 240


def test_void_turns_every_line_in_the_open_month(books: Books):
    finance = books.fleet.finance
    books.issued()
    statement = statement_of("acme")
    with pytest.raises(Rejected) as silent:
        billing.propose_void(finance, statement=statement, reason=" ")
    with time_machine.travel(AFTER, tick=False):
        agreed(billing.propose_void(finance, statement=statement, reason="wrong terms"))
    note = Statement.objects.get(credits=statement)

    assert codes(silent) == {"reason_required"}
    assert (note.number, note.state, note.period.name) == ("CN-2026-000001", "issued", "2026-04")
    assert note.payable == -statement.payable
    assert sum(row.exact for row in note.lines.all()) == -sum(
        row.exact for row in statement.lines.all()
    )
    statement.refresh_from_db()
    assert statement.state == "void"
    with pytest.raises(Rejected) as twice:
        billing.propose_void(finance, statement=statement, reason="again")
    assert codes(twice) == {"not_issued"}


def test_adjustments_need_a_second_person(books: Books):
    finance, acme = books.fleet.finance, books.fleet.acme
    row = billing.propose_adjustment(
        finance,
        account=acme,
        month="2026-03",
        amount="-100.00",
        reason="outage of the 3rd",
        workspace=books.fleet.vision,
    )
    with pytest.raises(NotAllowed):
        billing.decide_adjustment(finance, adjustment=row, is_approved=True)
    draw(books)
    assert ("acme-vision", "adjustment") not in lines_of("acme")
    billing.decide_adjustment(books.second, adjustment=row, is_approved=True)
    draw(books)

    assert lines_of("acme")["acme-vision", "adjustment"] == -100
    with pytest.raises(Rejected) as twice:
        billing.decide_adjustment(books.second, adjustment=row, is_approved=False, reason="no")
    assert codes(twice) == {"decided"}


@pytest.mark.postgres
@pytest.mark.parametrize(
    "statement",
    ["UPDATE budgets_adjustment SET amount = 1", "DELETE FROM budgets_adjustment"],
)
def test_postgres_refuses_to_change_an_adjustment(books: Books, statement: str):
    finance, acme = books.fleet.finance, books.fleet.acme
    billing.propose_adjustment(finance, account=acme, month="2026-03", amount="-5", reason="x")
    with (
        as_owner(),
        pytest.raises(IntegrityError, match="never changed"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


@pytest.mark.parametrize(
    ("change", "want_code"),
    [
        ({"amount": "0"}, "out_of_range"),
        ({"amount": "1E+1000000"}, "out_of_range"),
        ({"amount": "-1E+1000000"}, "out_of_range"),
        ({"amount": "1E-99999"}, "out_of_range"),
        ({"amount": "-1000000000000.01"}, "out_of_range"),
        ({"amount": "Infinity"}, "out_of_range"),
        ({"amount": "1.234"}, "too_fine"),
        ({"amount": "ten"}, "not_a_number"),
        ({"reason": ""}, "blank"),
        ({"zone": "Europe/Berlin"}, "other_zone"),
    ],
)
def test_an_adjustment_is_checked(books: Books, change, want_code):
    terms = {"amount": "1.00", "reason": "x", "month": "2026-03"} | change
    with pytest.raises(Rejected) as refused:
        billing.propose_adjustment(books.fleet.finance, account=books.fleet.acme, **terms)
    assert codes(refused) == {want_code}


@pytest.mark.parametrize("who", ["owner", "auditor"])
def test_only_finance_and_admins_write(books: Books, who: str):
    actor = getattr(books.fleet, who)
    with pytest.raises(NotAllowed):
        billing.draw_up_statements(actor, month="2026-03")
    with pytest.raises(NotAllowed):
        billing.close_period(actor, month="2026-03")
    with pytest.raises(NotAllowed):
        billing.propose_rate_card(actor, name="x", currency="EUR", prices=[price()])
    with pytest.raises(NotAllowed):
        billing.propose_adjustment(
            actor, account=books.fleet.acme, month="2026-03", amount="1", reason="x"
        )


@pytest.mark.parametrize("is_closed", [False, True], ids=["open month", "closed month"])
def test_charge_rows_add_up_to_every_line_to_the_cent(books: Books, is_closed: bool):
    active_card(books.fleet, price(committed="1.23456789", burst="2.7"), start=hours(77))
    if is_closed:
        books.issued()
    else:
        draw(books)
    rows = list(read.charge_lines(books.fleet.finance, period=read.month_of("2026-03")))

    sums: dict[tuple[str, ...], tuple[Fraction, Decimal, int]] = {}
    for row in rows:
        key = (row.account, row.workspace, row.flavor, row.kind.value)
        exact, amount, seconds = sums.get(key, (Fraction(0), Decimal(0), 0))
        sums[key] = (exact + row.exact, amount + row.amount, seconds + row.gpu_seconds)
        if row.kind in (RowKind.FLOOR, RowKind.BURST, RowKind.LENDING_CREDIT):
            assert Fraction(row.unit_price) * row.gpu_seconds / 3600 == row.exact
    want = {
        (
            line.statement.account.slug if line.statement.account else "",
            line.workspace.namespace if line.workspace else "",
            line.flavor,
            line.kind,
        ): (line.exact, line.amount, line.gpu_seconds)
        for line in StatementLine.objects.select_related("statement__account", "workspace")
    }
    assert sums == want
    assert {row.statement for row in rows} == (
        {"ST-2026-000001", "ST-2026-000002", "ST-2026-000003"} if is_closed else {""}
    )


def test_people_read_what_is_theirs(books: Books):
    books.issued()
    fleet = books.fleet
    (theirs,) = read.visible_statements(fleet.owner)
    sheet = read.statement_sheet(fleet.owner, theirs)

    assert [part.namespace for part in sheet.parts] == ["acme-vision"]
    assert not sheet.is_whole
    with pytest.raises(Statement.DoesNotExist):
        read.statement_for(fleet.owner, statement_of("globex").pk)
    with pytest.raises(Statement.DoesNotExist):
        read.statement_for(fleet.owner, statement_of(None).pk)
    rows = list(read.charge_lines(fleet.owner, period=read.month_of("2026-03")))
    assert {row.workspace for row in rows} == {"acme-vision"}
    whole = read.statement_sheet(fleet.auditor, statement_of("acme"))
    assert whole.is_whole
    assert whole.total == statement_of("acme").payable


def test_a_line_leads_to_days_hours_and_workloads(books: Books):
    books.issued()
    statement = statement_of("acme")
    row = statement.lines.get(workspace=books.fleet.vision, kind="burst")
    trace = read.line_trace(statement, row, day=hours(0).date())

    assert sum(day.amount for day in trace.days) == row.amount
    assert sum(hour.gpu_seconds for hour in trace.hours) == row.gpu_seconds == 64 * 3600
    assert [(part.uid, part.gpu_seconds) for part in trace.workloads] == [("b", 64 * 3600)]


def test_sums_by_rate_come_to_what_the_facts_come_to_one_by_one(books: Books):
    """The database adds up over the hours of a rate; the pure core takes every hour by itself."""
    fleet = books.fleet
    for number, hour in enumerate((1, 3, 9, 11, 300, 700, 743)):
        prices = price(
            committed=f"1.{number}7",
            burst=f"3.{number}1",
            credit=f"0.{number}",
            is_dynamic=number % 2 == 0,
        )
        account = fleet.acme if number % 3 == 2 else None
        active_card(fleet, prices, start=hours(hour), account=account)
    points = [(hours(hour), f"0.{hour + 10}") for hour in range(0, 60, 2)]
    agreed(
        billing.record_spot_prices(
            fleet.finance, flavor=fleet.flavors["h100"], prices=points, currency="EUR"
        )
    )
    window = Period(hours(0), hours(744))
    most_parts = 0
    for account in (fleet.acme, fleet.globex):
        rows = UsageRecord.objects.filter(workspace__account=account, hour__lt=window.end)
        facts = tuple(
            HourFact(
                row.hour,
                row.start,
                row.workspace.namespace,
                row.flavor.slug,
                *(
                    getattr(row, name)
                    for name in ("committed", "committed_used", "lent", "idle", "burst", "borrowed")
                ),
            )
            for row in rows.select_related("workspace", "flavor")
        )
        card = read.rate_card_at(account.pk, window)
        want = charge(Usage(window, facts, ()), card, workspaces=())
        drawn = next(
            row for row in read.draw(read.month_of("2026-03")).drawn if row.account_id == account.pk
        )
        got = {
            (item.workspace, item.flavor, item.kind.value): (item.exact, amount, item.parts)
            for item, amount in drawn.document.lines
            if item.kind is not RowKind.ROUNDING
        }
        assert got == {
            (line.workspace, line.flavor, line.kind.value): (line.exact, line.amount, line.parts)
            for line in want.lines
        }
        most_parts = max([most_parts, *(len(line.parts) for line in want.lines)])
    assert most_parts > 8
