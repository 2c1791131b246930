"""Which flavor a workload gets, and what is said when it gets none."""

from __future__ import annotations

import pytest

from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    cohort,
    flavor,
    group,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)

TRY_NEXT = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
SPOT = flavor(
    "spot",
    nodeLabels={"pool": "spot"},
    nodeTaints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}],
)
TOLERATES = [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]


def affinity(*terms: list[dict[str, object]]) -> dict[str, object]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pod_extra", "want_flavor"),
    [
        pytest.param({"tolerations": TOLERATES}, "spot", id="taint tolerated"),
        pytest.param({}, "f0", id="taint not tolerated"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, "spot", id="everything tolerated"),
        pytest.param(
            {"tolerations": TOLERATES, "nodeSelector": {"pool": "other"}},
            "f0",
            id="selector refuses the flavor that labels the key",
        ),
        pytest.param(
            {"tolerations": TOLERATES, "nodeSelector": {"zone": "a"}},
            "spot",
            id="selector on a foreign key does not count",
        ),
        pytest.param(
            {"tolerations": TOLERATES, "affinity": affinity([expression("pool", "In", "x")])},
            "f0",
            id="affinity refuses",
        ),
        pytest.param(
            {
                "tolerations": TOLERATES,
                "affinity": affinity(
                    [expression("pool", "In", "x")], [expression("zone", "In", "a")]
                ),
            },
            "spot",
            id="a term with foreign keys only accepts anything",
        ),
        pytest.param(
            {"tolerations": TOLERATES, "affinity": affinity([expression("pool", "NotIn", "x")])},
            "spot",
            id="NotIn",
        ),
        pytest.param(
            {"tolerations": TOLERATES, "affinity": affinity([expression("pool", "DoesNotExist")])},
            "f0",
            id="DoesNotExist",
        ),
    ],
)
def test_flavor_follows_taints_and_labels(pod_extra, want_flavor):
    world = World(None, SPOT).feed(
        cluster_queue("q", group(spot=quota(8), f0=quota(8))),
        workload("w", "q", pod_set({GPU: 1}, **pod_extra)),
    )
    admission = world.admitted()["w"]
    assert admission["podSetAssignments"][0]["flavors"] == {GPU: want_flavor}


def test_flavor_missing_stops_the_queue():
    world = World().feed(cluster_queue("q", group(gone=quota(8))), workload("w", "q", gpus=1))
    assert world.run() == []
    assert world.message("w") == "ClusterQueue q is inactive"


@pytest.mark.parametrize(
    ("fungibility", "used", "want_flavor"),
    [
        pytest.param({}, 0, "f0", id="first flavor fits"),
        pytest.param({}, 3, "f0", id="borrowing stops the search by default"),
        pytest.param({"whenCanBorrow": "TryNextFlavor"}, 3, "f1", id="next before borrowing"),
        pytest.param({"whenCanPreempt": "MayStopSearch"}, 9, "f1", id="no candidates: next"),
    ],
)
def test_fungibility_decides_when_to_go_on(fungibility, used, want_flavor):
    world = World(None, flavor("f1")).feed(
        cluster_queue(
            "q",
            group(f0=quota(4), f1=quota(4)),
            in_cohort="pool",
            flavorFungibility=fungibility,
        ),
        cluster_queue("lender", group(f0=quota(5)), in_cohort="pool"),
        *([reserved(workload("old", "q", gpus=used), "q")] if used else []),
        workload("w", "q", gpus=2),
    )
    assert world.admitted()["w"]["podSetAssignments"][0]["flavors"] == {GPU: want_flavor}


@pytest.mark.parametrize(
    ("preference", "want_preempted"),
    [
        pytest.param({}, [], id="borrowing rather than preempting by default"),
        pytest.param({"preference": "PreemptionOverBorrowing"}, ["ns/low"], id="the other way"),
    ],
)
def test_preference_between_borrowing_and_preempting(preference, want_preempted):
    world = World(None, flavor("f1")).feed(
        cluster_queue(
            "q",
            group(f0=quota(4), f1=quota(0)),
            in_cohort="pool",
            flavorFungibility={**TRY_NEXT, **preference},
            preemption=preemption("LowerPriority"),
        ),
        cluster_queue("lender", group(f1=quota(8)), in_cohort="pool"),
        reserved(workload("low", "q", gpus=4), "q"),
        workload("w", "q", gpus=4, priority=9),
    )
    result = world.cycle()
    assert [item.key for item in result.preempted] == want_preempted


