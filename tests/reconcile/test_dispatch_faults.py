"""Dispatch when shifts are killed between writes, workers hang, and clocks of leases run out."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.runtime.writer import Moment
from tests.reconcile.admission_harness import (
    INSTALLATION,
    NS,
    Embedded,
    condition,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.kill_points import Reaper
from tests.waiting import eventually

pytestmark = pytest.mark.embedded

WORKERS = ("w1", "w2")
ORIGIN = "kueue.x-k8s.io/multikueue-origin"


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8))
        yield fleet


def left_on_workers(fleet: Embedded) -> list[str]:
    return [
        f"{worker}: {item['kind']} {item['metadata']['name']}"
        for worker in WORKERS
        for resource in (r.JOB, r.WORKLOAD)
        for item in fleet[worker].all(resource)
    ]


def test_dispatch_heals_when_every_shift_is_killed_between_any_two_writes(fleet):
    manager = fleet["manager"]

    def told() -> str:
        return str((reaper.killed_at, manager.all(r.WORKLOAD), left_on_workers(fleet)))

    def workers_hold(policy: str) -> None:
        for worker in WORKERS:
            fleet[worker].client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": policy}})

    workers_hold("Hold")  # until both have a copy: the one that is not chosen is taken back
    with Watcher(fleet, origin=INSTALLATION) as watcher, Reaper(fleet) as reaper:
        manager.create(job("train", gpus=8, run_s=6, managed=True))
        reaper.keep_alive("manager", "admission", AdmissionBody)
        for worker in WORKERS:
            reaper.keep_alive(worker, "admission", AdmissionBody)
        reaper.keep_alive("manager", "dispatch", DispatchBody, workers=WORKERS)
        eventually(lambda: all(fleet[worker].all(r.WORKLOAD) for worker in WORKERS), why=told)
        workers_hold("None")
        eventually(lambda: (manager.job("train").get("status") or {}).get("active"), why=told)
        manager.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
        eventually(
            lambda: "admission" not in manager.workload_of("train")["status"],
            why=told,
        )
        eventually(lambda: not left_on_workers(fleet), why=told)
        manager.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
        ended = eventually(lambda: condition(manager.workload_of("train"), "Finished"), why=told)
        assert ended["reason"] == "Succeeded"
        eventually(lambda: not left_on_workers(fleet), why=told)
    watcher.judge()
    steps = {step for _, who, step in reaper.killed_at if who.startswith("dispatch")}
    assert {"nominate", "create-copy", "choose", "create-job", "copy-status", "finish"} <= steps
    assert {"stop-copy", "remove-copy", "remove-job"} <= steps


def test_dispatch_is_not_held_up_by_a_worker_that_hangs(fleet):
    fleet.start("manager", "admission")
    for worker in WORKERS:
        fleet.start(worker, "admission")
    fleet.start("manager", "dispatch", workers=WORKERS)
    manager = fleet["manager"]
    eventually(lambda: is_true(manager.get(r.MULTIKUEUE_CLUSTER, "w1"), "Active"))
    eventually(lambda: is_true(manager.get(r.MULTIKUEUE_CLUSTER, "w2"), "Active"))
    fleet["w1"].server.cluster.faults.freeze()
    try:
        begun = time.monotonic()
        manager.create(job("train", gpus=8, run_s=60, managed=True))
        chosen = eventually(
            lambda: (
                manager.workload_of("train")["status"].get("clusterName")
                if manager.workload_of("train") and manager.workload_of("train").get("status")
                else None
            )
        )
        assert chosen == "w2"
        assert time.monotonic() - begun < 5
        eventually(lambda: fleet["w2"].job("train"))
    finally:
        fleet["w1"].server.cluster.faults.thaw()


def test_dispatch_goes_on_after_writes_that_lost_a_race(fleet):
    manager = fleet["manager"]
    raced: list[str] = []

    def race(moment, cluster, write):
        is_status = write.resource == r.WORKLOAD and cluster == "manager"
        if moment is Moment.BEFORE and is_status and write.step not in raced:
            raced.append(write.step)
            body = {"metadata": {"annotations": {"somebody": write.step}}}
            manager.client.patch(r.WORKLOAD, write.name, body, namespace=NS)

    fleet.start("manager", "admission")
    for worker in WORKERS:
        fleet.start(worker, "admission")
    fleet.start(
        "manager",
        "dispatch",
        workers=WORKERS,
        body=lambda context: DispatchBody(context, hook=race),
    )
    manager.create(job("train", gpus=8, run_s=0.5, managed=True))
    eventually(lambda: is_true(manager.workload_of("train"), "Finished"))
    assert {"nominate", "choose", "finish"} <= set(raced)


def test_dispatch_tells_people_why_no_worker_takes_a_job(fleet):
    for worker in WORKERS:
        fleet[worker].client.delete(r.NAMESPACE, NS)
        eventually(lambda worker=worker: fleet[worker].get(r.NAMESPACE, NS) is None)
    fleet.start("manager", "admission")
    fleet.start("manager", "dispatch", workers=WORKERS)
    manager = fleet["manager"]
    manager.create(job("train", gpus=8, managed=True))
    event = eventually(
        lambda: next((e for e in manager.all(r.EVENT) if e["reason"] == "MultiKueueNoWorker"), None)
    )
    assert event["involvedObject"]["kind"] == "Workload"
    assert f'namespaces "{NS}" not found' in event["message"]


def test_dispatch_brings_many_jobs_home_while_servers_fail_now_and_then(fleet):
    seed = 20260301
    print(f"seed {seed}")
    chance = random.Random(seed)
    manager = fleet["manager"]
    with Watcher(fleet, origin=INSTALLATION) as watcher:
        fleet.start("manager", "admission")
        for worker in WORKERS:
            fleet.start(worker, "admission")
        fleet.start("manager", "dispatch", workers=WORKERS)
        for number in range(24):
            gpus = chance.choice([1, 2, 4, 8])
            manager.create(job(f"j{number}", gpus=gpus, run_s=0.3, managed=True))
            unlucky = chance.choice(list(fleet.places.values())).server.cluster.faults
            code, method = chance.choice([409, 429, 500, 503]), chance.choice(["PATCH", "DELETE"])
            unlucky.fail(code, count=1, method=method, path="(workloads|jobs)/")
        eventually(
            lambda: sum(is_true(item, "Finished") for item in manager.all(r.WORKLOAD)) == 24,
            why=lambda: str([item.get("status") for item in manager.all(r.WORKLOAD)]),
        )
        eventually(lambda: not left_on_workers(fleet))
    watcher.judge()
    assert [shift.error for shift in fleet.shifts] == [None] * 4


def test_watcher_sees_a_job_on_two_workers(fleet):
    """The observer's own negative control."""
    with Watcher(fleet, origin=INSTALLATION) as watcher:
        for worker in WORKERS:
            double = job("double", gpus=1)
            double["metadata"]["labels"][ORIGIN] = INSTALLATION
            fleet[worker].create(double)
        eventually(lambda: len(watcher.history) >= 2)
    with pytest.raises(AssertionError, match=r"double has Jobs on \['w1', 'w2'\]"):
        watcher.judge()


def test_watcher_sees_a_choice_that_was_never_nominated():
    """The observer's own negative control; without Kueue's webhook nothing else refuses it."""
    with Embedded("manager") as fleet, Watcher(fleet, origin=INSTALLATION) as watcher:
        manager = fleet["manager"]
        template = job("x")["spec"]["template"]
        manager.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}},
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": "w", "namespace": NS},
                "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
            },
        )
        status = {"status": {"clusterName": "w1"}}
        options = WriteOptions(subresource="status")
        manager.client.patch(r.WORKLOAD, "w", status, namespace=NS, options=options)
        eventually(lambda: len(watcher.history) >= 2)
    with pytest.raises(AssertionError, match="w1 was not nominated before"):
        watcher.judge()
