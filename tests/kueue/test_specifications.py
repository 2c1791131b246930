"""Documents of quota objects, each read whole: everything set, and nothing but what is required."""

from __future__ import annotations

from typing import Any

import pytest

from budgets.plan import StopPolicy
from clusters.documents import labels
from clusters.kueue.amounts import FlavorResource
from clusters.kueue.queueing.readiness import (
    ActiveCondition,
    local_queue_condition,
    queue_condition,
    relate_to_topology,
)
from clusters.kueue.quota.resource_node import Quota, ResourceNode
from clusters.kueue.quota.specifications import (
    PROVISIONING_CONTROLLER,
    CheckSpec,
    ClusterQueueSpec,
    CohortSpec,
    FlavorSpec,
    Fungibility,
    LocalQueueSpec,
    PreemptionPolicy,
    PreemptionRules,
    QueueingStrategy,
    ResourceGroup,
    parse_check,
    parse_cluster_queue,
    parse_cohort,
    parse_flavor,
    parse_local_queue,
)
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.workload.matching import Taint, Toleration, parse_selector
from tests.kueue.builders import GPU, flavor, local_queue

NOTHING_SET = {"metadata": {"name": "x"}}
SELECTOR = {"matchLabels": {"team": "a"}}
GROUPS = [
    {
        "coveredResources": ["cpu", GPU],
        "flavors": [
            {
                "name": "f0",
                "resources": [
                    {
                        "name": "cpu",
                        "nominalQuota": "1500m",
                        "borrowingLimit": 2,
                        "lendingLimit": "500m",
                    },
                    {"name": GPU, "nominalQuota": "8"},
                ],
            },
            {"name": "f1", "resources": [{"name": GPU, "lendingLimit": "0"}]},
            {"name": "f2"},
        ],
    },
    {"coveredResources": ["memory"]},
    {},
]
READ_GROUPS = (
    ResourceGroup(("cpu", GPU), ("f0", "f1", "f2")),
    ResourceGroup(("memory",), ()),
    ResourceGroup((), ()),
)
READ_QUOTAS = {
    FlavorResource("f0", "cpu"): Quota(1500, 2000, 500),
    FlavorResource("f0", GPU): Quota(8),
    FlavorResource("f1", GPU): Quota(0, None, 0),
}


def test_cluster_queue_is_read_whole():
    document = {
        "metadata": {"name": "q", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "cohortName": "pool",
            "resourceGroups": GROUPS,
            "queueingStrategy": "StrictFIFO",
            "namespaceSelector": SELECTOR,
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "MayStopSearch",
                "preference": "PreemptionOverBorrowing",
            },
            "preemption": {
                "withinClusterQueue": "LowerOrNewerEqualPriority",
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7},
            },
            "stopPolicy": "HoldAndDrain",
            "fairSharing": {"weight": "1500m"},
            "admissionChecksStrategy": {
                "admissionChecks": [{"name": "c", "onFlavors": ["f0", "f1"]}, {"name": "d"}]
            },
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        },
    }
    assert parse_cluster_queue(document) == ClusterQueueSpec(
        name="q",
        cohort="pool",
        groups=READ_GROUPS,
        quotas=READ_QUOTAS,
        strategy=QueueingStrategy.STRICT_FIFO,
        namespace_selector=parse_selector(SELECTOR),
        fungibility=Fungibility(
            tries_next_before_borrowing=True,
            tries_next_before_preempting=False,
            prefers_preemption=True,
        ),
        preemption=PreemptionRules(
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            PreemptionPolicy.ANY,
            PreemptionPolicy.LOWER_PRIORITY,
            7,
        ),
        stop_policy=StopPolicy.HOLD_AND_DRAIN,
        weight=1.5,
        checks={"c": frozenset({"f0", "f1"}), "d": frozenset()},
        is_usage_based=True,
        is_deleted=True,
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="no specification"),
        pytest.param({"spec": None}, id="an empty one"),
        pytest.param(
            {
                "spec": {
                    "cohortName": None,
                    "resourceGroups": None,
                    "queueingStrategy": None,
                    "namespaceSelector": None,
                    "flavorFungibility": None,
                    "preemption": None,
                    "stopPolicy": None,
                    "fairSharing": None,
                    "admissionChecksStrategy": None,
                    "admissionScope": None,
                }
            },
            id="nothing in any field",
        ),
        pytest.param(
            {
                "spec": {
                    "queueingStrategy": "BestEffortFIFO",
                    "flavorFungibility": {
                        "whenCanBorrow": "MayStopSearch",
                        "preference": "BorrowingOverPreemption",
                    },
                    "preemption": {"borrowWithinCohort": {"policy": "Never"}},
                    "fairSharing": {},
                    "admissionChecksStrategy": {"admissionChecks": None},
                    "admissionScope": {"admissionMode": "NoAdmissionFairSharing"},
                    "stopPolicy": "None",
                }
            },
            id="what is set by default",
        ),
    ],
)
def test_cluster_queue_that_says_little_is_one_with_the_defaults(spec):
    assert parse_cluster_queue({**NOTHING_SET, **spec}) == ClusterQueueSpec(name="x")


