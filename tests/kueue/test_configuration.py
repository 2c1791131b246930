"""What documents of configuration, queues, nodes and topology requests are read as, held whole."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.configuration import (
    AdmissionFairSharing,
    Configuration,
    FairStrategy,
    PodsReadyRules,
    Transformation,
)
from clusters.kueue.multikueue.settings import origin_of
from clusters.kueue.queueing.readiness import ActiveCondition, queue_condition
from clusters.kueue.quota.specifications import parse_check, parse_cluster_queue, parse_flavor
from clusters.kueue.topology.nodes import NodeSpec, parse_node, parse_topology
from clusters.kueue.workload.matching import Taint, Toleration
from clusters.kueue.workload.topology_request import (
    SliceLayer,
    TopologyRequest,
    parse_topology_request,
)
from tests.kueue.builders import GPU, cluster_queue, flavor, group, quota


def test_configuration_is_read_whole():
    found = Configuration.from_document(
        {
            "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
            "admissionFairSharing": {
                "usageHalfLifeTime": "1h",
                "usageSamplingInterval": "30s",
                "resourceWeights": {GPU: 2},
            },
            "resources": {
                "excludeResourcePrefixes": ["x/"],
                "quotaCheckStrategy": "IgnoreUndeclared",
                "transformations": [
                    {"input": "a", "strategy": "Replace", "outputs": {"b": 2}, "multiplyBy": "c"},
                    {"input": "d", "strategy": "Retain"},
                    {"input": "e"},
                ],
            },
            "waitForPodsReady": {
                "timeout": "5m",
                "blockAdmission": True,
                "requeuingStrategy": {
                    "timestamp": "Creation",
                    "backoffLimitCount": 3,
                    "backoffBaseSeconds": 10,
                    "backoffMaxSeconds": 100,
                },
            },
            "integrations": {"labelKeysToCopy": ["team"]},
        }
    )
    assert found == Configuration(
        fair_strategies=(FairStrategy.LESS_THAN_INITIAL_SHARE,),
        admission_fair_sharing=AdmissionFairSharing(3600.0, 30.0, {GPU: 2.0}),
        excluded_prefixes=("x/",),
        transformations={
            "a": Transformation({"b": "2"}, keeps_input=False, multiply_by="c"),
            "d": Transformation({}),
            "e": Transformation({}),
        },
        ignores_undeclared=True,
        requeues_by_eviction=False,
        blocks_admission=True,
        pods_ready=PodsReadyRules(300.0, 300.0, 3, 10, 100),
        copied_labels=("team",),
    )
    assert Configuration.from_document(None) == Configuration()
    both = (FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, FairStrategy.LESS_THAN_INITIAL_SHARE)
    assert Configuration.from_document({"fairSharing": {}}).fair_strategies == both
    assert Configuration.from_document({"fairSharing": {"enable": False}}).fair_strategies == ()


MULTIKUEUE, PROVISIONING = "kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/provisioning-request"


def check(name: str, controller: str = "x", status: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
        "status": {"conditions": [{"type": "Active", "status": status}]},
    }


@pytest.mark.parametrize(
    ("rules", "checks", "want_reason", "want_words"),
    [
        pytest.param(
            ["gone"],
            [],
            "AdmissionCheckNotFound",
            "references missing AdmissionCheck(s): gone",
            id="a check that is missing",
        ),
        pytest.param(
            ["b", "a"],
            [check("a", status="False"), check("b", status="False")],
            "AdmissionCheckInactive",
            "references inactive AdmissionCheck(s): a,b",
            id="checks that are inactive",
        ),
        pytest.param(
            ["a", "b"],
            [check("a", MULTIKUEUE), check("b", MULTIKUEUE)],
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: a,b",
            id="two that dispatch",
        ),
        pytest.param(
            ["a:f0"],
            [check("a", MULTIKUEUE)],
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            "Cannot specify MultiKueue AdmissionCheck per flavor, found: a",
            id="one that dispatches, for a flavor",
        ),
        pytest.param(
            ["a", "b"],
            [check("a", MULTIKUEUE), check("b", PROVISIONING)],
            "MultiKueueWithProvisioningRequest",
            "Cannot use ProvisioningRequest AdmissionCheck together with MultiKueue",
            id="dispatched, and nodes are made",
        ),
        pytest.param(["a"], [check("a")], "Ready", "", id="ready"),
    ],
)
def test_condition_of_a_cluster_queue_by_its_checks(rules, checks, want_reason, want_words):
    listed = [
        {"name": name, **({"onFlavors": [on]} if on else {})}
        for name, _, on in (rule.partition(":") for rule in rules)
    ]
    strategy = {"admissionChecks": listed}
    spec = parse_cluster_queue(
        cluster_queue("q", group(f0=quota(1)), admissionChecksStrategy=strategy)
    )
    read = [parse_check(document) for document in checks]
    found = queue_condition(
        spec,
        flavors={"f0": parse_flavor(flavor("f0"))},
        checks={item.name: item for item in read},
    )
    text = f"Can't admit new workloads: {want_words}." if want_words else "Can admit new workloads"
    assert found == ActiveCondition(want_reason == "Ready", want_reason, text)


def test_flavors_that_a_cluster_queue_lacks_are_named():
    spec = parse_cluster_queue(cluster_queue("q", group(f0=quota(1), f9=quota(1), f8=quota(1))))
    found = queue_condition(spec, flavors={"f0": parse_flavor(flavor("f0"))}, checks={})
    text = "Can't admit new workloads: references missing ResourceFlavor(s): {}."
    assert found in [
        ActiveCondition(False, "FlavorNotFound", text.format(names)) for names in ("f9,f8", "f8,f9")
    ]


@pytest.mark.parametrize(
    ("section", "want"),
    [
        ({}, TopologyRequest()),
        ({"required": "rack"}, TopologyRequest(required="rack", is_explicit=True)),
        ({"preferred": "rack"}, TopologyRequest(preferred="rack", is_explicit=True)),
        ({"unconstrained": True}, TopologyRequest(unconstrained=True, is_explicit=True)),
        ({"podSetGroupName": "all"}, TopologyRequest(group="all")),
        (
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
            TopologyRequest(layers=(SliceLayer("rack", 4),), is_explicit=True),
        ),
        ({"podSetSliceSize": 4}, TopologyRequest(is_explicit=True)),
        (
            {
                "podSetSliceRequiredTopology": "host",
                "podsetSliceRequiredTopologyConstraints": [
                    {"topology": "rack", "size": 4},
                    {"topology": "host"},
                ],
            },
            TopologyRequest(
                layers=(SliceLayer("rack", 4), SliceLayer("host", 0)), is_explicit=True
            ),
        ),
    ],
    ids=str,
)
def test_topology_request_of_a_document(section, want):
    assert parse_topology_request(section) == want


def test_node_and_topology_of_documents():
    document = {
        "metadata": {"name": "n", "labels": {"rack": "r"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "1500m", GPU: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    want = NodeSpec(
        "n", {"rack": "r"}, (Taint("k", "", "NoSchedule"),), {"cpu": 1500, GPU: 8}, True
    )
    assert parse_node(document) == want
    assert not parse_node({**document, "spec": {"unschedulable": True}}).is_usable
    assert parse_node({"metadata": {"name": "n"}}) == NodeSpec("n", {}, (), {}, False)
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "host"}]
    found = parse_topology({"metadata": {"name": "t"}, "spec": {"levels": levels}})
    assert found == ("t", ("rack", "host"))


def test_flavor_of_a_document():
    toleration = {"key": "k", "operator": "Exists"}
    taint = {"key": "t", "value": "v", "effect": "NoExecute"}
    document = flavor(
        "f", nodeLabels={"a": "1"}, nodeTaints=[taint], tolerations=[toleration], topologyName="t"
    )
    found = parse_flavor(document)
    assert (found.name, dict(found.node_labels), found.topology) == ("f", {"a": "1"}, "t")
    assert found.taints == (Taint("t", "v", "NoExecute"),)
    assert found.tolerations == (Toleration("k", "Exists"),)


@pytest.mark.parametrize(
    ("configuration", "want"),
    [
        ({}, "multikueue"),
        ({"multiKueue": {}}, "multikueue"),
        ({"multiKueue": {"origin": "m"}}, "m"),
    ],
)
def test_origin_that_a_manager_puts_on_its_copies(configuration, want):
    assert origin_of(configuration) == want
