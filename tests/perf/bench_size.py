"""How large a fleet one installation carries: 50 clusters, 1,000 workspaces, 20,000 active jobs.

One manager with 20 workers, and 29 single clusters; three of the singles are real control planes,
the others embedded ones in processes of their own. All decide in ``portal`` mode, a process for
each cluster. The clusters come one after the other, then all budgets at once. Every workspace has
20 jobs, of which those run that its budget has room for and the others wait; jobs of the fleet are
submitted on its manager, which sends each to the worker that fits it and costs least. Then nothing
is submitted for some minutes, and what the portal takes by itself is measured: processors, memory,
connections to PostgreSQL, requests to each cluster, and how long pages take meanwhile.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from budgets.models import User, Workspace
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.transport import Call
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.models import AppliedGeneration, Cluster, WorkloadState
from clusters.vault import seal
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kwok_nodes import NodeShape
from tests.perf import fleet_rows
from tests.perf.bench import Figure, load_as_web, percentile
from tests.perf.bench_processes import Worker, served_in
from tests.perf.bench_sync import wait
from tests.perf.served import ROOMY
from tests.reconcile.admission_harness import job, limited
from tests.reconcile.fleet_rows import register

WORKERS, SINGLES, REAL = 20, 29, 3
WORKSPACES, JOBS = 1_000, 20
ACCOUNTS, COMMITTED = 50, 8
WATCHED_S: Final = 120.0
SETTLES_S: Final = 3_600.0
ROUNDS: Final = 20
SENDERS: Final = 2
TOGETHER: Final = 4
PAGE_LIMIT_MS: Final = 100
CONFIGURATION: Final = {"multiKueue": {"dispatcherName": CHEAPEST_FIT}}
"""Of the manager: all at once would copy each waiting job to all 20 workers."""
Metered = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster on which workspaces submit jobs, and those that do."""

    name: str
    client: KubeClient
    workspaces: Sequence[Workspace]
    is_manager: bool


def measure(*, scale: float = 1.0) -> list[Figure]:
    """Take the figures of a fleet whose workspaces, workers and singles are a share of all."""
    users = fleet_rows.people()
    workers = [f"worker-{n:02}" for n in range(max(1, round(WORKERS * scale)))]
    singles = [f"single-{n:02}" for n in range(max(REAL + 1, round(SINGLES * scale)))]
    fleet_rows.add_accounts(ACCOUNTS)
    # A flavor stands in one fleet, so each single cluster has one of its own.
    stands = dict.fromkeys(workers, "h100") | {name: f"h100-{name}" for name in singles}
    shares = _shares(round(WORKSPACES * scale), list(stands))
    with ExitStack() as stack:
        embedded = ["manager", *workers, *singles[REAL:]]
        folders, kubeconfigs = stack.enter_context(_embedded(embedded))
        real = stack.enter_context(_real(singles[:REAL]))
        kubeconfigs |= {name: plane.admin_kubeconfig.read_text() for name, plane in real.items()}
        worker = stack.enter_context(Worker())
        begun = time.monotonic()
        for name in [*singles, "manager", *workers]:
            _register(name, kubeconfigs[name])
            wait(worker.is_settled, SETTLES_S)
        registered_s, begun = time.monotonic() - begun, time.monotonic()
        with transaction.atomic():
            homes = {
                name: fleet_rows.add_cluster(name, flavor=flavor, workspaces=shares[name])
                for name, flavor in stands.items()
            }
        wait(lambda: _is_carried(homes), SETTLES_S)
        made = [space for spaces in homes.values() for space in spaces]
        carried_s = time.monotonic() - begun
        clients = {
            name: stack.enter_context(KubeClient.from_kubeconfig(text))
            for name, text in kubeconfigs.items()
        }
        places = _places(clients, homes, singles)
        begun = time.monotonic()
        _submit(places)
        submitted_s = time.monotonic() - begun
        wait(lambda: _is_at_rest(worker, len(made)), SETTLES_S)
        settled_s = time.monotonic() - begun
        before, pids = _spent(worker, folders, real), worker.processes.pids()
        pages = _pages(users, WATCHED_S)
        after = _spent(worker, folders, real)
    taken = {name: (after[name] - before[name]) / WATCHED_S for name in after}
    cpu = {name: value for name, value in taken.items() if name in pids}
    requests = {name.removeprefix("requests "): v for name, v in taken.items() if " " in name}
    notes: dict[str, Any] = {
        "clusters": 1 + len(workers) + len(singles),
        "workspaces": len(made),
        "jobs": JOBS * len(made),
        "running": WorkloadState.objects.filter(phase=WorkloadState.Phase.RUNNING).count(),
        "registered_in_s": round(registered_s),
        "budgets_carried_in_s": round(carried_s),
        "submitted_in_s": round(submitted_s),
        "at_rest_after_s": round(settled_s),
    }
    memory = after["memory"] / len(pids)
    return [
        Figure("processors_of_all_shifts", [sum(cpu.values())], unit="CPU", notes=notes),
        Figure("processor_of_one_cluster", list(cpu.values()), unit="CPU"),
        Figure("memory_of_one_cluster", [memory], unit="MiB"),
        Figure("connections_to_postgres", [after["connections"]], unit=""),
        Figure("requests_a_second_to_a_cluster", list(requests.values()), unit="/s"),
        *(
            Figure(f"page_{name}", values, limit=PAGE_LIMIT_MS, unit="ms")
            for name, values in pages.items()
        ),
    ]


