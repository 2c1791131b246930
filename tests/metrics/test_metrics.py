"""What Prometheus reads of the portal: who may, what it says, and what it costs."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from budgets.models import AuditEntry, BillingPeriod, Delivery
from clusters.models import Cluster, ClusterHealth, ShiftRun, WorkloadState
from clusters.tasks import rotate_tokens
from portal import metrics
from portal.celery import show_times
from tests.builders import SmallFleet, line
from tests.controlplane.processes import free_port
from tests.metrics.scraper import TOKEN
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_one_moment")]
DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- families: begin -->\n", "<!-- families: end -->"

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def _token(settings) -> None:
    settings.PORTAL_METRICS_TOKEN = TOKEN


def scrape(client: Client, token: str = TOKEN) -> Numbers:
    """Name and sorted labels → number, as a client of Prometheus reads them."""
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.content
    assert answer.headers["Cache-Control"].startswith(("private", "max-age=0"))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


@pytest.fixture
def worker(fleet: SmallFleet) -> Cluster:
    """A cluster that answered a minute ago, whose quota shift has set an object aside."""
    cluster = Cluster.objects.create(
        slug="gpu-east", name="East", role="worker", mode="portal", server="https://east",
        certificate_expires_at=datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC),
    )  # fmt: skip
    now = datetime.now(UTC)
    ClusterHealth.objects.create(
        cluster=cluster, reachable=True, checked_at=now, last_contact_at=now, latency_ms=20
    )
    ShiftRun.objects.create(
        cluster=cluster, role="quota", holder="x", started_at=now, heartbeat_at=now, parked=3
    )
    return cluster


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer wrong", "Basic a-token-for-prometheus"])
def test_nobody_reads_numbers_without_the_token(client: Client, sent: str) -> None:
    answer = client.get("/metrics", headers={"Authorization": sent} if sent else {})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert b"portal_" not in answer.content


def test_without_a_token_set_there_are_no_numbers(client: Client, settings) -> None:
    settings.PORTAL_METRICS_TOKEN = ""
    answer = client.get("/metrics", headers={"Authorization": "Bearer "})
    assert answer.status_code == 404
    assert b"PORTAL_METRICS_TOKEN" in answer.content


def test_a_session_is_not_enough(client: Client, fleet: SmallFleet) -> None:
    client.force_login(fleet.admin)
    assert client.get("/metrics").status_code == 401


def test_clusters_and_shifts_are_shown(client: Client, worker: Cluster) -> None:
    numbers = scrape(client)
    assert numbers["portal_cluster_reachable", labels(cluster="gpu-east")] == 1
    assert numbers["portal_cluster_latency_seconds", labels(cluster="gpu-east")] == 0.02
    ends = numbers["portal_cluster_credential_expiry_timestamp_seconds", labels(cluster="gpu-east")]
    assert ends == worker.certificate_expires_at.timestamp()
    where = labels(cluster="gpu-east", role="quota")
    assert numbers["portal_shift_alive", where] == 1
    assert numbers["portal_shift_parked_keys", where] == 3


def test_a_cluster_that_nobody_asks_is_not_reachable(client: Client, worker: Cluster) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=2)
    ClusterHealth.objects.update(checked_at=long_ago)
    ShiftRun.objects.update(heartbeat_at=long_ago)
    numbers = scrape(client)
    assert numbers["portal_cluster_reachable", labels(cluster="gpu-east")] == 0
    assert numbers["portal_shift_alive", labels(cluster="gpu-east", role="quota")] == 0


def test_budgets_and_use_are_shown_by_the_portals_names_and_by_kueues(
    client: Client, worker: Cluster, fleet: SmallFleet
) -> None:
    fleet.revise(fleet.vision, line("h100", 8, 12))
    now = datetime.now(UTC)
    WorkloadState.objects.create(
        cluster=worker, uid="u", namespace="acme-vision", name="train", phase="running",
        gpus={"h100": 10}, gpu_total=10, created_at=now, admitted_at=now, resource_version="1",
    )  # fmt: skip
    numbers = scrape(client)
    where = labels(account="acme", workspace="acme-vision", flavor="h100")
    for name, number in (("committed", 8), ("ceiling", 12), ("used", 10), ("burst_used", 2)):
        assert numbers[f"portal_budget_{name}_gpus", where] == number, name
    queue = labels(
        cohort="acme", cluster_queue="acme-vision", flavor="h100",
        resource="nvidia.com/gpu", replica_role="leader",
    )  # fmt: skip
    for name, number in (("nominal_quota", 8), ("borrowing_limit", 4), ("resource_usage", 10)):
        assert numbers[f"kueue_cluster_queue_{name}", queue] == number, name
    assert numbers["portal_jobs_running", labels(account="acme", workspace="acme-vision")] == 1


def test_kueue_shows_its_own_queues_itself(client: Client, worker: Cluster) -> None:
    Cluster.objects.update(mode="kueue")
    assert not [name for name, _ in scrape(client) if name.startswith("kueue_")]


def test_months_and_mails_that_wait_are_counted(client: Client, fleet: SmallFleet) -> None:
    before = scrape(client)
    now = datetime.now(UTC)
    BillingPeriod.objects.create(
        name="1999-01", start=now - timedelta(days=40), end=now - timedelta(days=9)
    )
    entry = AuditEntry.objects.order_by("pk").first()
    Delivery.objects.create(
        entry=entry, channel="mail", address="fin@example.org", next_at=now - timedelta(hours=1)
    )
    numbers = scrape(client)
    assert numbers["portal_months_to_close", ()] == before["portal_months_to_close", ()] + 1
    assert numbers["portal_oldest_month_to_close_age_seconds", ()] >= 9 * 86_400
    assert numbers["portal_deliveries", labels(state="waiting")] == 1
    assert numbers["portal_oldest_delivery_overdue_seconds", ()] >= 3_600


def test_times_of_requests_are_by_names_of_routes(client: Client, fleet: SmallFleet) -> None:
    client.get("/healthz")
    client.get("/no/such/page-" + "x" * 50)
    client.generic("BREW", "/healthz")
    counted = {
        dict(where)["route"]: dict(where)
        for name, where in scrape(client)
        if name == "portal_http_request_duration_seconds_count"
    }
    assert "healthz" in counted
    assert not [route for route in counted if "xxx" in route]
    methods = {
        dict(where)["method"]
        for name, where in scrape(client)
        if name == "portal_http_request_duration_seconds_count"
    }
    assert "other" in methods and "BREW" not in methods


def test_more_workspaces_and_clusters_cost_no_query_more(
    client: Client, worker: Cluster, fleet: SmallFleet
) -> None:
    with CaptureQueriesContext(connection) as few:
        scrape(client)
    for number in range(20):
        Cluster.objects.create(
            slug=f"c-{number}", name=str(number), role="worker", mode="portal", server="https://x"
        )
    fleet.revise(fleet.vision, line("h100", 8, 12), line("a100", 2, 4))
    with CaptureQueriesContext(connection) as more:
        scrape(client)
    assert len(more) == len(few)
    assert len(few) <= 30


def test_every_family_stands_in_the_document(worker: Cluster) -> None:
    made = "".join(_rows())
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("UPDATE_GOLDEN"):
        DOCUMENT.write_text(f"{before}{BEGIN}{made}{END}{after}")
        shown = made
    assert shown == made


def _rows() -> Iterator[str]:
    yield "| name | labels | what it is |\n| --- | --- | --- |\n"
    for family in metrics.families():
        names = ", ".join(f"`{name}`" for name in family.labels)
        assert re.fullmatch(r"[a-z_]+", family.name)
        yield f"| `{family.name}` | {names} | {family.says} |\n"


def test_a_worker_shows_how_long_its_tasks_took(settings, fleet: SmallFleet) -> None:
    settings.PORTAL_METRICS_PORT = free_port()
    show_times()
    rotate_tokens.apply()
    with urllib.request.urlopen(
        f"http://127.0.0.1:{settings.PORTAL_METRICS_PORT}/metrics", timeout=PATIENCE_S
    ) as answer:
        text = answer.read().decode()
    labels = '{state="SUCCESS",task="clusters.tasks.rotate_tokens"}'
    assert f"portal_task_duration_seconds_count{labels} 1.0" in text
    assert "portal_cluster_reachable" not in text
