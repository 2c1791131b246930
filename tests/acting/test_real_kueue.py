"""Cordons and actions on jobs under a real Kueue with MultiKueue, with the generated rights."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from budgets.selectors import utc_now
from clusters import services
from clusters.documents.conditions import is_true
from clusters.documents.labels import STOPPED_BECAUSE
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.models import Cluster, MaintenanceWindow, WorkloadState
from tests.acting.conftest import NAMESPACE, seen
from tests.builders import SmallFleet, line
from tests.controlplane.queues import job
from tests.reconcile.real_road import Road, installation, kueue_road
from tests.reconcile.test_real_sync import is_active
from tests.waiting import eventually

__all__ = ["installation", "kueue_road"]  # fixtures
pytestmark = [pytest.mark.controlplane, pytest.mark.django_db]


def plan(fleet: SmallFleet, worker: str, **changes) -> MaintenanceWindow:
    return services.plan_maintenance(
        fleet.admin,
        cluster=Cluster.objects.get(slug=worker),
        starts_at=None,
        ends_at=utc_now() + timedelta(hours=1),
        reason="new cooling",
        **{"flavor": None, "drains": False, **changes},
    )


def running(clients: Iterable[KubeClient], name: str) -> list[int]:
    """Numbers of the clusters on which a job has pods."""
    return [
        number
        for number, client in enumerate(clients)
        for found in client.list(r.JOB).items
        if found["metadata"]["name"] == name and (found.get("status") or {}).get("active")
    ]


def submit(road: Road, name: str) -> WorkloadState:
    """A job of one GPU on the manager, and the row of its Workload."""
    document = job(name, gpus=1, run_for="600s")
    document["metadata"]["namespace"] = NAMESPACE
    made = road.manager.create(r.JOB, document)

    def workloads() -> list[dict]:
        return [
            item
            for item in road.manager.list(r.WORKLOAD).items
            for owner in item["metadata"].get("ownerReferences") or ()
            if owner["uid"] == made["metadata"]["uid"]
        ]

    road.until(lambda: bool(workloads()))
    (found,) = workloads()
    names = {"uid": found["metadata"]["uid"], "name": found["metadata"]["name"]}
    return seen(Cluster.objects.get(slug="manager"), name, **names)


def act(fleet: SmallFleet, state: WorkloadState, verb: str) -> None:
    (action,) = services.act_on_workloads(
        fleet.owner, jobs=[("manager", state.uid)], verb=verb, reason="wrong data"
    )
    while action.state == "waiting":
        services.run_workload_actions(now=utc_now() + timedelta(hours=1))
        action.refresh_from_db()
    assert (action.state, action.message) == ("done", "")


def test_cordoned_workers_and_flavors_take_nothing_and_jobs_are_cancelled(
    kueue_road: Road, fleet: SmallFleet
) -> None:
    road = kueue_road
    clients = (road.manager, *road.workers)
    fleet.revise(fleet.vision, line("h100", 48))  # stands on both workers
    road.until(lambda: all(is_active(client, NAMESPACE) for client in clients))

    # A cordoned worker takes nothing new.
    window = plan(fleet, "gpu-east")
    road.until(lambda: not is_active(road.workers[0], NAMESPACE))
    first = submit(road, "first")
    road.until(lambda: running(road.workers, "first") == [1])
    services.end_maintenance(fleet.admin, window=window, reason="done")
    road.until(lambda: is_active(road.workers[0], NAMESPACE))

    # A drained one gives its job to the other.
    window = plan(fleet, "gpu-west", drains=True)
    road.until(lambda: running(road.workers, "first") == [0])
    services.end_maintenance(fleet.admin, window=window, reason="done")
    road.until(lambda: is_active(road.workers[1], NAMESPACE))

    # A cordoned flavor takes nothing new, and what runs on it runs on.
    window = plan(fleet, "gpu-east", flavor=fleet.flavors["h100"])

    def taints() -> list[dict]:
        return road.workers[0].get(r.RESOURCE_FLAVOR, "h100")["spec"].get("nodeTaints") or []

    road.until(lambda: bool(taints()))
    second = submit(road, "second")
    road.until(lambda: running(road.workers, "second") == [1])
    assert running(road.workers, "first") == [0]
    services.end_maintenance(fleet.admin, window=window, reason="done")
    road.until(lambda: not taints())

    # Cancelled: stopped wherever it runs, its quota given back, and back again when wanted.
    def workload() -> dict:
        return road.manager.get(r.WORKLOAD, first.name, namespace=NAMESPACE)

    act(fleet, first, "deactivate")
    road.until(
        lambda: not running(road.workers, "first") and not is_true(workload(), "QuotaReserved"),
    )
    assert workload()["metadata"]["annotations"][STOPPED_BECAUSE] == "wrong data"
    WorkloadState.objects.filter(pk=first.pk).update(phase="pending", reason="Deactivated")
    act(fleet, first, "activate")
    road.until(lambda: bool(running(road.workers, "first")))

    # Deleted: gone everywhere.
    for state in (first, second):
        act(fleet, state, "delete_job")
    road.until(
        lambda: not any(running(clients, name) for name in ("first", "second")),
    )
    eventually(lambda: not road.workloads(), why=road.workloads)
    # No usage shift follows these rows, and the queues stay while a row holds quota.
    WorkloadState.objects.all().delete()
