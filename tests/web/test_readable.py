"""What pages tell: times as times, consequences before the deed, an answer to a wrong visit."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from budgets import services
from budgets.models import (
    Alert,
    Allocation,
    BillingPeriod,
    Delivery,
    Discrepancy,
    UsageRecord,
)
from budgets.selectors.clock import utc_now
from budgets.services import alerts
from budgets.units import Period
from clusters.models import Cluster, WorkloadState
from tests.builders import line
from tests.factories import UsageRecordFactory
from tests.web.conftest import HTMX, Visitors

pytestmark = pytest.mark.django_db


def test_an_address_of_a_button_says_so_to_who_visits_it(visitors: Visitors):
    """A session that ended leads through the login to where the button had led."""
    answer = visitors["owner"].get("/tokens/1/revoke/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    text = answer.content.decode()
    assert "press it again" in text and "To my workspaces" in text
    part = visitors["owner"].get("/tokens/1/revoke/", **HTMX).content.decode()
    assert 'role="alert"' in part and "<html" not in part


def test_a_hold_tells_what_draining_would_stop(visitors: Visitors):
    stop = "/workspaces/acme-vision/budget/stop/"
    assert "No job is running now." in visitors.text("owner", stop)
    cluster = Cluster.objects.create(
        slug="gpu-east", name="East", role="worker", mode="portal", server="https://x.invalid",
        context="x", user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
    for number in range(2):
        WorkloadState.objects.create(
            cluster=cluster, uid=f"uid-{number}", namespace="acme-vision", name=f"job-{number}",
            phase="running", gpus={"h100": 8}, gpu_total=8, created_at=utc_now(),
            resource_version="1",
        )  # fmt: skip
    assert "2 jobs run now, on 16 GPUs." in visitors.text("owner", stop)


def test_closing_a_month_is_asked_for_twice(visitors: Visitors):
    month = BillingPeriod.objects.create(
        name="2020-01", zone="UTC", start="2020-01-01T00:00Z", end="2020-02-01T00:00Z"
    )
    text = visitors.text("finance", f"/billing/months/{month.name}/")
    folded, _, rest = text.partition("Close the month …</summary>")
    assert 'value="close"' not in folded
    assert "cannot be undone" in rest.partition('value="close"')[0]


def test_samples_of_a_queue_have_times_and_units(visitors: Visitors):
    begin = utc_now() - timedelta(hours=1)
    row = Discrepancy.objects.create(
        kind="queue", cluster="gpu-east", subject="acme-vision", flavor="h100", start=begin,
        message="The queue uses 24 GPUs.", samples=[[begin.isoformat(), 24, 8, 16]],
    )  # fmt: skip
    text = visitors.text("finance", f"/billing/reconciliation/{row.pk}/")
    assert f'<time datetime="{begin.isoformat()}"' in text.partition("What the queue said")[2]
    assert "GPUs of quota" in text


def test_what_is_to_be_settled_comes_first(visitors: Visitors):
    now = utc_now()
    for days, state in ((9, "open"), (1, "cleared"), (5, "proposed")):
        Discrepancy.objects.create(
            kind="clock", cluster=f"{state}-cluster", start=now - timedelta(days=days), end=now,
            state=state, message="x",
        )  # fmt: skip
    text = visitors.text("finance", "/billing/reconciliation/")
    places = [text.index(f"{state}-cluster") for state in ("proposed", "open", "cleared")]
    assert places == sorted(places)


def test_the_time_of_a_delivery_is_no_markup(visitors: Visitors):
    now = utc_now()
    rule = alerts.create_rule(
        None, measure="hours", limit=Decimal(10), workspace=visitors.fleet.vision
    )
    alert = Alert.objects.create(
        rule=rule, window_start=now, window_end=now, value=11, text="x", raised_at=now
    )
    Delivery.objects.create(
        alert=alert, channel="mail", address="fin@example.org", state="sent", next_at=now,
        sent_at=now,
    )  # fmt: skip
    text = visitors.text("finance", "/alerts/")
    assert "&lt;time" not in text
    assert "<time" in text.partition("Deliveries")[2]


def test_the_week_of_a_workspace_is_the_week_of_the_page_of_use(visitors: Visitors):
    owner = visitors.fleet.owner
    # A zone in which this hour is not the last of the day: the range would end alike there.
    owner.time_zone = "Etc/UTC" if utc_now().hour < 12 else "Asia/Tokyo"
    owner.save(update_fields=["time_zone"])
    now = utc_now().replace(minute=0, second=0)
    hours = [now - timedelta(hours=number) for number in range(9 * 24)]
    h100 = visitors.fleet.flavors["h100"]
    UsageRecord.objects.bulk_create(
        UsageRecordFactory.build(workspace=visitors.fleet.vision, flavor=h100, hour=at)
        for at in hours
    )
    services.rewrite_totals(Period(hours[-1], now + timedelta(hours=1)))
    page = visitors["owner"].get("/workspaces/acme-vision/")
    use = visitors["owner"].get(page.context["usage_url"])
    assert page.context["week"].totals == use.context["table"].totals
    assert page.context["week"].totals.committed_used > 0


def test_removing_a_worker_tells_what_stands_and_runs_there(visitors: Visitors):
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 16))
    stands = Allocation.objects.filter(committed__gt=0).order_by("cluster")[0]
    cluster = Cluster.objects.create(
        slug=stands.cluster, name="East", role="worker", mode="portal", server="https://x.invalid",
        context="x", user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
    WorkloadState.objects.create(
        cluster=cluster, uid="uid-1", namespace="globex-search", name="job", phase="running",
        gpus={"h100": 8}, gpu_total=8, created_at=utc_now(), resource_version="1",
    )  # fmt: skip
    text = visitors.text("admin", f"/clusters/{cluster.slug}/deregister/")
    assert f"1 workspace has {stands.committed} GPUs committed there;" in " ".join(text.split())
    assert "1 job holds 8 GPUs." in text
    assert "committed there;" not in visitors.text("admin", f"/clusters/{cluster.slug}/drift/")


def test_a_rate_card_shows_wrong_prices_beside_everything_else_that_is_wrong(visitors: Visitors):
    typed = {"name": "", "currency": "EUR", "h100.committed": "abc", "a100.burst": "-3"}
    answer = visitors["finance"].post("/billing/rates/new/", {**typed, "steps": "nonsense"})
    assert answer.status_code == 422
    wrong = set(answer.context["form"].errors)
    assert {"name", "floor_hours", "h100.committed", "a100.burst", "steps"} <= wrong
