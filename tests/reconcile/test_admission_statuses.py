"""What a status says at each step, as a real Kueue says it; tests/stories has whole runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.kube import resources as r
from clusters.kueue.cycle.decisions import Admit, Pending, Preempt
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.lifecycle.decide import next_steps
from clusters.kueue.lifecycle.steps import (
    Evict,
    ExplainWaiting,
    MarkRequeued,
    TargetDeactivation,
    Withdraw,
)
from clusters.reconcile import workload_status as status
from clusters.reconcile.admission.plan import Surroundings, plan
from clusters.reconcile.admission.queue_status import queue_write
from clusters.reconcile.admission.steps import step_write
from clusters.reconcile.runtime.job_cache import JobCache
from tests.kueue.builders import World, cluster_queue, flavor, group, local_queue, quota, workload

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def shown(patch: Any) -> dict[str, tuple[str, str, str]]:
    return {
        entry["type"]: (entry["status"], entry["reason"], entry["message"])
        for entry in patch["status"]["conditions"]
    }


def document(*conditions: dict[str, str], **fields: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "generation": 2, "resourceVersion": "9"}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": list(conditions), **fields}}


def entry(kind: str, value: str = "True", reason: str = "R", message: str = "M") -> dict[str, Any]:
    at = "2026-01-01T11:00:00Z"
    return {
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": at,
    }  # fmt: skip


NO_RESERVATION = ("False", "NoReservation", "The workload has no reservation")


def test_workload_that_waits_says_what_it_asks_for_and_that_it_holds_nothing():
    decision = Pending("ns/w", "WaitingForQuota", "no room", "q", has_changed=True)
    asked = [{"name": "main", "resources": {"nvidia.com/gpu": "8"}}]
    patch = status.pending_patch(document(), decision, now=NOW, requests=asked)
    assert shown(patch) == {
        "QuotaReserved": ("False", "WaitingForQuota", "no room"),
        "Admitted": NO_RESERVATION,
    }
    assert patch["status"]["resourceRequests"] == asked


@pytest.mark.parametrize(("observed", "want_write"), [(2, False), (1, True)])
def test_reason_to_wait_is_told_again_only_of_another_generation(observed, want_write):
    told = entry("QuotaReserved", "False", "WaitingForQuota", "no room")
    decision = Pending("ns/w", "WaitingForQuota", "no room", "q", has_changed=False)
    known = document(told | {"observedGeneration": observed})
    assert (status.pending_patch(known, decision, now=NOW) is not None) is want_write


def test_reservation_takes_the_place_of_what_was_asked_for():
    decision = Admit("ns/w", {"clusterQueue": "q"}, True, (), "Quota reserved")
    known = document(resourceRequests=[{"name": "main", "resources": {}}])
    assert status.admit_patch(known, decision, now=NOW)["status"]["resourceRequests"] is None
    fields = status.admit_patch(document(), decision, now=NOW)["status"]
    assert "resourceRequests" not in fields


def test_deactivation_is_answered_once_and_counted_by_its_cause():
    step = Evict("DeactivatedDueToAdmissionCheck", "deactivated due to x", "AdmissionCheck")
    known = document(entry("DeactivationTarget"), requeueState={"count": 1})
    patch = status.evict_patch(known, step, now=NOW)
    assert set(shown(patch)) == {"Evicted"}
    assert patch["status"]["requeueState"] is None
    assert patch["status"]["schedulingStats"]["evictions"] == [
        {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1}
    ]


def test_released_workload_says_deactivated_only_when_it_is():
    text = "The workload is deactivated due to x"
    evicted = entry("Evicted", reason="DeactivatedDueToAdmissionCheck", message=text)
    found = shown(status.release_patch(document(evicted), now=NOW))
    assert found["QuotaReserved"] == ("False", "Deactivated", "The workload is deactivated")
    assert found["Requeued"] == ("False", "DeactivatedDueToAdmissionCheck", text)
    drained = entry("Evicted", reason="ClusterQueueStopped", message="stopped")
    found = shown(status.release_patch(document(drained), now=NOW))
    assert found["QuotaReserved"] == ("False", "PendingEvaluation", "stopped")


def test_withdrawn_reservation_leaves_no_admission():
    patch = status.withdraw_patch(document(), Withdraw("Suspended", "held"), now=NOW)
    assert shown(patch)["Admitted"] == NO_RESERVATION


def test_preempted_condition_names_no_generation():
    victim = document(entry("QuotaReserved"))
    decision = Preempt("ns/w", "InClusterQueue", "make room", "ns/p", "q")
    entries = status.preempt_patch(victim, decision, now=NOW)["status"]["conditions"]
    observed = {item["type"]: item.get("observedGeneration") for item in entries}
    assert (observed["Preempted"], observed["Evicted"]) == (None, 2)


@pytest.mark.parametrize(
    ("reason", "want"),
    [("BackoffFinished", {"requeueAt": None}), ("LocalQueueRestarted", "untouched")],
)
def test_end_of_a_back_off_clears_its_time(reason, want):
    write = step_write(document(), MarkRequeued(reason, "m"), now=NOW)
    assert write is not None and write.body is not None
    assert write.body["status"].get("requeueState", "untouched") == want


def asked(known: dict[str, Any], **queue: Any) -> tuple[Any, ...]:
    world = World().feed(cluster_queue("q", group(f0=quota(4)), **queue), local_queue("q", "q"))
    world.feed(known)
    world.engine.state.settle(world.now)
    return next_steps(world.engine, known, now=world.now)


def checked(*checks: tuple[str, str, str]) -> dict[str, Any]:
    listed = [{"name": name, "state": state, "message": text} for name, state, text in checks]
    names = [{"name": name} for name, _, _ in checks]
    known = workload("w", "q", gpus=1) | {"status": {"admissionChecks": listed}}
    return {"known": known, "admissionChecksStrategy": {"admissionChecks": names}}


@pytest.mark.parametrize(
    ("checks", "want"),
    [
        pytest.param(
            [("a", "Rejected", "")], 'AdmissionCheck in Rejected state: "a"', id="without a word"
        ),
        pytest.param(
            [("b", "Rejected", "no"), ("a", "Rejected", "never")],
            'AdmissionChecks in Rejected state: "a" (never); "b" (no)',
            id="two, by name",
        ),
    ],
)
def test_rejection_names_its_checks(checks, want):
    (step,) = asked(**checked(*checks))
    assert step == TargetDeactivation("AdmissionCheck", want)


def test_deactivated_workload_without_quota_says_so():
    evicted = entry("Evicted", reason="Deactivated", message="The workload is deactivated")
    known = workload("w", "q", gpus=1) | {"status": {"conditions": [evicted]}}
    known["spec"]["active"] = False
    assert asked(known) == (ExplainWaiting("Deactivated", "The workload is deactivated"),)


def test_local_queue_without_a_cluster_queue_counts_what_waits():
    world = World().feed(local_queue("q", "later"), workload("w", "q", gpus=1))
    assert world.engine.state.queues.waiting_in("ns/q") == 1
    world.feed(local_queue("q", "later", stopPolicy="Hold"))
    assert world.engine.state.queues.waiting_in("ns/q") == 0


def test_job_of_another_class_takes_its_workload_along():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4))),
        local_queue("q", "q"),
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000},
    )
    around = Surroundings(world.engine, JobCache(), world.now)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "j", "resourceVersion": "1",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": []}}},
    }  # fmt: skip
    made = plan(None, job, around).write
    assert made is not None and made.body is not None
    known = made.body
    known["metadata"] |= {"uid": "u", "resourceVersion": "2"}
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    write = plan(known, job, around).write
    assert write is not None and write.body is not None
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    assert write.body["spec"] == {"priorityClassRef": reference, "priority": 1000}
    known["spec"] |= write.body["spec"]
    again = plan(known, job, around).write
    assert again is None or again.step != "set-class"


def test_usage_that_was_shown_stays_until_it_is_taken_over():
    rules = {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1h"}}
    engine = Engine(rules)
    before = {"consumedResources": {"nvidia.com/gpu": "6"}, "lastUpdate": "2026-01-01T00:00:00Z"}
    queue = local_queue("q", "q")
    queue["metadata"] |= {"resourceVersion": "1", "uid": "u"}
    queue["status"] = {"fairSharing": {"admissionFairSharingStatus": before}}
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    cache = JobCache(())
    cache.put(r.LOCAL_QUEUE, queue)
    world = (flavor("f0"), cluster_queue("q", group(f0=quota(8)), admissionScope=scope), queue)
    for found in (*world, workload("w", "q", gpus=8)):
        engine.upsert(found, now=NOW)

    def shown() -> Any:
        write = queue_write(engine, cache, "LocalQueue:ns/q", now=NOW)
        assert write is not None
        return write.body["status"].get("fairSharing")

    assert engine.cycle(NOW).admitted
    assert shown() is None
    engine.sample_usage(now=NOW)
    assert shown() == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {**before, "lastUpdate": "2026-01-01T12:00:00Z"},
    }
