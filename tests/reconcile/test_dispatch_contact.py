"""A worker that is away for less than its time-out costs nobody a restart, however short of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clusters.kube import resources as r
from tests.reconcile.admission_harness import (
    INSTALLATION,
    Embedded,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.waiting import eventually

pytestmark = pytest.mark.embedded

WORKERS = ("w1", "w2")
TIMEOUT_S = 6.0


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """Manager and workers, a job of eight GPUs running on one of them."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        fleet.start("manager", "admission")
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8))
            fleet.start(worker, "admission")
        fleet.start(
            "manager",
            "dispatch",
            workers=WORKERS,
            kueue_configuration={"multiKueue": {"workerLostTimeout": f"{TIMEOUT_S:g}s"}},
        )
        fleet["manager"].create(job("train", gpus=8, run_s=300, managed=True))
        eventually(lambda: (fleet["manager"].job("train").get("status") or {}).get("active"))
        yield fleet


def placed(fleet: Embedded) -> str:
    return str(fleet["manager"].workload_of("train")["status"].get("clusterName") or "")


def is_active(fleet: Embedded, worker: str) -> bool:
    return is_true(fleet["manager"].get(r.MULTIKUEUE_CLUSTER, worker), "Active")


def cut(fleet: Embedded, worker: str) -> None:
    server = fleet[worker].server
    server.cluster.faults.is_refusing = True
    server.drop_connections()
    eventually(lambda: not is_active(fleet, worker))


def test_worker_that_is_back_just_in_time_keeps_its_job(fleet):
    worker = placed(fleet)
    uid = fleet[worker].job("train")["metadata"]["uid"]
    begun = time.monotonic()
    cut(fleet, worker)
    # The next try to watch it would come seconds after its time is up.
    time.sleep(max(0.0, begun + TIMEOUT_S - 0.3 - time.monotonic()))
    with Watcher(fleet, origin=INSTALLATION) as watcher:
        fleet[worker].server.cluster.faults.clear()
        eventually(lambda: is_active(fleet, worker))
        time.sleep(1.5)
    watcher.judge()
    assert fleet[worker].job("train")["metadata"]["uid"] == uid
    assert placed(fleet) == worker
    assert "schedulingStats" not in fleet["manager"].workload_of("train")["status"]


def test_worker_that_stays_away_loses_its_job_when_its_time_is_up(fleet):
    worker = placed(fleet)
    begun = time.monotonic()
    cut(fleet, worker)
    eventually(lambda: placed(fleet) not in ("", worker))
    assert time.monotonic() - begun >= TIMEOUT_S - 1
