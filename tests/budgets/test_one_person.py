"""One person who runs everything alone: an installation with nobody else in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import time_machine
from django.test import Client

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry, Proposal, Role, User
from budgets.services import billing
from tests.builders import PASSWORD, START

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _now() -> Iterator[None]:
    with time_machine.travel(START, tick=True):
        yield


@pytest.fixture
def solo() -> User:
    return services.create_first_admin(username="solo", email="solo@example.org", password=PASSWORD)


def test_one_person_approves_their_own_until_it_is_switched_off(solo: User):
    with pytest.raises(Rejected, match="Say why"):
        services.start_one_person(solo, reason="")
    services.start_one_person(solo, reason="a lab of one")
    services.grant_role(solo, user=solo, role=Role.FINANCE)
    waits = billing.record_exchange_rate(solo, base="EUR", quote="USD", day=START.date(), rate="2")
    assert isinstance(waits, Proposal)
    done = billing.decide_proposal(solo, proposal=waits, is_approved=True)
    assert (done.approval.kind, done.approval.author, done.approval.approver) == (
        "one", solo, solo
    )  # fmt: skip
    client = Client()
    client.force_login(solo)
    assert "One person runs this installation alone" in client.get("/").content.decode()
    other = services.create_user(solo, username="new", email="n@example.org", password=PASSWORD)
    for role in (Role.FINANCE, Role.ADMIN):
        with pytest.raises(Rejected, match="Switch that off first"):
            services.grant_role(solo, user=other, role=role)

    services.end_one_person(solo, reason="we are two")
    services.grant_role(solo, user=other, role=Role.FINANCE)
    again = billing.record_exchange_rate(solo, base="EUR", quote="CHF", day=START.date(), rate="2")
    with pytest.raises(NotAllowed, match="Somebody other than the proposer"):
        billing.decide_proposal(solo, proposal=again, is_approved=True)
    with pytest.raises(Rejected) as final:
        services.start_one_person(solo, reason="again")
    assert {fault.code for fault in final.value.faults} == {"final", "others"}
    actions = AuditEntry.objects.filter(action__startswith="installation.")
    assert [row.action for row in actions.order_by("pk")] == [
        "installation.start_one_person", "installation.end_one_person"
    ]  # fmt: skip
