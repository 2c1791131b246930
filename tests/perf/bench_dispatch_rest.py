"""What the portal's dispatcher costs with ten thousand workloads at rest on its workers.

Three real API servers without any controller: each workload is there as it is while its job runs,
on the manager and on one of two workers, marked as the dispatcher marks its copies. Measured are
its start, a minute at rest, and a reconcile after one copy was touched.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clusters.jobs import remote
from clusters.jobs.batch import JOB
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.reconcile.multikueue.local import attempt_of
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import Program, StartError
from tests.perf.bench import Figure
from tests.perf.bench_admission import cpu_of
from tests.reconcile.admission_harness import (
    CHECK,
    NS,
    Document,
    is_true,
    job,
    limited,
    multikueue_objects,
    quota_objects,
)
from tests.resources import resource_of
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ("worker-1", "worker-2")
RESTING, TOUCHES = 10_000, 1_000
REST_S, TOUCHES_PER_S = 65.0, 25.0
ORIGIN = "bench"
SINCE = "2026-01-01T00:00:00Z"
THREADS = 12
FEWEST = 100


def longest_s(scale: float) -> float:
    """When a measurement of this scale is given up, seconds."""
    return 300.0 + _longest_fill_s(scale) + 400.0 * scale


def _longest_fill_s(scale: float) -> float:
    return 60.0 + 1200.0 * scale


def measure(scale: float) -> list[Figure]:
    """CPU and seconds of the dispatcher.

    Raises:
        StartError: a program did not start, or something did not happen in time.
    """
    count = max(FEWEST, round(RESTING * scale))
    touches = max(FEWEST // 2, round(TOUCHES * scale))
    with tempfile.TemporaryDirectory(prefix="bench-rest-") as folder, ExitStack() as stack:
        planes = {name: ControlPlane(name, Path(folder) / name) for name in ("manager", *WORKERS)}
        for plane in planes.values():
            plane.start(controller_manager=False)
            stack.callback(plane.stop)
        clients = {
            name: stack.enter_context(
                KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text())
            )
            for name, plane in planes.items()
        }
        begun = time.monotonic()
        _fill(clients, count, ends=begun + _longest_fill_s(scale))
        notes: dict[str, Any] = {"workloads": count, "filled_s": round(time.monotonic() - begun)}
        dispatcher = _dispatcher(planes, Path(folder))
        stack.callback(dispatcher.kill)
        return _figures(clients, dispatcher, count, touches, notes)


def _figures(
    clients: Mapping[str, KubeClient],
    dispatcher: Program,
    count: int,
    touches: int,
    notes: dict[str, Any],
) -> list[Figure]:
    begun = time.monotonic()
    eventually(
        lambda: all(
            is_true(clients["manager"].get(r.MULTIKUEUE_CLUSTER, name), "Active")
            for name in WORKERS
        ),
        seconds=120 + count / 50,
        why=dispatcher.log_tail,
    )
    started = time.monotonic() - begun
    _settle(dispatcher)
    versions = _versions(clients)
    resting = _cpu_while(dispatcher, lambda: time.sleep(REST_S)) / REST_S
    touched = _cpu_while(dispatcher, lambda: _touch(clients, touches))
    per_touch = max(0.0, touched - resting * touches / TOUCHES_PER_S) / touches
    changed = sum(versions[key] != now for key, now in _versions(clients).items())
    if changed:
        raise StartError(f"{changed} of {count} resting workloads were written to")
    notes |= {"touches": touches, "peak_rss_mib": _peak_mib(dispatcher)}
    return [
        Figure("start_with_resting", [started], of="max", notes=notes),
        Figure("cpu_at_rest", [resting], unit="CPU s/s", of="max", notes={"seconds": REST_S}),
        Figure("cpu_per_reconcile", [1000 * per_touch], unit="CPU ms", of="max"),
    ]


def _dispatcher(planes: Mapping[str, ControlPlane], folder: Path) -> Program:
    workers = [
        word for name in WORKERS for word in ("--worker", f"{name}={planes[name].admin_kubeconfig}")
    ]
    command = [
        sys.executable, str(ROOT / "manage.py"), "run_shift", "--role", "dispatch",
        "--kubeconfig", str(planes["manager"].admin_kubeconfig), "--origin", ORIGIN, *workers,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return Program(command, name="dispatch", log=folder / "dispatch.log", environment=environment)


# Workloads at rest


def _fill(clients: Mapping[str, KubeClient], count: int, *, ends: float) -> None:
    """Every workload with its job, on the manager and on its worker."""

    def fill(number: int) -> None:
        if time.monotonic() > ends:
            raise StartError(f"only {number} of {count} workloads were made in time")
        _rest(clients, number)

    for document in multikueue_objects(*WORKERS):
        clients["manager"].create(resource_of(document), document)
    for name, client in clients.items():
        objects = quota_objects(2 * count, check=name == "manager", labels={})
        for document in objects:
            client.create(resource_of(document), document)
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(fill, range(count)):
            pass


def _rest(clients: Mapping[str, KubeClient], number: int) -> None:
    manager, worker = clients["manager"], WORKERS[number % len(WORKERS)]
    document = limited(job(f"rest-{number}", managed=True))
    document["spec"]["suspend"] = False
    owner = manager.create(r.JOB, document)
    local = _admitted(manager, _workload(owner, worker), worker)
    marks = remote.CopyMarks(ORIGIN, attempt_of(local))
    copied = clients[worker].create(r.JOB, _body(JOB.copy_of(owner, local, marks=marks)))
    pod_sets = local["spec"]["podSets"]
    body = remote.workload_copy(local, pod_sets, marks=marks)
    body["metadata"]["ownerReferences"] = [_reference(copied)]
    _admitted(clients[worker], body, "")


def _body(copied: Document) -> Document:
    copied["spec"]["suspend"] = False
    return copied


def _reference(owner: Document) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _workload(owner: Document, worker: str) -> Document:
    return {
        "metadata": {
            "name": f"job-{owner['metadata']['name']}",
            "namespace": NS,
            "ownerReferences": [_reference(owner)],
        },
        "spec": {
            "active": True,
            "queueName": "default",
            "podSets": JOB.pod_sets(owner),
        },
    }


def _admitted(client: KubeClient, body: Document, chosen: str) -> Document:
    """Create a Workload and let its status say that it runs; on the manager, where."""
    name = client.create(r.WORKLOAD, body)["metadata"]["name"]
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": SINCE}
        for kind in ("QuotaReserved", "Admitted")
    ]
    usage = {"name": "main", "flavors": {}, "resourceUsage": {}, "count": 1}
    admission = {"clusterQueue": NS, "podSetAssignments": [usage]}
    status: Document = {"conditions": conditions, "admission": admission}
    if chosen:
        check = {"name": CHECK, "state": "Ready", "message": "", "lastTransitionTime": SINCE}
        status |= {"admissionChecks": [check]}
        # A worker is chosen only among those that were nominated before.
        _patch(client, name, {"nominatedClusterNames": [chosen]})
        status |= {"clusterName": chosen, "nominatedClusterNames": None}
    return _patch(client, name, status)


def _patch(client: KubeClient, name: str, status: Document) -> Document:
    options = WriteOptions(subresource="status")
    return client.patch(r.WORKLOAD, name, {"status": status}, namespace=NS, options=options)


# Measuring


def _settle(dispatcher: Program) -> None:
    """Wait until the start's work is done: two seconds that cost nearly nothing."""
    ends = time.monotonic() + 120
    while _cpu_while(dispatcher, lambda: time.sleep(2)) > 0.4:
        if time.monotonic() > ends:
            raise StartError(f"the dispatcher does not come to rest:\n{dispatcher.log_tail()}")


