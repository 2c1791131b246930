"""Kinds besides Job in portal mode: their Workload is made, they are started, stopped and ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.documents import labels
from clusters.jobs.kind import Priority
from clusters.jobs.remote import CopyMarks
from clusters.jobs.table import kind_of
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from tests.reconcile.admission_harness import (
    GPU,
    INSTALLATION,
    NS,
    Document,
    Embedded,
    condition,
    is_true,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.custom_kinds import INTEGRATIONS, serve
from tests.reconcile.dispatch_watcher import Watcher
from tests.waiting import eventually

WORKERS = ("w1", "w2")
JOBSET = INTEGRATIONS["jobset.x-k8s.io/jobset"]
PYTORCH = INTEGRATIONS["kubeflow.org/pytorchjob"]
RAY = INTEGRATIONS["ray.io/rayjob"]
JOBSETS = JOBSET
CONFIGURATION = {"integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}}
STATUS = WriteOptions(subresource="status")


def template(gpus: int, **pod: Any) -> Document:
    container = {
        "name": "main",
        "image": "train:1",
        "resources": {"requests": {"cpu": "1", GPU: str(gpus)}, "limits": {GPU: str(gpus)}},
    }
    return {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}


def of_kind(resource, name: str, **spec: Any) -> Document:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": "u-1",
            "labels": {"kueue.x-k8s.io/queue-name": "default"},
        },
        "spec": spec,
    }


def job_set(name: str = "set", *, managed: bool = False, **spec: Any) -> Document:
    """A driver without GPUs of its own to speak of, and two replicas of two workers each."""
    workers = {"parallelism": 2, "completions": 2, "template": template(2)}
    driver = {"parallelism": 1, "completions": 1, "template": template(1)}
    body = {
        "replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": driver}},
            {"name": "workers", "replicas": 2, "template": {"spec": workers}},
        ],
        **({"managedBy": labels.MULTIKUEUE} if managed else {}),
        **spec,
    }
    found = of_kind(JOBSET, name, **body)
    del found["metadata"]["uid"]
    return found


def ready(is_ready: bool = True) -> Document:
    counts = {"ready": int(is_ready), "active": 1, "succeeded": 0}
    return {
        "replicatedJobsStatus": [
            {"name": "driver", **counts},
            {"name": "workers", **counts, "ready": 2 * is_ready},
        ]
    }


def say(fleet: Embedded, place: str, name: str, status: Document) -> None:
    """Play the kind's controller."""
    fleet[place].client.patch(JOBSETS, name, {"status": status}, namespace=NS, options=STATUS)


DONE = {
    "replicatedJobsStatus": None,
    "conditions": [{"type": "Completed", "status": "True", "message": "all jobs completed"}],
}


@pytest.fixture
def alone(monkeypatch) -> Iterator[Embedded]:
    """One cluster where the portal decides."""
    serve(monkeypatch, JOBSET)
    with Embedded("solo", webhooks=True) as fleet:
        fleet["solo"].create(*quota_objects(12))
        fleet.start("solo", "admission", kueue_configuration=CONFIGURATION)
        yield fleet
        assert all(shift.error is None for shift in fleet.shifts)


def spec_of(fleet: Embedded, place: str = "solo", name: str = "set") -> Document:
    return fleet[place].get(JOBSETS, name, NS)["spec"]


@pytest.mark.embedded
def test_a_job_set_waits_suspended_starts_where_its_flavor_is_and_finishes(alone):
    solo = alone["solo"]
    solo.client.create(JOBSETS, job_set())
    workload = eventually(lambda: solo.workload_of("set"))
    assert [(item["name"], item["count"]) for item in workload["spec"]["podSets"]] == [
        ("driver", 1),
        ("workers", 4),
    ]
    eventually(
        lambda: is_true(solo.workload_of("set"), "Admitted"),
        why=lambda: str(solo.workload_of("set")),
    )
    spec = eventually(lambda: (s := spec_of(alone)).get("suspend") is False and s)
    for replicated in spec["replicatedJobs"]:
        pod = replicated["template"]["spec"]["template"]
        assert pod["spec"]["nodeSelector"] == {"gpu": "h100"}
        assert pod["metadata"]["labels"][labels.POD_SET] == replicated["name"]
    say(alone, "solo", "set", ready())
    eventually(lambda: is_true(solo.workload_of("set"), "PodsReady"))
    say(alone, "solo", "set", DONE)
    ended = eventually(lambda: condition(solo.workload_of("set"), "Finished"))
    assert (ended["reason"], ended["message"]) == ("Succeeded", "all jobs completed")


