"""Two people stand behind what moves money: every deed tried alone, by everybody and every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.apps import apps
from django.core import mail
from django.db import IntegrityError, ProgrammingError, connection, models, transaction
from django.test import Client
from rest_framework.test import APIClient

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.models import (
    Adjustment,
    Approval,
    AuditEntry,
    BillingPeriod,
    BudgetRevision,
    Discrepancy,
    ExchangeRate,
    Installation,
    Proposal,
    RateCard,
    Role,
    SpotPrice,
    Statement,
    User,
)
from budgets.selectors import approvals as read
from budgets.selectors import billing as reads
from budgets.services import billing
from budgets.services.alerts import deliver_alerts
from budgets.services.billing.approvals import DEEDS, OPEN_FOR
from budgets.services.guards import REQUIRED
from tests.billing.conftest import AFTER, APRIL, MARCH, Books, active_card, price
from tests.builders import PASSWORD, agreed
from tests.databases import as_owner

pytestmark = pytest.mark.django_db
API = "/api/v1/"
DAY = timedelta(days=1)

# What one of finance does alone, and why that moves no money.
ALONE = {
    "billing.adjustments.propose_adjustment": "waits for a second person",
    "billing.closing.close_period": "what stands in the facts and the prices of two people",
    "billing.discrepancies.propose_acceptance": "waits for a second person",
    "billing.closing.draw_up_statements": "drafts follow facts and prices",
    "billing.rates.propose_activation": "waits for a second person",
    "billing.rates.propose_rate_card": "holds for nobody",
    "billing.rates.withdraw_rate_card": "held for nobody",
    "billing.series.record_spot_prices": "near what two people agreed on, else it waits",
    "billing.statements.issue_statements": "gives a number to what was closed",
    "billing.statements.propose_void": "waits for a second person",
    "billing.statements.review_statements": "drafts as they are",
    "billing.statements.send_back_statement": "a draft again; refused once the month is closed",
    "billing.terms.record_exchange_rate": "near what two people agreed on, else it waits",
    "billing.terms.set_invoice_details": "words on a statement; no amount",
    "billing.terms.set_billing_terms": "in which month and currency; no amount",
    "budget.dating_back.propose_dating_back": "waits for a second person",
    "finance.propose_price_tolerance": "waits for a second person",
}
# What asks for two people.
TOGETHER = {
    "billing.adjustments.decide_adjustment",
    "billing.approvals.decide_proposal",
    "billing.discrepancies.decide_acceptance",
}


def test_everything_that_finance_writes_is_for_two_or_moves_no_money():
    found = {
        name.removeprefix("budgets.services.")
        for name, who in REQUIRED.items()
        if who == "require_finance"
    }
    assert found == set(ALONE) | TOGETHER


@pytest.fixture(autouse=True)
def _now() -> Iterator[None]:
    with time_machine.travel(AFTER, tick=True):
        yield


@dataclass
class Deed:
    """One that waits: where it is proposed and decided, by API and by page."""

    api: tuple[str, str, dict[str, Any]]
    page: tuple[str, dict[str, Any]]
    is_done: Callable[[], bool]


def _card(books: Books) -> Deed:
    card = billing.propose_rate_card(
        books.fleet.finance, name="Dearer", currency="EUR", prices=[price(burst="9.00")]
    )
    return Deed(
        ("POST", f"rate-cards/{card.pk}/activate", {"valid_from": APRIL.isoformat()}),
        (
            f"/billing/rates/{card.pk}/",
            {"deed": "activate", "valid_from": "2026-04-01T00:00"} | {"reason": "x"},
        ),
        lambda: RateCard.objects.get(pk=card.pk).state == "active",
    )


def _void(books: Books) -> Deed:
    books.issued()
    paper = Statement.objects.get(account=books.fleet.acme)
    return Deed(
        ("POST", f"statements/{paper.pk}/void", {"reason": "wrong"}),
        (f"/billing/statements/{paper.pk}/", {"deed": "void", "reason": "wrong"}),
        lambda: Statement.objects.get(pk=paper.pk).state == "void",
    )


def _rate(books: Books) -> Deed:
    body = {"base": "EUR", "quote": "USD", "day": "2026-03-31", "rate": "2"}
    return Deed(
        ("POST", "exchange-rates", body),
        ("/billing/terms/", {"section": "exchange", **body}),
        lambda: ExchangeRate.objects.exists(),
    )


def _spot(books: Books) -> Deed:
    start = "2026-04-09T00:00:00Z"
    return Deed(
        ("POST", "flavors/h100/spot-prices",
         {"currency": "EUR", "prices": [{"start": start, "price": "4"}]}),
        ("/billing/terms/", {"section": "series", "flavor": "h100", "prices": f"{start},4"}),
        lambda: SpotPrice.objects.exists(),
    )  # fmt: skip


def _tolerance(books: Books) -> Deed:
    body = {"percent": "90", "reason": "x"}
    return Deed(
        ("PUT", "installation/price-tolerance", body),
        ("/billing/terms/", {"section": "tolerance", **body}),
        lambda: read.installation().price_tolerance == 90,
    )


def _date_back(books: Books) -> Deed:
    budget = books.fleet.vision.budget
    budget.refresh_from_db()
    body = {
        "lines": [{"flavor": "h100", "committed": 16, "ceiling": 16}],
        "valid_from": "2026-03-20T00:00:00Z",
        "reason": "agreed on the phone",
    }
    # There is no page on which a budget is dated back: what stands there is the refusal.
    typed = {"version": budget.version, "shape": "short", "home_flavor": "h100", "committed": 16,
             "ceiling": 16, "valid_from": "2026-03-20T00:00", "reason": "x",
             "spill": "next-flavor-first"}  # fmt: skip
    return Deed(
        ("POST", "workspaces/acme-vision/budget/dating-back", body),
        ("/workspaces/acme-vision/budget/", typed),
        lambda: BudgetRevision.objects.filter(is_dated_back=True).exists(),
    )


PROPOSED = {
    "rate_card.activate": _card,
    "statement.void": _void,
    "exchange_rate.record": _rate,
    "spot_price.record": _spot,
    "installation.price_tolerance": _tolerance,
    "budget.date_back": _date_back,
}
ROLES = ("admin", "auditor", "owner", "account_owner", "viewer", "nobody", "anonymous")


@dataclass
class Doors:
    """Everybody at both doors."""

    books: Books
    users: dict[str, User | None]

    def api(self, role: str, method: str, path: str, body: dict[str, Any]) -> Any:
        client, user = APIClient(), self.users[role]
        if user is not None:
            _, text = services.create_api_token(
                None, user=user, name="t", scope="write", expires_at=services.utc_now() + DAY
            )
            client.credentials(HTTP_AUTHORIZATION=f"Token {text}")
        headers = {}
        if path.endswith("dating-back"):
            got = client.get(f"{API}workspaces/acme-vision/budget")
            headers["HTTP_IF_MATCH"] = got.headers.get("ETag", '"1"')
        return getattr(client, method.lower())(API + path, body, format="json", **headers)

    def page(self, role: str, path: str, typed: dict[str, Any]) -> Any:
        client, user = Client(), self.users[role]
        if user is not None:
            client.force_login(user)
        return client.post(path, typed)


@pytest.fixture
def doors(books: Books) -> Doors:
    def person(name: str, **place: Any) -> User:
        user = services.create_user(
            None, username=name, email=f"{name}@example.org", password=PASSWORD
        )
        if place:
            services.grant_role(None, user=user, **place)
        return user

    fleet = books.fleet
    users: dict[str, User | None] = {
        "finance": fleet.finance,
        "second": books.second,
        "admin": fleet.admin,
        "auditor": fleet.auditor,
        "owner": fleet.owner,
        "account_owner": person("axel", role=Role.OWNER, account=fleet.acme),
        "viewer": person("vera", role=Role.VIEWER, workspace=fleet.vision),
        "nobody": person("nora"),
        "anonymous": None,
    }
    return Doors(books, users)


def test_every_deed_of_the_register_is_tried_here():
    import clusters.services  # noqa: F401  # a deed is known once its module is

    by_an_admin = {"cluster.take_back"}  # tests/reconcile/test_taking_back.py
    assert set(PROPOSED) | by_an_admin == set(DEEDS)


@pytest.mark.parametrize("name", PROPOSED)
@pytest.mark.parametrize("door", ["api", "page"])
def test_nobody_does_it_alone(doors: Doors, name: str, door: str):
    deed = PROPOSED[name](doors.books)
    approvals = Approval.objects.count()

    def propose(role: str, by: str) -> Any:
        return doors.api(role, *deed.api) if by == "api" else doors.page(role, *deed.page)

    def decide(role: str) -> int:
        if door == "api":
            path = f"proposals/{waits.pk}/decide"
            return doors.api(role, "POST", path, {"approve": True}).status_code
        typed = {"decision": "approve"}
        return doors.page(role, f"/billing/approvals/{waits.pk}/", typed).status_code

    # 1. Nobody but finance proposes it, and nobody does it by proposing it.
    for role in ROLES:
        answer = propose(role, door)
        is_login = answer.status_code == 302 and "/login/" in answer.url
        assert is_login or answer.status_code in (401, 403, 404, 422), (role, answer.status_code)
    assert not Proposal.objects.filter(state="waiting").exists()
    is_on_page = door == "page" and name != "budget.date_back"
    answer = propose("finance", "page" if is_on_page else "api")
    assert answer.status_code == (302 if is_on_page else 202), answer.content
    waits = Proposal.objects.get(state="waiting")
    assert waits.deed == name
    assert not deed.is_done()
    # 2. Who proposed it does not approve it, nor does anybody who is not finance.
    allowed = (401, 404) if door == "api" else (302, 404)
    for role in ("finance", *ROLES):
        code = decide(role)
        assert code == 403 or (role not in ("finance", "admin", "auditor") and code in allowed), (
            role
        )
    assert not deed.is_done()
    assert Approval.objects.count() == approvals
    # 3. Another one of finance does, once.
    assert decide("second") in (200, 302)
    assert deed.is_done()
    approval = Approval.objects.first()
    assert (approval.author, approval.approver) == (doors.books.fleet.finance, doors.books.second)
    assert decide("second") == 422


@pytest.mark.parametrize("door", ["api", "page"])
@pytest.mark.parametrize("name", ["adjustment", "discrepancy"])
def test_rows_that_wait_by_themselves_are_for_two_as_well(doors: Doors, name: str, door: str):
    books = doors.books
    if name == "adjustment":
        row: Any = billing.propose_adjustment(
            books.fleet.finance, account=books.fleet.acme, month="2026-03", amount="-5", reason="x"
        )
        body, typed, done = {"approve": True}, {"decision": "approve"}, "approved"
        where = ("adjustments", "/billing/adjustments")
    else:
        row = Discrepancy.objects.create(
            kind="clock", cluster="gpu-east", start=MARCH, end=APRIL, message="off"
        )
        billing.propose_acceptance(books.fleet.finance, discrepancy=row, reason="x")
        body, typed, done = {"approve": True}, {"deed": "accept"}, "accepted"
        where = ("discrepancies", "/billing/reconciliation")

    def decide(role: str) -> int:
        if door == "api":
            return doors.api(role, "POST", f"{where[0]}/{row.pk}/decide", body).status_code
        return doors.page(role, f"{where[1]}/{row.pk}/", typed).status_code

    for role in ("finance", *ROLES):
        assert decide(role) in (401, 403, 404) or role == "anonymous", role
    row.refresh_from_db()
    assert (row.state, row.approval) == ("proposed", None)
    assert decide("second") in (200, 302)
    row.refresh_from_db()
    assert (row.state, row.approval.approver) == (done, books.second)


# --- the database


def _two(books: Books) -> Approval:
    return Approval.objects.filter(kind="two").first()


@pytest.mark.parametrize(
    ("author", "approver", "kind"),
    [
        pytest.param("fin", "fin", "two", id="one person as two"),
        pytest.param("fin", None, "two", id="nobody approves"),
        pytest.param(None, "fin", "two", id="nobody proposes"),
        pytest.param("fin", "fay", "one", id="two people as one"),
        pytest.param("fin", "fin", "one", id="one person, and two are asked for"),
        pytest.param("fin", "fin", "before", id="as if it were done before"),
    ],
)
def test_the_database_takes_no_approval_of_one_person(
    books: Books, author: str | None, approver: str | None, kind: str
):
    people = {row.username: row for row in User.objects.all()}
    with pytest.raises(IntegrityError), transaction.atomic():
        Approval.objects.create(
            deed="x", kind=kind, author=people.get(author), approver=people.get(approver)
        )


def _unapproved(books: Books) -> dict[type[models.Model], Callable[[], Any]]:
    """Each table that moves money: a row that is done and names no approval."""
    fleet = books.fleet
    books.issued()
    card = billing.propose_rate_card(fleet.finance, name="x", currency="EUR", prices=[price()])
    adjusted = billing.propose_adjustment(
        fleet.finance, account=fleet.acme, month="2026-04", amount="-5", reason="x"
    )
    found = Discrepancy.objects.create(
        kind="clock", cluster="gpu-east", start=MARCH, end=APRIL, message="off", reason="x"
    )
    waits = billing.record_exchange_rate(
        fleet.finance, base="EUR", quote="USD", day=date(2026, 3, 31), rate="2"
    )
    revision = fleet.vision.budget.revisions.first()
    Installation.objects.create(pk=1)
    decided = {"decided_by": fleet.finance, "decided_at": AFTER}
    priced = {"off_by": Decimal("10.01"), "tolerance": 10, "recorded_by": fleet.finance}
    spot = {"flavor": fleet.flavors["h100"], "start": APRIL, "price": 4, "currency": "EUR"}
    pair = {"base": "EUR", "quote": "USD", "day": AFTER.date(), "rate": 2}
    change = lambda row, **to: type(row)._default_manager.filter(pk=row.pk).update(**to)  # noqa: E731
    return {
        RateCard: lambda: change(card, state="active", valid_from=APRIL, **decided),
        Statement: lambda: change(Statement.objects.get(account=fleet.acme), state="void"),
        Adjustment: lambda: change(adjusted, state="approved", **decided),
        Discrepancy: lambda: change(found, state="accepted", **decided),
        ExchangeRate: lambda: ExchangeRate.objects.create(**pair, **priced),
        SpotPrice: lambda: SpotPrice.objects.create(**spot, **priced),
        BudgetRevision: lambda: change(revision, is_dated_back=True),
        Proposal: lambda: change(waits, state="approved", **decided),
        Installation: lambda: Installation.objects.update(price_tolerance=50),
    }


def test_no_row_that_moves_money_is_taken_without_an_approval(books: Books):
    tables = {
        table
        for table in apps.get_app_config("budgets").get_models()
        if any(field.name == "approval" for field in table._meta.concrete_fields)
    }
    wrong = _unapproved(books)
    assert set(wrong) == tables
    for done in wrong.values():
        with pytest.raises(IntegrityError, match=r"constraint|CHECK"), transaction.atomic():
            done()


def test_no_credit_note_is_taken_without_an_approval(books: Books):
    books.issued()
    paper = Statement.objects.get(account=books.fleet.acme)
    with pytest.raises(IntegrityError, match=r"constraint|CHECK"), transaction.atomic():
        Statement.objects.create(
            account=paper.account, period=paper.period, kind="credit_note", credits=paper,
            currency="EUR", priced_in="EUR", payable=-paper.payable,
        )  # fmt: skip


def test_a_price_that_cannot_be_compared_is_not_near(books: Books):
    with pytest.raises(IntegrityError), transaction.atomic():
        ExchangeRate.objects.create(
            base="EUR", quote="USD", day=AFTER.date(), rate=2, off_by=None, tolerance=10
        )


FIXED = {
    "deed": "'another'",
    "subject": "'another'",
    "parameters": "'{}'",
    "seen": "'{}'",
    "reason": "'another'",
    "proposed_by_id": "(SELECT max(id) FROM budgets_user)",
    "proposed_at": "'2027-01-01'",
    "expires_at": "'2027-01-01'",
}


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE budgets_approval SET kind = 'two'", id="approval"),
        pytest.param("DELETE FROM budgets_approval", id="no approval"),
        pytest.param(
            "UPDATE budgets_proposal SET state = 'waiting' WHERE state = 'approved'", id="decided"
        ),
        *(
            pytest.param(
                f"UPDATE budgets_proposal SET {column} = {value} WHERE state = 'waiting'",
                id=column,
            )
            for column, value in FIXED.items()
        ),
        pytest.param("DELETE FROM budgets_proposal", id="no proposal"),
    ],
)
def test_what_was_proposed_and_approved_never_changes(books: Books, statement: str):
    billing.record_exchange_rate(
        books.fleet.finance, base="EUR", quote="USD", day=date(2026, 3, 31), rate="2"
    )
    with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
        connection.cursor().execute(statement)


def test_nobody_opens_a_month_again(books: Books):
    books.close()
    with pytest.raises(IntegrityError), transaction.atomic():
        BillingPeriod.objects.filter(name="2026-03").update(
            closed_at=None, close_number=None, head=""
        )


# --- what a proposal keeps


def test_what_moved_since_is_not_approved(books: Books):
    finance = books.fleet.finance
    card = billing.propose_rate_card(
        finance, name="Dearer", currency="EUR", prices=[price(burst="9.00")]
    )
    waits = billing.propose_activation(finance, card=card, valid_from=APRIL)
    assert waits.seen["2026-03 at this card's prices"] == "24392.00 EUR"
    before = reads.card_in_force(None, APRIL)
    other = active_card(books.fleet, price(burst="4.00"), start=MARCH + 9 * DAY)

    with pytest.raises(Rejected) as moved:
        billing.decide_proposal(books.second, proposal=waits, is_approved=True)
    told = " ".join(fault.message for fault in moved.value.faults)
    assert {fault.code for fault in moved.value.faults} == {"moved"}
    assert f"Replaces was “{before}” when it was proposed" in told
    assert f"is “{other}” now" in told
    card.refresh_from_db()
    assert card.state == "proposed"


def test_a_proposal_is_taken_back_declined_or_expires(books: Books):
    finance = books.fleet.finance

    def waits() -> Proposal:
        made = billing.record_exchange_rate(
            finance, base="EUR", quote="USD", day=date(2026, 3, 31), rate="2"
        )
        assert isinstance(made, Proposal)
        return made

    first = waits()
    with pytest.raises(Rejected, match="waits; decide that one first"):
        waits()
    with pytest.raises(Rejected, match="Say why"):
        billing.decide_proposal(finance, proposal=first, is_approved=False)
    taken = billing.decide_proposal(finance, proposal=first, is_approved=False, reason="typo")
    assert taken.state == "withdrawn"
    second = waits()
    declined = billing.decide_proposal(
        books.second, proposal=second, is_approved=False, reason="no"
    )
    assert declined.state == "declined"
    third = waits()
    with (
        time_machine.travel(AFTER + OPEN_FOR + timedelta(minutes=1), tick=True),
        pytest.raises(Rejected, match="already expired"),
    ):
        billing.decide_proposal(books.second, proposal=third, is_approved=True)
    assert not ExchangeRate.objects.exists()
    actions = AuditEntry.objects.filter(
        action__startswith="proposal.",
        subject__in=[f"proposal:{row.pk}" for row in (first, second, third)],
    )
    assert [row.action for row in actions.order_by("pk")] == [
        "proposal.propose", "proposal.withdraw", "proposal.propose", "proposal.decline",
        "proposal.propose",
    ]  # fmt: skip


# --- the tolerance


TODAY = AFTER.date()


def record(books: Books, rate: str, day: date = TODAY) -> Any:
    return billing.record_exchange_rate(
        books.fleet.finance, base="EUR", quote="USD", day=day, rate=rate
    )


def test_one_person_records_what_is_near_and_never_walks_away_from_it(books: Books):
    agreed(record(books, "1.00"))
    steps = [record(books, rate) for rate in ("1.05", "1.10", "1.11")]
    assert [type(row).__name__ for row in steps] == ["ExchangeRate", "ExchangeRate", "Proposal"]
    assert (steps[1].off_by, steps[1].tolerance, steps[1].approval) == (10, 10, None)
    assert steps[2].seen["Off that by"] == "11 %"


def test_what_was_told_of_a_past_day_is_changed_by_two(books: Books):
    yesterday = date(2026, 4, 1)
    agreed(record(books, "1.00", yesterday))
    assert isinstance(record(books, "1.01", yesterday), Proposal)
    assert isinstance(record(books, "1.01", date(2026, 3, 30)), ExchangeRate)


@pytest.mark.parametrize(
    ("start", "amount", "want"),
    [
        pytest.param(6 * DAY, "3.30", 1, id="a tenth off the card's burst price"),
        pytest.param(6 * DAY, "3.31", Proposal, id="further off"),
        pytest.param(6 * DAY, "0", Proposal, id="for nothing"),
        pytest.param(timedelta(0), "3.30", 1, id="the hour that runs"),
        pytest.param(timedelta(hours=-1), "3.00", Proposal, id="an hour that is over"),
    ],
)
def test_spot_prices_are_held_beside_what_two_people_agreed_on(
    books: Books, start: timedelta, amount: str, want: Any
):
    made = billing.record_spot_prices(
        books.fleet.finance,
        flavor=books.fleet.flavors["h100"],
        prices=[(AFTER + start, amount)],
        currency="EUR",
    )
    assert made == want or isinstance(made, want)


def test_a_point_that_two_agreed_on_is_what_later_ones_are_held_beside(books: Books):
    finance, flavor = books.fleet.finance, books.fleet.flavors["h100"]

    def point(days: int, amount: str) -> Any:
        return billing.record_spot_prices(
            finance, flavor=flavor, prices=[(AFTER + days * DAY, amount)], currency="EUR"
        )

    agreed(point(2, "6.00"))
    assert point(3, "6.60") == 1
    assert point(4, "6.70").seen["Largest difference from the agreed prices"] == "11.6667 %"
    assert isinstance(point(1, "6.00"), Proposal)


# --- people


def test_an_admin_is_not_finance_and_does_not_make_themselves_so(books: Books):
    admin = books.fleet.admin
    with pytest.raises(NotAllowed, match="Only the finance role"):
        billing.draw_up_statements(admin, month="2026-03")
    with pytest.raises(NotAllowed, match="Nobody can give themselves the finance role"):
        services.grant_role(admin, user=admin, role=Role.FINANCE)
    assert not admin.memberships.filter(role=Role.FINANCE).exists()


@pytest.mark.parametrize("how", ["given", "password"])
def test_who_came_to_finance_by_somebody_else_approves_nothing_for_a_day(books: Books, how: str):
    fleet = books.fleet
    if how == "given":
        new = services.create_user(
            fleet.admin, username="mole", email="mole@example.org", password=PASSWORD
        )
        services.grant_role(fleet.admin, user=new, role=Role.FINANCE)
        words = "ada gave the finance role to mole"
    else:
        new = books.second
        services.set_password(fleet.admin, user=new, password="another long password")
        words = "ada set the password of fay"
    waits = record(books, "2")
    row = billing.propose_adjustment(
        fleet.finance, account=fleet.acme, month="2026-03", amount="-5", reason="x"
    )
    found = Discrepancy.objects.create(
        kind="clock", cluster="gpu-east", start=MARCH, end=APRIL, message="off"
    )
    billing.propose_acceptance(fleet.finance, discrepancy=found, reason="x")
    with pytest.raises(NotAllowed, match="You cannot approve anything until 2026-04-04T00:00"):
        billing.decide_proposal(new, proposal=waits, is_approved=True)
    with pytest.raises(NotAllowed, match="cannot approve anything"):
        billing.decide_adjustment(new, adjustment=row, is_approved=True)
    with pytest.raises(NotAllowed, match="cannot approve anything"):
        billing.decide_acceptance(new, discrepancy=found, is_approved=True)
    client = Client()
    client.force_login(User.objects.get(pk=new.pk))
    page = client.get(f"/billing/approvals/{waits.pk}/").content.decode()
    assert "You cannot approve anything until" in page
    assert "Approve it" not in page

    told = Client()
    told.force_login(fleet.finance)
    assert words in told.get("/").content.decode()
    assert words in told.get("/billing/approvals/").content.decode()
    deliver_alerts()
    letters = [letter for letter in mail.outbox if words in letter.body]
    assert {address for letter in letters for address in letter.to} >= {
        "fin@example.org", "fay@example.org", new.email
    }  # fmt: skip
    entry = AuditEntry.objects.get(action="finance.told")
    assert entry.after["text"].startswith(words)
    with time_machine.travel(AFTER + timedelta(hours=24, minutes=1), tick=True):
        assert billing.decide_proposal(new, proposal=waits, is_approved=True).state == "approved"


def test_who_of_finance_is_let_in_again_approves_nothing_for_a_day(books: Books):
    fleet, back = books.fleet, books.second
    services.deactivate_user(fleet.admin, user=back, reason="long leave")
    waits = record(books, "2")
    services.reactivate_user(fleet.admin, user=back, reason="is back")
    with pytest.raises(NotAllowed, match="You cannot approve anything until 2026-04-04T00:00"):
        billing.decide_proposal(back, proposal=waits, is_approved=True)
    words = "ada reactivated fay, who has the finance role. fay cannot approve anything until"
    assert read.told_to_finance(fleet.auditor)[0].after["text"].startswith(words)
    deliver_alerts()
    letters = [letter for letter in mail.outbox if words in letter.body]
    assert "fin@example.org" in {address for letter in letters for address in letter.to}
    with time_machine.travel(AFTER + timedelta(hours=24, minutes=1), tick=True):
        assert billing.decide_proposal(back, proposal=waits, is_approved=True).state == "approved"


def test_who_is_not_of_finance_is_let_in_again_at_once(books: Books):
    for deed in (services.deactivate_user, services.reactivate_user):
        deed(books.fleet.admin, user=books.fleet.owner, reason="x")
    books.fleet.owner.refresh_from_db()
    assert books.fleet.owner.approves_from is None


def test_ones_own_password_holds_nobody(books: Books):
    services.set_password(books.second, user=books.second, password="another long password")
    books.second.refresh_from_db()
    assert books.second.approves_from is None


def test_who_leaves_finance_is_told_as_well(books: Books):
    membership = books.second.memberships.get(role=Role.FINANCE)
    services.revoke_role(books.fleet.admin, membership=membership)
    services.deactivate_user(books.fleet.admin, user=books.fleet.finance, reason="left")
    told = [row.after["text"] for row in read.told_to_finance(books.fleet.auditor)]
    assert told == [
        "ada deactivated fin, who has the finance role.",
        "ada took the finance role away from fay.",
    ]


# --- one person


def test_one_person_is_nobody_who_has_had_others_beside_them(books: Books):
    admin = books.fleet.admin
    for row in User.objects.exclude(pk=admin.pk):
        row.memberships.all().delete()
    with pytest.raises(Rejected, match="Somebody else is or was an admin"):
        services.start_one_person(admin, reason="alone by now")
    for actor in (books.fleet.finance, books.fleet.owner):
        with pytest.raises(NotAllowed):
            services.start_one_person(actor, reason="x")


@pytest.mark.parametrize(
    "change",
    [
        {"one_person_until": None},
        {"one_person_since": MARCH + DAY},
        {"one_person_since": None, "one_person_until": None},
    ],
)
def test_the_database_keeps_it_switched_off(db, change: dict[str, Any]):
    Installation.objects.create(pk=1, one_person_since=MARCH, one_person_until=APRIL)
    with pytest.raises(IntegrityError), transaction.atomic():
        Installation.objects.update(**change)
    with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
        Installation.objects.all().delete()
    with pytest.raises(IntegrityError), transaction.atomic():
        Installation.objects.create(pk=2)


AGAIN = {
    "a deed of one person": """INSERT INTO budgets_approval (deed, kind, author_id, approver_id, at)
        SELECT 'x', 'one', id, id, '2026-04-02' FROM budgets_user WHERE username = 'fin'""",
    "one person as two": """INSERT INTO budgets_approval (deed, kind, author_id, approver_id, at)
        SELECT 'x', 'two', id, id, '2026-04-02' FROM budgets_user WHERE username = 'fin'""",
    "a deed of before": """INSERT INTO budgets_approval (deed, kind, author_id, approver_id, at)
        SELECT 'x', 'before', id, id, '2026-04-02' FROM budgets_user WHERE username = 'fin'""",
    "on again": "UPDATE budgets_installation SET one_person_until = NULL",
    "later again": """UPDATE budgets_installation
        SET one_person_since = '2026-04-02', one_person_until = NULL""",
    "gone": "DELETE FROM budgets_installation",
    "a second row": """INSERT INTO budgets_installation (id, price_tolerance, one_person_since)
        VALUES (2, 10, '2026-04-02')""",
}


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("who", [nullcontext, as_owner], ids=["the portal", "its owner"])
def test_no_sql_brings_one_person_back(
    books: Books, who: Callable[[], AbstractContextManager[None]], how: str
):
    """Whoever writes past the portal: the portal's role, and the owner of the tables."""
    Installation.objects.create(pk=1, one_person_since=MARCH, one_person_until=APRIL)
    approvals = Approval.objects.count()
    with who(), pytest.raises((IntegrityError, ProgrammingError)), transaction.atomic():
        connection.cursor().execute(AGAIN[how])
    assert Approval.objects.count() == approvals
    assert not read.installation().is_one_person


@pytest.mark.parametrize(
    ("since", "until", "want"),
    [
        pytest.param(MARCH, None, True, id="now"),
        pytest.param(MARCH, MARCH + DAY, True, id="for a day of the month"),
        pytest.param(MARCH - 9 * DAY, MARCH - DAY, False, id="before the month"),
        pytest.param(AFTER + DAY, None, False, id="after the statement was issued"),
        pytest.param(None, None, False, id="never"),
    ],
)
def test_a_statement_says_whether_one_person_was_alone(
    books: Books, since: Any, until: Any, want: bool
):
    books.issued()
    Installation.objects.create(pk=1, one_person_since=since, one_person_until=until)
    paper = Statement.objects.get(account=books.fleet.acme)
    sheet = reads.statement_sheet(books.fleet.owner, paper)
    assert sheet.is_one_person is want
    client = Client()
    client.force_login(books.fleet.finance)
    page = client.get(f"/billing/statements/{paper.pk}/").content.decode()
    assert ("One person ran this installation alone" in page) is want
    api = client.get(f"{API}statements/{paper.pk}").json()
    assert api["is_one_person"] is want
    assert client.get(f"/billing/statements/{paper.pk}/pdf/").status_code == 200
