"""A month of use of the small fleet with a rate card, ready to be billed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
import time_machine
from django.db import transaction

from budgets import intervals as ledger
from budgets import services
from budgets.models import RateCard, User
from budgets.services import billing
from budgets.services.billing import PriceDraft
from tests.builders import SmallFleet, agreed, hours, line, second_of_finance, small_fleet

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
APRIL = datetime(2026, 4, 1, tzinfo=UTC)
AFTER = APRIL + timedelta(days=2)


def held(
    uid: str,
    start: float,
    end: float | None,
    *,
    gpus: int = 8,
    namespace: str = "acme-vision",
    flavor: str = "h100",
    role: ledger.IntervalKind = ledger.IntervalKind.BILLABLE,
    cluster: str = "gpu-east",
) -> ledger.Interval:
    """A stored interval, in hours after the first of March."""
    return ledger.Interval(
        cluster=cluster,
        uid=uid,
        epoch=1,
        pod_set="main",
        flavor=flavor,
        seq=1,
        gpus=gpus,
        admitted_at=hours(start),
        start=hours(start),
        end=None if end is None else hours(end),
        state=ledger.IntervalState.OPEN if end is None else ledger.IntervalState.CLOSED,
        role=role,
        namespace=namespace,
        workload=f"job-{uid}",
        cluster_queue=namespace,
    )


def store(*rows: ledger.Interval) -> None:
    services.store_intervals(rows, workloads={(row.cluster, row.uid) for row in rows})


def meter(until: datetime = AFTER) -> None:
    """Bring the facts up to date; in one step, which comes to the same as many."""
    for cluster in ("gpu-east", "gpu-west"):
        services.record_progress(cluster=cluster, complete_until=until)
    one_step = mock.patch("budgets.services.usage.meter.STEP", timedelta(days=100))
    with time_machine.travel(until, tick=False), one_step:
        services.meter_usage(until)


def price(flavor: str = "h100", committed="2.00", burst="3.00", credit="0.5", **more) -> PriceDraft:
    return PriceDraft(flavor, committed, burst, credit, **more)


def activated(finance: User, card: RateCard, start: datetime) -> RateCard:
    """The card once two people have let it hold."""
    agreed(billing.propose_activation(finance, card=card, valid_from=start))
    card.refresh_from_db()
    return card


def active_card(
    fleet: SmallFleet,
    *prices: PriceDraft,
    start: datetime = MARCH,
    currency: str = "EUR",
    account=None,
    **more,
) -> RateCard:
    card = billing.propose_rate_card(
        fleet.finance,
        name="Prices",
        currency=currency,
        prices=prices or (price(),),
        account=account,
        **more,
    )
    return activated(fleet.finance, card, start)


@dataclass
class Books:
    """The fleet, and a second person of finance."""

    fleet: SmallFleet
    second: User

    def close(self, month: str = "2026-03", zone: str = "UTC", now: datetime = AFTER):
        return billing.close_period(self.fleet.finance, month=month, zone=zone, now=now)

    def issued(self, month: str = "2026-03"):
        self.close(month)
        billing.review_statements(self.fleet.finance, month=month)
        return billing.issue_statements(self.fleet.finance, month=month)


def promise(fleet: SmallFleet) -> SmallFleet:
    """acme-vision 8 committed and 24 as ceiling, acme-speech 8 to lend, from the first hour."""
    with time_machine.travel(hours(0), tick=False):
        fleet.revise(fleet.vision, line("h100", 8, 24))
        fleet.revise(fleet.speech, line("h100", 8))
    return fleet


@pytest.fixture
def promised(fleet: SmallFleet) -> SmallFleet:
    return promise(fleet)


@pytest.fixture(scope="module")
def march(django_db_setup, django_db_blocker) -> Iterator[Books]:
    """The rows of a module, made once; every test of it works in a savepoint above them."""
    with django_db_blocker.unblock(), transaction.atomic():
        fleet = promise(small_fleet())
        second = second_of_finance()
        active_card(fleet)
        store(held("a", 0, 10), held("b", 2, 12), held("c", 700, 701, namespace="globex-search"))
        meter()
        yield Books(fleet, second)
        transaction.set_rollback(True)


@pytest.fixture
def books(march: Books, db) -> Books:
    """A March: vision runs 8 GPUs of floor and 8 borrowed from speech for ten hours."""
    return copy.deepcopy(march)
