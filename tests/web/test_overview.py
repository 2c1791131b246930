"""An admin's overview, and what needs a reader on every first page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from budgets import selectors, services
from budgets.models import Delivery, Discrepancy
from budgets.plan import Part
from budgets.selectors.attention import failed_deliveries
from budgets.selectors.clock import utc_now
from clusters.models import Cluster, ClusterHealth, Drift, GuardIncident, ShiftRun
from tests.builders import line
from tests.factories import IntervalFactory
from tests.web.conftest import HTMX, Visitors

pytestmark = pytest.mark.usefixtures("at_one_moment")


@pytest.fixture
def east(visitors: Visitors) -> Cluster:
    cluster = Cluster.objects.create(
        slug="gpu-east",
        name="GPU east",
        role="worker",
        mode="kueue",
        server="https://gpu-east.invalid",
        context="east",
        user_kind="token",
        kubeconfig_sealed=b"x",
    )
    now = timezone.now()
    ClusterHealth.objects.create(
        cluster=cluster, reachable=True, last_contact_at=now, checked_at=now
    )
    return cluster


def shift(cluster: Cluster, *, age: timedelta = timedelta(), **more) -> ShiftRun:
    now = timezone.now() - age
    return ShiftRun.objects.create(
        cluster=cluster, role="quota", holder="w1", started_at=now, heartbeat_at=now, **more
    )


def glance(text: str, words: str) -> str:
    """The figure that stands over some words."""
    return text[: text.index(f"<span>{words}</span>")].rpartition("</a>")[0].rpartition(">")[2]


def test_only_an_admin_begins_with_the_overview(visitors: Visitors):
    assert "<h1>Overview</h1>" in visitors.text("admin", "/")
    for role in ("finance", "auditor", "owner", "viewer", "nobody"):
        text = visitors.text(role, "/")
        assert "<h1>Workspaces</h1>" in text and "Overview" not in text, role
    assert "<h1>Workspaces</h1>" in visitors.text("admin", "/workspaces/")


def test_a_quiet_morning_needs_nobody(visitors: Visitors, east: Cluster):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    shift(east)
    text = visitors.text("admin", "/")
    assert "Nothing needs you." in text and "Every promise can be kept" in text
    assert glance(text, "clusters answer") == "1 of 1"
    assert glance(text, "shifts at work") == "1 of 1"
    assert 'id="needs"' not in text


def test_what_is_wrong_in_the_morning_is_told_with_its_place(visitors: Visitors, east: Cluster):
    fleet, now = visitors.fleet, timezone.now()
    fleet.revise(fleet.vision, line("h100", 16))
    fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    shift(east, parked=3, parked_says="Workload acme-vision/x cannot be read.")
    Drift.objects.create(cluster=east, kind="ClusterQueue", name="q", field="f", noticed_at=now)
    GuardIncident.objects.create(
        cluster=east, defect="stuck-quota", workload_uid="u", namespace="n", name="w",
        state="open", noticed_at=now,
    )  # fmt: skip
    Discrepancy.objects.create(
        kind="capacity", cluster="gpu-east", flavor="h100", start=now, message="8 of 4"
    )
    text = visitors.text("admin", "/")
    for fact in (
        "1 request waits for your decision.",
        "GPU east has 3 objects set aside.",
        "Workload acme-vision/x cannot be read.",
        "GPU east differs from what the portal wants in 1 field.",
        "GPU east shows 1 incident of Kueue&#x27;s known defects.",
        "GPU east: capacity does not add up since",
    ):
        assert fact in text, fact
    assert glance(text, "objects set aside") == "3"
    assert glance(text, "field changed by others today") == "1"
    assert glance(text, "request to decide") == "1"
    assert glance(text, "open incident") == "1"
    assert text.index("set aside.</strong>") < text.index("1 request waits")
    assert 'href="/clusters/gpu-east/"' in text and 'href="/requests/"' in text
    assert "5 things need you" in text


def test_a_lost_cluster_and_a_role_that_nobody_works_on_are_trouble(
    visitors: Visitors, east: Cluster
):
    ended = timezone.now() - timedelta(minutes=5)
    shift(east, age=timedelta(minutes=5), ended_at=ended, outcome="failed: no memory")
    text = visitors.text("admin", "/")
    assert "GPU east has no shift at work for: quota." in text and "no memory" in text
    assert glance(text, "shifts at work") == "0 of 1"

    ClusterHealth.objects.update(reachable=False, message="connection refused")
    text = visitors.text("admin", "/")
    assert "GPU east does not answer." in text and "connection refused" in text
    assert glance(text, "clusters answer") == "0 of 1"
    assert "Every cluster answers" not in text


@pytest.mark.parametrize(("days", "is_told"), [(13, True), (-1, True), (15, False)])
def test_a_credential_that_ends_soon_is_told(
    visitors: Visitors, east: Cluster, days: int, is_told: bool
):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    shift(east)
    ends = timezone.now() + timedelta(days=days)
    Cluster.objects.update(certificate_expires_at=ends)
    text = visitors.text("admin", "/")
    assert ("GPU east needs a new kubeconfig." in text) is is_told
    assert (f"{ends:%Y-%m-%d}" in text) is is_told


def test_a_shift_that_has_just_ended_is_no_trouble(visitors: Visitors, east: Cluster):
    shift(east, age=timedelta(seconds=20), ended_at=timezone.now(), outcome="done")
    assert "nobody at work" not in visitors.text("admin", "/")


def over_used(visitors: Visitors) -> datetime:
    """40 of the 32 H100 of gpu-east in use; since when."""
    begun = utc_now() - timedelta(hours=2)
    since = begun + timedelta(hours=1)
    for number, (start, gpus) in enumerate(((begun, 24), (since, 16))):
        IntervalFactory(
            workspace=visitors.fleet.vision, cluster="gpu-east", flavor="h100", gpus=gpus,
            start=start, end=None, state="open", uid=f"u{number}",
        )  # fmt: skip
    return since


@pytest.mark.parametrize("address", ["/", "/fleet/"])
def test_use_above_capacity_contradicts_every_promise_can_be_kept(
    visitors: Visitors, east: Cluster, address: str
):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    assert "Every promise can be kept" in visitors.text("admin", address)

    since = over_used(visitors)
    text = visitors.text("admin", address)
    assert "Every promise can be kept" not in text
    assert "GPU east shows 40 H100 in use of 32." in text
    assert f"{since:%Y-%m-%d %H:%M}</time> at the latest" in text


@pytest.mark.parametrize("address", ["/", "/fleet/"])
@pytest.mark.parametrize(
    "health",
    [
        pytest.param({"reachable": False}, id="it does not answer"),
        pytest.param({"checked_at": timezone.now() - timedelta(hours=1)}, id="nobody asks it"),
    ],
)
def test_no_headline_promises_what_stands_on_a_lost_cluster(
    visitors: Visitors, east: Cluster, health: dict[str, Any], address: str
):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    assert "Every promise can be kept" in visitors.text("finance", "/fleet/")

    ClusterHealth.objects.update(**health)
    text = visitors.text("admin", address)
    assert "Every promise can be kept" not in text
    assert "not answer" in text[: text.index("</p>", text.index('class="headline"'))]


def test_use_above_capacity_is_told_since_when_it_holds(visitors: Visitors):
    since = over_used(visitors)
    (place,) = selectors.fleet_grid(visitors.fleet.admin).over_use
    assert (place.cluster, place.flavor.slug, place.in_use, place.capacity) == (
        "gpu-east", "h100", 40, 32,
    )  # fmt: skip
    assert place.since == since


def test_messages_that_were_given_up_are_told_to_platform_roles(visitors: Visitors):
    Delivery.objects.create(
        entry=services.audit(None, action="test.x", subject="x:1"),
        channel="mail", address="x@example.org", state="given_up", next_at=utc_now(),
    )  # fmt: skip
    for role in ("admin", "finance", "auditor"):
        assert "1 message could not be delivered." in visitors.text(role, "/"), role
    assert "could not be delivered" not in visitors.text("owner", "/")
    assert failed_deliveries(visitors.fleet.owner) == 0
    assert glance(visitors.text("admin", "/"), "message not delivered") == "1"


def test_owners_are_told_of_answers_and_holds(visitors: Visitors):
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 16))
    asked = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    assert "1 request waits for an admin." in visitors.text("owner", "/")
    fleet.vision.budget.refresh_from_db()
    services.decide_request(
        fleet.admin,
        revision=asked,
        accept=False,
        reason="not this month",
        expected_version=fleet.vision.budget.version,
    )
    text = visitors.text("owner", "/")
    assert "Your request for Vision was declined." in text and "not this month" in text
    assert "was declined" not in visitors.text("viewer", "/")
    again = fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    fleet.vision.budget.refresh_from_db()
    services.decide_request(
        fleet.admin,
        revision=again,
        accept=True,
        reason="half of it",
        expected_version=fleet.vision.budget.version,
        part=Part((line("h100", 20),)),
    )
    text = visitors.text("owner", "/")
    assert "Your request for Vision was accepted in part." in text and "half of it" in text


def test_a_poll_of_the_overview_renews_what_needs_somebody(visitors: Visitors, east: Cluster):
    shift(east)
    before = visitors["admin"].get("/", **HTMX)
    shift_run = ShiftRun.objects.get()
    ShiftRun.objects.filter(pk=shift_run.pk).update(parked=1, parked_says="x")
    again = visitors["admin"].get("/", HTTP_IF_NONE_MATCH=before["ETag"], **HTMX)
    assert again.status_code == 200 and "1 object set aside" in again.content.decode()
