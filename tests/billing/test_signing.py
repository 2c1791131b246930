"""Closed months are signed by a key outside of the database, and none can be cut off unseen."""

from __future__ import annotations

import base64
from io import StringIO

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from budgets.errors import Rejected
from budgets.models import AuditEntry, BillingPeriod, BillingTerms
from budgets.tasks import verify_ledger
from tests.billing.test_closing import Books, broken, hours, meter, sql, unguarded

pytestmark = pytest.mark.django_db


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


def public(number: int) -> str:
    made = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32).public_key()
    return "public:" + base64.b64encode(made.public_bytes_raw()).decode()


def is_whole(*arguments: str) -> bool:
    return call_command("verify_ledger", *arguments, stdout=StringIO()) is None


@pytest.fixture
def two(books: Books, settings) -> list[BillingPeriod]:
    """Two closed and signed months."""
    settings.PORTAL_LEDGER_KEYS = [key(1)]
    books.close()
    meter(hours(24 * 70))
    books.close("2026-04", now=hours(24 * 70))
    return list(BillingPeriod.objects.filter(close_number__isnull=False).order_by("close_number"))


def test_a_month_is_signed_when_it_is_closed(two: list[BillingPeriod]):
    assert all(month.signature for month in two)
    assert is_whole()
    told = AuditEntry.objects.filter(action="period.close").latest("pk").after
    assert (told["number"], told["head"], told["signature"]) == (2, two[1].head, two[1].signature)


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        ([key(2), key(1)], ""),
        ([key(2), public(1)], ""),
        ([public(1)], ""),
        ([key(2)], "none of the keys made its signature"),
        ([public(2)], "none of the keys made its signature"),
    ],
    ids=["rotated", "rotated away", "only verifies", "another key", "another public key"],
)
def test_any_key_that_is_set_verifies(two, settings, keys: list[str], want: str):
    settings.PORTAL_LEDGER_KEYS = keys
    assert is_whole() if not want else want in broken()


def test_a_newest_month_without_a_signature_is_broken(two: list[BillingPeriod]):
    with unguarded():
        sql("UPDATE budgets_billingperiod SET signature = '' WHERE id = %s", two[1].pk)
    assert "2026-04: period 2026-04: it has no signature" in broken()


def test_the_first_key_signs_the_next_month_and_so_those_before(books: Books, settings):
    books.close()
    settings.PORTAL_LEDGER_KEYS = [key(1)]
    assert "it has no signature" in broken()
    meter(hours(24 * 70))
    books.close("2026-04", now=hours(24 * 70))
    assert is_whole()


def test_nothing_is_closed_on_top_of_a_month_that_lost_its_signature(two, books: Books):
    with unguarded():
        sql("UPDATE budgets_billingperiod SET signature = '' WHERE id = %s", two[1].pk)
    meter(hours(24 * 101))
    with pytest.raises(Rejected, match="it has no signature"):
        books.close("2026-05", now=hours(24 * 101))


def cut_off(month: BillingPeriod) -> None:
    """Whoever owns the database takes the newest month out of the chain."""
    sql("DELETE FROM budgets_ledgerblock WHERE period_id = %s", month.pk)
    sql(
        "UPDATE budgets_billingperiod SET closed_at = NULL, closed_by_id = NULL,"
        " close_number = NULL, head = '', signature = '' WHERE id = %s",
        month.pk,
    )


def test_a_month_that_is_cut_off_is_missed(two: list[BillingPeriod]):
    last = two[1]
    with unguarded():
        cut_off(last)
    assert "closed month 2 is missing" in broken()
    with unguarded():
        sql("DELETE FROM budgets_auditentry WHERE action = 'period.close'")
    assert "is closed until 2026-05-01, no month is" in broken()
    with unguarded():
        BillingTerms.objects.update(closed_until=two[0].end)
    assert "audit entry" in broken(), "the seal of the month knows it"
    with unguarded():
        sql("DELETE FROM budgets_seal WHERE period_id = %s", last.pk)
    assert is_whole(), "the database alone knows no better"
    with pytest.raises(CommandError, match="closed month 2 is missing: removed, or closed after"):
        call_command("verify_ledger", "--anchor", f"2:{last.head}", stdout=StringIO())


def test_what_was_told_elsewhere_has_to_be_there(two: list[BillingPeriod]):
    assert is_whole("--anchor", f"2:{two[1].head}")
    with pytest.raises(CommandError, match="its head is not the one that was told"):
        call_command("verify_ledger", "--anchor", f"1:{'0' * 64}", stdout=StringIO())
    with pytest.raises(CommandError, match="is not NUMBER:HEAD"):
        call_command("verify_ledger", "--anchor", "nonsense", stdout=StringIO())


def test_nothing_is_closed_on_top_of_a_broken_month(books: Books):
    books.close()
    meter(hours(24 * 70))
    with unguarded():
        sql("UPDATE budgets_billingperiod SET head = %s WHERE close_number = 1", "0" * 64)
    with pytest.raises(Rejected, match="The ledger is not as it was closed"):
        books.close("2026-04", now=hours(24 * 70))
    assert BillingPeriod.objects.filter(close_number__isnull=False).count() == 1


def test_the_daily_look_writes_down_what_is_broken(two: list[BillingPeriod], caplog):
    assert verify_ledger()["is_whole"] is True
    with unguarded():
        sql("UPDATE budgets_billingperiod SET head = %s WHERE close_number = 2", "0" * 64)
    assert verify_ledger()["is_whole"] is False
    assert "ledger_broken" in caplog.text
    assert AuditEntry.objects.get(action="ledger.broken").reason.startswith("2026-04")


def test_a_key_that_is_none_is_told(books: Books, settings):
    settings.PORTAL_LEDGER_KEYS = ["short"]
    with pytest.raises(ImproperlyConfigured, match="PORTAL_LEDGER_KEYS"):
        books.close()
