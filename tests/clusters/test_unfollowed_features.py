"""What a Kueue Configuration turns on and the portal does not follow is said, never ignored."""

from __future__ import annotations

import pytest

from clusters.kueue.configuration import not_followed
from clusters.models import Cluster
from clusters.services.preflight.rows import unfollowed_rows

GATES = {"featureGates": {"PriorityBoost": True, "AdmissionGatedBy": False}}


@pytest.mark.parametrize(
    ("configuration", "want"),
    [
        pytest.param({}, [], id="defaults"),
        pytest.param({"featureGates": {"PriorityBoost": False}}, [], id="off by name"),
        pytest.param({"featureGates": {"TASBalancedPlacement": True}}, [], id="followed"),
        pytest.param({"featureGates": {"MetricsForCohorts": False}}, [], id="no effect"),
        pytest.param(
            GATES,
            [
                "AdmissionGatedBy is off: the annotation kueue.x-k8s.io/admission-gated-by holds "
                "no job back",
                "PriorityBoost is on: an annotation changes the priority of a job",
            ],
            id="gates",
        ),
        pytest.param(
            {"resources": {"deviceClassMappings": [{"name": "gpu", "deviceClassNames": ["a"]}]}},
            [],
            id="devices of claims",
        ),
        pytest.param(
            {"resources": {"deviceClassMappings": [{"name": "gpu", "sources": [{"counter": {}}]}]}},
            [
                "resources.deviceClassMappings[0].sources: devices count as gpu by what they "
                "consume, not one by one, and jobs that claim them are refused"
            ],
            id="parts of devices",
        ),
    ],
)
def test_features_that_are_not_followed_are_named_with_their_effect(configuration, want):
    assert not_followed(configuration) == want


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        (Cluster.Mode.PORTAL, ("fault", "take it out of the Configuration, or let Kueue decide")),
        (Cluster.Mode.KUEUE, ("warn", "Kueue follows it")),
    ],
)
def test_preflight_refuses_them_where_the_portal_decides(mode, want):
    cluster = Cluster(mode=mode)
    rows = list(unfollowed_rows(cluster, GATES))
    assert [row.found.split()[0] for row in rows] == ["AdmissionGatedBy", "PriorityBoost"]
    assert {row.state for row in rows} == {want[0]}
    assert all(want[1] in row.advice for row in rows)
    assert list(unfollowed_rows(cluster, {})) == []
