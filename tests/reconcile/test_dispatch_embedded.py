"""Dispatch in portal mode on embedded clusters: a manager and two workers, all by the portal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.errors import Refusal, Unreachable
from clusters.kube import resources as r
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.runtime.writer import Moment
from tests.reconcile.admission_harness import (
    CHECK,
    INSTALLATION,
    NS,
    Document,
    Embedded,
    condition,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.waiting import eventually

pytestmark = pytest.mark.embedded

WORKERS = ("w1", "w2")
ORIGIN = "kueue.x-k8s.io/multikueue-origin"


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """Manager and workers with quota, nobody working on them yet; invariants are watched."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8))
        with Watcher(fleet, origin=INSTALLATION) as watcher:
            yield fleet
        watcher.judge()


def start_all(fleet: Embedded, **changes) -> None:
    fleet.start("manager", "admission")
    for worker in WORKERS:
        fleet.start(worker, "admission")
    fleet.start("manager", "dispatch", workers=WORKERS, **changes)


def copies(fleet: Embedded, resource) -> dict[str, list[Document]]:
    """Everything of a kind with our origin, by worker."""
    return {
        worker: [
            item
            for item in fleet[worker].all(resource)
            if (item["metadata"].get("labels") or {}).get(ORIGIN) == INSTALLATION
        ]
        for worker in WORKERS
    }


def workers_with(fleet: Embedded, resource) -> list[str]:
    return [worker for worker, found in copies(fleet, resource).items() if found]


def placed(fleet: Embedded, name: str) -> Document | None:
    """The manager's Workload of a Job once a worker is chosen."""
    workload = fleet["manager"].workload_of(name)
    return workload if workload and workload.get("status", {}).get("clusterName") else None


def test_dispatch_runs_a_job_on_one_worker_and_brings_its_end_back(fleet):
    manager = fleet["manager"]
    # It runs for as long as its copy has to be seen, however late somebody looks.
    manager.create(job("train", gpus=8, run_s=3, managed=True, ttlSecondsAfterFinished=5))
    start_all(fleet)
    workload = eventually(
        lambda: placed(fleet, "train"), why=lambda: str(manager.workload_of("train"))
    )
    chosen = workload["status"]["clusterName"]
    assert chosen in WORKERS
    copied = eventually(lambda: copies(fleet, r.JOB)[chosen])[0]
    assert "ttlSecondsAfterFinished" not in copied["spec"]
    assert "managedBy" not in copied["spec"]
    finished = eventually(
        lambda: (w := manager.workload_of("train")) and is_true(w, "Finished") and w,
        why=lambda: str(manager.workload_of("train")),
    )
    assert condition(finished, "Finished")["reason"] == "Succeeded"
    [check] = finished["status"]["admissionChecks"]
    assert (check["name"], check["state"]) == (CHECK, "Ready")
    assert check["message"] == f'The workload was admitted on "{chosen}"'
    assert manager.job("train")["status"]["succeeded"] == 1
    eventually(lambda: not workers_with(fleet, r.JOB) and not workers_with(fleet, r.WORKLOAD))
    eventually(
        lambda: condition(manager.get(r.ADMISSION_CHECK, CHECK), "Active")["reason"] == "Active"
    )
    eventually(lambda: is_true(manager.get(r.MULTIKUEUE_CLUSTER, "w1"), "Active"))


def told(fleet: Embedded) -> str:
    """Everything that matters, for a test that fails."""
    errors = [shift.error for shift in fleet.shifts]
    states = {
        name: [(w["metadata"]["name"], w.get("status")) for w in place.all(r.WORKLOAD)]
        for name, place in fleet.places.items()
    }
    return f"{errors} {states} {workers_with(fleet, r.JOB)}"


def test_dispatch_fills_both_workers_and_leaves_the_third_waiting(fleet):
    start_all(fleet)
    for name in ("a", "b", "c"):
        fleet["manager"].create(job(name, gpus=8, run_s=60, managed=True))
    eventually(
        lambda: sum(bool(placed(fleet, name)) for name in "abc") == 2, why=lambda: told(fleet)
    )
    eventually(lambda: sorted(workers_with(fleet, r.JOB)) == ["w1", "w2"], why=lambda: told(fleet))
    waiting = [name for name in "abc" if not placed(fleet, name)]
    assert not is_true(fleet["manager"].workload_of(waiting[0]), "QuotaReserved")


def test_dispatch_removes_everything_when_the_job_is_deleted(fleet):
    start_all(fleet)
    fleet["manager"].create(job("train", gpus=8, run_s=60, managed=True))
    eventually(lambda: workers_with(fleet, r.JOB))
    fleet["manager"].client.delete(r.JOB, "train", namespace=NS)
    eventually(lambda: not workers_with(fleet, r.JOB) and not workers_with(fleet, r.WORKLOAD))
    eventually(lambda: fleet["manager"].all(r.WORKLOAD) == [])


