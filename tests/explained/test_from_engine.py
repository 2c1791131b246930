"""From the engine's decisions to the sentence, without a database."""

from __future__ import annotations

from typing import Any

from clusters.explaining.evidence import read_evidence
from clusters.explaining.findings import Explained, explained
from clusters.kueue.explanation.why import explain
from clusters.reconcile.explained.reporter import evidence_of
from tests.explained.evidence import EVERYTHING
from tests.kueue.builders import (
    World,
    cluster_queue,
    flavor,
    group,
    local_queue,
    preemption,
    quota,
    reserved,
    workload,
)


def told(world: World, name: str, document: dict[str, Any] | None = None) -> Explained:
    world.run()
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
    assert told(world, "w", document).sentence.startswith("A spend rule held it back")
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
