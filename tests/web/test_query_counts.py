"""How much every page costs: queries pinned in a golden file, size and growth bounded.

``UPDATE_GOLDEN=1 pytest tests/web/test_query_counts.py`` writes the file anew; read the diff.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import services
from budgets.models import Budget, BudgetRevision, UsageRecord, WorkloadUsage
from budgets.units import Period
from clusters.models import Cluster, ClusterHealth, ObjectState, WorkloadState
from tests.builders import line
from tests.factories import (
    PendingReasonFactory,
    UsageRecordFactory,
    WorkloadUsageFactory,
    WorkspaceFactory,
)
from tests.web.conftest import Visitors

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "query_counts.json"
LARGEST_PAGE = 100_000
GROWING = (
    "/",
    "/jobs/",
    "/fleet/",
    "/usage/?days=7",
    "/usage/?days=7&split=workspace",
    "/usage/lending/",
    "/usage/idle/",
    "/requests/",
)
PAGES = (
    "/",
    "/workspaces/acme-vision/",
    "/workspaces/acme-vision/budget/",
    "/workspaces/acme-vision/history/",
    "/workspaces/acme-vision/history/2/",
    "/workspaces/acme-vision/history/3/decide/",
    "/workspaces/acme-vision/spend/",
    "/requests/",
    "/jobs/",
    "/jobs/manager/uid-0/",
    "/what-if/",
    "/usage/?days=7",
    "/usage/?days=7&split=workspace",
    "/usage/lending/?days=7",
    "/usage/idle/?days=7",
    "/usage/capacity/?days=7",
    "/fleet/",
    "/fleet/kueue/",
    "/clusters/",
    "/clusters/gpu-east/",
    "/clusters/gpu-east/shadow/",
    "/alerts/",
    "/exports/",
    "/views/",
    "/billing/",
    "/audit/",
    "/setup/",
    "/setup/accounts/",
    "/setup/people/",
    "/setup/capacity/",
)


@pytest.fixture(autouse=True)
def _in_the_middle_of_a_month() -> Iterator[None]:
    """A look at seven days that lie in two months takes more queries."""
    with time_machine.travel("2026-11-20T12:00:00Z", tick=False):
        yield


@pytest.fixture
def busy(visitors: Visitors) -> Visitors:
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 8))
    fleet.revise(fleet.vision, line("h100", 16), line("h100-spot", 0, 8))
    fleet.revise(fleet.vision, line("h100", 40), actor=fleet.owner)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for slug in ("manager", "gpu-east", "gpu-west"):
        role = "manager" if slug == "manager" else "worker"
        row = Cluster.objects.create(
            slug=slug,
            name=slug,
            role=role,
            mode="kueue",
            server="https://x",
            context="x",
            user_kind="token",
            kubeconfig_sealed=b"x",
        )
        ClusterHealth.objects.create(cluster=row, reachable=True, last_contact_at=now)
    manager = Cluster.objects.get(slug="manager")
    for number in range(60):
        add_job(manager, number, now)
    for number in range(0, 60, 2):
        PendingReasonFactory(cluster=manager.slug, uid=f"uid-{number}", name=f"job-{number}")
    hours = [now - timedelta(hours=hour) for hour in range(7 * 24)]
    h100 = fleet.flavors["h100"]
    UsageRecord.objects.bulk_create(
        UsageRecordFactory.build(workspace=fleet.vision, flavor=h100, hour=at) for at in hours
    )
    WorkloadUsage.objects.bulk_create(
        WorkloadUsageFactory.build(workspace=fleet.vision, uid=f"uid-{number % 40}", hour=at)
        for number, at in enumerate(hours)
    )
    services.rewrite_totals(Period(hours[-1], now + timedelta(hours=1)))
    return visitors


def add_job(manager: Cluster, number: int, now: datetime) -> None:
    WorkloadState.objects.create(
        cluster=manager,
        uid=f"uid-{number}",
        namespace="acme-vision",
        name=f"job-{number}",
        job_name=f"train-{number}",
        job_kind="Job",
        phase="running" if number % 2 else "pending",
        gpus={"h100": 8} if number % 2 else {"": 8},
        gpu_total=8,
        created_at=now,
        resource_version="1",
    )


def cost_of(visitors: Visitors, address: str) -> tuple[int, int]:
    visitors["admin"].get(address)  # content types and the like are cached now
    with CaptureQueriesContext(connection) as queries:
        answer = visitors["admin"].get(address)
    assert answer.status_code == 200, address
    return len(queries), len(answer.content)


def test_queries_of_every_page_are_those_of_the_golden_file(busy: Visitors):
    costs = {address: cost_of(busy, address) for address in PAGES}

    counts = {address: queries for address, (queries, _) in costs.items()}
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(counts, indent=2) + "\n")
    assert counts == json.loads(GOLDEN.read_text())
    assert {a: size for a, (_, size) in costs.items() if size > LARGEST_PAGE} == {}


def test_queries_do_not_grow_with_workspaces(busy: Visitors):
    before = {address: cost_of(busy, address)[0] for address in GROWING}
    for _ in range(20):
        added = WorkspaceFactory(account=busy.fleet.acme, home_flavor=busy.fleet.flavors["h100"])
        UsageRecordFactory(workspace=added, flavor=busy.fleet.flavors["h100"])

    assert {address: cost_of(busy, address)[0] for address in GROWING} == before


def test_page_of_requests_costs_the_same_however_many_wait(busy: Visitors):
    before, _ = cost_of(busy, "/requests/")
    for number in range(120):
        space = WorkspaceFactory(account=busy.fleet.acme, home_flavor=busy.fleet.flavors["h100"])
        BudgetRevision.objects.create(
            budget=Budget.objects.get_or_create(workspace=space)[0],
            number=number + 1,
            valid_from=datetime(2026, 1, 1, tzinfo=UTC),
            state=BudgetRevision.State.REQUESTED,
        )

    queries, size = cost_of(busy, "/requests/")
    assert queries == before
    assert size < LARGEST_PAGE
    text = busy.text("admin", "/requests/?page=3")
    assert "121 wait" in text
    assert "Page 3 of 3" in text
    assert text.count("/decide/") == 2 * 21


def test_page_of_a_cluster_costs_the_same_however_many_objects_it_has(busy: Visitors):
    cluster = Cluster.objects.get(slug="gpu-east")
    states = ["synced"] * 1_000
    states[700] = "failed"

    def add(found: list[str], prefix: str) -> None:
        ObjectState.objects.bulk_create(
            ObjectState(
                cluster=cluster,
                kind=kind,
                name=f"{prefix}-{number}",
                subject=f"budget:{prefix}-{number}",
                state=state,
                changed_at=datetime(2026, 1, 1, tzinfo=UTC),
            )
            for number, state in enumerate(found)
            for kind in ("ClusterQueue", "LocalQueue", "Namespace")
        )

    add(["synced"], "few")
    before, _ = cost_of(busy, "/clusters/gpu-east/")
    add(states, "many")

    queries, size = cost_of(busy, "/clusters/gpu-east/")
    assert queries == before
    assert size < LARGEST_PAGE
    first = busy.text("admin", "/clusters/gpu-east/")
    assert "Page 1 of 31" in first
    assert first.index("Budget many-700") < first.index("Budget few-0")
    second = busy.text("admin", "/clusters/gpu-east/?page=2")
    assert 'hx-get="/clusters/gpu-east/?page=2"' in second
    assert "Budget many-700" not in second
