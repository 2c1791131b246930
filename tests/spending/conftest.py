"""A fleet with a floor, a rate card and a job that runs: what spend rules look at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

import pytest
import time_machine

from budgets.models import RateCard, RatePrice, SpendRule, User
from budgets.services.spending import RuleDraft, create_spend_rule
from tests.builders import SmallFleet, an_approval, hours, line, small_fleet
from tests.factories import IntervalFactory


@pytest.fixture
def unpriced(db) -> Iterator[SmallFleet]:
    """acme-vision: 8 of 24 H100 committed."""
    made = small_fleet()
    with time_machine.travel(hours(-12), tick=False):
        made.revise(made.vision, line("h100", 8, 24))
    with time_machine.travel(hours(0), tick=False):
        yield made


@pytest.fixture
def fleet(unpriced: SmallFleet) -> SmallFleet:
    """2 EUR on the floor, 3 EUR beyond it."""
    card = RateCard.objects.create(
        name="2026", currency="EUR", state="proposed", valid_from=hours(-24)
    )
    RatePrice.objects.create(
        card=card,
        flavor=unpriced.flavors["h100"],
        committed=Decimal(2),
        burst=Decimal(3),
        lending_credit=Decimal(0),
    )
    RateCard.objects.filter(pk=card.pk).update(state="active", approval=an_approval())
    return unpriced


def running(fleet: SmallFleet, start: float, end: float | None = None, *, gpus: int = 16):
    """A job of acme-vision on its H100; 8 of its GPUs are the floor."""
    return IntervalFactory(
        workspace=fleet.vision,
        start=hours(start),
        end=None if end is None else hours(end),
        gpus=gpus,
        state="open" if end is None else "closed",
    )


def ruled(fleet: SmallFleet, amount: object, *, actor: User | None = None, **more) -> SpendRule:
    """A rule of acme-vision; GPU-hours beyond the floor a day, and hold, unless told otherwise."""
    terms = {"unit": "gpu_hours", "window": "day", "action": "hold", **more}
    return create_spend_rule(
        actor or fleet.owner,
        workspace=fleet.vision,
        draft=RuleDraft(amount=Decimal(str(amount)), **terms),
        reason="the grant says so",
    )


def at(instant: datetime | float) -> time_machine.travel:
    """Travel to an instant, or to so many hours after the first of March."""
    return time_machine.travel(
        instant if isinstance(instant, datetime) else hours(instant), tick=False
    )