def test_dispatch_follows_an_eviction_on_the_manager_and_resumes(fleet):
    manager = fleet["manager"]
    start_all(fleet)
    manager.create(job("train", gpus=8, run_s=60, managed=True))
    eventually(
        lambda: (manager.job("train").get("status") or {}).get("active"), why=lambda: told(fleet)
    )
    manager.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(
        lambda: "admission" not in manager.workload_of("train")["status"],
        why=lambda: str(manager.workload_of("train")),
    )
    eventually(lambda: not workers_with(fleet, r.JOB), why=lambda: told(fleet))
    assert not (manager.job("train")["status"].get("active"))
    manager.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    eventually(
        lambda: workers_with(fleet, r.JOB) and manager.job("train")["status"].get("active"),
        why=lambda: str((manager.workload_of("train"), manager.job("train"))),
    )


def test_dispatch_starts_over_when_a_worker_evicts(fleet):
    manager = fleet["manager"]
    start_all(fleet)
    manager.create(job("train", gpus=8, run_s=60, managed=True))
    first = eventually(lambda: placed(fleet, "train"))["status"]["clusterName"]
    eventually(lambda: manager.job("train").get("status", {}).get("active"))
    fleet[first].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    second = "w2" if first == "w1" else "w1"
    eventually(
        lambda: workers_with(fleet, r.JOB) == [second],
        why=lambda: str((manager.workload_of("train"), copies(fleet, r.JOB))),
    )
    evictions = manager.workload_of("train")["status"]["schedulingStats"]["evictions"]
    assert evictions[0]["reason"] == "AdmissionCheck"


def test_dispatch_starts_over_a_job_that_somebody_changed_on_its_worker(fleet):
    """Its copy ends out of sync there, which is no end of the manager's; nor is it ever evicted."""
    manager = fleet["manager"]
    start_all(fleet)
    manager.create(job("train", gpus=1, pods=2, run_s=60, managed=True))
    first = eventually(lambda: placed(fleet, "train"))["status"]["clusterName"]
    eventually(lambda: manager.job("train").get("status", {}).get("active") == 2)
    fleet[first].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "Hold"}})
    fleet[first].client.patch(r.JOB, "train", {"spec": {"parallelism": 1}}, namespace=NS)
    second = "w2" if first == "w1" else "w1"
    eventually(lambda: workers_with(fleet, r.JOB) == [second], why=lambda: told(fleet))
    workload = manager.workload_of("train")
    assert not is_true(workload, "Finished")
    assert "out of sync with its user job" in condition(workload, "Evicted")["message"]


def test_job_that_waits_for_another_worker_keeps_no_marks_of_its_last_start(fleet):
    """Quota is often reserved again before the marks are off; they go all the same."""
    manager, steps = fleet["manager"], []

    def reserved_first(moment, _, write):
        if moment is Moment.BEFORE:
            steps.append(write.step)
            if write.step in ("clear-start", "restore") and steps.count("reserve") < 2:
                raise Unreachable(Refusal("reserving again is quicker"))

    fleet.start("manager", "admission", body=lambda at: AdmissionBody(at, hook=reserved_first))
    for worker in WORKERS:
        fleet.start(worker, "admission")
    fleet["w2"].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "Hold"}})
    fleet.start("manager", "dispatch", workers=WORKERS)
    manager.create(job("train", gpus=8, run_s=60, managed=True))
    eventually(lambda: manager.job("train").get("status", {}).get("active"))
    assert selector_of(manager.job("train")) == {"gpu": "h100"}
    fleet["w1"].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: steps.count("reserve") == 2, why=lambda: told(fleet))
    eventually(lambda: not selector_of(manager.job("train")), why=lambda: str(steps))
    assert is_true(manager.workload_of("train"), "QuotaReserved")
    fleet["w2"].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    eventually(lambda: selector_of(manager.job("train")) == {"gpu": "h100"})


def selector_of(found: Document) -> Document:
    """Node selector of a Job's pods."""
    return found["spec"]["template"]["spec"].get("nodeSelector") or {}


def test_dispatch_passes_over_a_worker_with_a_foreign_job_and_never_deletes_it(fleet):
    foreign = job("train", gpus=1, run_s=300)
    foreign["metadata"]["labels"] = {}
    fleet["w1"].create(foreign)
    kept = fleet["w1"].job("train")["metadata"]["uid"]
    start_all(fleet)
    fleet["manager"].create(job("train", gpus=8, run_s=1, managed=True))
    workload = eventually(lambda: placed(fleet, "train"))
    assert workload["status"]["clusterName"] == "w2"
    eventually(lambda: is_true(fleet["manager"].workload_of("train"), "Finished"))
    assert fleet["w1"].job("train")["metadata"]["uid"] == kept


