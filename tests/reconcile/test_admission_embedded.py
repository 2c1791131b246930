"""Admission in portal mode on an embedded cluster: a Job's way from its queue to its end."""

from __future__ import annotations

import pytest

from clusters.devcluster.controllers import RUN_SECONDS
from clusters.kube import resources as r
from tests.reconcile.admission_harness import (
    GPU,
    NS,
    Embedded,
    condition,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.waiting import eventually

pytestmark = pytest.mark.embedded


@pytest.fixture
def world():
    with Embedded("w1", webhooks=True) as world:
        yield world


def test_admission_runs_a_job_from_queue_to_finish(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("train", gpus=8))
    world.start("w1", "admission")

    eventually(lambda: (place.job("train").get("status") or {}).get("startTime"))
    found = place.job("train")
    assert found["spec"]["suspend"] is False
    assert found["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}
    workload = eventually(
        lambda: (w := place.workload_of("train")) and is_true(w, "Finished") and w,
        why=lambda: str(place.workload_of("train")),
    )
    assert condition(workload, "Finished")["reason"] == "Succeeded"
    assert condition(workload, "QuotaReserved")["message"] == (
        f"Quota reserved in ClusterQueue {NS}"
    )
    assert is_true(workload, "Admitted")
    assignment = workload["status"]["admission"]["podSetAssignments"][0]
    assert assignment["flavors"] == {GPU: "h100", "cpu": "host", "memory": "host"}
    queue = eventually(
        lambda: (
            (q := place.get(r.CLUSTER_QUEUE, NS)).get("status", {}).get("admittedWorkloads") == 0
            and q
        )
    )
    assert condition(queue, "Active")["message"] == "Can admit new workloads"
    assert queue["status"]["flavorsUsage"][0]["resources"][0]["total"] == "0"
    local = lambda: place.get(r.LOCAL_QUEUE, "default", NS)  # noqa: E731
    eventually(lambda: condition(local(), "Active").get("reason") == "Ready")


def test_admission_keeps_the_second_job_waiting_with_the_reason(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("first", gpus=8, run_s=60))
    world.start("w1", "admission")
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    place.create(job("second", gpus=4, run_s=60))
    waiting = eventually(
        lambda: condition(place.workload_of("second"), "QuotaReserved"),
        why=lambda: str(place.workload_of("second")),
    )
    assert waiting["status"] == "False"
    assert waiting["reason"] == "Pending"
    assert waiting["message"] == (
        "couldn't assign flavors to pod set main: insufficient unused quota for "
        "nvidia.com/gpu in flavor h100, 4 more needed"
    )
    assert place.job("second")["spec"]["suspend"] is True
    eventually(lambda: place.get(r.CLUSTER_QUEUE, NS)["status"].get("pendingWorkloads") == 1)


def of_nonsense(name: str, *, gpus: str, pods: int = 1, **requests: str) -> dict:
    document = job(name, pods=pods, run_s=60)
    [container] = document["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"] |= {GPU: gpus, **requests}
    container["env"] = [{"name": "TEXT", "value": "a\0b"}]
    document["metadata"]["annotations"]["note"] = "half\0way"
    return document


def test_admission_goes_on_beside_jobs_that_ask_for_nonsense(world):
    place = world["w1"]
    most = str(2**63 - 1)
    place.create(
        *quota_objects(8),
        of_nonsense("greedy", gpus=most, pods=2**31 - 1),
        of_nonsense("exa", gpus="9E", memory="9Ei"),
        of_nonsense("powers", gpus="1e3", cpu="1e3", memory=most),
    )
    world.start("w1", "admission")
    for name in ("greedy", "exa", "powers"):
        eventually(lambda name=name: condition(place.workload_of(name), "QuotaReserved"))
        assert not is_true(place.workload_of(name), "QuotaReserved")
    place.create(job("good", gpus=8))
    eventually(lambda: is_true(place.workload_of("good"), "Finished"))


def test_admission_stops_a_job_that_was_started_by_hand(world):
    place = world["w1"]
    place.create(*quota_objects(0), job("cheat", gpus=1, run_s=60, suspend=False))
    world.start("w1", "admission")
    eventually(lambda: place.job("cheat")["spec"]["suspend"])
    eventually(lambda: condition(place.workload_of("cheat"), "QuotaReserved"))
    assert not is_true(place.workload_of("cheat"), "QuotaReserved")


def test_admission_puts_a_job_without_queue_under_the_default_queue(world):
    place = world["w1"]
    stray = job("stray", gpus=1, run_s=60, suspend=False)
    del stray["metadata"]["labels"]
    place.create(*quota_objects(8), stray)
    world.start("w1", "admission")
    eventually(lambda: is_true(place.workload_of("stray"), "Admitted"))
    assert place.job("stray")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    eventually(lambda: not place.job("stray")["spec"]["suspend"])


def test_admission_preempts_for_a_higher_priority_and_the_victim_comes_back(world):
    place = world["w1"]
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    place.create(*quota_objects(8), urgent, job("low", gpus=8, run_s=600))
    world.start("w1", "admission")
    eventually(lambda: (place.job("low").get("status") or {}).get("active"))
    place.create(job("high", gpus=8, run_s=600, priority_class="urgent"))
    eventually(lambda: is_true(place.workload_of("high"), "Admitted"))
    victim = eventually(
        lambda: (w := place.workload_of("low")) and is_true(w, "Requeued") and w,
        why=lambda: str(place.workload_of("low")),
    )
    assert condition(victim, "Preempted")["reason"] == "InClusterQueue"
    assert place.job("low")["spec"]["suspend"] is True
    eventually(lambda: "nodeSelector" not in place.job("low")["spec"]["template"]["spec"])
    soon = {"metadata": {"annotations": {RUN_SECONDS: "0.1"}}}
    for name in ("high", "low"):
        place.client.patch(r.JOB, name, soon, namespace=NS)
    finished = eventually(lambda: (w := place.workload_of("low")) and is_true(w, "Finished") and w)
    assert not is_true(finished, "Evicted")
    assert finished["status"]["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 1}
    ]


def test_admission_evicts_a_deactivated_workload_and_frees_its_quota(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("train", gpus=8, run_s=60))
    world.start("w1", "admission")
    workload = eventually(
        lambda: (w := place.workload_of("train")) and is_true(w, "Admitted") and w
    )
    name = workload["metadata"]["name"]
    place.client.patch(r.WORKLOAD, name, {"spec": {"active": False}}, namespace=NS)
    released = eventually(
        lambda: (w := place.workload_of("train")) and "admission" not in w["status"] and w
    )
    assert condition(released, "Evicted")["reason"] == "Deactivated"
    assert condition(released, "Requeued")["status"] == "False"
    eventually(lambda: place.job("train")["spec"]["suspend"])
    place.client.patch(r.WORKLOAD, name, {"spec": {"active": True}}, namespace=NS)
    eventually(lambda: is_true(place.workload_of("train"), "Admitted"))
    eventually(lambda: not place.job("train")["spec"]["suspend"])


def test_admission_drains_a_stopped_queue_and_resumes(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("train", gpus=8, run_s=60))
    world.start("w1", "admission")
    eventually(lambda: is_true(place.workload_of("train"), "Admitted"))
    place.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: "admission" not in place.workload_of("train")["status"])
    assert condition(place.workload_of("train"), "Evicted")["reason"] == "ClusterQueueStopped"
    place.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    eventually(lambda: is_true(place.workload_of("train"), "Admitted"))


def test_admission_frees_the_quota_of_a_deleted_job(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("first", gpus=8, run_s=60))
    world.start("w1", "admission")
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    place.create(job("second", gpus=8, run_s=60))
    place.client.delete(r.JOB, "first", namespace=NS)
    eventually(lambda: is_true(place.workload_of("second"), "Admitted"))


def test_admission_adopts_a_prebuilt_workload(world):
    place = world["w1"]
    place.create(*quota_objects(8))
    world.start("w1", "admission")
    running = job("train", gpus=8, run_s=60)
    running["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "copy"
    place.create(running)
    template = place.job("train")["spec"]["template"]
    prebuilt = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "copy", "namespace": NS},
        "spec": {
            "queueName": "default",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": template["spec"]}}],
        },
    }
    place.create(prebuilt)
    eventually(lambda: (place.job("train").get("status") or {}).get("active"))
    adopted = place.workload_of("train")
    assert adopted["metadata"]["name"] == "copy"
    assert len(place.all(r.WORKLOAD)) == 1


