"""A worker that is dispatched to no more gives back what dispatch made there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError

from clusters.kube import resources as r
from clusters.models import Cluster
from clusters.reconcile.context import registered_workers
from clusters.reconcile.dispatch import DispatchBody
from tests.reconcile.admission_harness import (
    CHECK,
    INSTALLATION,
    NS,
    Embedded,
    condition,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.fleet_rows import register
from tests.waiting import eventually

WORKERS = ("w1", "w2")


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """A job of eight GPUs can run on w1 only; dispatch is to be started by the test."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        fleet.start("manager", "admission")
        for worker, gpus in (("w1", 8), ("w2", 2)):
            fleet[worker].create(*quota_objects(gpus))
            fleet.start(worker, "admission")
        with Watcher(fleet, origin=INSTALLATION) as watcher:
            yield fleet
        watcher.judge()


def run_on_w1(fleet: Embedded) -> None:
    fleet["manager"].create(job("train", gpus=8, run_s=300, managed=True))
    eventually(lambda: (fleet["manager"].job("train").get("status") or {}).get("active"))


def made_on(fleet: Embedded, worker: str) -> list[str]:
    """Everything there that dispatch made."""
    return [
        item["metadata"]["name"]
        for kind in (r.JOB, r.WORKLOAD)
        for item in fleet[worker].all(kind)
        if "kueue.x-k8s.io/multikueue-origin" in (item["metadata"].get("labels") or {})
    ]


def is_on_w2_only(fleet: Embedded) -> bool:
    return not made_on(fleet, "w1") and bool(made_on(fleet, "w2"))


@pytest.mark.embedded
def test_worker_whose_multikueue_cluster_goes_gives_its_copy_back(fleet):
    fleet.start("manager", "dispatch", workers=WORKERS)
    run_on_w1(fleet)
    fleet["manager"].client.delete(r.MULTIKUEUE_CLUSTER, "w1")
    eventually(lambda: is_on_w2_only(fleet), why=lambda: str(made_on(fleet, "w1")))


@pytest.mark.embedded
@pytest.mark.parametrize("is_deleted", [False, True], ids=["waiting", "deleted"])
def test_worker_that_left_while_nobody_worked_gives_its_copy_back(fleet, is_deleted):
    manager = fleet["manager"]
    first = fleet.start("manager", "dispatch", workers=WORKERS)
    run_on_w1(fleet)
    first.stop()
    manager.client.patch(r.MULTIKUEUE_CONFIG, CHECK, {"spec": {"clusters": ["w2"]}})
    if is_deleted:
        manager.client.delete(r.JOB, "train", namespace=NS)
        eventually(lambda: manager.all(r.WORKLOAD) == [])
    assert made_on(fleet, "w1")
    fleet.start(
        "manager",
        "dispatch",
        workers=WORKERS,
        body=lambda context: DispatchBody(context, known=lambda: WORKERS),
    )
    eventually(lambda: not made_on(fleet, "w1"))
    if not is_deleted:
        eventually(lambda: is_on_w2_only(fleet))


@pytest.mark.embedded
def test_worker_that_left_is_asked_for_again_where_the_database_failed(fleet):
    first = fleet.start("manager", "dispatch", workers=WORKERS)
    run_on_w1(fleet)
    first.stop()
    fleet["manager"].client.patch(r.MULTIKUEUE_CONFIG, CHECK, {"spec": {"clusters": ["w2"]}})
    failures = [DatabaseError("gone away")]

    def known() -> tuple[str, ...]:
        if failures:
            raise failures.pop()
        return WORKERS

    fleet.start(
        "manager",
        "dispatch",
        workers=WORKERS,
        body=lambda context: DispatchBody(context, known=known),
    )
    eventually(lambda: is_on_w2_only(fleet), why=lambda: str(made_on(fleet, "w1")))
    assert not failures


@pytest.mark.embedded
def test_configuration_that_is_gone_says_of_nobody_that_it_left(fleet):
    manager = fleet["manager"]
    fleet.start("manager", "dispatch", workers=WORKERS)
    run_on_w1(fleet)
    uid = fleet["w1"].job("train")["metadata"]["uid"]
    config = manager.get(r.MULTIKUEUE_CONFIG, CHECK)
    manager.client.delete(r.MULTIKUEUE_CONFIG, CHECK)
    eventually(
        lambda: (
            condition(manager.get(r.ADMISSION_CHECK, CHECK), "Active").get("reason") == "BadConfig"
        ),
    )
    del config["metadata"]["resourceVersion"], config["metadata"]["uid"]
    manager.create(config)
    manager.create(job("second", gpus=2, run_s=300, managed=True))
    eventually(
        lambda: (manager.job("second").get("status") or {}).get("active"),
        why=lambda: str(manager.workload_of("second")),
    )
    assert fleet["w1"].job("train")["metadata"]["uid"] == uid
    assert "schedulingStats" not in manager.workload_of("train")["status"]


def test_registered_workers_are_those_with_a_credential_for_dispatch(db):
    kubeconfig = "a kubeconfig"
    for slug, state, has_credential in (
        ("w1", Cluster.State.ACTIVE, True),
        ("w2", Cluster.State.DRAINING, True),
        ("w3", Cluster.State.REMOVED, True),
        ("w4", Cluster.State.ACTIVE, False),
    ):
        row = register(slug, kubeconfig)
        row.state = state
        row.multikueue_kubeconfig_sealed = row.kubeconfig_sealed if has_credential else None
        row.save()
    register("hub", kubeconfig, role="manager")
    assert registered_workers() == {"w1", "w2"}
