"""How large a fleet one installation carries: 50 clusters, 1,000 workspaces, 20,000 active jobs.

One manager with 20 workers, and 29 single clusters; three of the singles are real control planes,
the others embedded ones in processes of their own. All decide in ``portal`` mode, a process for
each cluster. They are worked in shards, one after the other, for a machine that has the API servers
of all clusters to work as well is too small for 50: three of about ten singles, and the manager
with its workers. Clusters of a shard come one by one, then its budgets at once. Every workspace has
20 jobs, of which those run that its budget has room for and the others wait; jobs of the fleet are
submitted on its manager, which sends each to the worker that fits it and costs least. Then nothing
is submitted for two minutes, and what the shard takes by itself is measured: processors, memory,
connections to PostgreSQL, requests to each cluster, and how long pages take meanwhile. All shards
use one database, which has everything when the last of them, the fleet, is measured.
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

from django.conf import settings
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from budgets.models import User, Workspace
from clusters.documents.keys import Document
from clusters.errors import AlreadyExists, Retryable
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
from tests.perf.bench_processes import MIB, Worker, served_in
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
TRIES: Final = 5
TOGETHER: Final = 4
SHARD: Final = 10
"""So many singles are worked at once."""
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


@dataclass(frozen=True, slots=True)
class Shard:
    """What the clusters of one shard have taken at rest.

    Attributes:
        cpu: Cluster → processors.
        requests: Cluster → requests a second.
        memory: MiB for each process.
        connections: To PostgreSQL, with the few of the bench.
        pages: Page → milliseconds.
        told: Seconds that each step took, clusters, and processors together.
    """

    cpu: Mapping[str, float]
    requests: Mapping[str, float]
    memory: float
    connections: int
    pages: Mapping[str, list[float]]
    told: Mapping[str, float]


def measure(*, scale: float = 1.0) -> list[Figure]:
    """Take the figures of a fleet whose workspaces, workers and singles are a share of all."""
    users = fleet_rows.people()
    workers = [f"worker-{n:02}" for n in range(max(1, round(WORKERS * scale)))]
    singles = [f"single-{n:02}" for n in range(max(REAL + 1, round(SINGLES * scale)))]
    fleet_rows.add_accounts(ACCOUNTS)
    # A flavor stands in one fleet, so each single cluster has one of its own.
    stands = dict.fromkeys(workers, "h100") | {name: f"h100-{name}" for name in singles}
    shares = _shares(round(WORKSPACES * scale), list(stands))
    shards = [singles[nth : nth + SHARD] for nth in range(0, len(singles), SHARD)]
    found = []
    for names in (*shards, ["manager", *workers]):
        homes = {name: (flavor, shares[name]) for name, flavor in stands.items() if name in names}
        found.append(_of_shard(names, homes, users, are_real=singles[:REAL]))
        print(found[-1].told, flush=True)
    return _figures(found)


def _figures(shards: Sequence[Shard]) -> list[Figure]:
    """Of all shards together; pages as the last has seen them, when everything was there."""
    cpu = [value for shard in shards for value in shard.cpu.values()]
    requests = [value for shard in shards for value in shard.requests.values()]
    notes: dict[str, Any] = {
        "clusters": sum(shard.told["clusters"] for shard in shards),
        "workspaces": Workspace.objects.count(),
        "jobs": WorkloadState.objects.filter(is_remote_copy=False).count(),
        "shards": [dict(shard.told) for shard in shards],
    }
    return [
        Figure("processors_of_all_shifts", [sum(cpu)], unit="CPU", notes=notes),
        Figure("processor_of_one_cluster", cpu, unit="CPU"),
        Figure("memory_of_one_cluster", [shard.memory for shard in shards], unit="MiB"),
        Figure("connections_to_postgres", [sum(s.connections for s in shards)], unit=""),
        Figure("requests_a_second_to_a_cluster", requests, unit="/s"),
        *(
            Figure(f"page_{name}", values, limit=PAGE_LIMIT_MS, unit="ms")
            for name, values in shards[-1].pages.items()
        ),
    ]


def _of_shard(
    names: Sequence[str],
    homes: Mapping[str, tuple[str, int]],
    users: Mapping[str, User],
    *,
    are_real: Sequence[str],
) -> Shard:
    """Register some clusters, have them carry budgets and jobs, and see what they take at rest.

    Args:
        names: Of its clusters.
        homes: Cluster → the flavor that stands there, and how many workspaces have theirs there.
        users: For pages.
        are_real: Of all clusters, those that are real control planes.
    """
    times: dict[str, float] = {}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        times[what] = round(time.monotonic() - begun)

    with ExitStack() as stack:
        embedded = [name for name in names if name not in are_real]
        folders, kubeconfigs = stack.enter_context(_embedded(embedded))
        real = stack.enter_context(_real([name for name in names if name in are_real]))
        kubeconfigs |= {name: plane.admin_kubeconfig.read_text() for name, plane in real.items()}
        worker = stack.enter_context(Worker(names, memory=settings.SHIFT_MEMORY_MB * MIB))
        with timed("registered_in_s"):
            for name in names:
                _register(name, kubeconfigs[name])
                wait(worker.is_settled, SETTLES_S)
        with timed("budgets_carried_in_s"):
            with transaction.atomic():
                spaces = {
                    name: fleet_rows.add_cluster(name, flavor=flavor, workspaces=count)
                    for name, (flavor, count) in homes.items()
                }
            wait(lambda: _is_carried(names, spaces), SETTLES_S)
        clients = {
            name: stack.enter_context(KubeClient.from_kubeconfig(text))
            for name, text in kubeconfigs.items()
        }
        with timed("at_rest_after_s"):
            with timed("submitted_in_s"):
                _submit(_places(clients, spaces))
            wait(lambda: _is_at_rest(worker, names, spaces), SETTLES_S)
        before, pids = _spent(worker, folders, real), worker.processes.pids()
        connected = _connections()
        pages = _pages(users, names[0])
        after, memory = _spent(worker, folders, real), worker.memory_mib() / len(pids)
    taken = {name: (after[name] - before[name]) / WATCHED_S for name in after}
    cpu = {name: taken[name] for name in pids}
    requests = {name.removeprefix("requests "): v for name, v in taken.items() if " " in name}
    told = times | {"clusters": len(names), "processors": round(sum(cpu.values()), 3)}
    return Shard(cpu, requests, memory, connected, pages, told)


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


def _is_carried(names: Sequence[str], homes: Mapping[str, Sequence[Workspace]]) -> bool:
    """Whether each of these clusters carries the budgets of its fleet."""
    time.sleep(2)
    of_fleet = sum(len(made) for name, made in homes.items() if "worker" in name)
    budgets = AppliedGeneration.objects.filter(subject__startswith="budget:")
    kept = Counter(budgets.values_list("cluster__slug", flat=True))
    wanted = {name: len(homes[name]) if name.startswith("single") else of_fleet for name in names}
    missing = sum(max(0, count - kept[name]) for name, count in wanted.items())
    print(f"{missing} budgets are not carried yet", flush=True)
    return not missing


def _places(clients: Mapping[str, KubeClient], homes: Mapping[str, list[Workspace]]) -> list[Place]:
    """Where jobs are submitted: those of workers on their manager."""
    if "manager" in clients:
        sent = [space for spaces in homes.values() for space in spaces]
        return [Place("manager", clients["manager"], sent, is_manager=True)]
    return [Place(name, clients[name], made, is_manager=False) for name, made in homes.items()]


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
                _create(place.client, limited(document))

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, places))


def _create(client: KubeClient, document: Document) -> None:
    """As people do, again where a busy API server did not answer in time."""
    for tries_left in range(TRIES, -1, -1):
        try:
            client.create(r.JOB, document)
        except AlreadyExists:
            return
        except Retryable:
            if not tries_left:
                raise
            time.sleep(1)
        else:
            return


def _is_at_rest(
    worker: Worker, names: Sequence[str], homes: Mapping[str, Sequence[Workspace]]
) -> bool:
    """Whether every job is known, and as many run as the budgets have room for."""
    time.sleep(2)
    workspaces = sum(map(len, homes.values()))
    jobs = WorkloadState.objects.filter(is_remote_copy=False, cluster__slug__in=names)
    if not worker.is_settled() or jobs.count() < workspaces * JOBS:
        return False
    running = jobs.filter(phase=WorkloadState.Phase.RUNNING).count()
    print(f"{running} of {workspaces * COMMITTED} run", flush=True)
    return running >= workspaces * COMMITTED


def _spent(worker: Worker, folders: Sequence[Path], real: Mapping[str, ControlPlane]) -> Metered:
    """CPU seconds by cluster, and requests by cluster."""
    ticks = os.sysconf("SC_CLK_TCK")
    found: dict[str, float] = {}
    for name, pid in worker.processes.pids().items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / ticks
    for folder in folders:
        counted = json.loads((folder / f"requests.{ROOMY}").read_text())
        found |= {f"requests {name}": count for name, count in counted.items()}
    found |= {f"requests {name}": _served(plane) for name, plane in real.items()}
    return found


def _connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


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


def _pages(users: Mapping[str, User], cluster: str) -> Mapping[str, list[float]]:
    """Milliseconds of pages, those of this cluster among them, spread over the time watched."""
    load_as_web()
    client = Client()
    client.force_login(users["admin"])
    workspace = Workspace.objects.order_by("pk")[0]
    addresses = {
        "home": reverse("home"),
        "fleet": reverse("fleet"),
        "jobs": reverse("jobs"),
        "clusters": reverse("clusters"),
        "cluster": reverse("cluster", args=[cluster]),
        "workspace": reverse("workspace", args=[workspace.namespace]),
    }
    found: dict[str, list[float]] = {name: [] for name in addresses}
    deadline = time.monotonic() + WATCHED_S
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
    """Embedded clusters, a few in each process, a manager alone; folders of these, and kubeconfigs.

    Threads of one process wait for each other: with 25 clusters in one, hundreds do, and an API
    server may not answer for a minute, however little is asked of it.
    """
    with ExitStack() as stack:
        folders: list[Path] = []
        found: dict[str, str] = {}
        others = [name for name in names if name != "manager"]
        groups = [others[nth : nth + TOGETHER] for nth in range(0, len(others), TOGETHER)]
        if "manager" in names:
            groups.insert(0, ["manager"])
        for each in groups:
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