def test_admission_finishes_a_prebuilt_workload_that_differs_from_its_job(world):
    place = world["w1"]
    place.create(*quota_objects(8))
    world.start("w1", "admission")
    running = job("train", gpus=8, run_s=60)
    running["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "copy"
    spec = {**running["spec"]["template"]["spec"], "containers": [{"name": "x", "image": "other"}]}
    place.create(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "copy", "namespace": NS},
            "spec": {
                "queueName": "default",
                "podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}],
            },
        },
        running,
    )
    ended = eventually(
        lambda: condition(place.get(r.WORKLOAD, "copy", NS), "Finished"),
        why=lambda: str(place.get(r.WORKLOAD, "copy", NS)),
    )
    assert ended["reason"] == "OutOfSync"
    assert place.job("train")["spec"]["suspend"] is True


def test_admission_moves_a_waiting_job_that_was_put_under_another_queue(world):
    place = world["w1"]
    second = kueue("LocalQueue", "other", {"clusterQueue": "other"}, NS)
    place.create(*quota_objects(0))
    queue = place.get(r.CLUSTER_QUEUE, NS)["spec"]
    queue["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "8"
    place.create(kueue("ClusterQueue", "other", queue), second, job("train", run_s=60))
    world.start("w1", "admission")
    eventually(lambda: condition(place.workload_of("train"), "QuotaReserved"))
    labels = {"kueue.x-k8s.io/queue-name": "other"}
    place.client.patch(r.JOB, "train", {"metadata": {"labels": labels}}, namespace=NS)
    eventually(lambda: is_true(place.workload_of("train"), "Admitted"))
    assert place.workload_of("train")["status"]["admission"]["clusterQueue"] == "other"


def test_admission_counts_what_is_used_reserved_and_waiting(world):
    place = world["w1"]
    place.create(*quota_objects(8), *(job(name, gpus=4, run_s=60) for name in "abc"))
    world.start("w1", "admission")

    def status():
        return place.get(r.CLUSTER_QUEUE, NS).get("status") or {}

    eventually(lambda: status().get("admittedWorkloads") == 2)
    eventually(lambda: status().get("pendingWorkloads") == 1)
    [gpu] = status()["flavorsUsage"][0]["resources"]
    assert (gpu["name"], gpu["total"]) == (GPU, "8")
    assert status()["reservingWorkloads"] == 2

    def local():
        told = place.get(r.LOCAL_QUEUE, "default", NS).get("status") or {}
        return told.get("admittedWorkloads"), told.get("pendingWorkloads")

    # Written after the ClusterQueue's: each is an object of its own.
    eventually(lambda: local() == (2, 1), why=lambda: str(local()))
