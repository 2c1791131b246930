"""How soon the portal reacts, on real API servers: a lost cluster, a hand edit, a spend check.

Each is tried again and again, and the slowest try counts. The shifts run as Celery would run them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.conf import settings
from django.db import connection

from budgets.models import Workspace
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.manifests.names import SPEND_CHECK, spend_controller
from clusters.models import ClusterHealth, Drift, ShiftRun
from clusters.reconcile.shift import run_shift
from tests.controlplane.fleet import Fleet, start_fleet
from tests.perf import fleet_rows
from tests.perf.bench import Figure
from tests.perf.bench_sync import CLUSTERS, has_queues, register, wait

TRIES = 10
TOGETHER = 20
LOST = "worker-1"
HAND = "kubectl-edit"


def measure() -> list[Figure]:
    """Seconds until the page of a cluster would say so, or the job may go on."""
    admin = fleet_rows.people()["admin"]
    with start_fleet(workers=2, kueue=False) as fleet:
        clients = register(admin, fleet)
        workspaces = fleet_rows.promises(accounts=1, workspaces=5)
        roles = [(slug, ShiftRun.Role.QUOTA) for slug in CLUSTERS]
        with shifts(*roles, ("manager", ShiftRun.Role.SPEND)):
            wait(lambda: has_queues(clients, len(workspaces)), 60)
            lost, healed = lost_and_healed(fleet)
            drift = [hand_edit(clients["manager"], workspaces[0], n) for n in range(TRIES)]
            make_check(clients["manager"])
            namespaces = [workspace.namespace for workspace in workspaces]
            checks = spend_checks(clients["manager"], namespaces[0])
            together = checks_together(clients["manager"], namespaces[1])
    return [
        Figure("lost_cluster_shown", lost, limit=10, of="max"),
        Figure("healed_cluster_shown", healed, limit=10, of="max"),
        Figure("drift_noticed", drift, limit=10, of="max"),
        Figure("spend_check_answered", checks, limit=1, of="max"),
        Figure("spend_checks_answered_together", together, limit=2, of="max"),
    ]


@contextmanager
def shifts(*places: tuple[str, str]) -> Iterator[None]:
    """The shifts of these clusters and roles, each in a thread."""
    stop = threading.Event()

    def run(slug: str, role: str) -> None:
        run_shift(slug, role, stop=stop, seconds=3600, holder=f"bench-{slug}-{role}")
        connection.close()

    threads = [threading.Thread(target=run, args=place) for place in places]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def seconds_until(holds: Callable[[], object]) -> float:
    begun = time.perf_counter()
    wait(lambda: bool(holds()), 120)
    return time.perf_counter() - begun


def lost_and_healed(fleet: Fleet) -> tuple[list[float], list[float]]:
    """An API server that answers nothing any more, and the same that goes on."""
    plane = fleet.clusters[CLUSTERS.index(LOST)]
    health = ClusterHealth.objects.filter(cluster__slug=LOST)
    wait(lambda: health.filter(reachable=True).exists(), 30)
    lost, healed = [], []
    for _ in range(TRIES):
        plane.pause_api_server()
        lost.append(seconds_until(health.filter(reachable=False).exists))
        plane.resume_api_server()
        healed.append(seconds_until(health.filter(reachable=True).exists))
        time.sleep(1)
    return lost, healed


def hand_edit(client: KubeClient, workspace: Workspace, number: int) -> float:
    """From somebody's edit of a queue to its row among the cluster's drift."""
    known = Drift.objects.count()
    policy = "Hold" if number % 2 == 0 else "HoldAndDrain"
    client.apply(
        r.CLUSTER_QUEUE,
        {
            "apiVersion": r.CLUSTER_QUEUE.api_version,
            "kind": r.CLUSTER_QUEUE.kind,
            "metadata": {"name": workspace.namespace},
            "spec": {"stopPolicy": policy},
        },
        options=WriteOptions(field_manager=HAND, force=True),
    )
    took = seconds_until(lambda: Drift.objects.count() > known)
    wait(lambda: Drift.objects.filter(resolved_at=None).count() == 0, 60)
    return took


def make_check(client: KubeClient) -> None:
    client.create(
        r.ADMISSION_CHECK,
        {
            "apiVersion": r.ADMISSION_CHECK.api_version,
            "kind": r.ADMISSION_CHECK.kind,
            "metadata": {"name": SPEND_CHECK},
            "spec": {"controllerName": spend_controller(settings.PORTAL_INSTALLATION)},
        },
    )


def spend_checks(client: KubeClient, namespace: str) -> list[float]:
    """From the moment a workload waits for the check to the answer."""
    took = []
    for number in range(5 * TRIES):
        ask = asking(client, namespace, f"train-{number}")
        begun = time.perf_counter()
        ask()
        wait(lambda name=f"train-{number}": is_answered(client, namespace, name), 60)
        took.append(time.perf_counter() - begun)
    return took


def checks_together(client: KubeClient, namespace: str) -> list[float]:
    """From the moment the first of many workloads waits for the check to the last answer."""
    took = []
    for attempt in range(TRIES):
        names = [f"many-{attempt}-{number}" for number in range(TOGETHER)]
        asks = [asking(client, namespace, name) for name in names]
        begun = time.perf_counter()
        for ask in asks:
            ask()
        wait(lambda names=names: all(is_answered(client, namespace, n) for n in names), 60)
        took.append(time.perf_counter() - begun)
    return took


def asking(client: KubeClient, namespace: str, name: str) -> Callable[[], object]:
    """Make a workload; what is returned lets it hold quota and wait for the check."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = client.create(
        r.WORKLOAD,
        {
            "apiVersion": r.WORKLOAD.api_version,
            "kind": r.WORKLOAD.kind,
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"queueName": "default", "podSets": [pod_set()]},
        },
    )
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": at,
    }
    waits = {"name": SPEND_CHECK, "state": "Pending", "message": "", "lastTransitionTime": at}
    status = {"conditions": [reserved], "admissionChecks": [waits]}
    return lambda: client.patch(
        r.WORKLOAD,
        name,
        {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": status},
        namespace=namespace,
        options=WriteOptions(subresource="status"),
    )


def is_answered(client: KubeClient, namespace: str, name: str) -> bool:
    found = client.get(r.WORKLOAD, name, namespace=namespace)
    return bool(found["status"]["admissionChecks"][0]["state"] == "Ready")


def pod_set() -> dict[str, object]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"name": "main", "count": 1, "template": {"spec": spec}}
