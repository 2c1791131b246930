"""The demo's jobs on engines of its three clusters, without their servers and shifts.

The demo's own source of jobs submits them; manager and workers decide by what the portal applies
there. A job that has quota on the manager runs where a worker has room first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.controllers import RUN_SECONDS
from clusters.documents.keys import Document, key_of
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient
from clusters.kueue.explanation.why import Explainer
from clusters.models import Cluster, PendingReason, WorkloadState
from clusters.reconcile.explained.reporter import evidence_of, waiting_keys
from portal.management.commands.demo_jobs import SEED, TURN_S, TURNS, Command
from tests.explained.arithmetic import Sums
from tests.explained.engines import engine_of
from tests.stories.fleets.memory_parts import MemoryTransport

EVERY = timedelta(seconds=4)


class Floor:
    """What runs and waits in the demo.

    Attributes:
        engines: By slug of the cluster.
        documents: Workloads by key.
    """

    def __init__(self, now: datetime) -> None:
        rows = Cluster.objects.order_by("position")
        self.manager = next(row for row in rows if row.is_manager).slug
        self.engines = {row.slug: engine_of(row) for row in rows}
        self.documents: dict[str, Document] = {}
        self.now = now
        self._begun, self._number = now, 0
        self._chance = random.Random(SEED)
        self._ends: dict[str, datetime] = {}
        cluster = DevCluster(ClusterOptions(name=self.manager, now=lambda: self.now))
        transport: Any = MemoryTransport(cluster)
        self._client, self._source = KubeClient(transport), Command()
        self._source.is_dispatched = True
        for namespace in sorted(self.engines[self.manager].state.snapshot.queues):
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self._client.create(r.NAMESPACE, document)

    def turn(self) -> None:
        """A job more, and what becomes of all."""
        self.now += EVERY
        for key, ends in list(self._ends.items()):
            if ends <= self.now:
                self._end(key)
        turn = TURNS[int((self.now - self._begun).total_seconds() / TURN_S) % len(TURNS)]
        self._number = self._source.tick(self._client, self._chance, self._number, turn)
        for job in self._client.list(r.JOB).items:
            if key_of(job) not in self.documents:
                self._take_in(job)
        self._decide()

    def check(self, sums: Sums) -> None:
        """Work out again what every cluster says."""
        for engine in self.engines.values():
            sums.check(engine, self.documents, now=self.now)

    def store(self) -> list[WorkloadState]:
        """What the shifts would store of what waits; rows of the manager."""
        for slug, engine in self.engines.items():
            explain = Explainer(engine, now=self.now).explain
            for key in waiting_keys(engine):
                found = explain(key)
                assert found is not None
                namespace, _, name = key.partition("/")
                evidence = evidence_of(found, self.documents[key])
                PendingReason.objects.create(
                    cluster=slug, uid=f"uid-{name}", namespace=namespace, name=name,
                    evidence=evidence, since=self.now, updated_at=self.now,
                )  # fmt: skip
        return [self._state(key) for key in waiting_keys(self.engines[self.manager])]

    def _state(self, key: str) -> WorkloadState:
        namespace, _, name = key.partition("/")
        workload = self.engines[self.manager].state.workloads[key]
        phases, gpus = WorkloadState.Phase, workload.total_requests()["nvidia.com/gpu"]
        return WorkloadState.objects.create(
            cluster=Cluster.objects.get(slug=self.manager),
            uid=f"uid-{name}",
            namespace=namespace,
            name=name,
            job_name=name,
            phase=phases.RESERVED if workload.reservation else phases.PENDING,
            gpus={"": gpus},
            gpu_total=gpus,
            created_at=workload.created_at,
            resource_version="1",
        )

    def _take_in(self, job: Mapping[str, Any]) -> None:
        metadata = job["metadata"]
        pod_set = {"name": "main", "count": 1, "template": job["spec"]["template"]}
        document = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {**metadata, "uid": f"uid-{metadata['name']}"},
            "spec": {"queueName": "default", "priority": 0, "podSets": [pod_set]},
        }
        self.documents[key_of(job)] = document
        self.engines[self.manager].upsert(document, now=self.now)

    def _decide(self) -> None:
        """Until nothing moves: quota on the manager first, then room on a worker."""
        manager = self.engines[self.manager]
        moves = True
        while moves:
            moves = self._cycled(self.manager, self._offer)
            for slug in self._workers():
                moves |= self._cycled(slug, self._run)
            for key in list(self._ends):
                if manager.state.workloads[key].reservation is None:
                    self._withdraw(key)

    def _cycled(self, slug: str, take: Callable[[str, str], None]) -> bool:
        result = self.engines[slug].cycle(self.now)
        for admit in result.admitted:
            take(slug, admit.key)
        for preempt in result.preempted:
            self.engines[slug].release_evicted(preempt.key, now=self.now)
        return result.has_moved

    def _workers(self) -> Iterator[str]:
        return (slug for slug in self.engines if slug != self.manager)

    def _offer(self, _: str, key: str) -> None:
        for slug in self._workers():
            self.engines[slug].upsert(self.documents[key], now=self.now)

    def _run(self, slug: str, key: str) -> None:
        """The first worker that has room keeps it."""
        self.engines[self.manager].confirm_admitted(key, now=self.now)
        for other in self._workers():
            if other != slug:
                self.engines[other].delete("Workload", key=key, now=self.now)
        annotations = self.documents[key]["metadata"]["annotations"]
        self._ends[key] = self.now + timedelta(seconds=float(annotations[RUN_SECONDS]))

    def _withdraw(self, key: str) -> None:
        self._ends.pop(key, None)
        for slug in self._workers():
            self.engines[slug].delete("Workload", key=key, now=self.now)

    def _end(self, key: str) -> None:
        self._withdraw(key)
        self.engines[self.manager].delete("Workload", key=key, now=self.now)
        namespace, _, name = key.partition("/")
        self._client.delete(r.JOB, name, namespace=namespace, options=DeleteOptions())
        del self.documents[key]