def test_pod_sets_may_get_different_flavors_and_add_up():
    world = World(None, flavor("f1")).feed(
        cluster_queue("q", group(f0=quota(4), f1=quota(8))),
        workload("w", "q", pod_set({GPU: 3}), pod_set({GPU: 2}, name="worker", count=2)),
    )
    assert world.admitted()["w"] == {
        "clusterQueue": "q",
        "podSetAssignments": [
            {"name": "main", "flavors": {GPU: "f0"}, "resourceUsage": {GPU: "3"}, "count": 1},
            {"name": "worker", "flavors": {GPU: "f1"}, "resourceUsage": {GPU: "4"}, "count": 2},
        ],
    }


def test_pod_set_group_shares_one_flavor():
    grouped = [
        pod_set({GPU: 3}) | {"topologyRequest": {"podSetGroupName": "g"}},
        pod_set({GPU: 3}, name="worker") | {"topologyRequest": {"podSetGroupName": "g"}},
    ]
    world = World(None, flavor("f1")).feed(
        cluster_queue("q", group(f0=quota(4), f1=quota(8))), workload("w", "q", *grouped)
    )
    flavors = [item["flavors"][GPU] for item in world.admitted()["w"]["podSetAssignments"]]
    assert flavors == ["f1", "f1"]


def test_resource_groups_choose_flavors_apart():
    world = World(None, flavor("host")).feed(
        cluster_queue(
            "q",
            group(f0=quota(4)),
            group(host=[quota(8, resource="cpu"), quota("16Gi", resource="memory")]),
        ),
        workload("w", "q", pod_set({GPU: 1, "cpu": "500m", "memory": "2Gi"}, count=2)),
    )
    assert world.admitted()["w"]["podSetAssignments"] == [
        {
            "name": "main",
            "flavors": {"cpu": "host", "memory": "host", GPU: "f0"},
            "resourceUsage": {"cpu": "1", "memory": "4Gi", GPU: "2"},
            "count": 2,
        }
    ]


def test_pods_are_counted_where_they_are_covered():
    world = World(None).feed(
        cluster_queue("q", group(f0=[quota(9), quota(2, resource="pods")])),
        workload("small", "q", pod_set({GPU: 1}, count=2)),
        workload("large", "q", pod_set({GPU: 1}, count=3), age=1),
    )
    assert list(world.admitted()) == ["small"]
    assert "insufficient quota for pods in flavor f0" in world.message("large")


