"""The page and the API of reconciliation: what they show, and who settles what."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from budgets.models import Discrepancy
from budgets.selectors.billing.reconciliation import reconciliation
from tests.billing.conftest import AFTER, Books
from tests.billing.test_pages import client_of, text
from tests.billing.test_reconciliation import check, sampled

pytestmark = pytest.mark.django_db
PAGE = "/billing/reconciliation/"


@pytest.fixture
def finance(books: Books):
    with time_machine.travel(AFTER, tick=True):
        yield client_of(books.fleet.finance)


def test_the_page_shows_the_identity_of_every_hour(books: Books, finance: Client):
    assert "No cluster has been measured yet" in text(finance, PAGE)
    sampled(0, 2, used=24)
    check(2)
    found = text(finance, f"{PAGE}?day=2026-03-01&cluster=gpu-east")

    for words in ("Free", "Down", "Unexplained", "used + lent + idle", "Capacity does not add up"):
        assert words in found
    assert "Race losers" not in found
    assert (
        "57,600 GPU-seconds" in found or 'title="57,600' in found
    )  # 16 GPUs that no workload explains
    # Twelve hours with use; the first two were measured, and do not add up.
    assert found.count('<span class="tag trouble">no</span>') == 2
    assert text(finance, f"{PAGE}?day=x", 404)


def test_hours_that_have_not_come_are_not_listed(books: Books):
    sampled(0, 2, used=24)
    with time_machine.travel(datetime(2026, 3, 1, 5, 30, tzinfo=UTC), tick=True):
        found = reconciliation(books.fleet.finance, cluster="gpu-east", day=date(2026, 3, 1))
        none = reconciliation(books.fleet.finance, cluster="gpu-east", day=date(2026, 3, 2))
    assert max(fact.hour for fact in found.facts) == datetime(2026, 3, 1, 5, tzinfo=UTC)
    assert none.facts == ()


def test_the_page_costs_as_many_queries_with_one_hour_as_with_many(books: Books, finance: Client):
    sampled(0, 1, used=24)
    check(1)
    address = f"{PAGE}?day=2026-03-01"
    text(finance, address)
    with CaptureQueriesContext(
        connection,
    ) as few:
        text(finance, address)
    sampled(1, 4, used=24)
    check(4)
    with CaptureQueriesContext(connection) as many:
        text(finance, address)
    assert len(many) == len(few) <= 25


def test_two_people_settle_it_by_the_page(books: Books, finance: Client):
    sampled(0, 1, used=24)
    check(1)
    row = Discrepancy.objects.get()
    address = f"{PAGE}{row.pk}/"
    assert finance.post(address, {"deed": "propose", "reason": ""}).status_code == 422
    assert finance.post(address, {"deed": "propose", "reason": "A test ran."}).status_code == 302
    assert "somebody else has to approve it" in text(finance, address)
    assert finance.post(address, {"deed": "accept"}).status_code == 403
    second = client_of(books.second)
    assert second.post(address, {"deed": "accept"}).status_code == 302
    assert "Accepted" in text(second, address)
    assert second.post(address, {"deed": "burn"}).status_code == 404


def test_who_sees_and_who_settles(books: Books, finance: Client):
    sampled(0, 1, used=24)
    check(1)
    address = f"{PAGE}{Discrepancy.objects.get().pk}/"
    owner, auditor = client_of(books.fleet.owner), client_of(books.fleet.auditor)
    assert owner.get(PAGE).status_code == 403
    assert owner.get(address).status_code == 404
    assert auditor.get(PAGE).status_code == 200
    assert auditor.get(address).status_code == 200
    assert auditor.post(address, {"deed": "propose", "reason": "x"}).status_code == 403


def test_the_check_list_leads_to_it(books: Books, finance: Client):
    sampled(0, 1, used=24)
    check(1)
    month = text(finance, "/billing/months/2026-03/?checks=1")
    assert PAGE in month
    assert "GPU-seconds of an hour are missing" in month
