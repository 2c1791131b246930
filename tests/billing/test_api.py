"""The API of money: the same services, the same rights, amounts as texts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from rest_framework.test import APIClient

from budgets import services
from budgets.models import Statement
from tests.billing.conftest import AFTER, APRIL, Books
from tests.billing.test_reconciliation import check, sampled

pytestmark = pytest.mark.django_db
API = "/api/v1/"
H100 = {"flavor": "h100", "committed": "2.5", "burst": "3.75", "lending_credit": "0.5"}


@pytest.fixture
def call(books: Books):
    clients: dict[str, APIClient] = {}
    people = {
        "finance": books.fleet.finance,
        "second": books.second,
        "owner": books.fleet.owner,
        "auditor": books.fleet.auditor,
        "admin": books.fleet.admin,
    }

    def send(role: str, method: str, path: str, body: Any = None) -> Any:
        if role not in clients:
            clients[role] = APIClient()
            _, token = services.create_api_token(
                None,
                user=people[role],
                name="t",
                scope="write",
                expires_at=AFTER + timedelta(days=1),
            )
            clients[role].credentials(HTTP_AUTHORIZATION=f"Token {token}")
        return getattr(clients[role], method.lower())(API + path, body, format="json")

    with time_machine.travel(AFTER, tick=True):
        yield send


def test_a_month_is_billed_through_the_api(books: Books, call):
    assert call("finance", "GET", "months").json()[0]["name"] == "2026-04"
    month = call("finance", "GET", "months/2026-03").json()
    assert all(check["is_met"] for check in month["checks"])
    assert call("finance", "POST", "months/2026-03/draw-up", {}).json()["drawn"] == 3
    assert call("finance", "POST", "months/2026-03/review", {}).json() == {"count": 3}
    assert call("finance", "POST", "months/2026-03/issue", {}).status_code == 422
    closed = call("finance", "POST", "months/2026-03/close", {}).json()
    assert closed["close_number"] == 1
    assert call("finance", "POST", "months/2026-03/issue", {}).json() == {"count": 3}

    listed = call("finance", "GET", "statements?account=acme&month=2026-03").json()["results"]
    assert [row["number"] for row in listed] == ["ST-2026-000001"]
    paper = call("finance", "GET", f"statements/{listed[0]['id']}").json()
    assert (paper["total"], paper["is_whole"]) == ("23936.0000", True)
    burst = next(row for row in paper["lines"] if row["kind"] == "burst")
    assert (burst["exact"], burst["amount"], burst["gpu_seconds"]) == ("192", "192.0000", 230_400)
    mine = call("owner", "GET", f"statements/{listed[0]['id']}").json()
    assert (mine["total"], mine["is_whole"]) == ("12096.0000", False)
    reason = {"reason": "wrong"}
    note = call("finance", "POST", f"statements/{listed[0]['id']}/void", reason)
    assert (note.status_code, note.json()["state"]) == (202, "waiting")
    decide = f"proposals/{note.json()['id']}/decide"
    assert call("finance", "POST", decide, {"approve": True}).status_code == 403
    done = call("second", "POST", decide, {"approve": True}).json()
    assert done["outcome"] == "Credit note CN-2026-000001 voids ST-2026-000001."
    notes = call("finance", "GET", "statements?account=acme").json()["results"]
    told = call("finance", "GET", f"statements/{notes[0]['id']}").json()
    assert (told["total"], told["is_one_person"]) == ("-23936.0000", False)


def test_prices_are_proposed_and_activated(books: Books, call):
    body = {"name": "April", "currency": "EUR", "prices": [H100]}
    wrong = call("finance", "POST", "rate-cards", body | {"prices": [H100 | {"burst": "-1"}]})
    assert wrong.status_code == 422
    assert wrong.json()["faults"][0]["field"] == "prices.0.burst"
    card = call("finance", "POST", "rate-cards", body).json()
    assert card["prices"][0]["committed"] == "2.50000000"
    path = f"rate-cards/{card['id']}"
    assert call("owner", "GET", path).status_code == 404
    late = {"valid_from": (APRIL + timedelta(minutes=30)).isoformat()}
    assert call("finance", "POST", f"{path}/activate", late).json()["faults"][0]["code"] == (
        "not_a_whole_hour"
    )
    waits = call("finance", "POST", f"{path}/activate", {"valid_from": APRIL.isoformat()})
    assert waits.status_code == 202
    assert waits.json()["seen"]["Replaces"].endswith(" Prices")
    assert call("finance", "GET", path).json()["state"] == "proposed"
    decide = f"proposals/{waits.json()['id']}/decide"
    assert call("second", "POST", decide, {"approve": True}).json()["state"] == "approved"
    assert call("finance", "GET", path).json()["state"] == "active"
    assert call("owner", "GET", path).status_code == 200
    assert call("finance", "POST", f"{path}/withdraw", {"reason": "x"}).status_code == 422


def test_series_terms_rates_and_adjustments(books: Books, call):
    def agree(waits) -> None:
        assert (waits.status_code, waits.json()["count"]) == (202, 0)
        decide = f"proposals/{waits.json()['proposal']['id']}/decide"
        assert call("second", "POST", decide, {"approve": True}).json()["state"] == "approved"

    points = {"currency": "EUR", "prices": [{"start": APRIL.isoformat(), "price": "1.25"}]}
    spot = "flavors/h100-spot/spot-prices"
    agree(call("finance", "POST", spot, points))
    again = call("finance", "POST", spot, points)
    assert (again.status_code, again.json()) == (201, {"count": 0, "proposal": None})
    series = call("owner", "GET", "flavors/h100-spot/spot-prices").json()["results"]
    assert series[0]["price"] == "1.25000000"
    terms = {"zone": "Europe/Berlin", "currency": "USD"}
    assert call("finance", "PUT", "accounts/globex/billing-terms", terms).status_code == 200
    assert call("finance", "GET", "accounts/globex/billing-terms").json()["currency"] == "USD"
    rate = {"base": "EUR", "quote": "USD", "day": "2026-03-31", "rate": "1.1"}
    agree(call("finance", "POST", "exchange-rates", rate))
    near = rate | {"day": "2026-04-30", "rate": "1.12"}
    assert call("finance", "POST", "exchange-rates", near).json() == {"count": 1, "proposal": None}
    assert call("owner", "GET", "exchange-rates").json()["results"][-1]["rate"] == "1.10000000"

    body = {"account": "acme", "month": "2026-03", "amount": "-5.00", "reason": "outage"}
    made = call("finance", "POST", "adjustments", body).json()
    decide = f"adjustments/{made['id']}/decide"
    assert call("finance", "POST", decide, {"approve": True}).status_code == 403
    assert call("second", "POST", decide, {"approve": True}).json()["state"] == "approved"
    assert len(call("auditor", "GET", "adjustments").json()["results"]) == 1
    assert call("owner", "GET", "adjustments").json()["results"] == []


@pytest.mark.parametrize("role", ["owner", "auditor", "admin"])
def test_others_than_finance_write_nothing(books: Books, call, role: str):
    body = {"name": "x", "currency": "EUR", "prices": [H100]}
    sent = {
        "rate-cards": body,
        "exchange-rates": {"base": "EUR", "quote": "USD", "day": "2026-03-31", "rate": "1"},
        "months/2026-03/close": {},
        "months/2026-03/draw-up": {},
        "adjustments": {"account": "acme", "month": "2026-03", "amount": "1", "reason": "x"},
        "flavors/h100/spot-prices": {
            "currency": "EUR",
            "prices": [{"start": APRIL.isoformat(), "price": "1"}],
        },
    }
    got = {path: call(role, "POST", path, data).status_code for path, data in sent.items()}
    # A month as a whole is nothing that an owner sees.
    hidden = 404 if role == "owner" else 403
    assert got == {path: hidden if path.startswith("months") else 403 for path in sent}
    assert call(role, "PUT", "accounts/acme/billing-terms", {}).status_code == 403
    assert call(role, "GET", "months").status_code == (403 if role == "owner" else 200)
    assert not Statement.objects.exists()


def test_discrepancies_are_settled_through_the_api(books: Books, call):
    sampled(0, 1, used=24)
    check(1)
    day = call("finance", "GET", "reconciliation?day=2026-03-01").json()
    fact = day["facts"][0]
    assert (fact["free"], fact["unexplained"]) == (8 * 3600, 16 * 3600)
    assert call("finance", "GET", "reconciliation?day=soon").status_code == 422
    assert call("owner", "GET", "reconciliation").status_code == 403
    assert call("owner", "GET", "discrepancies").json()["results"] == []
    row = call("auditor", "GET", "discrepancies").json()["results"][0]
    path = f"discrepancies/{row['id']}"
    assert call("owner", "POST", f"{path}/propose", {"reason": "x"}).status_code == 404
    assert call("auditor", "POST", f"{path}/propose", {"reason": "x"}).status_code == 403
    assert call("finance", "POST", f"{path}/propose", {"reason": "x"}).status_code == 200
    assert call("finance", "POST", f"{path}/decide", {"approve": True}).status_code == 403
    assert call("second", "POST", f"{path}/decide", {"approve": True}).json()["state"] == "accepted"
