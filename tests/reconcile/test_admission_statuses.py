"""What a status says at each step, as a real Kueue says it; tests/stories has whole runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.documents import labels
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
CREATED = "2026-01-01T00:30:00Z"


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
ready_or_not = pytest.mark.parametrize("is_fine", [True, False], ids=["fine", "coarse"])


@ready_or_not
def test_workload_that_waits_says_what_it_asks_for_and_that_it_holds_nothing(is_fine):
    decision = Pending("ns/w", "WaitingForQuota", "no room", "q", has_changed=True)
    asked = [{"name": "main", "resources": {"nvidia.com/gpu": "8"}}]
    patch = status.pending_patch(document(), decision, now=NOW, requests=asked, is_fine=is_fine)
    assert patch is not None
    if is_fine:
        assert shown(patch) == {
            "QuotaReserved": ("False", "WaitingForQuota", "no room"),
            "Admitted": NO_RESERVATION,
        }
    else:
        assert shown(patch) == {"QuotaReserved": ("False", "Pending", "no room")}
    assert patch["status"]["resourceRequests"] == asked


@ready_or_not
@pytest.mark.parametrize(("observed", "want_write"), [(2, False), (1, True)])
def test_reason_to_wait_is_told_again_only_of_another_generation(observed, want_write, is_fine):
    reason = "WaitingForQuota" if is_fine else "Pending"
    told = entry("QuotaReserved", "False", reason, "no room")
    decision = Pending("ns/w", "WaitingForQuota", "no room", "q", has_changed=False)
    known = document(told | {"observedGeneration": observed})
    patch = status.pending_patch(known, decision, now=NOW, is_fine=is_fine)
    assert (patch is not None) is want_write


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("Misconfigured", "Inadmissible"),
        ("Suspended", "Inadmissible"),
        ("AdmissionGated", "AdmissionGated"),
    ],
)
def test_what_waits_outside_of_cycles_has_few_reasons_without_the_gate(reason, want):
    fine = status.waiting_patch(document(), reason, "why", now=NOW, is_fine=True)
    assert shown(fine) == {"QuotaReserved": ("False", reason, "why"), "Admitted": NO_RESERVATION}
    coarse = status.waiting_patch(document(), reason, "why", now=NOW)
    assert shown(coarse) == {"QuotaReserved": ("False", want, "why")}


def test_one_job_at_a_time_waits_for_pods_in_both_words():
    decision = Pending("ns/w", "WaitingForPodsReady", "others", "q", has_changed=True)
    for is_fine, want in ((True, "WaitingForPodsReady"), (False, "Waiting")):
        patch = status.pending_patch(document(), decision, now=NOW, is_fine=is_fine)
        assert patch is not None
        assert shown(patch)["QuotaReserved"] == ("False", want, "others")


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
    found = shown(status.release_patch(document(evicted), now=NOW, is_fine=True))
    assert found["QuotaReserved"] == ("False", "Deactivated", "The workload is deactivated")
    assert found["Requeued"] == ("False", "DeactivatedDueToAdmissionCheck", text)
    drained = entry("Evicted", reason="ClusterQueueStopped", message="stopped")
    found = shown(status.release_patch(document(drained), now=NOW, is_fine=True))
    assert found["QuotaReserved"] == ("False", "PendingEvaluation", "stopped")
    found = shown(status.release_patch(document(evicted), now=NOW))
    assert found["QuotaReserved"] == ("False", "Pending", text)


@pytest.mark.parametrize(
    ("states", "want"),
    [
        ([], "NoReservation"),
        (["Ready"], "NoReservation"),
        (["Ready", "Pending"], "NoReservationUnsatisfiedChecks"),
    ],
)
def test_without_the_gate_only_what_was_admitted_says_that_it_is_no_more(states, want):
    evicted = entry("Evicted", reason="Preempted", message="m")
    checks = [{"name": f"c{index}", "state": state} for index, state in enumerate(states)]
    known = document(evicted, entry("Admitted"), admissionChecks=checks)
    assert shown(status.release_patch(known, now=NOW))["Admitted"][:2] == ("False", want)
    assert "Admitted" not in shown(status.release_patch(document(evicted), now=NOW))


def test_withdrawn_reservation_leaves_no_admission():
    step = Withdraw("Suspended", "held")
    patch = status.withdraw_patch(document(), step, now=NOW, is_fine=True)
    assert shown(patch)["Admitted"] == NO_RESERVATION
    coarse = shown(status.withdraw_patch(document(), step, now=NOW))
    assert coarse == {"QuotaReserved": ("False", "Inadmissible", "held")}


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


FINE = {"featureGates": {"UnadmittedWorkloadsObservability": True}}


def asked(
    known: dict[str, Any], *, configuration: dict[str, Any] | None = None, **queue: Any
) -> tuple[Any, ...]:
    world = World(configuration).feed(
        cluster_queue("q", group(f0=quota(4)), **queue), local_queue("q", "q")
    )
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
    told = ExplainWaiting("Deactivated", "The workload is deactivated")
    assert asked(known, configuration=FINE) == (told,)
    assert asked(known) == ()


def test_local_queue_without_a_cluster_queue_counts_what_waits():
    world = World().feed(local_queue("q", "later"), workload("w", "q", gpus=1))
    assert world.engine.state.queues.waiting_in("ns/q") == 1
    world.feed(local_queue("q", "later", stopPolicy="Hold"))
    assert world.engine.state.queues.waiting_in("ns/q") == 0


def a_job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "j", "resourceVersion": "1",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": []}}, **spec},
    }  # fmt: skip


LEFT_ALONE = (
    "spec.managedBy is kueue.x-k8s.io/multikueue, which leaves this Job to another cluster, and "
    "nobody runs it on this one: delete it and submit it again without that field"
)


def test_a_job_that_nobody_here_runs_waits_with_the_sentence_and_takes_no_quota():
    """On a cluster of its own; on a manager the same job is dispatched."""
    world = World().feed(cluster_queue("q", group(f0=quota(4))))
    around = Surroundings(world.engine, JobCache(), world.now, is_single=True)
    job = a_job(managedBy="kueue.x-k8s.io/multikueue")
    made = plan(None, job, around).write
    assert made is not None and made.body is not None
    assert made.body["metadata"]["annotations"] == {labels.REFUSED: LEFT_ALONE}
    known = made.body | {"kind": "Workload"}
    known["metadata"] |= {"uid": "u", "resourceVersion": "2", "creationTimestamp": CREATED}
    world.feed(known)
    assert world.admitted() == {}
    assert world.message(known["metadata"]["name"]) == LEFT_ALONE

    told = plan(known, job, around).write
    assert told is not None and told.body is not None
    assert (told.step, told.resource) == ("refuse", r.JOB)
    assert told.body["metadata"]["annotations"] == {labels.REFUSED: LEFT_ALONE}
    job["metadata"]["annotations"] = {labels.REFUSED: LEFT_ALONE}
    waits = plan(known, job, around).write
    assert waits is not None and waits.body is not None
    assert shown(waits.body)["QuotaReserved"] == ("False", "Inadmissible", LEFT_ALONE)

    for others in (Surroundings(world.engine, JobCache(), world.now), around):
        its = job if not others.is_single else a_job()
        its["metadata"].pop("annotations", None)
        body = plan(None, its, others).write
        assert body is not None and body.body is not None
        assert labels.REFUSED not in body.body["metadata"].get("annotations", {})


def test_a_workload_that_was_made_before_is_parked_too():
    world = World().feed(cluster_queue("q", group(f0=quota(4))))
    around = Surroundings(world.engine, JobCache(), world.now, is_single=True)
    known = plan(None, a_job(), around).write
    assert known is not None and known.body is not None
    known.body["metadata"] |= {"uid": "u", "resourceVersion": "2"}
    write = plan(known.body, a_job(managedBy="kueue.x-k8s.io/multikueue"), around).write
    assert write is not None and write.body is not None
    assert (write.step, write.resource) == ("park", r.WORKLOAD)
    assert write.body["metadata"]["annotations"] == {labels.REFUSED: LEFT_ALONE}


def test_job_of_another_class_takes_its_workload_along():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4))),
        local_queue("q", "q"),
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000},
    )
    around = Surroundings(world.engine, JobCache(), world.now)
    job = a_job()
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


def test_workload_has_the_labels_of_its_job_that_the_configuration_names():
    """Those that the job has; its own ones stay, and a job of several pods has none of its own."""
    keys = {"integrations": {"labelKeysToCopy": ["team", "absent", labels.JOB_UID]}}
    world = World(keys).feed(cluster_queue("q", group(f0=quota(4))), local_queue("q", "q"))
    around = Surroundings(world.engine, JobCache(), world.now)
    told = {labels.QUEUE: "q", "team": "red", "user": "olga", labels.JOB_UID: "another"}
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "j", "resourceVersion": "1", "labels": told,
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": []}}},
    }  # fmt: skip
    made = plan(None, job, around).write
    assert made is not None and made.body is not None
    assert made.body["metadata"]["labels"] == {"team": "red", labels.JOB_UID: "j"}


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