def test_defaults_of_a_cluster_queue_are_those_of_the_api():
    found = ClusterQueueSpec(name="x")
    assert not found.namespace_selector.matches({"kubernetes.io/metadata.name": "x"})
    assert not found.preemption.may_borrow_while_preempting
    rules = PreemptionRules(borrow_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    assert rules.may_borrow_while_preempting
    assert (found.fungibility.tries_next_before_borrowing, found.weight) == (False, 1.0)
    assert found.fungibility.tries_next_before_preempting


@pytest.mark.parametrize(
    ("field", "value", "want"),
    [
        ("queueingStrategy", "Fifo", "'Fifo' is not a valid QueueingStrategy"),
        ("stopPolicy", "Stop", "'Stop' is not a valid StopPolicy"),
        (
            "preemption",
            {"withinClusterQueue": "Some"},
            "'Some' is not a valid PreemptionPolicy",
        ),
    ],
)
def test_word_that_the_api_does_not_know_is_refused(field, value, want):
    with pytest.raises(ValueError, match=want):
        parse_cluster_queue({**NOTHING_SET, "spec": {field: value}})


@pytest.mark.parametrize(
    ("flavors", "want"),
    [
        ([], ("both",)),
        (["f0"], ("both", "first")),
        (["f1"], ("both", "second")),
        (["f0", "f1"], ("both", "first", "second")),
        (["f9"], ("both",)),
    ],
    ids=str,
)
def test_checks_of_a_workload_are_those_of_its_flavors(flavors, want):
    checks = {"second": frozenset({"f1"}), "first": frozenset({"f0"}), "both": frozenset()}
    assert ClusterQueueSpec(name="x", checks=checks).checks_for(flavors) == want


def test_cohort_is_read_whole():
    document = {
        "metadata": {"name": "pool"},
        "spec": {
            "parentName": "top",
            "resourceGroups": GROUPS,
            "fairSharing": {"weight": "2"},
        },
    }
    assert parse_cohort(document) == CohortSpec("pool", "top", READ_QUOTAS, 2.0)
    empty = {"parentName": None, "resourceGroups": None, "fairSharing": None}
    for spec in ({}, {"spec": None}, {"spec": empty}):
        assert parse_cohort({**NOTHING_SET, **spec}) == CohortSpec("x", "", {}, 1.0)


def test_local_queue_is_read_whole():
    document = local_queue("l", "q", stopPolicy="Hold")
    assert parse_local_queue(document) == LocalQueueSpec("ns/l", "ns", "q", StopPolicy.HOLD)
    for spec in ({}, {"spec": None}, {"spec": {"clusterQueue": None, "stopPolicy": None}}):
        found = parse_local_queue({**NOTHING_SET, **spec})
        assert found == LocalQueueSpec("/x", "", "", StopPolicy.NONE)


def test_check_is_read_whole():
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    document = {
        "metadata": {"name": "c"},
        "spec": {"controllerName": "example.com/checks"},
        "status": active,
    }
    assert parse_check(document) == CheckSpec("c", "example.com/checks", is_active=True)
    active["conditions"][0]["status"] = "False"
    assert parse_check(document) == CheckSpec("c", "example.com/checks", is_active=False)
    for spec in ({}, {"spec": None}, {"spec": {"controllerName": None}}):
        assert parse_check({**NOTHING_SET, **spec}) == CheckSpec("x", "", is_active=False)


def test_flavor_is_read_whole():
    document = flavor(
        "f",
        nodeLabels={"pool": "a"},
        nodeTaints=[{"key": "k", "value": "v", "effect": "NoSchedule"}],
        tolerations=[{"key": "t", "operator": "Exists"}],
        topologyName="topo",
    )
    assert parse_flavor(document) == FlavorSpec(
        "f",
        {"pool": "a"},
        (Taint("k", "v", "NoSchedule"),),
        (Toleration("t", "Exists"),),
        "topo",
    )
    empty = {"nodeLabels": None, "nodeTaints": None, "tolerations": None, "topologyName": None}
    for spec in ({}, {"spec": None}, {"spec": empty}):
        assert parse_flavor({**NOTHING_SET, **spec}) == FlavorSpec("x", {}, (), (), "")


# What they mean for the queue


FLAVORS = {
    "placed": FlavorSpec("placed", topology="topo"),
    "lost": FlavorSpec("lost", topology="gone"),
    "free": FlavorSpec("free"),
}
CHECKS = {
    "nodes": CheckSpec("nodes", PROVISIONING_CONTROLLER, is_active=True),
    "workers": CheckSpec("workers", labels.MULTIKUEUE, is_active=True),
    "other": CheckSpec("other", "example.com/checks", is_active=True),
}


def spec_of(*flavors: str, checks: dict[str, Any] | None = None, **changes: Any) -> Any:
    groups = tuple(ResourceGroup((f"r{index}",), (name,)) for index, name in enumerate(flavors))
    on = {name: frozenset(names) for name, names in (checks or {}).items()}
    return ClusterQueueSpec("q", groups=groups, checks=on, **changes)


@pytest.mark.parametrize(
    ("flavors", "checks", "want"),
    [
        pytest.param([], {}, (True, False, set()), id="no flavor"),
        pytest.param(["placed"], {}, (True, False, set()), id="placed"),
        pytest.param(["placed", "free"], {}, (False, False, set()), id="one is not placed"),
        pytest.param(["placed", "f9"], {}, (False, False, set()), id="one is not there"),
        pytest.param(["free"], {"workers": []}, (False, True, set()), id="dispatched"),
        pytest.param(["free"], {"gone": [], "other": []}, (False, False, set()), id="other checks"),
        pytest.param(
            ["placed", "free"],
            {"nodes": []},
            (False, False, {"placed", "free"}),
            id="nodes are made for all",
        ),
        pytest.param(
            ["placed", "free"],
            {"other": ["free"], "nodes": ["placed"], "gone": []},
            (False, False, {"placed"}),
            id="nodes are made for one",
        ),
    ],
)
def test_what_flavors_and_checks_mean_for_placement(flavors, checks, want):
    state = ClusterQueueState(spec_of(*flavors, checks=checks), ResourceNode("q"))
    relate_to_topology(state, flavors=FLAVORS, checks=CHECKS)
    assert (state.is_placed_only, state.is_remote, state.provisioned) == want
    other = ClusterQueueState(state.spec, ResourceNode("q"))
    other.follow(state)
    assert (other.is_placed_only, other.is_remote, other.provisioned) == want


@pytest.mark.parametrize(
    ("spec", "topologies", "want_reason", "want_text"),
    [
        pytest.param(spec_of("placed"), {"topo"}, "Ready", "", id="its topology is there"),
        pytest.param(spec_of("free", "lost"), None, "Ready", "", id="nobody asks for one"),
        pytest.param(
            spec_of("lost", "placed", "f9", "free"),
            set(),
            "FlavorNotFound",
            "references missing ResourceFlavor(s): f9, "
            'there is no Topology "gone" for TAS flavor "lost", '
            'there is no Topology "topo" for TAS flavor "placed"',
            id="neither flavor nor topologies",
        ),
        pytest.param(
            spec_of("lost"),
            {"topo"},
            "TopologyNotFound",
            'there is no Topology "gone" for TAS flavor "lost"',
            id="its topology is not there",
        ),
        pytest.param(
            spec_of("lost", checks={"workers": []}), {"topo"}, "Ready", "", id="workers place"
        ),
        pytest.param(
            spec_of("f9", "f8", checks={"z": [], "gone": []}, stop_policy=StopPolicy.HOLD),
            None,
            "Stopped",
            "is stopped, references missing ResourceFlavor(s): f9,f8, "
            "references missing AdmissionCheck(s): gone,z",
            id="everything at once",
        ),
    ],
)
def test_condition_of_a_queue_by_its_topologies(spec, topologies, want_reason, want_text):
    found = queue_condition(spec, flavors=FLAVORS, checks=CHECKS, topologies=topologies)
    text = f"Can't admit new workloads: {want_text}." if want_text else "Can admit new workloads"
    assert found == ActiveCondition(not want_text, want_reason, text)


def test_queue_that_is_deleted_says_nothing_else():
    found = queue_condition(spec_of("f9", is_deleted=True), flavors={}, checks={})
    text = "Can't admit new workloads; clusterQueue is terminating"
    assert found == ActiveCondition(False, "Terminating", text)


@pytest.mark.parametrize(
    ("checks", "want"),
    [
        pytest.param({"workers": [], "nodes": []}, "MultiKueueWithProvisioningRequest", id="both"),
        pytest.param({"nodes": [], "other": []}, "Ready", id="no workers"),
        pytest.param({"workers": [], "other": []}, "Ready", id="no nodes are made"),
        pytest.param(
            {"workers": ["free"]}, "MultiKueueAdmissionCheckAppliedPerFlavor", id="for a flavor"
        ),
    ],
)
def test_checks_that_do_not_go_together_keep_a_queue_from_admitting(checks, want):
    found = queue_condition(spec_of("free", checks=checks), flavors=FLAVORS, checks=CHECKS)
    assert (found.reason, found.is_active) == (want, want == "Ready")


def test_local_queue_of_a_queue_that_is_stopped_is_stopped_itself_where_it_says_so():
    spec = LocalQueueSpec("ns/l", "ns", "q")
    above = ActiveCondition(False, "Stopped", "is stopped")
    text = "Can't submit new workloads to clusterQueue"
    assert local_queue_condition(spec, queue=above) == ActiveCondition(
        False, "ClusterQueueIsInactive", text
    )
