"""A cap that fills is told where people begin: on first pages and the workspace's own."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from budgets import services
from budgets.models import Role, User
from budgets.selectors.attention import caps_that_tell
from budgets.services.alerts import raise_alerts
from budgets.services.spending import RuleDraft, create_spend_rule, settle_spending
from tests.builders import PASSWORD, SmallFleet
from tests.factories import IntervalFactory
from tests.spending.conftest import at, hours, ruled, running


def page(user: User, address: str = "/") -> str:
    client = Client()
    client.force_login(user)
    return client.get(address).content.decode()


@pytest.mark.parametrize("action", ["warn", "hold", "drop_to_floor"])
def test_a_cap_that_is_reached_is_told_on_every_first_page(fleet: SmallFleet, action: str):
    running(fleet, 0)
    ruled(fleet, 10, action=action)
    with at(1.675):  # 8 burst GPUs for 1.675 h: 13.4 GPU-hours
        settle_spending()
        told = "Vision has used 134 % of its cap of 10.00 GPU-hours of burst a day."
        for user in (fleet.owner, fleet.admin, fleet.finance):
            assert told in page(user), user
        assert told in page(fleet.owner, "/workspaces/acme-vision/")


def test_a_cap_that_fills_is_told_with_when_it_is_reached(fleet: SmallFleet):
    running(fleet, 0)
    ruled(fleet, 10)
    with at(0.5):
        settle_spending()
        raise_alerts()
        assert "of its cap" not in page(fleet.owner)
    with at(1.125):
        settle_spending()
        raise_alerts()
        text = page(fleet.owner)
    assert "Vision has used 90 % of its cap" in text
    assert "At the present rate it is reached <time" in text and "2026-03-01 01:15" in text


def test_caps_of_others_are_told_to_nobody(fleet: SmallFleet):
    running(fleet, 0)
    ruled(fleet, 10)
    stranger = services.create_user(
        None, username="stan", email="stan@example.org", password=PASSWORD
    )
    services.grant_role(None, user=stranger, role=Role.OWNER, workspace=fleet.search)
    with at(2):
        settle_spending()
        assert caps_that_tell(fleet.owner)
        assert not caps_that_tell(stranger)
        assert "of its cap" not in page(stranger)


def test_the_tour_leads_to_a_cap_that_acts_before_one_that_only_tells(
    fleet: SmallFleet, settings: Any
):
    settings.PORTAL_DEMO = True
    for workspace in (fleet.vision, fleet.speech):
        IntervalFactory(workspace=workspace, start=hours(0), end=None, gpus=16, state="open")
    ruled(fleet, 10, action="drop_to_floor")
    create_spend_rule(
        fleet.admin,
        workspace=fleet.speech,
        draft=RuleDraft(amount=Decimal(2), unit="gpu_hours", window="day", action="warn"),
        reason="the fuller one",
    )
    with at(1.675):
        settle_spending()
        fullest, other = caps_that_tell(fleet.admin)
        assert fullest.rule.budget.workspace == fleet.speech
        tour = page(fleet.finance, "/tour/")
    assert f"/workspaces/{other.rule.budget.workspace.namespace}/spend/" in tour
    assert f"/workspaces/{fleet.speech.namespace}/spend/" not in tour
