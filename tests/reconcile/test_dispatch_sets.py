"""LeaderWorkerSets: a Workload for each replica, all on one worker, nothing copied back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.documents import labels
from clusters.documents.keys import annotations_of, labels_of
from clusters.jobs.leader_worker_sets import LeaderWorkerSets, replica_by_name
from clusters.kube import resources as r
from tests.reconcile.admission_harness import (
    INSTALLATION,
    NS,
    Document,
    Embedded,
    is_true,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.custom_kinds import INTEGRATIONS, serve
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.pod_kinds import get, pod, runs
from tests.waiting import eventually

WORKERS = ("w1", "w2")
KIND = INTEGRATIONS["leaderworkerset.x-k8s.io/leaderworkerset"]
SETS = KIND
CONFIGURATION = {
    "integrations": {"frameworks": ["batch/job", "leaderworkerset.x-k8s.io/leaderworkerset"]},
    "multiKueue": {"workerLostTimeout": "2s"},
}


def leader_worker_set(
    name: str = "serve", *, replicas: int = 2, gpus: int = 1, gated: bool = True, **spec: Any
) -> Document:
    """Each replica is a leader without and a worker with GPUs."""
    leader, worker = (
        pod(name, gpus=0, gated=gated)["spec"],
        pod(name, gpus=gpus, gated=gated)["spec"],
    )
    return {
        "apiVersion": SETS.api_version,
        "kind": SETS.kind,
        "metadata": {"name": name, "namespace": NS, "labels": {labels.QUEUE: "default"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": 2,
                "leaderTemplate": {"spec": leader},
                "workerTemplate": {"spec": worker},
            },
            **spec,
        },
    }


@pytest.fixture
def fleet(monkeypatch) -> Iterator[Embedded]:
    """Manager and workers; nobody runs pods here. Invariants are watched."""
    serve(monkeypatch, KIND)
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(8, check=True))
        fleet.start("manager", "admission", kueue_configuration=CONFIGURATION)
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(4))
            fleet.start(worker, "admission")
        fleet.start("manager", "dispatch", workers=WORKERS, kueue_configuration=CONFIGURATION)
        kinds = (f"{KIND.group}/{KIND.plural}",)
        with Watcher(fleet, origin=INSTALLATION, kinds=kinds) as watcher:
            yield fleet
        watcher.judge()
        assert all(shift.error is None for shift in fleet.shifts), [s.error for s in fleet.shifts]


def workloads(fleet: Embedded, place: str = "manager") -> list[Document]:
    found = fleet[place].all(r.WORKLOAD)
    return sorted(found, key=lambda w: annotations_of(w).get(labels.COMPONENT_INDEX, ""))


def places(fleet: Embedded) -> list[str]:
    """Where each replica is."""
    return [(item.get("status") or {}).get("clusterName") or "" for item in workloads(fleet)]


def told(fleet: Embedded) -> str:
    return str([(name, place.all(r.WORKLOAD)) for name, place in fleet.places.items()])


def settle(fleet: Embedded, *, replicas: int = 2) -> str:
    """The worker that all replicas are on."""

    def one() -> str:
        found = places(fleet)
        return found[0] if len(found) == replicas and len(set(found)) == 1 else ""

    worker = eventually(one, why=lambda: told(fleet))
    eventually(lambda: fleet[worker].get(SETS, "serve", NS))
    return worker


@pytest.mark.embedded
def test_all_replicas_go_to_one_worker_with_one_object_and_nothing_comes_back(fleet):
    manager = fleet["manager"]
    made = manager.client.create(SETS, leader_worker_set())
    worker = settle(fleet)
    own = workloads(fleet)
    assert [item["metadata"]["name"] for item in own] == list(replica_by_name(made))
    sets = [(item["name"], item["count"]) for item in own[0]["spec"]["podSets"]]
    assert sets == [("leader", 1), ("worker", 1)]
    copied = fleet[worker].get(SETS, "serve", NS)
    assert annotations_of(copied)[labels.ORIGIN_UID] == made["metadata"]["uid"]
    assert labels_of(copied)[labels.ORIGIN] == INSTALLATION
    assert labels.PREBUILT not in annotations_of(copied)
    # A worker's engine finds the Workloads by the very names that the manager gave them.
    assert replica_by_name(copied) == replica_by_name(made)
    fleet[worker].client.patch(SETS, "serve", {"status": {"replicas": 2}}, namespace=NS)
    other = next(name for name in WORKERS if name != worker)
    eventually(lambda: not fleet[other].all(r.WORKLOAD))
    assert not fleet[other].all(SETS)
    assert "replicas" not in (manager.get(SETS, "serve", NS).get("status") or {})


@pytest.mark.embedded
def test_its_number_of_replicas_follows_and_a_deletion_leaves_nothing(fleet):
    manager = fleet["manager"]
    manager.client.create(SETS, leader_worker_set())
    worker = settle(fleet)
    uid = fleet[worker].get(SETS, "serve", NS)["metadata"]["uid"]
    manager.client.patch(SETS, "serve", {"spec": {"replicas": 3}}, namespace=NS)
    assert settle(fleet, replicas=3) == worker
    eventually(lambda: fleet[worker].get(SETS, "serve", NS)["spec"]["replicas"] == 3)
    manager.client.patch(SETS, "serve", {"spec": {"replicas": 1}}, namespace=NS)
    eventually(lambda: len(workloads(fleet)) == 1, why=lambda: told(fleet))
    eventually(lambda: len(fleet[worker].all(r.WORKLOAD)) == 1, why=lambda: told(fleet))
    eventually(lambda: fleet[worker].get(SETS, "serve", NS)["spec"]["replicas"] == 1)
    assert fleet[worker].get(SETS, "serve", NS)["metadata"]["uid"] == uid
    manager.client.delete(SETS, "serve", namespace=NS)
    eventually(lambda: not fleet[worker].all(SETS), why=lambda: told(fleet))
    eventually(lambda: not fleet[worker].all(r.WORKLOAD))


@pytest.mark.embedded
def test_one_evicted_replica_leaves_the_others_and_their_object_alone(fleet):
    manager = fleet["manager"]
    manager.client.create(SETS, leader_worker_set())
    worker = settle(fleet)
    uid = fleet[worker].get(SETS, "serve", NS)["metadata"]["uid"]
    second = workloads(fleet)[1]["metadata"]["name"]
    manager.client.patch(r.WORKLOAD, second, {"spec": {"active": False}}, namespace=NS)
    eventually(lambda: not is_true(workloads(fleet)[1], "QuotaReserved"), why=lambda: told(fleet))
    eventually(lambda: len(fleet[worker].all(r.WORKLOAD)) == 1)
    assert fleet[worker].get(SETS, "serve", NS)["metadata"]["uid"] == uid
    manager.client.patch(r.WORKLOAD, second, {"spec": {"active": True}}, namespace=NS)
    assert settle(fleet) == worker
    assert fleet[worker].get(SETS, "serve", NS)["metadata"]["uid"] == uid


@pytest.mark.embedded
def test_a_lost_worker_sends_all_replicas_elsewhere_and_is_cleared_when_it_returns(fleet):
    fleet["manager"].client.create(SETS, leader_worker_set())
    worker = settle(fleet)
    server = fleet[worker].server
    server.cluster.faults.is_refusing = True
    server.drop_connections()
    other = next(name for name in WORKERS if name != worker)
    eventually(lambda: places(fleet) == [other, other], why=lambda: told(fleet))
    server.cluster.faults.clear()
    eventually(lambda: not fleet[worker].all(SETS))
    eventually(lambda: fleet[other].get(SETS, "serve", NS))


@pytest.mark.embedded
def test_templates_without_the_gate_are_refused(fleet):
    """Such pods would run on the manager; nobody makes a Workload of them but by hand."""
    manager = fleet["manager"]
    made = manager.client.create(SETS, leader_worker_set(gated=False))
    manager.client.create(SETS, leader_worker_set("gated", replicas=1))
    eventually(lambda: workloads(fleet))
    assert [item["metadata"]["ownerReferences"][0]["name"] for item in workloads(fleet)] == [
        "gated"
    ]
    assert "leaderTemplate has no scheduling gate" in LeaderWorkerSets().refusal(made)


def test_workload_names_are_those_that_kueue_gives():
    document = leader_worker_set()
    document["metadata"]["uid"] = "5f1e2a34-0000-4000-8000-000000000001"
    first, second = replica_by_name(document)
    assert first.startswith("leaderworkerset-serve-0-")
    assert second.startswith("leaderworkerset-serve-1-")
    assert len(first.rpartition("-")[2]) == 5


@pytest.mark.embedded
def test_on_a_worker_of_the_portal_the_pods_of_each_replica_go_through_their_gates(monkeypatch):
    serve(monkeypatch, KIND)
    named = {"integrations": {"frameworks": ["batch/job", "pod"]}}
    with Embedded("manager", "w1", webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects("w1"), *quota_objects(8, check=True))
        fleet["w1"].create(*quota_objects(4))
        fleet.start("manager", "admission", kueue_configuration=CONFIGURATION)
        fleet.start("w1", "admission", kueue_configuration=named)
        fleet.start("manager", "dispatch", workers=("w1",), kueue_configuration=CONFIGURATION)
        place = fleet["w1"]
        fleet["manager"].client.create(SETS, leader_worker_set())
        eventually(lambda: places(fleet) == ["w1", "w1"], why=lambda: told(fleet))
        copied = eventually(lambda: place.get(SETS, "serve", NS))
        for index in (0, 1):
            place.create(*replica_pods(copied, index))
        names = [f"serve-{index}{part}" for index in (0, 1) for part in ("", "-1")]
        eventually(lambda: all(runs(place, name) for name in names), why=lambda: told(fleet))
        assert get(place, "serve-1-1")["spec"]["nodeSelector"] == {"gpu": "h100"}
        second = workloads(fleet)[1]["metadata"]["name"]
        fleet["manager"].client.patch(r.WORKLOAD, second, {"spec": {"active": False}}, namespace=NS)
        eventually(lambda: not get(place, "serve-1") and not get(place, "serve-1-1"))
        eventually(lambda: not is_true(workloads(fleet)[1], "QuotaReserved"))
        assert runs(place, "serve-0")
        assert all(shift.error is None for shift in fleet.shifts), fleet.shifts


def replica_pods(copied: Document, index: int) -> list[Document]:
    """Play the controller of LeaderWorkerSets: a leader and its worker."""
    found = []
    for name, field in (
        (f"serve-{index}", "leaderTemplate"),
        (f"serve-{index}-1", "workerTemplate"),
    ):
        template = copied["spec"]["leaderWorkerTemplate"][field]
        marks = {labels.SET_NAME: "serve", labels.SET_INDEX: str(index)}
        metadata = {
            "name": name,
            "namespace": NS,
            "labels": {**template["metadata"]["labels"], **marks},
            "annotations": dict(template["metadata"]["annotations"]),
        }
        found.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )
    return found