@pytest.mark.embedded
def test_a_job_set_that_is_stopped_gives_its_quota_back_and_loses_the_marks(alone):
    solo = alone["solo"]
    solo.client.create(JOBSETS, job_set())
    eventually(lambda: spec_of(alone).get("suspend") is False)
    say(alone, "solo", "set", ready())
    solo.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: spec_of(alone)["suspend"] is True)
    # Its pods still run: the quota is kept until its controller says that they do not.
    assert is_true(solo.workload_of("set"), "QuotaReserved")
    say(alone, "solo", "set", {"replicatedJobsStatus": []})
    eventually(lambda: not is_true(solo.workload_of("set"), "QuotaReserved"))
    eventually(
        lambda: (
            not any(
                "nodeSelector" in item["template"]["spec"]["template"]["spec"]
                for item in spec_of(alone)["replicatedJobs"]
            )
        )
    )
    solo.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    eventually(lambda: spec_of(alone)["suspend"] is False)


@pytest.mark.embedded
def test_a_job_set_without_a_queue_is_left_alone(alone):
    document = job_set()
    document["metadata"]["labels"] = {"some": "thing"}
    solo = alone["solo"]
    solo.client.delete(r.LOCAL_QUEUE, "default", namespace=NS)
    solo.client.create(JOBSETS, document)
    solo.client.create(JOBSETS, {**job_set("other")})
    eventually(lambda: solo.workload_of("other"))
    assert solo.workload_of("set") is None
    assert "suspend" not in spec_of(alone)


@pytest.fixture
def fleet(monkeypatch) -> Iterator[Embedded]:
    """Manager and workers, all by the portal; invariants are watched."""
    serve(monkeypatch, JOBSET)
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        fleet.start("manager", "admission", kueue_configuration=CONFIGURATION)
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(12))
            fleet.start(worker, "admission", kueue_configuration=CONFIGURATION)
        fleet.start("manager", "dispatch", workers=WORKERS, kueue_configuration=CONFIGURATION)
        kinds = (f"{JOBSET.group}/{JOBSET.plural}",)
        with Watcher(fleet, origin=INSTALLATION, kinds=kinds) as watcher:
            yield fleet
        watcher.judge()
        assert all(shift.error is None for shift in fleet.shifts)


def worker_of(fleet: Embedded, name: str) -> str:
    status = (fleet["manager"].workload_of(name) or {}).get("status") or {}
    return status.get("clusterName") or ""


@pytest.mark.embedded
def test_a_job_set_submitted_to_the_manager_runs_on_one_worker_all_by_the_portal(fleet):
    fleet["manager"].client.create(JOBSETS, job_set(managed=True, ttlSecondsAfterFinished=1))
    worker = eventually(
        lambda: worker_of(fleet, "set"), why=lambda: str(fleet["manager"].workload_of("set"))
    )
    spec = eventually(
        lambda: (
            (found := fleet[worker].get(JOBSETS, "set", NS))
            and found["spec"].get("suspend") is False
            and found["spec"]
        ),
        why=lambda: str((fleet[worker].all(r.WORKLOAD), fleet[worker].all(JOBSETS))),
    )
    assert "ttlSecondsAfterFinished" not in spec
    assert "managedBy" not in spec
    say(fleet, worker, "set", ready())
    shown = lambda: fleet["manager"].get(JOBSETS, "set", NS).get("status")  # noqa: E731
    eventually(lambda: shown() == ready())
    say(fleet, worker, "set", DONE)
    eventually(lambda: is_true(fleet["manager"].workload_of("set"), "Finished"))
    assert shown()["conditions"][0]["type"] == "Completed"
    eventually(lambda: not fleet[worker].all(JOBSETS) and not fleet[worker].all(r.WORKLOAD))


