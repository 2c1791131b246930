"""What a Kueue Configuration turns on and the portal does not follow is said, never ignored."""

from __future__ import annotations

import pytest

from clusters.kueue.configuration import not_followed
from clusters.models import Cluster
from clusters.services.preflight.rows import unfollowed_rows


@pytest.mark.parametrize(
    ("configuration", "want"),
    [
        pytest.param({}, [], id="defaults"),
        pytest.param({"featureGates": {"PriorityBoost": False}}, [], id="off by name"),
        pytest.param({"featureGates": {"TASBalancedPlacement": True}}, [], id="followed"),
        pytest.param(
            {"featureGates": {"PriorityBoost": True, "ConcurrentAdmission": True}},
            [
                "ConcurrentAdmission: one job tries several flavors at a time",
                "PriorityBoost: an annotation changes priorities",
            ],
            id="gates",
        ),
        pytest.param(
            {"resources": {"deviceClassMappings": [{"name": "gpu"}]}},
            ["resources.deviceClassMappings: devices by claims count as quota"],
            id="devices",
        ),
    ],
)
def test_features_that_are_not_followed_are_named_with_their_effect(configuration, want):
    assert not_followed(configuration) == want


@pytest.mark.parametrize(
    ("mode", "want"),
    [(Cluster.Mode.PORTAL, ("fault", "Switch it off")), (Cluster.Mode.KUEUE, ("warn", "Kueue"))],
)
def test_preflight_refuses_them_where_the_portal_decides(mode, want):
    cluster = Cluster(mode=mode)
    [row] = unfollowed_rows(cluster, {"featureGates": {"PriorityBoost": True}})
    assert row.state == want[0]
    assert (
        row.found == "not followed by the portal: PriorityBoost: an annotation changes priorities"
    )
    assert row.advice.startswith(want[1])
    assert list(unfollowed_rows(cluster, {})) == []
