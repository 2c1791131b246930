"""Who lost a right between the outbox and the wire is sent nothing, and the delivery says why."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core import mail
from django.db.models import Q

from budgets import services
from budgets.models import Delivery, Export, Membership, Role
from budgets.services import alerts
from budgets.services.alerts.deliver import deliver_alerts
from budgets.services.alerts.webhooks import put_into_outbox
from budgets.services.operations import finish_operation, start_operation
from tests.alerts.conftest import Listener, metered_until, used
from tests.builders import PASSWORD, SmallFleet, hours

pytestmark = pytest.mark.django_db
NOW = hours(48)
LOST = "not sent: this address no longer belongs to anybody who may be told"


@pytest.fixture
def raised(fleet: SmallFleet) -> SmallFleet:
    """An alert of acme-vision for its owner and for its maker, who is of finance."""
    used(fleet, 1, committed=8, used=8)
    metered_until(48)
    alerts.create_rule(fleet.finance, measure="hours", limit=Decimal(1), workspace=fleet.vision)
    alerts.raise_alerts(NOW)
    assert Delivery.objects.count() == 2
    return fleet


def lose(user) -> None:
    for row in Membership.objects.filter(user=user):
        services.revoke_role(None, membership=row)


@pytest.mark.parametrize("who", ["owner", "finance"])
def test_who_lost_the_role_gets_no_mail(raised: SmallFleet, who: str):
    loser = getattr(raised, who)
    lose(loser)
    done = deliver_alerts(NOW)
    assert (done.sent, done.failed) == (1, 1)
    assert loser.email not in {letter.to[0] for letter in mail.outbox}
    row = Delivery.objects.get(address=loser.email)
    assert (row.state, row.problem) == ("given_up", LOST)
    assert deliver_alerts(NOW + timedelta(days=9)).failed == 0, "nor later"


def test_who_was_deactivated_gets_no_mail(raised: SmallFleet):
    services.deactivate_user(None, user=raised.owner, reason="left")
    deliver_alerts(NOW)
    assert Delivery.objects.get(address=raised.owner.email).problem == LOST


def test_a_webhook_of_who_is_not_finance_any_more_is_told_nothing(
    fleet: SmallFleet, listener: Listener
):
    second = services.create_user(None, username="fay", email="fay@example.org", password=PASSWORD)
    services.grant_role(None, user=second, role=Role.FINANCE)
    hook, _ = alerts.create_webhook(second, name="Fay's", url=listener.url)
    used(fleet, 1, committed=8, used=8)
    metered_until(48)
    alerts.create_rule(None, measure="hours", limit=Decimal(1), workspace=fleet.vision)
    alerts.raise_alerts(NOW)
    lose(second)
    deliver_alerts(NOW)
    row = Delivery.objects.get(webhook=hook)
    assert row.problem == (
        "not sent: fay answers for the webhook and no longer has the finance role; rotate its key "
        "to take over"
    )
    assert listener.requests == []
    alerts.rotate_webhook(fleet.finance, webhook=hook)
    alerts.retry_delivery(fleet.finance, delivery=row)
    assert deliver_alerts(services.utc_now()).sent == 1
    assert len(listener.requests) == 1


@pytest.fixture
def file(fleet: SmallFleet) -> Export:
    """A finished file with rows of acme-vision, asked for by its owner."""
    operation = start_operation(fleet.owner, kind="export", subject="usage")
    made = Export.objects.create(
        operation=operation,
        requested_by=fleet.owner,
        dataset="usage",
        format="csv",
        period="2026-03",
        account="acme",
        scope=[fleet.vision.pk],
        finished_at=NOW,
    )
    finish_operation(operation.pk, message="1 row.")
    return made


@pytest.mark.parametrize("is_lost", [False, True], ids=["sees it", "does not see it any more"])
def test_the_word_of_a_file_goes_to_who_sees_what_is_in_it(
    fleet: SmallFleet, file: Export, listener: Listener, is_lost: bool
):
    alerts.create_webhook(fleet.finance, name="acme", url=listener.url, account=fleet.acme)
    put_into_outbox(Q(account=fleet.acme), [fleet.owner.email], export=file, next_at=NOW)
    if is_lost:
        lose(fleet.owner)
    done = deliver_alerts(NOW)
    assert (done.sent, done.failed) == ((0, 2) if is_lost else (2, 0))
    assert len(listener.requests) == len(mail.outbox) == (0 if is_lost else 1)
    if is_lost:
        problems = set(Delivery.objects.values_list("problem", flat=True))
        assert problems == {
            "not sent: the person who asked for the file can no longer see everything in it"
        }
