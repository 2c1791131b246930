"""What is written beside the hour facts is sealed: nothing of it is changed or dropped unseen."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from budgets import services
from budgets.errors import Rejected
from budgets.models import Adjustment, AuditEntry, NumberSeries, Seal, Statement
from budgets.selectors import audit_entries
from budgets.services import billing
from budgets.services.billing import closing, seals
from budgets.services.billing.seals import BrokenSeal, make_seal, verify_seals
from budgets.tasks import seal_ledger
from tests.billing.conftest import AFTER, Books, active_card, meter, price
from tests.billing.test_closing import broken, sql, unguarded
from tests.billing.test_signing import is_whole, key
from tests.builders import agreed, hours
from tests.databases import as_owner

pytestmark = pytest.mark.django_db


@pytest.fixture
def sealed(books: Books) -> Iterator[Books]:
    """A closed and issued month, an adjustment, a credit note, and a seal over all of it."""
    with time_machine.travel(AFTER, tick=False):
        books.issued()
        adjust(books)
        paper = Statement.objects.filter(account=books.fleet.acme).get()
        agreed(billing.propose_void(books.fleet.finance, statement=paper, reason="wrong"))
        agreed(
            billing.record_exchange_rate(
                books.fleet.finance, base="EUR", quote="USD", day=AFTER.date(), rate="1.1"
            )
        )
    make_seal()
    yield books


def adjust(books: Books) -> Adjustment:
    row = billing.propose_adjustment(
        books.fleet.finance, account=books.fleet.acme, month="2026-04", amount="5", reason="late"
    )
    return billing.decide_adjustment(books.second, adjustment=row, is_approved=True)


def test_entries_that_nobody_is_shown_any_more_are_verified_all_the_same(sealed: Books, settings):
    settings.PORTAL_AUDIT_DAYS = 400
    with time_machine.travel(AFTER.replace(year=AFTER.year + 2), tick=False):
        assert audit_entries(sealed.fleet.auditor) == []
        assert is_whole()


def test_all_that_is_fixed_is_in_one_seal_and_in_no_other(sealed: Books):
    assert is_whole()
    assert make_seal() is None, "nothing is new"
    first, second = Seal.objects.all()
    assert first.period.name == "2026-03"
    assert second.previous == first.digest
    assert {"audit entry", "rate card"} <= set(first.contents)
    assert {"audit entry", "adjustment", "statement", "exchange rate"} <= set(second.contents)
    assert AuditEntry.objects.count() == sum(
        last - at + 1 for row in (first, second) for at, last in row.contents["audit entry"]["rows"]
    )


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        pytest.param(
            "UPDATE budgets_auditentry SET actor_name = 'x' WHERE id ="
            " (SELECT MIN(id) FROM budgets_auditentry)",
            "it was changed after it was sealed",
            id="an entry is changed",
        ),
        pytest.param(
            "DELETE FROM budgets_auditentry WHERE id ="
            " (SELECT MIN(id) FROM budgets_auditentry WHERE action = 'user.create')",
            "it is missing",
            id="an entry is taken out",
        ),
        pytest.param(
            "DELETE FROM budgets_auditentry WHERE id = (SELECT MAX(id) FROM budgets_auditentry)",
            "it is missing",
            id="the newest entry is dropped",
        ),
        pytest.param(
            "UPDATE budgets_ratecard SET valid_from = '2026-03-02 00:00:00'",
            "rate card",
            id="a card holds later",
        ),
        pytest.param(
            "UPDATE budgets_rateprice SET burst = 1", "rate card", id="a price is changed"
        ),
        pytest.param("DELETE FROM budgets_rateprice", "rate card", id="a price is dropped"),
        pytest.param("UPDATE budgets_adjustment SET amount = 6", "adjustment", id="an amount"),
        pytest.param("UPDATE budgets_adjustment SET reason = 'x'", "adjustment", id="a reason"),
        pytest.param(
            "UPDATE budgets_adjustment SET state = 'declined'", "adjustment", id="a decision"
        ),
        pytest.param("DELETE FROM budgets_adjustment", "adjustment", id="the newest adjustment"),
        pytest.param("UPDATE budgets_exchangerate SET rate = 2", "exchange rate", id="a rate"),
        pytest.param("DELETE FROM budgets_exchangerate", "exchange rate", id="the newest rate"),
        pytest.param(
            "UPDATE budgets_approval SET approver_id = author_id, kind = 'one' WHERE id ="
            " (SELECT MAX(id) FROM budgets_approval)",
            "approval",
            id="who approved",
        ),
        pytest.param(
            "UPDATE budgets_proposal SET seen = '{}' WHERE state = 'approved'",
            "proposal",
            id="what was proposed",
        ),
        pytest.param(
            "UPDATE budgets_statement SET issued_by_id = NULL WHERE number = 'ST-2026-000001'",
            "statement",
            id="who issued a statement",
        ),
        pytest.param(
            "UPDATE budgets_statementline SET amount = 0 WHERE statement_id ="
            " (SELECT id FROM budgets_statement WHERE number = 'CN-2026-000001')",
            "statement",
            id="a line of a credit note",
        ),
        pytest.param(
            "UPDATE budgets_statement SET state = 'issued' WHERE state = 'void'",
            "it is void without a credit note, or has one and is not void",
            id="a void statement is back",
        ),
        pytest.param(
            "UPDATE budgets_seal SET contents = '{}' WHERE number = 1",
            "it was changed",
            id="a seal is emptied",
        ),
        pytest.param("DELETE FROM budgets_seal WHERE number = 1", "seal 1", id="the first seal"),
    ],
)
def test_what_was_sealed_is_not_changed_or_dropped_unseen(sealed: Books, statement: str, want: str):
    with unguarded():
        sql(statement)
    assert want in broken()


def drop_newest_number() -> None:
    """The newest document goes, with its lines."""
    note = Statement.objects.get(number="CN-2026-000001")
    sql("DELETE FROM budgets_statementline WHERE statement_id = %s", note.pk)
    sql("DELETE FROM budgets_statement WHERE id = %s", note.pk)
    sql("UPDATE budgets_statement SET state = 'issued' WHERE state = 'void'")


def test_the_newest_number_is_missed_though_no_later_one_is_there(sealed: Books):
    with unguarded():
        drop_newest_number()
    assert "the newest number is missing" in broken()
    NumberSeries.objects.filter(prefix="CN-2026").update(last=0)
    assert "it is missing" in broken(), "the seal knows it too"


def test_a_seal_that_is_cut_off_is_missed_by_who_kept_it(sealed: Books):
    newest = Seal.objects.last()
    assert is_whole("--seal", f"2:{newest.digest}")
    with unguarded():
        sql("DELETE FROM budgets_seal WHERE number = 2")
    assert is_whole(), "the database alone knows no better"
    with pytest.raises(CommandError, match="the seal that was told is not there"):
        call_command("verify_ledger", "--seal", f"2:{newest.digest}", stdout=StringIO())


def test_the_month_has_its_seal(sealed: Books):
    with unguarded():
        sql("DELETE FROM budgets_seal")
    assert "2026-03: seal 1: every row of it is missing" in broken()


def test_what_no_seal_has_yet_is_missed_by_its_other_half(sealed: Books):
    card = active_card(sealed.fleet, price(burst="4.00"), start=AFTER.replace(hour=5))
    with unguarded(), transaction.atomic():
        sql("DELETE FROM budgets_auditentry WHERE subject = %s", f"rate_card:{card.pk}")
        assert "the audit log lost its entry" in broken()
        transaction.set_rollback(True)
    with unguarded():
        sql("DELETE FROM budgets_rateprice WHERE card_id = %s", card.pk)
        sql("DELETE FROM budgets_ratecard WHERE id = %s", card.pk)
    assert f"rate_card:{card.pk}: its row is missing" in broken()


def test_a_row_that_comes_late_is_of_the_next_seal(sealed: Books):
    """A longer transaction had its key before those that were sealed."""
    spared = AuditEntry.objects.order_by("pk").last().pk + 1
    services.audit(None, "user.create", "user:later")
    with unguarded():
        sql("UPDATE budgets_auditentry SET id = %s WHERE id = %s", spared + 5, spared)
    make_seal()
    AuditEntry.objects.create(pk=spared + 2, action="user.create", subject="user:late")
    assert make_seal().contents["audit entry"]["rows"] == [[spared + 2, spared + 2]]
    assert is_whole()


def test_a_row_that_comes_too_late_was_added(sealed: Books, monkeypatch):
    services.audit(None, "user.create", "user:later")
    newest = AuditEntry.objects.order_by("pk").last().pk
    with unguarded():
        sql("UPDATE budgets_auditentry SET id = %s WHERE id = %s", newest + 50, newest)
    make_seal()
    monkeypatch.setattr(seals, "LATE", 10)
    assert is_whole()
    AuditEntry.objects.create(pk=newest + 2, action="user.create", subject="user:forged")
    assert make_seal() is None
    assert "a row was added after they were sealed" in broken()


def test_a_close_asks_the_seals_since_the_month_before(sealed: Books):
    with unguarded():
        sql("UPDATE budgets_adjustment SET amount = 6")
    meter(hours(24 * 70))
    with pytest.raises(Rejected) as refused:
        sealed.close("2026-04", now=hours(24 * 70))
    assert "it was changed after it was sealed" in str(refused.value)


def test_seals_are_signed_and_nothing_is_sealed_on_one_that_lost_its_signature(
    books: Books, settings
):
    settings.PORTAL_LEDGER_KEYS = [key(1)]
    assert make_seal().signature
    assert is_whole()
    settings.PORTAL_LEDGER_KEYS = [key(2)]
    assert "none of the keys made its signature" in broken()
    settings.PORTAL_LEDGER_KEYS = [key(2), key(1)]
    with unguarded():
        sql("UPDATE budgets_seal SET signature = ''")
    assert "seal 1: it has no signature" in broken()


def test_nothing_is_signed_on_a_seal_that_lost_its_signature(books: Books, settings):
    settings.PORTAL_LEDGER_KEYS = [key(1)]
    make_seal()
    services.audit(None, "user.create", "user:later")
    make_seal()
    with unguarded():
        sql("UPDATE budgets_seal SET signature = '' WHERE number = 2")
    services.audit(None, "user.create", "user:last")
    with pytest.raises(BrokenSeal):
        make_seal()
    assert seal_ledger() == {"rows": 0}
    with pytest.raises(Rejected, match="seal 2 it has no signature"):
        books.close()


def test_the_hourly_look_seals_and_the_log_knows_it(books: Books, caplog):
    caplog.set_level("INFO")
    assert seal_ledger()["rows"] == verify_seals()
    assert Seal.objects.last().digest in caplog.text
    assert seal_ledger() == {"rows": 0}


def test_the_database_refuses_to_change_a_seal(sealed: Books):
    for statement in ("UPDATE budgets_seal SET number = 9", "DELETE FROM budgets_seal"):
        with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
            sql(statement)


def test_a_close_holds_the_lock_only_after_the_chain_is_verified(books: Books, monkeypatch):
    """What is closed does not change: nobody waits while it is worked out again."""
    asked: list[str] = []

    def noting(name: str):
        whole = getattr(closing, name)

        def noted(*given: Any, **named: Any) -> Any:
            asked.append(name)
            return whole(*given, **named)

        return noted

    for name in ("verify_chain", "lock_billing"):
        monkeypatch.setattr(closing, name, noting(name))
    books.close()
    assert asked == ["verify_chain", "lock_billing"]


def test_two_closes_at_once_do_not_both_go_on_top_of_the_same_month(books: Books, monkeypatch):
    monkeypatch.setattr(closing, "_require_whole_chain", lambda: 7)
    with pytest.raises(Rejected, match="Another month was closed at the same moment"):
        books.close()
