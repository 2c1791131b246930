"""Quota sync on three real API servers: first sync, fifty edits, and a sweep that finds nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.db import connection

from budgets import services
from budgets.models import User, Workspace
from budgets.plan import Line, RevisionDraft
from clusters import services as cluster_services
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.transport import Call, Transport
from clusters.models import Cluster, ShiftRun
from clusters.reconcile.shift import run_shift
from tests.controlplane.fleet import Fleet, start_fleet
from tests.perf import fleet_rows
from tests.perf.bench import Figure
from tests.reconcile.fleet_rows import quota_hand

FIRST, SWEPT, EDITS = 200, 1_000, 50
CLUSTERS = ("manager", "worker-1", "worker-2")


def measure() -> list[Figure]:
    """Seconds; the fleet is the same for all, the sweep runs on the larger number of workspaces."""
    admin = fleet_rows.people()["admin"]
    with start_fleet(workers=2, kueue=False) as fleet:
        clients = register(admin, fleet)
        made = fleet_rows.promises(accounts=20, workspaces=FIRST)
        with shifts():
            begun = time.perf_counter()
            wait(lambda: has_queues(clients, FIRST), 300)
            first = time.perf_counter() - begun
            edits = [edit(admin, clients, made[n], n) for n in range(EDITS)]
        fleet_rows.add_workspaces(SWEPT - FIRST)
        with shifts():
            wait(lambda: has_queues(clients, SWEPT), 600)
        sweeps, counts = sweep(fleet)
    notes: Mapping[str, Any] = {"workspaces": FIRST, "clusters": 3}
    return [
        Figure("first_sync", [first], limit=60, of="max", notes=dict(notes)),
        Figure("edit_to_all_clusters", edits, limit=2, notes={**notes, "edits": EDITS}),
        Figure(
            "sweep_unchanged",
            sweeps,
            limit=10,
            of="max",
            notes={"workspaces": SWEPT, **counts},
        ),
    ]


def register(admin: User, fleet: Fleet) -> dict[str, KubeClient]:
    for name, plane in zip(CLUSTERS, fleet.clusters, strict=True):
        plane.ensure_namespace("kueue-system")
        cluster_services.register_cluster(
            admin,
            slug=name,
            name=name,
            role=Cluster.Role.MANAGER if name == "manager" else Cluster.Role.WORKER,
            mode=Cluster.Mode.PORTAL,
            kubeconfig=plane.admin_kubeconfig.read_text(),
        )
    return {
        name: KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text())
        for name, plane in zip(CLUSTERS, fleet.clusters, strict=True)
    }


@contextmanager
def shifts() -> Iterator[None]:
    """The quota shifts of all clusters as threads, through the function that Celery calls."""
    stop = threading.Event()

    def run(slug: str) -> None:
        run_shift(slug, ShiftRun.Role.QUOTA, stop=stop, seconds=3600, holder=f"bench-{slug}")
        connection.close()

    threads = [threading.Thread(target=run, args=(slug,)) for slug in CLUSTERS]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def wait(ready: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.02)


def has_queues(clients: Mapping[str, KubeClient], count: int) -> bool:
    for client in clients.values():
        queues = client.list(r.LOCAL_QUEUE).items
        if len(queues) < count:
            time.sleep(0.2)
            return False
    return True


def edit(
    admin: User, clients: Mapping[str, KubeClient], workspace: Workspace, number: int
) -> float:
    """From the click on save to the new quota on the manager and on both workers."""
    floor = 1 + number % 7
    workspace.refresh_from_db()
    line = Line(workspace.home_flavor.slug, floor, 16, floor)
    begun = time.perf_counter()
    services.revise_budget(
        admin,
        workspace=workspace,
        draft=RevisionDraft(lines=(line,), reason="bench"),
        expected_version=workspace.budget.version,
    )
    wait(lambda: sums_to(clients, workspace.namespace, floor), 30)
    return time.perf_counter() - begun


def sums_to(clients: Mapping[str, KubeClient], namespace: str, floor: int) -> bool:
    found = [nominal(client, namespace) for client in clients.values()]
    return found[0] == floor and sum(found[1:]) == floor


def nominal(client: KubeClient, namespace: str) -> int:
    group = client.get(r.CLUSTER_QUEUE, namespace)["spec"]["resourceGroups"][0]
    return int(group["flavors"][0]["resources"][0]["nominalQuota"])


def sweep(fleet: Fleet) -> tuple[list[float], dict[str, int]]:
    """Seconds to look at everything on an unchanged cluster, and what that cost in requests."""
    values: list[float] = []
    counts = {"requests": 0, "rewritten": 0}
    send = Transport.send

    def counted(self: Transport, call: Call) -> Any:
        counts["requests"] += call.path != "/version"  # the pulse asks for that on its own
        return send(self, call)

    for slug, plane in zip(CLUSTERS, fleet.clusters, strict=True):
        with (
            KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text()) as client,
            quota_hand(slug) as hand,
        ):
            hand.settle()
            before = versions(client)
            hand.sweep()
            with mock.patch.object(Transport, "send", counted):
                begun = time.perf_counter()
                hand.body.turn()
                values.append(time.perf_counter() - begun)
            after = versions(client)
            counts["rewritten"] += sum(after[key] != version for key, version in before.items())
    return values, counts


def versions(client: KubeClient) -> dict[str, str]:
    return {
        str(item["metadata"]["uid"]): str(item["metadata"]["resourceVersion"])
        for resource in (r.CLUSTER_QUEUE, r.COHORT, r.LOCAL_QUEUE, r.RESOURCE_FLAVOR)
        for item in client.list(resource).items
    }