def _shares(workspaces: int, clusters: Sequence[str]) -> dict[str, int]:
    """How many workspaces have their GPUs on each cluster."""
    return {name: len(range(nth, workspaces, len(clusters))) for nth, name in enumerate(clusters)}


def _register(name: str, kubeconfig: str) -> None:
    role = name.partition("-")[0]
    cluster = register(name, kubeconfig, role=role, mode=Cluster.Mode.PORTAL)
    if cluster.is_manager:
        cluster.kueue_configuration = CONFIGURATION
    if cluster.is_worker:
        cluster.multikueue_kubeconfig_sealed = seal(kubeconfig)
    cluster.save()
    print(f"{name} is registered", flush=True)


def _is_carried(homes: Mapping[str, Sequence[Workspace]]) -> bool:
    """Whether each cluster carries the budgets of its fleet."""
    time.sleep(2)
    of_fleet = sum(len(made) for name, made in homes.items() if "worker" in name)
    budgets = AppliedGeneration.objects.filter(subject__startswith="budget:")
    kept = Counter(budgets.values_list("cluster__slug", flat=True))
    wanted = {
        name: len(homes[name]) if name.startswith("single") else of_fleet
        for name in Cluster.objects.values_list("slug", flat=True)
    }
    missing = sum(max(0, count - kept[name]) for name, count in wanted.items())
    print(f"{missing} budgets are not carried yet", flush=True)
    return not missing


def _places(
    clients: Mapping[str, KubeClient],
    homes: Mapping[str, list[Workspace]],
    singles: Sequence[str],
) -> list[Place]:
    sent = [space for name, spaces in homes.items() if name not in singles for space in spaces]
    return [
        Place("manager", clients["manager"], sent, is_manager=True),
        *(Place(name, clients[name], homes[name], is_manager=False) for name in singles),
    ]


def _submit(places: Sequence[Place]) -> None:
    """Every workspace's jobs, as soon as its queue is there."""

    def send(place: Place) -> None:
        wait(lambda: len(place.client.list(r.LOCAL_QUEUE).items) >= len(place.workspaces), 1_800)
        for workspace in place.workspaces:
            for number in range(JOBS):
                document = job(
                    f"train-{number}",
                    namespace=workspace.namespace,
                    run_s=24 * 3600,
                    managed=place.is_manager,
                )
                place.client.create(r.JOB, limited(document))

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, places))


