"""The page of Kueue's versions: what it says of each cluster, and who may read it."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.models import Cluster, ClusterHealth
from tests.web.conftest import ROLES, Visitors

PAGE = "/fleet/kueue/"
PLATFORM = {"admin", "finance", "auditor"}


def add(slug: str, tag: str, crds: str, **changes: Any) -> None:
    preflight = {"checked_at": "2026-11-25T12:00:00+00:00", "kueue_crds": crds}
    cluster = Cluster.objects.create(
        **{
            "slug": slug, "name": slug.title(), "role": "worker", "mode": "kueue",
            "server": "https://x.invalid", "context": "x", "user_kind": "token",
            "kubeconfig_sealed": b"x", "preflight": preflight, **changes,
        }
    )  # fmt: skip
    ClusterHealth.objects.create(cluster=cluster, kueue_version=tag)


@pytest.mark.parametrize("role", ROLES)
def test_only_people_who_see_the_platform_read_it(visitors: Visitors, role: str):
    add("east", "v0.18.2", "0.18")
    answer = visitors[role].get(PAGE)
    want = 200 if role in PLATFORM else 302 if role == "anonymous" else 403
    assert answer.status_code == want
    assert ("East" in answer.content.decode()) is (role in PLATFORM)


def test_page_says_what_is_served_what_it_lacks_and_what_an_upgrade_changes(visitors: Visitors):
    add("hub", "v0.18.2", "0.18", role="manager")
    add("east", "v0.19.2", "0.19")
    text = visitors.text("admin", PAGE)

    assert "1 of 2 clusters can be upgraded." in text
    assert "0.18 or older" in text and "0.19 or newer" in text
    assert "By the image of kueue-controller-manager (v0.18.2)" in text
    assert "Nothing that concerns this cluster." in text
    assert "A job with more than 10 pod sets is refused." in text
    assert "will be evicted and tried again" in text


def test_page_calls_what_is_not_known_not_known(visitors: Visitors):
    add("east", "", "")
    text = visitors.text("admin", PAGE)
    assert "The version of 1 of 1 cluster is not known." in text
    assert "the portal sees no Deployment kueue-controller-manager" in text


def test_page_without_clusters_says_so(visitors: Visitors):
    assert "Clusters appear here once they have been registered." in visitors.text("admin", PAGE)


@pytest.mark.parametrize("address", ["/clusters/", "/clusters/east/"])
def test_pages_of_clusters_lead_to_it(visitors: Visitors, address: str):
    add("east", "v0.19.2", "0.19")
    assert f'href="{PAGE}"' in visitors["finance"].get(address).content.decode()
