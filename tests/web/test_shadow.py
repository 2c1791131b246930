"""Where the engine decided otherwise than Kueue did: counted, and both sides shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from clusters.models import Cluster, ShadowDifference, ShadowTally
from tests.web.conftest import Visitors

NOW = datetime.now(UTC)
PAGE = "/clusters/hub/shadow/"
API = "/api/v1/clusters/hub/shadow"


@pytest.fixture
def hub(visitors: Visitors) -> Cluster:
    return Cluster.objects.create(
        slug="hub",
        name="Hub",
        role="manager",
        mode="kueue",
        server="https://x",
        context="x",
        user_kind="token",
        kubeconfig_sealed=b"x",
    )


@pytest.fixture
def differences(hub: Cluster) -> None:
    ShadowTally.objects.create(
        cluster="hub", compared=120, different=1, passed_over=3, since=NOW, updated_at=NOW
    )
    ShadowDifference.objects.create(
        cluster="hub",
        uid="uid-1",
        kind="admission",
        namespace="acme-vision",
        name="job-train",
        portal_says={
            "decision": "admitted",
            "clusterQueue": "acme-vision",
            "flavors": {"main": {"nvidia.com/gpu": "h100", "cpu": "host"}},
        },
        kueue_did={"decision": "pending", "reason": "WaitingForQuota", "message": "not enough"},
        count=2,
        first_seen_at=NOW,
        seen_at=NOW,
    )


def test_differences_are_counted_and_shown_with_both_sides(visitors: Visitors, differences):
    text = visitors.text("admin", PAGE)
    assert "1 of 120 decisions differ" in text
    assert "3 could not be compared" in text
    for part in ("admitted", "main: h100, host", "pending", "WaitingForQuota", "not enough"):
        assert part in text
    found = visitors["admin"].get(API).json()
    assert (found["compared"], found["different"]) == (120, 1)
    assert found["rows"][0]["portal"]["flavors"] == ["main: h100, host"]
    assert found["rows"][0]["kueue"]["reason"] == "WaitingForQuota"


def test_agreement_and_nothing_compared_are_said(visitors: Visitors, hub: Cluster):
    assert "Nothing has been compared yet" in visitors.text("admin", PAGE)
    ShadowTally.objects.create(cluster="hub", compared=9, since=NOW, updated_at=NOW)
    assert "All 9 decisions agree" in visitors.text("admin", PAGE)


@pytest.mark.parametrize("role", ["owner", "viewer", "nobody"])
def test_owners_find_no_such_page(visitors: Visitors, differences, role: str):
    assert visitors[role].get(PAGE).status_code == 404
    assert visitors[role].get(API).status_code == 404


def test_cluster_page_leads_there(visitors: Visitors, hub: Cluster):
    assert PAGE in visitors.text("admin", "/clusters/hub/")
