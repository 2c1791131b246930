"""A real manager and workers under Kueue with the portal's shift beside it, and what tests ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusters.errors import Retryable
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.models import Cluster
from clusters.reconcile.context import ClusterFacts, ShiftContext
from clusters.reconcile.external import ExternalBody
from clusters.reconcile.foreground import ForegroundShift
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.kueue_setup import NAMESPACE
from tests.controlplane.queues import connect_workers, job, make_queue
from tests.reconcile.admission_harness import Document, RunningShift, condition, is_true
from tests.reconcile.fleet_rows import register
from tests.waiting import eventually

EXTERNAL: Mapping[str, Any] = {"multiKueue": {"dispatcherName": CHEAPEST_FIT}}
LOST_AFTER_S = 10
"""Kueue's workerLostTimeout on the tests' control planes."""


def configuration(*, external: bool = True, gates: Mapping[str, bool] | None = None) -> Document:
    """What is stored of the manager's Kueue."""
    found: Document = {"multiKueue": {"workerLostTimeout": f"{LOST_AFTER_S}s"}}
    if external:
        found["multiKueue"]["dispatcherName"] = CHEAPEST_FIT
    if gates:
        found["featureGates"] = dict(gates)
    return found


@dataclass
class Beside:
    """One workspace on a fleet under Kueue; names are those of its MultiKueueClusters."""

    fleet: Fleet
    name: str
    manager: KubeClient
    clients: dict[str, KubeClient]
    shifts: list[RunningShift] = field(default_factory=list)
    row: Cluster | None = None

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(self.clients)

    def plane(self, worker: str) -> ControlPlane:
        return self.fleet.worker(worker.removeprefix(f"{self.name}-"))

    def register(self) -> Cluster:
        """Rows of manager and workers, for what the shift writes into the database."""
        text = self.fleet.manager.admin_kubeconfig.read_text()
        self.row = register("manager", text, role="manager")
        for worker in self.workers:
            register(worker, self.plane(worker).admin_kubeconfig.read_text())
        return self.row

    def start(self, stored: Document, *, guard: str = "off", hook: Any = None) -> RunningShift:
        """A shift beside Kueue, with administrators' rights."""
        facts = ClusterFacts(
            pk=self.row.pk if self.row else 0,
            slug="manager",
            is_manager=True,
            mode="kueue",
            state="active",
            generation=1,
            installation=self.name,
            guard=guard,
            kueue_configuration=stored,
        )

        def body(context: ShiftContext) -> ExternalBody:
            return ExternalBody(context, **({"hook": hook} if hook else {}))

        running = RunningShift(
            ForegroundShift(
                kubeconfig=self.fleet.manager.admin_kubeconfig.read_text(),
                role="dispatch",
                facts=facts,
                holder=f"beside-{self.name}-{len(self.shifts)}",
                workers={
                    worker: self.plane(worker).admin_kubeconfig.read_text()
                    for worker in self.workers
                },
                body=body,
            )
        )
        self.shifts.append(running)
        return running

    def stop(self) -> None:
        for shift in self.shifts:
            if not shift.is_over:
                shift.stop()
            assert shift.error is None, shift.error

    # What people do

    def submit(self, name: str, *, gpus: int = 1, run_for: str = "600s") -> None:
        document = job(name, gpus=gpus, run_for=run_for)
        document["metadata"]["namespace"] = self.name
        self.manager.create(r.JOB, document)

    def set_active(self, name: str, active: bool) -> None:
        key = self.workload(name)["metadata"]["name"]
        self.manager.patch(r.WORKLOAD, key, {"spec": {"active": active}}, namespace=self.name)

    # What is there

    def workload(self, name: str) -> Document:
        """The manager's Workload of a Job; empty while there is none."""
        for found in self._all(self.manager, r.WORKLOAD):
            owners = found["metadata"].get("ownerReferences") or ()
            if any(owner["name"] == name for owner in owners):
                return found
        return {}

    def status(self, name: str) -> Document:
        return self.workload(name).get("status") or {}

    def job(self, name: str) -> Document:
        return self.manager.get(r.JOB, name, namespace=self.name)

    def copies(self, resource: Any) -> dict[str, list[Document]]:
        """Everything of a kind in the workspace, by worker."""
        return {worker: self._all(client, resource) for worker, client in self.clients.items()}

    def copy(self, worker: str, name: str) -> Document | None:
        """A worker's copy of a Job's Workload."""
        key = self.workload(name).get("metadata", {}).get("name")
        found = self._all(self.clients[worker], r.WORKLOAD)
        return next((item for item in found if item["metadata"]["name"] == key), None)

    def runs_on(self, name: str) -> str:
        """The worker whose Job is active and which the manager has recorded; else empty."""
        chosen = str(self.status(name).get("clusterName") or "")
        if not chosen:
            return ""
        try:
            jobs = self._all(self.clients[chosen], r.JOB)
        except Retryable:
            return ""
        active = any(
            item["metadata"]["name"] == name and (item.get("status") or {}).get("active")
            for item in jobs
        )
        return chosen if active and is_true(self.workload(name), "Admitted") else ""

    def wait_running(self, name: str, *, seconds: float = 60) -> str:
        return str(eventually(lambda: self.runs_on(name), seconds=seconds, why=self.story))

    def mirrored(self, name: str) -> bool:
        """Whether the manager's Job says that pods run."""
        return bool((self.job(name).get("status") or {}).get("active"))

    def story(self) -> str:
        """Everything that matters, for a test that fails."""
        told = [shift.error for shift in self.shifts]
        return f"{told} {[w.get('status') for w in self._all(self.manager, r.WORKLOAD)]}"

    def _all(self, client: KubeClient, resource: Any) -> list[Document]:
        return [
            item
            for item in client.list(resource).items
            if item["metadata"].get("namespace") == self.name
        ]


