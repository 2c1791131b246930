"""One tenant has 10,000 jobs waiting: what another tenant's job and pages take before and after.

Admission on a real API server, pages on PostgreSQL. The crowd asks for more than its queue will
ever have, half of it beside the other tenant in one cohort.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from django.test import Client
from django.urls import reverse

from budgets.models import Membership, Role, User, Workspace
from clusters.jobs.workloads import made_name_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.models import WorkloadState
from clusters.reconcile.foreground import ForegroundShift
from tests.controlplane.fleet import start_fleet
from tests.perf import fleet_rows, life_rows
from tests.perf.bench import Figure
from tests.reconcile.admission_harness import (
    GPU,
    Document,
    RunningShift,
    facts,
    is_true,
    job,
    kueue,
    limited,
    quota_objects,
)
from tests.resources import resource_of
from tests.waiting import eventually

CROWD = 10_000
TRIES, ROUNDS = 30, 30
WRITERS = 8
CROWDED, QUIET = "acme-crowd", "acme-quiet"
# A sound job may take so much longer beside the crowd, milliseconds.
SLOWER_MS = 250.0


def measure() -> list[Figure]:
    """Milliseconds, alone and beside the crowd."""
    return [*_admission(CROWD), *_pages(CROWD)]


def _admission(count: int) -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="crowd-") as folder,
        start_fleet(workers=0, kueue=False, folder=Path(folder)) as fleet,
    ):
        text = fleet.manager.admin_kubeconfig.read_text()
        with KubeClient.from_kubeconfig(text) as client, shift_on(text):
            alone, beside = admitted(client, count)
    limit = max(alone) + SLOWER_MS
    return [
        Figure("admission_alone", alone, unit="ms"),
        Figure("admission_beside_the_crowd", beside, limit=limit, unit="ms"),
    ]


@contextmanager
def shift_on(kubeconfig: str) -> Iterator[RunningShift]:
    """An admission shift that ends with the block."""
    shift = RunningShift(
        ForegroundShift(
            kubeconfig=kubeconfig, role="admission", facts=facts("crowd"), holder="crowd"
        )
    )
    try:
        yield shift
    finally:
        shift.stop()


def admitted(
    client: KubeClient, count: int, *, tries: int = TRIES
) -> tuple[list[float], list[float]]:
    """What jobs of one tenant took alone, and beside so many that wait; milliseconds."""
    for namespace, gpus in ((CROWDED, 4), (QUIET, 10_000)):
        for item in quota_objects(gpus, namespace=namespace, cohort="acme"):
            if item["kind"] != "ResourceFlavor" or namespace == CROWDED:
                client.create(resource_of(item), item)
    alone = [_job(client, f"alone-{number}") for number in range(tries)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda n: client.create(r.WORKLOAD, waiting(n)), range(count)))
    return alone, [_job(client, f"beside-{number}") for number in range(tries)]


def waiting(number: int) -> Document:
    """A Workload that asks for more than it can ever get."""
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: "100000"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set = {"name": "main", "count": 1 + number % 7, "template": template}
    spec = {"active": True, "queueName": "default", "podSets": [pod_set], "priority": number % 5}
    return kueue("Workload", f"waits-{number}", spec, CROWDED)


def _job(client: KubeClient, name: str) -> float:
    """Milliseconds from a job's creation to its admission."""
    document = limited(job(name, run_s=600, namespace=QUIET))
    begun = time.perf_counter()
    workload = made_name_of(client.create(r.JOB, document))

    def is_admitted() -> bool:
        rows = client.list(r.WORKLOAD, _of(workload)).items
        return bool(rows) and is_true(rows[0], "Admitted")

    eventually(is_admitted)
    return 1000 * (time.perf_counter() - begun)


def _of(workload: str) -> Selection:
    return Selection(namespace=QUIET, fields=f"metadata.name={workload}")


def _pages(count: int) -> list[Figure]:
    users = fleet_rows.people()
    crowded, quiet, *_ = fleet_rows.promises(accounts=2, workspaces=11)
    Membership.objects.create(user=users["owner"], role=Role.OWNER, workspace=quiet)
    life_rows.fleet_at_work(clusters=3, jobs=110, requests=0, entries=0)
    life_rows.analyze()
    alone = visited(users["owner"], quiet)
    life_rows.crowd(crowded, count)
    life_rows.analyze()
    beside = visited(users["owner"], quiet)
    figures = []
    for name, values in alone.items():
        limit = max(values) + SLOWER_MS
        figures.append(Figure(f"{name}_alone", values, unit="ms"))
        figures.append(Figure(f"{name}_beside_the_crowd", beside[name], limit=limit, unit="ms"))
    return figures


def visited(user: User, workspace: Workspace, *, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Milliseconds of each page of an owner, the first two visits left out."""
    state = WorkloadState.objects.filter(namespace=workspace.namespace, phase="pending").first()
    assert state is not None
    client = Client()
    client.force_login(user)
    addresses = {
        "home": reverse("home"),
        "workspace": reverse("workspace", args=[workspace.namespace]),
        "jobs": reverse("jobs"),
        "job": reverse("job", args=[state.cluster.slug, state.uid]),
    }
    return {name: _visits(client, address, rounds) for name, address in addresses.items()}


def _visits(client: Client, address: str, rounds: int) -> list[float]:
    values = []
    for _ in range(rounds + 2):
        begun = time.perf_counter()
        assert client.get(address).status_code == 200
        values.append(1000 * (time.perf_counter() - begun))
    return values[2:]
