"""A usage body that a test turns by hand, and Workloads as Kueue would leave them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from budgets.intervals import Problem
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient, WriteOptions
from clusters.kube.pulse import Pulse, PulseSettings
from clusters.kube.watch import Reflector
from clusters.reconcile.context import Clients, ShiftContext, registered
from clusters.reconcile.usage import UsageBody
from clusters.reconcile.usage.build import Built, Source, build
from clusters.reconcile.usage.record import Backlog
from clusters.vault import unseal
from tests.kube.documents import job as job_document
from tests.waiting import PATIENCE_S

GPU = "nvidia.com/gpu"
ORIGIN = "kueue.x-k8s.io/multikueue-origin"
STATUS = WriteOptions(subresource="status")


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(seconds: float) -> datetime:
    """Whole seconds, UTC."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds)


def condition(kind: str, at: datetime, status: bool = True, reason: str = "Test", message="told"):
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at),
    }


@dataclass
class Kueue:
    """Writes Workloads of one namespace as Kueue would; times are given, nothing is decided."""

    client: KubeClient
    namespace: str = "acme-vision"
    queue: str = "default"
    cluster_queue: str = ""

    def submit(self, name: str, *, gpus: int = 8, origin: str = "", job: str = "") -> str:
        """The uid of a new Workload of one pod set; with a job of that name, made before."""
        container = {"name": "main", "image": "none", "resources": {"requests": {GPU: str(gpus)}}}
        metadata: dict[str, Any] = {"name": name, "namespace": self.namespace}
        if origin:
            metadata["labels"] = {ORIGIN: origin}
        if job:
            made = self.client.create(r.JOB, job_document(self.namespace, job))
            uid = made["metadata"]["uid"]
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid}
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        document = {
            "metadata": metadata,
            "spec": {
                "queueName": self.queue,
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        }
        return str(self.client.create(r.WORKLOAD, document)["metadata"]["uid"])

    def waits(self, name: str, why: str) -> None:
        pending = condition("QuotaReserved", ago(0), False, "Pending", why)
        self._status(name, {"conditions": [pending]})

    def admit(self, name: str, at: datetime, *, flavor: str = "h100", gpus: int = 8) -> None:
        assignment = {
            "name": "main",
            "flavors": {GPU: flavor},
            "resourceUsage": {GPU: str(gpus)},
            "count": 1,
        }
        conditions = [condition("QuotaReserved", at), condition("Admitted", at)]
        admission = {
            "clusterQueue": self.cluster_queue or self.namespace,
            "podSetAssignments": [assignment],
        }
        self._status(name, {"conditions": conditions, "admission": admission})

    def reserve_on_manager(self, name: str, at: datetime, *, worker: str = "") -> None:
        assignment = {
            "name": "main",
            "flavors": {GPU: "h100"},
            "resourceUsage": {GPU: "8"},
            "count": 1,
        }
        admission = {
            "clusterQueue": self.cluster_queue or self.namespace,
            "podSetAssignments": [assignment],
        }
        conditions = [condition("QuotaReserved", at)]
        status: dict[str, Any] = {"conditions": conditions, "admission": admission}
        if worker:
            conditions.append(condition("Admitted", at))
            self._status(name, {"nominatedClusterNames": [worker]})
            status |= {"clusterName": worker, "nominatedClusterNames": None}
        self._status(name, status)

    def evict(self, name: str, at: datetime, *, reason: str = "Preempted") -> None:
        conditions = [
            condition("QuotaReserved", at, False, "Pending", "told to wait"),
            condition("Admitted", at, False, "NoReservation"),
            condition("Evicted", at, True, reason, "a higher priority came"),
        ]
        self._status(name, {"conditions": conditions, "admission": None})

    def finish(self, name: str, at: datetime, *, reason: str = "Succeeded") -> None:
        found = self.client.get(r.WORKLOAD, name, namespace=self.namespace)
        conditions = [row for row in found["status"]["conditions"] if row["type"] != "Finished"] + [
            condition("Finished", at, True, reason, "it ended")
        ]
        self._status(name, {"conditions": conditions})

    def delete(self, name: str) -> None:
        self.client.delete(
            r.WORKLOAD, name, namespace=self.namespace, options=DeleteOptions(grace_period_s=0)
        )

    def _status(self, name: str, status: dict[str, Any]) -> None:
        self.client.patch(
            r.WORKLOAD, name, {"status": status}, namespace=self.namespace, options=STATUS
        )


def kueue_on(client: KubeClient, namespace: str = "acme-vision") -> Kueue:
    """With its namespace made."""
    try:
        client.get(r.NAMESPACE, namespace)
    except NotFound:
        client.create(r.NAMESPACE, {"metadata": {"name": namespace}})
    return Kueue(client, namespace)


@dataclass
class UsageHand:
    """Turns a body until something is so."""

    body: UsageBody
    context: ShiftContext
    is_counting: bool = False

    def until(self, reached: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            self.body._reported_at = 0.0
            self.body.turn()
            if reached():
                return
            time.sleep(0.02)
        raise AssertionError("it did not come to that in time")

    def measure(self) -> None:
        """Count the GPUs, once nodes and pods are known."""
        counting = self.body.counting
        if not self.is_counting:
            counting.start()
            self.is_counting = True
            counting._await_images()
        counting.measure()

    @property
    def watch(self) -> Reflector:
        """Of the cluster's Workloads."""
        return self.body.watches.of(r.WORKLOAD)

    def listed(self) -> UsageHand:
        """After the first list was written down and built."""
        self.until(lambda: self.body._has_listed and not self.body._waiting)
        return self


def build_next(source: Source, backlog: Backlog) -> tuple[Problem, ...] | None:
    """What a turn does with the next events of a backlog: their problems; None without events."""
    uids = backlog.take()
    if uids is None:
        return None
    found = build(source, uids) if uids else Built(frozenset(), ())
    backlog.note(found.events)
    backlog.advance()
    return found.problems


@contextmanager
def usage_hand(
    slug: str, *, fence: Callable[[], None] = lambda: None, is_watching: bool = True
) -> Iterator[UsageHand]:
    """A usage body on a registered cluster, with a real watch, without Lease and counting."""
    registration = registered(slug)
    assert registration is not None
    stop = threading.Event()
    with KubeClient.from_kubeconfig(unseal(registration.sealed)) as client:
        pulse = Pulse(client, settings=PulseSettings(every_s=0.2, timeout_s=1.0))
        clients = Clients()
        context = ShiftContext(
            registration,
            client=client,
            clients=clients,
            pulse=pulse,
            stop=stop,
            fence=fence,
            holder="test",
        )
        body = UsageBody(context)
        beating = threading.Thread(target=pulse.run, args=(stop,), daemon=True)
        beating.start()
        if is_watching:
            body.open()
        try:
            yield UsageHand(body, context)
        finally:
            stop.set()
            body.close()
            body.counting.close()
            beating.join(PATIENCE_S)
            clients.close()