@pytest.mark.parametrize(
    ("configuration", "want_message"),
    [
        pytest.param(None, "resource cpu unavailable in ClusterQueue", id="refused by default"),
        pytest.param(
            {"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}, "", id="ignored on demand"
        ),
    ],
)
def test_resource_that_no_group_covers(configuration, want_message):
    world = World(configuration).feed(
        cluster_queue("q", group(f0=quota(4))),
        workload("w", "q", pod_set({"cpu": 1}), pod_set({GPU: 2}, name="worker")),
    )
    admitted = world.admitted()
    if want_message:
        assert world.message("w") == f"couldn't assign flavors to pod set main: {want_message}"
    else:
        assert admitted["w"]["podSetAssignments"] == [
            {"name": "main", "count": 1},
            {"name": "worker", "flavors": {GPU: "f0"}, "resourceUsage": {GPU: "2"}, "count": 1},
        ]


def test_pod_set_with_ignored_requests_does_not_end_the_check():
    world = World({"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}).feed(
        cluster_queue("q", group(f0=quota(4))),
        workload("w", "q", pod_set({"cpu": 1}), pod_set({GPU: 300}, name="worker")),
    )
    assert world.admitted() == {}
    assert "pod set worker" in world.message("w")


def test_message_lists_every_flavor_and_pod_set():
    world = World(None, SPOT).feed(
        cluster_queue("q", group(spot=quota(8), f0=quota(4))),
        reserved(workload("old", "q", gpus=3), "q"),
        workload("w", "q", gpus=2),
        workload("big", "q", gpus=9, age=1),
    )
    world.run()
    assert world.message("w") == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu "
        "in flavor f0, 1 more needed, untolerated taint {spot true NoSchedule <nil>} in flavor spot"
    )
    assert world.message("big") == (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor "
        "f0, previously considered podsets requests (0) + current podset request (9) > maximum "
        "capacity (4), untolerated taint {spot true NoSchedule <nil>} in flavor spot"
    )


@pytest.mark.parametrize(
    ("document", "want_reason"),
    [
        pytest.param(workload("w", "q", gpus=9), "ExceedsMaxQuota", id="more than there is"),
        pytest.param(workload("w", "q", gpus=2), "WaitingForQuota", id="others use it"),
        pytest.param(
            workload("w", "q", pod_set({GPU: 1}, nodeSelector={"pool": "x"})),
            "NoMatchingFlavor",
            id="no flavor matches",
        ),
    ],
)
def test_reason_tells_what_is_wrong(document, want_reason):
    world = World().feed(
        flavor("f0", nodeLabels={"pool": "a"}),
        cluster_queue("q", group(f0=quota(4))),
        reserved(workload("old", "q", gpus=3), "q"),
        document,
    )
    assert [item.reason for item in world.cycle().pending] == [want_reason]


@pytest.mark.parametrize(
    ("gate", "want_flavor"),
    [
        pytest.param(True, "f1", id="progress is kept: the next flavor"),
        pytest.param(False, "f0", id="gate off: from the first flavor again"),
    ],
)
def test_search_after_a_skip(gate, want_flavor):
    """Both heads nominate f0 in one cycle and only one fits; then there is room on f0 again."""
    gates = {"featureGates": {"FlavorFungibilityPreserveScanProgress": gate}}
    world = World(gates, flavor("f1")).feed(
        cluster_queue("a", group(f0=quota(0), f1=quota(4)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(0), f1=quota(4)), in_cohort="pool"),
        cohort("pool", f0=quota(4)),
        workload("first", "a", gpus=3),
        workload("second", "b", gpus=3, age=1),
    )
    first = world.cycle()
    assert [item.key for item in first.admitted] == ["ns/first"]
    assert [item.message for item in first.pending] == [
        "Workload no longer fits after processing another workload"
    ]
    world.engine.delete("Workload", key="ns/first", now=world.now)
    assert world.admitted()["second"]["podSetAssignments"][0]["flavors"] == {GPU: want_flavor}


def test_partial_admission_takes_as_many_pods_as_fit():
    world = World().feed(
        cluster_queue("q", group(f0=quota(10))),
        workload("w", "q", pod_set({GPU: 2}, count=8, min_count=2)),
        workload("none", "q", pod_set({GPU: 6}, count=4, min_count=2), age=1),
    )
    assert world.admitted()["w"]["podSetAssignments"] == [
        {"name": "main", "flavors": {GPU: "f0"}, "resourceUsage": {GPU: "10"}, "count": 5}
    ]


def test_partial_admission_can_be_switched_off():
    world = World({"featureGates": {"PartialAdmission": False}}).feed(
        cluster_queue("q", group(f0=quota(10))),
        workload("w", "q", pod_set({GPU: 2}, count=8, min_count=2)),
    )
    assert world.admitted() == {}


def test_reclaimable_pods_need_nothing():
    document = workload("w", "q", pod_set({GPU: 2}, count=5))
    document["status"] = {"reclaimablePods": [{"name": "main", "count": 3}]}
    world = World().feed(cluster_queue("q", group(f0=quota(4))), document)
    assert world.admitted()["w"]["podSetAssignments"][0]["count"] == 2
