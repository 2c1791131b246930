"""What documents of configuration, queues, nodes and topology requests are read as, held whole."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.configuration import (
    DEFAULT_STRATEGIES,
    AdmissionFairSharing,
    Configuration,
    FairStrategy,
    Gates,
    PodsReadyRules,
    Transformation,
    not_followed,
    parse_duration,
    parse_weight,
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


USAGE = {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1m"}


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param({"fairSharing": None}, {}, id="no fair sharing"),
        pytest.param(
            {"fairSharing": {"enable": True, "preemptionStrategies": []}},
            {"fair_strategies": DEFAULT_STRATEGIES},
            id="fair sharing with its own strategies",
        ),
        pytest.param(
            {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}},
            {"fair_strategies": (FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)},
            id="one strategy",
        ),
        pytest.param(
            {"admissionFairSharing": {}},
            {"admission_fair_sharing": AdmissionFairSharing(0.0, 300.0, {})},
            id="usage of the past with nothing set",
        ),
        pytest.param(
            {
                "admissionFairSharing": {
                    "usageHalfLifeTime": None,
                    "usageSamplingInterval": "0s",
                    "resourceWeights": {"cpu": "0", GPU: 1.5},
                }
            },
            {"admission_fair_sharing": AdmissionFairSharing(0.0, 300.0, {"cpu": 0.0, GPU: 1.5})},
            id="usage of the past that is forgotten at once",
        ),
        pytest.param(
            {"admissionFairSharing": {**USAGE, "resourceWeights": None}},
            {"admission_fair_sharing": AdmissionFairSharing(3600.0, 60.0, {})},
            id="usage of the past without weights",
        ),
        pytest.param(
            {"admissionFairSharing": USAGE, "featureGates": {"AdmissionFairSharing": False}},
            {"gates": Gates(admission_fair_sharing=False)},
            id="usage of the past, with its gate off",
        ),
        pytest.param(
            {
                "resources": {
                    "excludeResourcePrefixes": None,
                    "transformations": None,
                    "quotaCheckStrategy": "BlockUndeclared",
                },
                "integrations": {"labelKeysToCopy": None},
                "featureGates": None,
                "waitForPodsReady": None,
            },
            {},
            id="nothing in any field",
        ),
        pytest.param({"resources": None, "integrations": None}, {}, id="empty sections"),
        pytest.param(
            {"resources": {"transformations": [{"input": "a", "outputs": None}]}},
            {"transformations": {"a": Transformation({}, keeps_input=True, multiply_by="")}},
            id="a transformation to nothing",
        ),
        pytest.param(
            {"waitForPodsReady": {"requeuingStrategy": None, "blockAdmission": "true"}},
            {},
            id="pods that get ready, with the defaults",
        ),
        pytest.param(
            {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Eviction"}}},
            {},
            id="requeued by the time of eviction",
        ),
        pytest.param(
            {"waitForPodsReady": {"enable": True, "timeout": "10m", "recoveryTimeout": "3m"}},
            {"pods_ready": PodsReadyRules(600.0, 180.0)},
            id="a time of their own to recover",
        ),
        pytest.param(
            {"waitForPodsReady": {"recoveryTimeout": "3m"}},
            {"pods_ready": PodsReadyRules(1800.0, 180.0)},
            id="only a time to recover",
        ),
        pytest.param(
            {
                "waitForPodsReady": {
                    "timeout": None,
                    "requeuingStrategy": {
                        "backoffLimitCount": 0,
                        "backoffBaseSeconds": None,
                        "backoffMaxSeconds": None,
                    },
                }
            },
            {"pods_ready": PodsReadyRules(1800.0, 1800.0, 0, 60, 3600)},
            id="no second try",
        ),
        pytest.param(
            {"waitForPodsReady": {"enable": False, "timeout": "10m"}},
            {"pods_ready": None},
            id="no limit of time",
        ),
        pytest.param(
            {"waitForPodsReady": {}, "featureGates": {"DisableWaitForPodsReady": True}},
            {"pods_ready": None},
            id="no limit of time by a gate",
        ),
    ],
)
def test_configuration_that_says_little_has_the_defaults_elsewhere(document, want):
    assert Configuration.from_document(document) == Configuration(**want)


def test_defaults_of_a_configuration_are_those_of_kueue():
    assert PodsReadyRules() == PodsReadyRules(1800.0, 1800.0, None, 60, 3600)
    found = Configuration()
    assert found.pods_ready == PodsReadyRules()
    assert (found.has_fair_sharing, found.requeues_by_eviction) == (False, True)
    assert Configuration.from_document({"fairSharing": {}}).has_fair_sharing


@pytest.mark.parametrize("weight", ["-0.1", "inf", "nan", float("-inf")])
def test_weight_of_usage_that_is_no_amount_is_refused(weight):
    section = {"resourceWeights": {GPU: weight, "cpu": 1}}
    want = "^a resource weight of admissionFairSharing is negative, or no number$"
    with pytest.raises(ValueError, match=want):
        Configuration.from_document({"admissionFairSharing": section})


def test_gates_are_read_by_name_and_by_stage():
    switched = {"PartialAdmission": False, "TASBalancedPlacement": True}
    assert Configuration.from_document({"featureGates": switched}).gates == Gates(
        partial_admission=False, tas_balanced_placement=True
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [("0s", 0.0), ("1.5h", 5400.0), ("2h3m4s5ms", 7384.005), ("90m", 5400.0), ("7ms", 0.007)],
)
def test_duration_is_the_sum_of_its_parts(text, want):
    assert parse_duration(text) == want


@pytest.mark.parametrize("text", ["", "5", "h", "1h ", "-1h", "1h 5m", "1d", "1hour"])
def test_text_that_is_no_duration_is_named(text):
    with pytest.raises(ValueError, match=f"^not a duration: {text!r}$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("section", "want"),
    [
        (None, 1.0),
        ({}, 1.0),
        ({"weight": None}, 1.0),
        ({"weight": "0"}, 0.0),
        ({"weight": 3}, 3.0),
        ({"weight": "250m"}, 0.25),
    ],
    ids=str,
)
def test_weight_is_one_unless_it_is_said(section, want):
    assert parse_weight(section) == want


def test_everything_that_is_not_followed_is_told():
    document = {
        "featureGates": {"QuotaForAll": True, "Another": False},
        "resources": {"deviceClassMappings": [{"name": "a"}, {"name": "b", "sources": [{}]}]},
    }
    assert not_followed(document) == [
        "Another is no gate of Kueue 0.19",
        "QuotaForAll is no gate of Kueue 0.19",
        "resources.deviceClassMappings[1].sources: devices count as b by what they consume, not "
        "one by one, and jobs that claim them are refused",
    ]
    assert not_followed({"featureGates": None, "resources": None}) == []


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
