"""Elastic Jobs on real API servers: they grow and shrink on their worker and are not restarted."""

from __future__ import annotations

import pytest

from clusters.documents import labels
from clusters.jobs.workloads import prebuilt_name
from clusters.kube import resources as r
from tests.reconcile.admission_harness import Document, condition, is_true
from tests.reconcile.test_dispatch_real import RealFleet, bare, mixed, real_job
from tests.waiting import eventually

__all__ = ["bare", "mixed"]  # fixtures

pytestmark = pytest.mark.controlplane


def elastic(name: str, namespace: str, *, pods: int) -> Document:
    found = real_job(name, namespace, gpus=1, run_for="1h")
    found["spec"]["parallelism"] = pods
    found["spec"].pop("completions", None)
    found["metadata"].setdefault("annotations", {})[labels.ELASTIC] = "true"
    return found


def workloads(fleet: RealFleet, place: str, namespace: str) -> list[Document]:
    return [
        item for item in fleet[place].all(r.WORKLOAD) if item["metadata"]["namespace"] == namespace
    ]


def told(fleet: RealFleet, namespace: str) -> str:
    return str(
        [
            (
                place,
                item["metadata"]["name"],
                item["spec"]["podSets"][0]["count"],
                [(c["type"], c["status"], c["message"]) for c in conditions(item)],
            )
            for place in fleet.places
            for item in workloads(fleet, place, namespace)
        ]
        + [
            (
                place,
                job["spec"]["parallelism"],
                job["spec"].get("suspend"),
                prebuilt_name(job),
            )
            for place in fleet.places
            if (job := fleet[place].job("train", namespace)) is not None
        ]
        + [shift.error for shift in fleet.shifts]
    )


def conditions(item: Document) -> list[Document]:
    return (item.get("status") or {}).get("conditions") or []


def running(fleet: RealFleet, namespace: str, *, pods: int) -> tuple[str, str]:
    """Worker and UID of the copy that runs with so many pods, under the one live slice."""

    def one() -> tuple[str, str] | None:
        live = [w for w in workloads(fleet, "manager", namespace) if not is_true(w, "Finished")]
        if len(live) != 1 or live[0]["spec"]["podSets"][0]["count"] != pods:
            return None
        worker = (live[0].get("status") or {}).get("clusterName") or ""
        copied = fleet[worker].job("train", namespace) if worker else None
        if copied is None or copied["spec"]["suspend"] or copied["spec"]["parallelism"] != pods:
            return None
        is_linked = prebuilt_name(copied) == live[0]["metadata"]["name"]
        return (worker, copied["metadata"]["uid"]) if is_linked else None

    found: tuple[str, str] = eventually(one, seconds=90, why=lambda: told(fleet, namespace))
    return found


def grow_and_shrink(fleet: RealFleet, namespace: str) -> None:
    manager = fleet["manager"]
    manager.create(elastic("train", namespace, pods=2))
    first = running(fleet, namespace, pods=2)
    for pods in (4, 1, 8):
        manager.client.patch(r.JOB, "train", {"spec": {"parallelism": pods}}, namespace=namespace)
        assert running(fleet, namespace, pods=pods) == first
    ended = [w for w in workloads(fleet, "manager", namespace) if is_true(w, "Finished")]
    assert {condition(w, "Finished")["reason"] for w in ended} == {"WorkloadSliceReplaced"}
    assert len(ended) == 2
    worker = first[0]
    eventually(
        lambda: len(workloads(fleet, worker, namespace)) == 1,
        why=lambda: told(fleet, namespace),
    )
    assert is_true(workloads(fleet, worker, namespace)[0], "Admitted")
    manager.client.delete(r.JOB, "train", namespace=namespace)
    eventually(lambda: fleet[worker].job("train", namespace) is None)
    eventually(lambda: not workloads(fleet, worker, namespace))


def test_elastic_job_on_real_api_servers_without_kueue(bare):
    grow_and_shrink(*bare)


@pytest.mark.slow
def test_elastic_job_over_workers_under_kueue(mixed):
    grow_and_shrink(*mixed)