def _cpu_while(dispatcher: Program, work: Callable[[], object]) -> float:
    """CPU seconds of the dispatcher meanwhile."""
    before = cpu_of({"dispatch": dispatcher})["dispatch"]
    work()
    return cpu_of({"dispatch": dispatcher})["dispatch"] - before


def _touch(clients: Mapping[str, KubeClient], touches: int) -> None:
    """Something changes on one job after the other that asks for nothing."""
    begun = time.monotonic()
    for number in range(touches):
        client = clients[WORKERS[number % len(WORKERS)]]
        note = {"metadata": {"annotations": {"touched": str(number)}}}
        client.patch(r.JOB, f"rest-{number}", note, namespace=NS)
        time.sleep(max(0.0, begun + number / TOUCHES_PER_S - time.monotonic()))
    time.sleep(2)


def _versions(clients: Mapping[str, KubeClient]) -> dict[tuple[str, str], str]:
    """Of all Workloads; nobody writes to one that is at rest."""
    return {
        (name, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for name, client in clients.items()
        for item in client.list(r.WORKLOAD).items
    }


def _peak_mib(program: Program) -> int:
    status = Path(f"/proc/{program.process_id}/status").read_text()
    return round(next(int(row.split()[1]) for row in status.splitlines() if "VmHWM" in row) / 1024)
