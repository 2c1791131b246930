"""Number and head of a closed month leave the portal at its close: who keeps them misses it."""

from __future__ import annotations

import json

import pytest
from django.core import mail

from budgets import services
from budgets.models import BillingPeriod, Delivery, Seal
from budgets.selectors.alerts import finance_addresses
from budgets.services import alerts
from budgets.services.alerts.deliver import deliver_alerts
from tests.alerts.conftest import Listener, listener  # noqa: F401  a fixture
from tests.alerts.test_withheld import LOST, lose
from tests.billing.conftest import Books

pytestmark = pytest.mark.django_db


def test_number_and_head_of_a_closed_month_leave_the_house(
    books: Books,
    listener: Listener,  # noqa: F811
):
    fleet = books.fleet
    alerts.create_webhook(fleet.finance, name="all", url=listener.url)
    alerts.create_webhook(fleet.finance, name="acme", url=listener.url, account=fleet.acme)
    period = books.close()
    lose(books.second)
    assert deliver_alerts(services.utc_now()).sent == 2
    ((_, headers, body),) = listener.requests
    told = json.loads(body)
    seal = Seal.objects.get(period=period)
    assert (told["kind"], told["close_number"], told["head"]) == ("close", 1, period.head)
    assert told["seal"] == {"number": 1, "digest": seal.digest}
    assert headers["Portal-Delivery"] == "close-1"
    (letter,) = mail.outbox
    assert letter.to == [fleet.finance.email]
    assert f"--anchor 1:{period.head}" in letter.body
    assert "/billing/months/2026-03/" in letter.body
    assert Delivery.objects.get(address=books.second.email).problem == LOST


def test_without_finance_people_the_admins_are_told(books: Books):
    lose(books.second)
    period = books.close()
    lose(books.fleet.finance)
    assert deliver_alerts(services.utc_now()).failed == 1
    Delivery.objects.all().delete()
    assert BillingPeriod.objects.get(pk=period.pk).head
    assert finance_addresses() == [books.fleet.admin.email]