def since(document: Document | None, kind: str) -> datetime:
    """When a condition last changed."""
    return datetime.fromisoformat(condition(document, kind)["lastTransitionTime"])


@contextmanager
def beside(fleet: Fleet, name: str, *, gpus: int = 8) -> Iterator[Beside]:
    """A workspace with 16 GPUs on the manager and ``gpus`` on each worker; tidied up afterwards."""
    make_queue(fleet.manager, name, gpus=16, admission_check=name)
    for worker in fleet.workers:
        make_queue(worker, name, gpus=gpus)
    connect_workers(fleet, name)
    clients = {
        f"{name}-{plane.name}": KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text())
        for plane in fleet.workers
    }
    manager = KubeClient.from_kubeconfig(fleet.manager.admin_kubeconfig.read_text())
    found = Beside(fleet, name, manager, clients)
    try:
        eventually(
            lambda: all(
                is_true(manager.get(r.MULTIKUEUE_CLUSTER, worker), "Active") for worker in clients
            ),
        )
        yield found
    finally:
        for plane in fleet.clusters:
            plane.mend()
        _tidy(found)
        found.stop()
        for client in (manager, *clients.values()):
            client.close()


def _tidy(found: Beside) -> None:
    for item in found._all(found.manager, r.JOB):
        found.manager.delete(r.JOB, item["metadata"]["name"], namespace=found.name)
    eventually(
        lambda: (
            not any(
                found._all(client, r.WORKLOAD)
                for client in (found.manager, *found.clients.values())
            )
        ),
        why=found.story,
    )
    # The other tests of the session need not see lost or idle workers of this one.
    for resource, names in (
        (r.CLUSTER_QUEUE, (found.name,)),
        (r.ADMISSION_CHECK, (found.name,)),
        (r.MULTIKUEUE_CONFIG, (found.name,)),
        (r.MULTIKUEUE_CLUSTER, found.workers),
    ):
        for name in names:
            found.manager.delete(resource, name)
    for worker in found.workers:
        found.manager.delete(r.SECRET, worker, namespace=NAMESPACE)


def run_one(found: Beside, name: str = "train") -> None:
    """Nominated, admitted, run, ended: with nothing left of the nomination."""
    found.submit(name, gpus=2, run_for="2s")
    worker = found.wait_running(name)
    assert worker in found.workers
    assert not found.status(name).get("nominatedClusterNames")
    eventually(lambda: is_true(found.workload(name), "Finished"), why=found.story)