@pytest.mark.embedded
def test_a_job_set_is_stopped_on_its_worker_when_the_manager_evicts_it(fleet):
    fleet["manager"].client.create(JOBSETS, job_set(managed=True))
    worker = eventually(lambda: worker_of(fleet, "set"))
    eventually(
        lambda: (
            (fleet[worker].get(JOBSETS, "set", NS) or {}).get("spec", {}).get("suspend") is False
        )
    )
    say(fleet, worker, "set", ready())
    eventually(lambda: fleet["manager"].get(JOBSETS, "set", NS).get("status") == ready())
    fleet["manager"].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: fleet[worker].get(JOBSETS, "set", NS)["spec"]["suspend"] is True)
    assert is_true(fleet["manager"].workload_of("set"), "QuotaReserved")
    say(fleet, worker, "set", {"replicatedJobsStatus": [{"name": "driver", "active": 0}]})
    eventually(
        lambda: not is_true(fleet["manager"].workload_of("set"), "QuotaReserved"),
        why=lambda: str((fleet["manager"].workload_of("set"), fleet["manager"].all(JOBSETS))),
    )
    eventually(lambda: not fleet[worker].all(JOBSETS))


# Shapes by themselves


def pod_sets(document: Document) -> list[tuple[str, int]]:
    return [(item["name"], item["count"]) for item in kind_of(document).pod_sets(document)]


def test_pod_sets_of_kubeflow_kinds_are_the_replica_types_in_their_order():
    specs = {
        "Worker": {"replicas": 3, "template": template(8)},
        "Master": {"template": template(1, priorityClassName="high")},
    }
    document = of_kind(PYTORCH, "ddp", pytorchReplicaSpecs=specs, runPolicy={"suspend": True})
    assert pod_sets(document) == [("master", 1), ("worker", 3)]
    assert kind_of(document).is_suspended(document)
    assert kind_of(document).pod_priority_class(document) == "high"
    document["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "oom"}]}
    outcome = kind_of(document).outcome_of(document)
    assert outcome is not None
    assert (outcome.reason, outcome.message) == ("Failed", "oom")


def test_pod_sets_of_a_ray_job_need_its_submitter_to_be_told():
    cluster = {
        "headGroupSpec": {"template": template(0)},
        "workerGroupSpecs": [
            {"groupName": "Big", "replicas": 2, "numOfHosts": 2, "template": template(8)}
        ],
    }
    document = of_kind(RAY, "tune", rayClusterSpec=cluster)
    assert not kind_of(document).is_clear(document)
    document["spec"]["submissionMode"] = "HTTPMode"
    assert kind_of(document).is_clear(document)
    assert pod_sets(document) == [("head", 1), ("big", 4)]
    document["spec"] |= {"submissionMode": "K8sJobMode", "submitterPodTemplate": template(0)}
    assert kind_of(document).is_clear(document)
    assert pod_sets(document) == [("head", 1), ("big", 4), ("submitter", 1)]
    document["status"] = {"jobStatus": "SUCCEEDED"}
    outcome = kind_of(document).outcome_of(document)
    assert outcome is not None
    assert outcome.reason == "Succeeded"


def test_a_changed_container_or_count_is_out_of_sync_and_a_mark_is_not():
    document = {**job_set()}
    document["metadata"]["uid"] = "u-1"
    workload = kind_of(document).workload_for(document, priority=Priority())
    assert kind_of(document).is_in_sync(document, workload)
    marked = job_set()
    marked["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {
        "a": "b"
    }
    assert kind_of(marked).is_in_sync(marked, workload)
    marked["spec"]["replicatedJobs"][1]["replicas"] = 3
    assert not kind_of(marked).is_in_sync(marked, workload)
    other = job_set()
    other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = template(7)
    assert not kind_of(other).is_in_sync(other, workload)


def test_a_copy_does_not_carry_the_managers_start_to_the_worker():
    document = job_set(managed=True)
    document["metadata"] |= {"uid": "u-1", "resourceVersion": "1"}
    workload = kind_of(document).workload_for(document, priority=Priority())
    workload["status"] = {
        "admission": {
            "podSetAssignments": [
                {"name": name, "flavors": {GPU: "h100"}} for name in ("driver", "workers")
            ]
        }
    }
    flavors = {"h100": {"spec": {"nodeLabels": {"gpu": "of-the-manager"}}}}
    started = kind_of(document).start_patch(document, workload, flavors=flavors)
    document["spec"] |= started["spec"]
    assert "of-the-manager" in str(document)
    sent = kind_of(document).copy_of(document, workload, marks=CopyMarks("here", "a"))
    assert "of-the-manager" not in str(sent)
    assert sent["spec"]["suspend"] is True
