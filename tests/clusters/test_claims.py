"""What a Configuration that counts devices of claims changes around a cluster."""

from __future__ import annotations

import pytest

from budgets.errors import Rejected
from clusters.devcluster import identity, registry
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.configuration import Configuration
from clusters.models import Cluster
from clusters.reconcile.warm_engine import ENGINE_KINDS, OPTIONAL_KINDS, engine_kinds
from clusters.selectors.configured import settings_of
from clusters.selectors.places import policy_wish
from clusters.selectors.rights import rights_documents
from clusters.services.preflight.rows import device_rows
from clusters.services.switches import read_configuration
from tests.builders import SmallFleet

MAPPING = {"name": "gpus.example.com/h100", "deviceClassNames": ["h100.gpu.example.com"]}
COUNTED = {"resources": {"deviceClassMappings": [MAPPING]}}
OFF = {"KueueDRAIntegration": False, "KueueDRAIntegrationExtendedResource": False}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("configuration", "want"),
    [
        pytest.param({}, (False, False), id="nothing is mapped"),
        pytest.param(COUNTED, (True, True), id="a class is mapped"),
        pytest.param({**COUNTED, "featureGates": OFF}, (False, False), id="the gate is off"),
        pytest.param(
            {**COUNTED, "featureGates": {"KueueDRAIntegrationExtendedResource": False}},
            (True, False),
            id="names are off",
        ),
        pytest.param({"fairSharing": "?"}, (False, False), id="not readable"),
    ],
)
def test_rights_and_policies_follow_the_configuration(
    configuration, want, fleet: SmallFleet
) -> None:
    cluster = Cluster(slug="lab", role="single", mode="portal", kueue_configuration=configuration)
    post = policy_wish(cluster).post
    assert (post.counts_claims, post.counts_named_devices) == want
    text = str(rights_documents(cluster))
    assert ("resourceclaimtemplates" in text, "deviceclasses" in text) == want


@pytest.mark.parametrize(
    ("configuration", "want"),
    [
        ({}, ()),
        ({**COUNTED, "featureGates": OFF}, ()),
        (COUNTED, (r.DEVICE_CLASS, r.RESOURCE_CLAIM_TEMPLATE)),
        (
            {**COUNTED, "featureGates": {"KueueDRAIntegrationExtendedResource": False}},
            (r.RESOURCE_CLAIM_TEMPLATE,),
        ),
    ],
    ids=["nothing is mapped", "the gate is off", "a class is mapped", "names are off"],
)
def test_what_claims_are_made_from_is_watched_where_it_counts_and_before_what_claims(
    configuration, want
) -> None:
    found = engine_kinds(Configuration.from_document(configuration))
    assert found == (*want, *ENGINE_KINDS)
    assert set(want) <= OPTIONAL_KINDS


@pytest.mark.embedded
def test_preflight_looks_whether_the_cluster_knows_claims_where_they_count(
    east: DevServer, kube: KubeClient, monkeypatch
) -> None:
    def rows(mode: str, configuration: dict) -> list[tuple[str, str]]:
        found = device_rows(kube, Cluster(slug="lab", mode=mode), configuration)
        return [(row.state, row.found) for row in found]

    for configuration in ({}, {**COUNTED, "featureGates": OFF}, {"resources": "?"}):
        assert rows("portal", configuration) == []
    assert rows("portal", COUNTED) == [("ok", "serves resource.k8s.io/v1")]

    known = tuple(kind for kind in registry.KINDS if kind.group != "resource.k8s.io")
    monkeypatch.setattr(identity, "KINDS", known)
    absent = (
        "resources.deviceClassMappings is set, and this API server does not serve "
        "resource.k8s.io/v1"
    )
    assert rows("portal", COUNTED) == [("fault", absent)]
    assert rows("kueue", COUNTED) == [("warn", absent)]


def test_page_of_the_configuration_says_what_devices_count_as() -> None:
    def shown(document: dict) -> str:
        rows = {row.path: row.value for row in settings_of(document)}
        return rows["resources.deviceClassMappings"]

    assert shown(COUNTED) == "h100.gpu.example.com as gpus.example.com/h100"
    assert shown({}) == "none: jobs with claims are refused"
    assert shown({"featureGates": OFF}) == "off"


def test_mapping_that_kueue_does_not_take_is_refused_when_it_is_stored() -> None:
    with pytest.raises(Rejected) as raised:
        read_configuration({"resources": {"deviceClassMappings": [{"name": "GPU!"}]}})
    assert "resources: deviceClassMappings[0].name 'GPU!' is no qualified name" in str(
        raised.value.faults[0].message
    )
