"""Elastic Jobs that are dispatched: they grow by slices and shrink in place, without a restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.documents import labels
from clusters.documents.keys import annotations_of, key_of
from clusters.jobs import workloads
from clusters.jobs.batch import JOB
from clusters.jobs.kind import Priority
from clusters.jobs.remote import CopyMarks
from clusters.kube import resources as r
from clusters.kueue.cycle.engine import Engine
from clusters.reconcile.multikueue.group import stands_for
from tests.reconcile.admission_harness import (
    GPU,
    INSTALLATION,
    NS,
    Document,
    Embedded,
    Place,
    condition,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.test_admission_jobs import NOW
from tests.waiting import eventually

WORKERS = ("w1", "w2")
CONFIGURATION = {"multiKueue": {"workerLostTimeout": "2s"}}


def elastic(name: str = "train", *, pods: int = 2, gpus: int = 1) -> Document:
    """A Job whose size its owner changes while it runs."""
    found = job(name, pods=pods, gpus=gpus, run_s=600, managed=True)
    del found["spec"]["completions"]
    found["metadata"]["annotations"][labels.ELASTIC] = "true"
    return found


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """Manager and workers, all by the portal; invariants are watched."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(12, check=True))
        fleet.start("manager", "admission", kueue_configuration=CONFIGURATION)
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(6))
            fleet.start(worker, "admission")
        fleet.start("manager", "dispatch", workers=WORKERS, kueue_configuration=CONFIGURATION)
        with Watcher(fleet, origin=INSTALLATION) as watcher:
            yield fleet
        watcher.judge()
        assert all(shift.error is None for shift in fleet.shifts), [s.error for s in fleet.shifts]


def slices(place: Place, namespace: str = NS) -> list[Document]:
    """Workloads that have not ended, oldest first."""
    found = [
        item
        for item in place.all(r.WORKLOAD)
        if item["metadata"]["namespace"] == namespace and not is_true(item, "Finished")
    ]
    return sorted(found, key=lambda item: len(annotations_of(item).get(labels.SLICE_OF, "")))


def told(fleet: Embedded) -> str:
    return str(
        [
            (
                name,
                item["metadata"]["name"],
                item["spec"]["podSets"][0]["count"],
                (item.get("status") or {}).get("clusterName"),
                [
                    (c["type"], c["status"], c["reason"])
                    for c in item["status"].get("conditions", ())
                ]
                if item.get("status")
                else None,
            )
            for name, place in fleet.places.items()
            for item in place.all(r.WORKLOAD)
        ]
        + [
            (name, item["spec"])
            for name, place in fleet.places.items()
            for item in place.all(r.JOB)
        ]
    )


def running(fleet: Embedded, *, pods: int) -> str:
    """The worker where the Job runs with so many pods, under one slice of that size."""

    def one() -> str:
        [*found] = slices(fleet["manager"])
        if len(found) != 1 or found[0]["spec"]["podSets"][0]["count"] != pods:
            return ""
        worker = (found[0].get("status") or {}).get("clusterName") or ""
        copied = fleet[worker].job("train") if worker else None
        is_there = copied is not None and copied["spec"]["parallelism"] == pods
        is_linked = is_there and workloads.prebuilt_name(copied) == found[0]["metadata"]["name"]
        return worker if is_linked and not copied["spec"]["suspend"] else ""

    return eventually(one, why=lambda: told(fleet))


def resize(fleet: Embedded, pods: int) -> None:
    fleet["manager"].client.patch(r.JOB, "train", {"spec": {"parallelism": pods}}, namespace=NS)


@pytest.mark.embedded
def test_a_job_grows_by_a_slice_on_its_worker_and_shrinks_in_place(fleet):
    fleet["manager"].create(elastic(pods=2))
    worker = running(fleet, pods=2)
    uid = fleet[worker].job("train")["metadata"]["uid"]
    resize(fleet, 4)
    assert running(fleet, pods=4) == worker
    first, *_ = sorted(
        fleet["manager"].all(r.WORKLOAD), key=lambda w: labels.SLICE_OF in annotations_of(w)
    )
    assert condition(first, "Finished")["reason"] == "WorkloadSliceReplaced"
    second = slices(fleet["manager"])[0]
    assert annotations_of(second)[labels.SLICE_OF] == key_of(first)
    # The older copy is gone, and the size is counted once.
    eventually(lambda: len(fleet[worker].all(r.WORKLOAD)) == 1, why=lambda: told(fleet))
    resize(fleet, 1)
    assert running(fleet, pods=1) == worker
    [left] = slices(fleet[worker])
    assert left["spec"]["podSets"][0]["count"] == 1
    assert slices(fleet["manager"])[0]["metadata"]["name"] == second["metadata"]["name"]
    resize(fleet, 6)
    assert running(fleet, pods=6) == worker
    assert fleet[worker].job("train")["metadata"]["uid"] == uid
    fleet["manager"].client.delete(r.JOB, "train", namespace=NS)
    eventually(lambda: not fleet[worker].all(r.JOB))
    eventually(lambda: not fleet[worker].all(r.WORKLOAD), why=lambda: told(fleet))


