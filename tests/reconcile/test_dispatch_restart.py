"""What survives when the dispatch shift is killed: the grace of a lost worker, the running work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from clusters.kube import resources as r
from clusters.kueue.workload.parser import parse_time
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.runtime.writer import Moment, Write
from tests.reconcile.admission_harness import (
    CHECK,
    INSTALLATION,
    Document,
    Embedded,
    RunningShift,
    condition,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.kill_points import Killed
from tests.waiting import eventually

pytestmark = pytest.mark.embedded

WORKERS = ("w1", "w2")


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """Manager and workers with quota and admission, dispatch to be started by the test."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        fleet.start("manager", "admission")
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8))
            fleet.start(worker, "admission")
        with Watcher(fleet, origin=INSTALLATION) as watcher:
            yield fleet
        watcher.judge()


class Guillotine:
    """A dispatch shift that dies without another write when told to."""

    def __init__(self, fleet: Embedded, *, timeout: str) -> None:
        self._falls = False
        self._shift: RunningShift = fleet.start(
            "manager",
            "dispatch",
            workers=WORKERS,
            lease_s=1,
            kueue_configuration={"multiKueue": {"workerLostTimeout": timeout}},
            body=lambda context: DispatchBody(context, hook=self._hook),
        )

    def _hook(self, moment: Moment, cluster: str, write: Write) -> None:
        if self._falls:
            raise Killed

    def kill(self) -> None:
        self._falls = True
        self._shift.stop()


def placed(fleet: Embedded) -> str:
    workload = fleet["manager"].workload_of("train") or {}
    return (workload.get("status") or {}).get("clusterName") or ""


def running(fleet: Embedded) -> str:
    """The worker that runs it."""
    fleet["manager"].create(job("train", gpus=8, run_s=120, managed=True))
    eventually(lambda: (fleet["manager"].job("train").get("status") or {}).get("active"))
    return placed(fleet)


def lose(fleet: Embedded, worker: str) -> datetime:
    """Cut a worker off; when the manager says that it is lost."""
    server = fleet[worker].server
    server.cluster.faults.is_refusing = True
    server.drop_connections()
    shown = eventually(
        lambda: (
            (found := condition(fleet["manager"].get(r.MULTIKUEUE_CLUSTER, worker), "Active"))
            and found["status"] == "False"
            and found
        )
    )
    since = parse_time(shown["lastTransitionTime"])
    assert since is not None
    return since


@pytest.mark.slow
def test_grace_of_a_lost_worker_goes_on_when_the_shift_is_killed(fleet):
    timeout = timedelta(seconds=12)
    first = Guillotine(fleet, timeout="12s")
    worker = running(fleet)
    since = lose(fleet, worker)
    first.kill()
    time.sleep(4)
    started = timezone.now()
    Guillotine(fleet, timeout="12s")
    eventually(lambda: placed(fleet) not in ("", worker))
    moved = timezone.now()
    assert since + timeout <= moved + timedelta(seconds=1)
    assert moved < started + timeout, "the grace began again with the new shift"


def test_worker_that_came_back_while_nobody_worked_keeps_its_job(fleet):
    first = Guillotine(fleet, timeout="2s")
    worker = running(fleet)
    uid = fleet[worker].job("train")["metadata"]["uid"]
    lose(fleet, worker)
    first.kill()
    fleet[worker].server.cluster.faults.clear()
    time.sleep(2.5)
    Guillotine(fleet, timeout="2s")
    eventually(lambda: is_true(fleet["manager"].get(r.MULTIKUEUE_CLUSTER, worker), "Active"))
    assert fleet[worker].job("train")["metadata"]["uid"] == uid
    assert "schedulingStats" not in fleet["manager"].workload_of("train")["status"]


def test_handing_over_does_not_make_workers_look_lost(fleet):
    first = Guillotine(fleet, timeout="60s")
    eventually(lambda: all(is_true(item, "Active") for item in shown(fleet)))
    seen = [item["metadata"]["resourceVersion"] for item in shown(fleet)]
    first.kill()
    Guillotine(fleet, timeout="60s")
    running(fleet)
    assert [item["metadata"]["resourceVersion"] for item in shown(fleet)] == seen


def shown(fleet: Embedded) -> list[Document]:
    """What the manager says of its workers and of the check."""
    places = (
        (r.MULTIKUEUE_CLUSTER, "w1"),
        (r.MULTIKUEUE_CLUSTER, "w2"),
        (r.ADMISSION_CHECK, CHECK),
    )
    return [fleet["manager"].get(kind, name) for kind, name in places]