def _is_at_rest(worker: Worker, workspaces: int) -> bool:
    """Whether every job is known, and as many run as the budgets have room for."""
    time.sleep(2)
    jobs = WorkloadState.objects.filter(is_remote_copy=False)
    if not worker.is_settled() or jobs.count() < workspaces * JOBS:
        return False
    running = jobs.filter(phase=WorkloadState.Phase.RUNNING).count()
    print(f"{running} of {workspaces * COMMITTED} run", flush=True)
    return running >= workspaces * COMMITTED


def _spent(worker: Worker, folders: Sequence[Path], real: Mapping[str, ControlPlane]) -> Metered:
    """CPU seconds by cluster, requests by cluster, and MiB and connections of this moment."""
    ticks = os.sysconf("SC_CLK_TCK")
    found: dict[str, float] = {}
    for name, pid in worker.processes.pids().items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / ticks
    for folder in folders:
        counted = json.loads((folder / f"requests.{ROOMY}").read_text())
        found |= {f"requests {name}": count for name, count in counted.items()}
    found |= {f"requests {name}": _served(plane) for name, plane in real.items()}
    found["memory"] = worker.memory_mib()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        found["connections"] = cursor.fetchone()[0]
    return found


def _served(plane: ControlPlane) -> int:
    """Requests that a real API server has answered, all but its own."""
    with KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text()) as client:
        text = client.transport.open_stream(Call("GET", "/metrics"), idle_timeout_s=30).read()
    lines = text.decode().splitlines()
    return sum(
        round(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith("apiserver_request_total{") and 'component="apiserver"' in line
    )


def _pages(users: Mapping[str, User], seconds: float) -> Mapping[str, list[float]]:
    """Milliseconds of pages, spread over so many seconds."""
    load_as_web()
    client = Client()
    client.force_login(users["admin"])
    workspace = Workspace.objects.order_by("pk")[0]
    addresses = {
        "home": reverse("home"),
        "fleet": reverse("fleet"),
        "jobs": reverse("jobs"),
        "clusters": reverse("clusters"),
        "manager": reverse("cluster", args=["manager"]),
        "workspace": reverse("workspace", args=[workspace.namespace]),
    }
    found: dict[str, list[float]] = {name: [] for name in addresses}
    deadline = time.monotonic() + seconds
    for turn in range(ROUNDS):
        for name, address in addresses.items():
            begun = time.perf_counter()
            answer = client.get(address)
            found[name].append(1000 * (time.perf_counter() - begun))
            assert answer.status_code == 200, (name, answer.status_code)
        time.sleep(max(0.0, (deadline - time.monotonic()) / (ROUNDS - turn)))
    print({name: round(statistics.median(values)) for name, values in found.items()}, flush=True)
    assert all(percentile(values, 95) for values in found.values())
    return found


@contextmanager
def _embedded(names: Sequence[str]) -> Iterator[tuple[list[Path], dict[str, str]]]:
    """Embedded clusters, a few in each process; folders of these, and kubeconfigs.

    Threads of one process wait for each other: with 25 clusters in one, hundreds do, and an API
    server may not answer for a minute, however little is asked of it.
    """
    with ExitStack() as stack:
        folders: list[Path] = []
        found: dict[str, str] = {}
        for first in range(0, len(names), TOGETHER):
            each = names[first : first + TOGETHER]
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-size-"))
            folders.append(Path(folder))
            found |= stack.enter_context(served_in(folders[-1], ROOMY, each))
        yield folders, found


@contextmanager
def _real(names: Sequence[str]) -> Iterator[dict[str, ControlPlane]]:
    """Real control planes with Kueue's kinds and nodes, and nobody else who decides there."""
    with tempfile.TemporaryDirectory(prefix="bench-size-") as scratch, ExitStack() as stack:
        found = {}
        for name in names:
            plane = ControlPlane(name, Path(scratch) / name)
            stack.callback(plane.stop)
            plane.start()
            plane.ensure_namespace("kueue-system")
            for number in range(25):
                shape = NodeShape(labels={"gpu.example.com/model": "h100"})
                plane.rest.ensure("/api/v1/nodes", shape.manifest(f"node-{number}"))
            found[name] = plane
        yield found