@pytest.mark.embedded
def test_a_slice_that_fits_nowhere_waits_while_the_job_runs_on(fleet):
    fleet["manager"].create(elastic(pods=2))
    worker = running(fleet, pods=2)
    resize(fleet, 13)
    grown = eventually(lambda: len(slices(fleet["manager"])) == 2 and slices(fleet["manager"])[1])
    eventually(lambda: condition(slices(fleet["manager"])[1], "QuotaReserved"))
    assert not is_true(grown, "QuotaReserved")
    copied = fleet[worker].job("train")
    assert (copied["spec"]["parallelism"], copied["spec"]["suspend"]) == (2, False)
    # A wish that fits takes the place of the one that does not.
    resize(fleet, 5)
    assert running(fleet, pods=5) == worker


@pytest.mark.embedded
def test_an_elastic_job_that_is_stopped_is_stopped_whole(fleet):
    fleet["manager"].create(elastic(pods=2))
    running(fleet, pods=2)
    resize(fleet, 3)
    worker = running(fleet, pods=3)
    fleet["manager"].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: fleet["manager"].job("train")["spec"]["suspend"])
    eventually(lambda: not fleet[worker].all(r.JOB), why=lambda: told(fleet))
    eventually(lambda: not is_true(slices(fleet["manager"])[0], "QuotaReserved"))
    fleet["manager"].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    running(fleet, pods=3)


def test_a_job_that_grew_before_it_was_sent_goes_with_the_size_that_was_admitted():
    document = elastic(pods=2)
    document["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    admitted = JOB.workload_for(document, priority=Priority())
    document["spec"]["parallelism"] = 9
    sent = JOB.copy_of(document, admitted, marks=CopyMarks("here", "a"))
    assert sent["spec"]["parallelism"] == 2
    assert not stands_for(admitted, document)


# The engine by itself


def workload(name: str, *, pods: int, of: str = "", held: int = 0) -> Document:
    document = JOB.workload_for(
        {**elastic(name, pods=pods), "metadata": {**elastic(name)["metadata"], "uid": name}},
        priority=Priority(),
    )
    metadata = document["metadata"]
    metadata |= {"name": name, "uid": name, "creationTimestamp": "2026-03-01T00:00:00Z"}
    metadata["annotations"] = {
        labels.ELASTIC: "true",
        **({labels.SLICE_OF: f"{NS}/{of}"} if of else {}),
    }
    if held:
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}
        given = {
            "flavors": {GPU: "h100", "cpu": "host", "memory": "host"},
            "resourceUsage": {GPU: str(held), "cpu": str(4 * held), "memory": f"{16 * held}Gi"},
            "count": held,
        }
        document["status"] = {
            "conditions": [reserved | {"lastTransitionTime": "2026-03-01T00:00:00Z"}],
            "admission": {"clusterQueue": NS, "podSetAssignments": [{"name": "main", **given}]},
        }
    return document


def engine(*workloads: Document) -> Engine:
    found = Engine()
    for document in quota_objects(4):
        found.upsert(document, now=NOW)
    for document in workloads:
        found.upsert(document, kind="Workload", now=NOW)
    return found


def test_a_slice_asks_for_what_its_older_one_does_not_hold():
    held = workload("first", pods=3, held=3)
    assert not engine(held, workload("other", pods=4)).cycle(NOW).admitted
    [admitted] = engine(held, workload("second", pods=4, of="first")).cycle(NOW).admitted
    assert admitted.key == f"{NS}/second"
    assert not engine(held, workload("second", pods=5, of="first")).cycle(NOW).admitted


def test_an_elastic_workload_that_shrank_holds_what_is_left():
    shrunk = workload("first", pods=1, held=3)
    assert engine(shrunk, workload("other", pods=3)).cycle(NOW).admitted
    assert not engine(shrunk, workload("other", pods=4)).cycle(NOW).admitted