def test_dispatch_rejects_a_job_that_would_run_on_the_manager(fleet):
    manager = fleet["manager"]
    start_all(fleet)
    manager.create(job("train", gpus=8, run_s=60))
    evicted = eventually(lambda: condition(manager.workload_of("train"), "Evicted"))
    assert evicted["reason"] == "DeactivatedDueToAdmissionCheck"
    assert "managedBy" in evicted["message"]
    assert manager.job("train")["spec"]["suspend"] is True
    assert workers_with(fleet, r.WORKLOAD) == []


def test_dispatch_goes_on_when_a_worker_refuses_every_request(fleet):
    fleet["w1"].server.cluster.faults.fail(500, count=100000, path="workloads")
    start_all(fleet)
    fleet["manager"].create(job("train", gpus=8, run_s=60, managed=True))
    assert eventually(lambda: placed(fleet, "train"))["status"]["clusterName"] == "w2"


def test_dispatch_offers_waiting_work_to_a_worker_that_comes_back(fleet):
    fleet["w1"].server.cluster.faults.is_refusing = True
    start_all(fleet)
    manager = fleet["manager"]
    manager.create(
        job("a", gpus=8, run_s=60, managed=True), job("b", gpus=8, run_s=60, managed=True)
    )
    eventually(lambda: placed(fleet, "a") or placed(fleet, "b"))
    eventually(
        lambda: (
            condition(manager.get(r.ADMISSION_CHECK, CHECK), "Active")["reason"]
            == "SomeActiveClusters"
        )
    )
    fleet["w1"].server.cluster.faults.clear()
    eventually(lambda: placed(fleet, "a") and placed(fleet, "b"))


def test_dispatch_moves_on_from_a_lost_worker_and_clears_up_when_it_returns(fleet):
    manager = fleet["manager"]
    start_all(fleet, kueue_configuration={"multiKueue": {"workerLostTimeout": "2s"}})
    manager.create(job("train", gpus=8, run_s=60, managed=True))
    first = eventually(lambda: placed(fleet, "train"))["status"]["clusterName"]
    eventually(lambda: manager.job("train").get("status", {}).get("active"))
    second = "w2" if first == "w1" else "w1"
    lost = fleet[first].server
    lost.cluster.faults.is_refusing = True
    lost.drop_connections()
    eventually(
        lambda: (w := placed(fleet, "train")) and w["status"]["clusterName"] == second,
        why=lambda: str(manager.workload_of("train")),
    )
    kept = eventually(lambda: fleet[second].job("train"))["metadata"]["uid"]
    lost.cluster.faults.clear()
    eventually(lambda: fleet[first].job("train") is None)
    eventually(lambda: fleet[first].all(r.WORKLOAD) == [])
    assert fleet[second].job("train")["metadata"]["uid"] == kept
    assert placed(fleet, "train")["status"]["clusterName"] == second


def test_dispatch_waits_for_a_worker_that_is_away_for_less_than_its_timeout(fleet):
    manager = fleet["manager"]
    start_all(fleet, kueue_configuration={"multiKueue": {"workerLostTimeout": "60s"}})
    manager.create(job("train", gpus=8, run_s=60, managed=True))
    first = eventually(lambda: placed(fleet, "train"))["status"]["clusterName"]
    uid = eventually(lambda: fleet[first].job("train"))["metadata"]["uid"]
    lost = fleet[first].server
    lost.cluster.faults.is_refusing = True
    lost.drop_connections()
    eventually(lambda: not is_true(manager.get(r.MULTIKUEUE_CLUSTER, first), "Active"))
    lost.cluster.faults.clear()
    eventually(lambda: is_true(manager.get(r.MULTIKUEUE_CLUSTER, first), "Active"))
    assert fleet[first].job("train")["metadata"]["uid"] == uid
    assert "schedulingStats" not in manager.workload_of("train")["status"]


def test_dispatch_sweeps_what_was_left_behind_before_it_started(fleet):
    orphan = job("old", gpus=1, run_s=300)
    orphan["metadata"]["labels"][ORIGIN] = INSTALLATION
    orphan["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "job-old"
    other = job("other", gpus=1, run_s=300)
    other["metadata"]["labels"][ORIGIN] = "another-portal"
    other["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "job-other"
    fleet["w1"].create(orphan, other)
    start_all(fleet)
    eventually(lambda: fleet["w1"].job("old") is None)
    assert fleet["w1"].job("other") is not None
