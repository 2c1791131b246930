"""Pages call workspaces, clusters and flavors by their names; slugs stay in addresses."""

from __future__ import annotations

import re

import pytest

from budgets import selectors
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import told_apart
from clusters.models import Cluster, WorkloadState
from tests.builders import line
from tests.web.conftest import Visitors

pytestmark = pytest.mark.django_db
# Pages on which the slug of a workspace or of a cluster is only part of addresses.
PAGES = ("/jobs/", "/usage/?split=workspace", "/usage/idle/", "/fleet/maintenance/plan/", "/fleet/")


@pytest.fixture
def named(visitors: Visitors) -> Visitors:
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 16))
    cluster = Cluster.objects.create(
        slug="gpu-east", name="Frankfurt", role="worker", mode="portal", context="x",
        server="https://x.invalid", user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
    WorkloadState.objects.create(
        cluster=cluster, uid="uid-1", namespace="acme-vision", name="job-1", phase="running",
        gpus={"h100": 8}, gpu_total=8, created_at=utc_now(), resource_version="1",
    )  # fmt: skip
    return visitors


def read(page: str) -> str:
    """What stands on a page, without its tags and what the browser sends back."""
    return re.sub(r"<[^>]*>", " ", page)


@pytest.mark.parametrize("address", PAGES)
def test_a_page_shows_names_where_it_links_by_slugs(named: Visitors, address: str):
    text = read(named.text("admin", address))
    assert "acme-vision" not in text
    assert "gpu-east" not in text


def test_a_job_runs_on_a_worker_by_name(named: Visitors):
    for address in ("/jobs/", "/workspaces/acme-vision/"):
        assert "Frankfurt" in read(named.text("owner", address))
    text = read(named.text("owner", "/jobs/gpu-east/uid-1/"))
    assert "Runs with 8 GPUs (8 H100) on Frankfurt." in text
    assert "Submitted to Frankfurt" in text
    assert "gpu-east" not in text


def test_workspaces_of_one_name_are_told_apart_by_their_accounts(named: Visitors):
    rows = [("a-x", "Vision", "Acme"), ("g-x", "Vision", "Globex"), ("g-y", "Search", "Globex")]
    names = told_apart(rows)
    assert names == {"a-x": "Vision (Acme)", "g-x": "Vision (Globex)", "g-y": "Search"}
    # A reader is told nothing of workspaces that they do not see.
    assert set(selectors.workspace_names(named.fleet.owner)) == {"acme-vision"}
