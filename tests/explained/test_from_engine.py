"""From the engine's decisions to the sentence, without a database."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.explaining.evidence import read_evidence
from clusters.explaining.findings import Explained, explained
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.why import Explainer, explain
from clusters.reconcile.explained.reporter import evidence_of
from clusters.reconcile.shadow.body import Preview
from clusters.reconcile.warm_engine import by_quota_alone
from tests.explained.evidence import EVERYTHING
from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    flavor,
    group,
    local_queue,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)
from tests.kueue.test_devices import CLASS, H100, MAPPED, claiming, exactly
from tests.kueue.test_devices import template as claim_template
from tests.kueue.test_nomination import sliced
from tests.kueue.test_topology import (
    BLOCK,
    HOST,
    RACK,
    asking,
    fleet,
    node,
    racks,
    topology,
)

FEW = 'no flavor: topology "topo" allows to fit only 5 out of 8 pod(s)'


def told(world: World, name: str, document: dict[str, Any] | None = None) -> Explained:
    world.run()
    return told_now(world, name, document)


def told_now(world: World, name: str, document: dict[str, Any] | None = None) -> Explained:
    """Without another cycle: what its last one found may not be so any more."""
    found = explain(world.engine, f"ns/{name}", now=world.now)
    assert found is not None
    return explained(read_evidence(evidence_of(found, document or {})), EVERYTHING)


def test_own_jobs_hold_everything():
    world = World().feed(
        cluster_queue("q", group(f0=quota(16, 0)), preemption=preemption("LowerPriority")),
        reserved(workload("first", "q", gpus=16), "q"),
        workload("w", "q", gpus=8),
    )
    found = told(world, "w")
    assert found.sentence == (
        "Waits for 8 f0: 8 more are needed; 16 of its 16 committed are in use and none may be "
        "borrowed."
    )
    [holder] = found.holders
    assert (holder.name, holder.amounts) == ("ns/first", "16 f0")
    assert holder.protection == "its priority, or its age, protects it"


def test_committed_quota_is_lent():
    world = World().feed(
        cluster_queue("a", group(f0=quota(8, 0)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(0, 8)), in_cohort="pool"),
        reserved(workload("taker", "b", gpus=8), "b"),
        workload("mine", "a", gpus=4),
    )
    found = told(world, "mine")
    assert found.sentence == "Starts when 4 of the 8 f0 lent to b come back."
    assert found.holders[0].protection == "the budget reclaims nothing from others"


def test_reclaim_makes_it_wait_for_those_that_stop():
    world = World().feed(
        cluster_queue(
            "a", group(f0=quota(8, 0)), in_cohort="pool", preemption=preemption("Never", "Any")
        ),
        cluster_queue("b", group(f0=quota(0, 8)), in_cohort="pool"),
        reserved(workload("taker", "b", gpus=8), "b"),
        workload("mine", "a", gpus=4),
    )
    assert world.cycle().preempted
    found = explain(world.engine, "ns/mine", now=world.now)
    assert found is not None
    sentence = explained(read_evidence(evidence_of(found, {})), EVERYTHING).sentence
    assert sentence == "It starts when jobs that were told to make room have stopped."


def test_job_is_larger_than_the_budget():
    world = World().feed(cluster_queue("q", group(f0=quota(16, 0))), workload("w", "q", gpus=64))
    found = told(world, "w")
    assert found.sentence == "It asks for 64 f0, and its budget never has more than 16 f0."
    assert found.remedies[0] == "Ask for 16 f0 or less in one job."


def test_no_flavor_suits_it():
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    world = World(None, flavor("f1", nodeTaints=[taint])).feed(
        cluster_queue("q", group(f1=quota(16))), workload("w", "q", gpus=8)
    )
    assert told(world, "w").sentence == (
        "No flavor of its budget suits it (f1: the job does not tolerate its taint spot=true "
        "(NoSchedule))."
    )


def test_place_in_the_queue():
    world = World().feed(
        cluster_queue("q", group(f0=quota(8, 0)), queueingStrategy="StrictFIFO"),
        reserved(workload("first", "q", gpus=8), "q"),
        *(workload(f"w{age}", "q", gpus=8, age=age) for age in range(3)),
    )
    found = told(world, "w2")
    assert "third in its queue" in found.sentence
    assert (found.position, found.waiting) == (3, 3)


def test_budget_is_on_hold():
    world = World().feed(
        cluster_queue("q", group(f0=quota(8)), stopPolicy="Hold"), workload("w", "q", gpus=8)
    )
    assert told(world, "w").sentence.startswith("Its budget is on hold: nothing starts until")


def test_queue_is_on_hold():
    world = World().feed(cluster_queue("q", group(f0=quota(8))))
    world.feed(local_queue("q", "q", stopPolicy="Hold"), workload("w", "q", gpus=8))
    assert told(world, "w").sentence.startswith("Its LocalQueue was stopped on the cluster")


def test_job_that_the_spend_check_turned_back_is_not_told_as_deactivated():
    """As Kueue leaves a workload whose check was rejected: Evicted names the check."""
    document = workload("w", "q", gpus=8)
    document["spec"]["active"] = False
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "DeactivatedDueToAdmissionCheck",
        "message": 'The workload is deactivated: "gpu-budget-portal-spend" is rejected',
        "lastTransitionTime": "2026-03-02T10:00:00Z",
    }
    document["status"] = {"conditions": [evicted]}
    world = World().feed(cluster_queue("q", group(f0=quota(8))), document)
    assert told(world, "w", document).sentence.startswith("A spend cap held it back")
    document["status"] = {}
    assert told(world, "w", document).sentence.startswith("It is deactivated")


def test_check_is_pending():
    check = {"kind": "AdmissionCheck", "metadata": {"name": "budget"}, "spec": {}}
    check["status"] = {"conditions": [{"type": "Active", "status": "True"}]}
    world = World(None, check).feed(
        cluster_queue(
            "q",
            group(f0=quota(8)),
            admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]},
        ),
        document := workload("w", "q", gpus=8),
    )
    states = [{"name": "budget", "state": "Pending", "message": "The cap is reached."}]
    document["status"] = {"admissionChecks": states}
    assert told(world, "w", document).sentence == (
        "It has its quota and waits for the check budget: The cap is reached."
    )


FULL = "16 of its {} committed are in use and none may be borrowed."


def of_quota(nominal: int) -> dict[str, Any]:
    return cluster_queue("q", group(f0=quota(nominal, 0)))


def test_budget_that_was_raised_is_not_told_as_too_small():
    running = reserved(workload("first", "q", gpus=16), "q")
    world = World().feed(of_quota(16), running, workload("w", "q", gpus=20))
    assert told(world, "w").sentence == (
        "It asks for 20 f0, and its budget never has more than 16 f0."
    )
    found = told_now(world.feed(of_quota(24)), "w")
    assert found.sentence == f"Waits for 20 f0: 12 more are needed; {FULL.format(24)}"
    assert "Raise the committed GPUs by 12 f0." in found.remedies
    assert found.reason == "ExceedsMaxQuota", "as its condition still says"


def test_budget_that_was_lowered_is_told_as_too_small():
    running = reserved(workload("first", "q", gpus=16), "q")
    world = World().feed(of_quota(24), running, workload("w", "q", gpus=20))
    assert told(world, "w").sentence.startswith("Waits for 20 f0: 12 more")
    found = told_now(world.feed(of_quota(16)), "w")
    assert found.sentence == "It asks for 20 f0, and its budget never has more than 16 f0."
    assert found.remedies[0] == "Ask for 16 f0 or less in one job."


def test_slice_of_an_elastic_job_waits_for_its_difference_as_of_now():
    old = reserved(workload("old", "q", pod_set({GPU: 1}, count=3)), "q")
    other = reserved(workload("other", "q", gpus=2), "q")
    world = World().feed(of_quota(6), old, other, sliced("new", 8, of="old"))
    assert told(world, "new").sentence == (
        "Waits for 5 f0: 4 more are needed; 5 of its 6 committed are in use and none may be "
        "borrowed."
    )
    world.engine.delete("Workload", key="ns/other", now=world.now)
    assert told_now(world, "new").sentence == (
        "Waits for 5 f0: 2 more are needed; 3 of its 6 committed are in use and none may be "
        "borrowed."
    )


def test_slice_is_not_told_to_wait_for_a_flavor_that_its_older_one_rules_out():
    old = reserved(workload("old", "q", pod_set({GPU: 1}, count=3)), "q", flavor="f1")
    world = World(None, flavor("f1")).feed(
        cluster_queue("q", group(f0=quota(4, 0), f1=quota(4, 0))), old, sliced("new", 8, of="old")
    )
    found = told(world, "new")
    assert found.sentence == "It asks for 5 f1, and its budget never has more than 4 f1."
    assert found.flavors[0].words.startswith("the cluster says: could not assign f0")


def test_how_many_pods_fit_is_counted_now():
    world = fleet(*racks(b1_r1=5, b1_r2=5))
    world.feed(workload("w", "q", asking(8, required=RACK)))
    world.run()
    world.feed(node("b1-r1-n6", "b1-r1"))
    assert told_now(world, "w").sentence == (
        "Its pods with 64 f0 cannot be placed together in topology topo, as the job asks: 6 of 8 "
        "pods would fit, though 1,000 f0 are free in the quota."
    )
    world.feed(node("b1-r1-n7", "b1-r1"), node("b1-r1-n8", "b1-r1"))
    assert told_now(world, "w").sentence == "There is room for it now, and it is tried again."


@pytest.mark.parametrize("reason", ["Pending", "WaitingForQuota"])
def test_what_follows_a_kueue_says_the_same_of_a_job_that_no_rack_holds(reason: str):
    """It knows no nodes: what Kueue told and the quota beside it come to the same sentence."""
    documents = [
        topology(BLOCK, RACK, HOST),
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        cluster_queue("q", group(f0=quota(80))),
    ]
    job = workload("w", "q", asking(8, required=RACK))
    deciding = World().feed(*documents, *racks(b1_r1=5, b1_r2=5), job)
    want = told(deciding, "w").sentence
    assert want == (
        "Its pods with 64 f0 cannot be placed together in topology topo, as the job asks: 5 of 8 "
        "pods would fit, though 80 f0 are free in the quota."
    )

    following = World()
    following.engine = Engine(by_quota_alone(None))
    following.feed({"kind": "Namespace", "metadata": {"name": "ns"}}, *documents)
    message = deciding.message("w")
    waits = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    shown = {**job, "status": {"conditions": [waits]}}
    following.feed(shown)
    view = Preview(following.engine, {"ns/w": shown}, now=following.now)
    found = view.explain("ns/w")
    assert found is not None
    assert (found.reason, found.message, found.within) == (reason, message, RACK)
    told_of_it = explained(read_evidence(evidence_of(found, shown)), EVERYTHING)
    assert told_of_it.sentence == want
    assert [(each.flavor, each.words) for each in told_of_it.flavors] == [("f0", "fits")]


def test_quota_that_a_kueue_did_not_speak_of_is_not_told_beside_its_words():
    following = World()
    following.engine = Engine(by_quota_alone(None))
    other = reserved(workload("other", "q", gpus=6), "q")
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": FEW}
    shown = {**workload("w", "q", gpus=8), "status": {"conditions": [waits]}}
    following.feed(
        {"kind": "Namespace", "metadata": {"name": "ns"}}, flavor("f0"),
        cluster_queue("q", group(f0=quota(8))), other, shown,
    )  # fmt: skip
    found = Explainer(following.engine, now=following.now).told(
        "ns/w", reason="Pending", message=FEW
    )
    assert found is not None
    assert (found.message, found.attempts, found.quota) == (FEW, (), {})


def test_pods_of_one_kind_are_not_said_to_have_what_all_ask_for():
    world = fleet(*racks(b1_r1=5, b1_r2=5))
    leader, workers = asking(1, name="leader", gpus=2), asking(8, name="workers", required=RACK)
    world.feed(workload("w", "q", leader, workers))
    assert "Its pods with 66 f0 cannot be placed" in told(world, "w").sentence
    assert "of 8 pods would fit" in told(world, "w").sentence


def test_slices_of_pods_are_not_told_as_pods():
    asks = asking(8, required=RACK, podSetSliceRequiredTopology=HOST, podSetSliceSize=2, gpus=4)
    world = fleet(*racks(b1_r1=3)).feed(workload("w", "q", asks))
    assert "3 of 4 slices would fit" in told(world, "w").sentence


def test_slices_within_slices_that_find_no_place_are_not_said_to_have_room():
    layers = [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]
    asks = asking(8, gpus=1, required=BLOCK, podsetSliceRequiredTopologyConstraints=layers)
    world = fleet(node("n0", "b1-r1", gpus=4)).feed(workload("w", "q", asks))
    assert told(world, "w").sentence == (
        "Its pods with 8 f0 cannot be placed together in topology topo, as the job asks, though "
        "1,000 f0 are free in the quota."
    )


def test_what_another_resource_lacks_is_told_in_its_unit():
    cpus = quota(2, 0, resource="cpu")
    world = World().feed(
        cluster_queue("q", group(f0=[quota(16, 0), cpus])),
        reserved(workload("first", "q", pod_set({"cpu": 1})), "q"),
        workload("w", "q", pod_set({GPU: 1, "cpu": "1500m"})),
    )
    assert told(world, "w").sentence == (
        "Waits for 0.5 CPUs more; 1 CPU of its 2 CPUs committed are in use and none may be "
        "borrowed."
    )


def test_resource_that_is_too_small_is_told_where_gpus_are_short_too():
    world = World().feed(
        cluster_queue("q", group(f0=[quota(16, 0), quota(2, 0, resource="cpu")])),
        reserved(workload("first", "q", gpus=16), "q"),
        workload("w", "q", pod_set({GPU: 4, "cpu": 3})),
    )
    assert told(world, "w").sentence == (
        "It asks for 3 CPUs, and its budget never has more than 2 CPUs."
    )


CLAIMING = [
    pytest.param(
        [],
        "It cannot start as it is: its pods claim devices by the ResourceClaimTemplate t, which is "
        "not in its namespace; create it, and the job goes on by itself.",
        id="no template",
    ),
    pytest.param(
        [claim_template("t", exactly(2, of="other"))],
        "It cannot start as it is: its pods claim devices of class other, and no budget on this "
        "cluster counts that class (resources.deviceClassMappings).",
        id="no mapping of the class",
    ),
    pytest.param(
        [claim_template("t", exactly(allocationMode="All"))],
        "It cannot start as it is: its ResourceClaimTemplate t claims all devices that there are; "
        "say in count how many.",
        id="all",
    ),
    pytest.param(
        [claim_template("t", {"firstAvailable": []})],
        "It cannot start as it is: its ResourceClaimTemplate t leaves open which devices it claims "
        "(firstAvailable); claim one class (exactly).",
        id="one of several",
    ),
    pytest.param(
        [claim_template("t", exactly(adminAccess=True))],
        "It cannot start as it is: its ResourceClaimTemplate t asks for devices that others use "
        "(adminAccess), which no budget counts.",
        id="devices of others",
    ),
    pytest.param(
        [claim_template("t", exactly(selectors=[{"cel": {}}]))],
        "It cannot start as it is: its ResourceClaimTemplate t selects devices by CEL, which the "
        "portal cannot check; claim a DeviceClass that has those devices alone.",
        id="selected",
    ),
    pytest.param(
        [claim_template("t", exactly(6)), reserved(workload("r", "q", pod_set({H100: 5})), "q")],
        f"Waits for 6 {H100} of f0: 3 more are needed; 5 of its 8 committed are in use and none "
        "may be borrowed.",
        id="too few are free",
    ),
    pytest.param(
        [claim_template("t", exactly(9))],
        f"It asks for 9 {H100} of f0, and its budget never has more than 8 {H100} of f0.",
        id="too few ever",
    ),
]


@pytest.mark.parametrize(("documents", "want"), CLAIMING)
def test_devices_of_a_claim_are_told_with_their_number_or_why_they_do_not_count(documents, want):
    queue = cluster_queue(
        "q", group(f0=quota(8, 0, resource=H100)), group(host=quota(100, resource="cpu"))
    )
    world = World(MAPPED, flavor("host"), queue, *documents, claiming("w", "t"))
    assert told(world, "w").sentence == want


@pytest.mark.parametrize(
    ("configuration", "claims", "want"),
    [
        pytest.param(
            {},
            [{"name": "a", "resourceClaimTemplateName": "t"}],
            "It cannot start as it is: its pods claim devices by the ResourceClaimTemplate t, and "
            "on this cluster no device of a claim counts against a budget "
            "(resources.deviceClassMappings is empty).",
            id="nothing is mapped",
        ),
        pytest.param(
            MAPPED,
            [{"name": "a", "resourceClaimName": "c"}],
            "It cannot start as it is: its pods share a ResourceClaim, whose devices cannot be "
            "counted for one job; claim them by a ResourceClaimTemplate.",
            id="a claim that is there",
        ),
        pytest.param(
            {"featureGates": {"KueueDRAIntegration": False}},
            [{"name": "a", "resourceClaimTemplateName": "t"}],
            "It cannot start as it is: its pods claim devices, and claims are switched off on this "
            "cluster (KueueDRAIntegration).",
            id="the gate is off",
        ),
        pytest.param(
            {
                "resources": {
                    "deviceClassMappings": [
                        {"name": H100, "deviceClassNames": [CLASS], "sources": [{"counter": {}}]}
                    ]
                }
            },
            [{"name": "a", "resourceClaimTemplateName": "t"}],
            f"It cannot start as it is: its pods ask for devices of class {CLASS}, of which parts "
            "count (sources in resources.deviceClassMappings), and the portal counts whole "
            "devices.",
            id="parts of devices",
        ),
    ],
)
def test_cluster_that_counts_no_such_claim_is_told_with_the_setting(configuration, claims, want):
    queue = cluster_queue("q", group(f0=quota(100, resource="cpu")))
    pods = pod_set({"cpu": 1}, resourceClaims=claims)
    world = World(configuration, queue, claim_template("t", exactly()), workload("w", "q", pods))
    assert told(world, "w").sentence == want
