"""Two people of finance, and the meter, at the same instant: on a database with real locks."""

from __future__ import annotations

import threading
import time

import pytest
import time_machine

from budgets import services
from budgets.errors import Rejected
from budgets.models import (
    Approval,
    BillingPeriod,
    Correction,
    ExchangeRate,
    Proposal,
    Statement,
    UsageRecord,
)
from budgets.services import billing
from budgets.services.billing import approvals, closing, rates, statements
from tests.billing.conftest import AFTER, APRIL, Books, active_card, held, meter, price, store
from tests.budgets.test_concurrency import at_once
from tests.builders import hours, line, second_of_finance, small_fleet
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def books() -> Books:
    """As the one of the room, in committed rows."""
    fleet = small_fleet()
    with time_machine.travel(hours(0), tick=False):
        fleet.revise(fleet.vision, line("h100", 8, 24))
    active_card(fleet)
    store(held("a", 0, 10))
    meter()
    return Books(fleet, second_of_finance())


def slowed(
    monkeypatch: pytest.MonkeyPatch, module, name: str, *, begun: threading.Event | None = None
) -> None:
    """Widen the gap before a step, so that a missing lock is always seen; ``begun`` says when."""
    step = getattr(module, name)

    def slowly(*args, **kwargs):
        if begun is not None:
            begun.set()
        time.sleep(0.4)
        return step(*args, **kwargs)

    monkeypatch.setattr(module, name, slowly)


def test_a_month_is_closed_once(books: Books, monkeypatch):
    slowed(monkeypatch, closing, "write_chain")
    outcomes = at_once(books.close, books.close)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BillingPeriod", "Rejected"]
    assert BillingPeriod.objects.get().close_number == 1
    assert billing.verify_chain().broken is None


def test_numbers_are_given_once_each(books: Books, monkeypatch):
    books.close()
    billing.review_statements(books.fleet.finance, month="2026-03")
    slowed(monkeypatch, statements, "_numbers")

    def issue():
        return billing.issue_statements(books.fleet.finance, month="2026-03")

    outcomes = at_once(issue, issue)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Rejected", "list"]
    assert [row.number[-6:] for row in Statement.objects.all()] == ["000001"]


def test_no_price_slips_into_a_month_while_it_is_closed(books: Books, monkeypatch):
    card = billing.propose_rate_card(
        books.fleet.finance, name="x", currency="EUR", prices=[price(committed="9")]
    )
    slowed(monkeypatch, closing, "write_chain")
    waits = billing.propose_activation(books.fleet.finance, card=card, valid_from=hours(700))

    def activate():
        return billing.decide_proposal(books.second, proposal=waits, is_approved=True)

    slowed(monkeypatch, rates, "_lost_prices")
    closed, activated = at_once(books.close, activate)
    assert isinstance(closed, BillingPeriod)
    # Whoever comes first: the month has the price as a whole, or the price is refused.
    payable = Statement.objects.get(account=books.fleet.acme).payable
    if isinstance(activated, Rejected):
        assert {fault.code for fault in activated.faults} == {"closed_period"}
        assert payable == 8 * 744 * 2
    else:
        assert payable == 8 * (700 * 2 + 44 * 9)


def test_the_meter_waits_for_the_close_and_corrects_after_it(books: Books, monkeypatch):
    is_closing = threading.Event()
    slowed(monkeypatch, closing, "write_chain", begun=is_closing)

    def late_meter():
        # The month has been counted, and is not closed yet: only now come these hours.
        assert is_closing.wait(timeout=PATIENCE_S)
        store(held("late", 600, 604, namespace="globex-search"))
        services.record_progress(cluster="gpu-east", complete_until=AFTER)
        return services.meter_usage(AFTER)

    closed, _ = at_once(books.close, late_meter)
    assert isinstance(closed, BillingPeriod), closed
    assert Correction.objects.exists()
    assert billing.verify_chain().broken is None


def test_hours_that_were_told_before_the_close_are_metered_or_the_month_stays_open(books: Books):
    store(held("late", 600, 604, namespace="globex-search"))
    services.record_progress(cluster="gpu-east", complete_until=AFTER)
    with pytest.raises(Rejected) as refused:
        books.close()
    assert "complete" in {fault.code for fault in refused.value.faults}
    services.meter_usage(AFTER)
    assert UsageRecord.objects.filter(hour__lt=APRIL, burst__gt=0).count() == 4


@pytest.mark.parametrize("second_word", [True, False], ids=["approved twice", "taken back"])
def test_a_proposal_is_decided_once(books: Books, monkeypatch, second_word: bool):
    finance = books.fleet.finance
    waits = billing.record_exchange_rate(
        finance, base="EUR", quote="USD", day=AFTER.date(), rate="2"
    )
    assert isinstance(waits, Proposal)
    third = second_of_finance("third")
    slowed(monkeypatch, approvals, "_carry_out")

    def approve():
        return billing.decide_proposal(books.second, proposal=waits, is_approved=True)

    def other():
        if second_word:
            return billing.decide_proposal(third, proposal=waits, is_approved=True)
        return billing.decide_proposal(finance, proposal=waits, is_approved=False, reason="typo")

    outcomes = at_once(approve, other)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Proposal", "Rejected"]
    (done,) = (outcome for outcome in outcomes if isinstance(outcome, Proposal))
    assert ExchangeRate.objects.count() == (done.state == "approved")
    assert Approval.objects.filter(deed="exchange_rate.record").count() == (
        done.state == "approved"
    )
