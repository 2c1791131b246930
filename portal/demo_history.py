"""A few days of jobs before the demo began, written the way usage shifts write what they see.

The days are simulated: jobs arrive by day more than by night, wait for their workspace's ceiling
and their account's quota, run, and end. Each one becomes the Workload states that a manager and a
worker would have shown, recorded as events; intervals and hour facts follow from these as always.
"""

from __future__ import annotations

import heapq
import math
import random
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.conf import settings

from budgets import services
from budgets.plan import Line
from budgets.units import time_text
from clusters.documents import labels
from clusters.models import Cluster, WorkloadEvent
from clusters.reconcile.usage.build import Source, build
from clusters.reconcile.usage.record import Observation, event_of, store_events

SEED = 7
GPU = "nvidia.com/gpu"
NAMES = ("train", "finetune", "eval", "embed", "sweep", "render", "dock", "segment")
BATCH = 200


@dataclass(frozen=True, slots=True)
class Tenant:
    """A workspace as the simulation knows it."""

    account: str
    namespace: str
    lines: tuple[Line, ...]


@dataclass(slots=True)
class Job:
    """One job of the past."""

    tenant: Tenant
    name: str
    gpus: int
    seconds: int
    created: datetime
    uid: str
    flavor: str = ""
    worker: str = ""
    admitted: datetime | None = None
    finished: datetime | None = None


@dataclass
class Simulation:
    """First come, first served per workspace, within its ceilings and its account's quota."""

    tenants: tuple[Tenant, ...]
    workers: tuple[str, ...]
    begin: datetime
    end: datetime
    pools: dict[tuple[str, str], int]
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311  a demo's load
    # Of jobs that end in the same second.
    order: Iterator[int] = field(default_factory=count)

    def run(self) -> list[Job]:
        """Every job that was admitted, finished or still running at the end left out."""
        arrivals = sorted(
            (job for tenant in self.tenants for job in self._arrivals(tenant)),
            key=lambda job: job.created,
        )
        waiting: dict[str, deque[Job]] = {t.namespace: deque() for t in self.tenants}
        running: list[tuple[datetime, int, Job]] = []
        used: dict[tuple[str, str], int] = {}
        done: list[Job] = []
        for job in arrivals:
            while running and running[0][0] <= job.created:
                ended = heapq.heappop(running)[2]
                used[ended.tenant.namespace, ended.flavor] -= ended.gpus
                done.append(ended)
                self._start_waiting(waiting, used, running, ended.finished or job.created)
            waiting[job.tenant.namespace].append(job)
            self._start_waiting(waiting, used, running, job.created)
        return [job for job in done if job.finished and job.finished < self.end]

    def _arrivals(self, tenant: Tenant) -> Iterator[Job]:
        at = self.begin
        floor = max(4, sum(line.committed for line in tenant.lines))
        while True:
            busy = 0.35 + 0.65 * max(0.0, math.sin((at.hour - 6) / 24 * 2 * math.pi))
            mean = 26_000 / floor / busy
            at += timedelta(seconds=int(self.chance.expovariate(1 / mean)) + 1)
            if at >= self.end:
                return
            gpus = min(self.chance.choice((1, 2, 2, 4, 4, 8, 8)), floor)
            name = f"{self.chance.choice(NAMES)}-{self.chance.randrange(16**5):05x}"
            seconds = int(self.chance.lognormvariate(8.6, 0.8)) + 60
            uid = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
            yield Job(tenant, name, gpus, seconds, at, uid)

    def _start_waiting(
        self,
        waiting: dict[str, deque[Job]],
        used: dict[tuple[str, str], int],
        running: list[tuple[datetime, int, Job]],
        now: datetime,
    ) -> None:
        for queue in waiting.values():
            while queue and self._start(queue[0], used, now):
                job = queue.popleft()
                end = job.finished or now
                heapq.heappush(running, (end, next(self.order), job))

    def _start(self, job: Job, used: dict[tuple[str, str], int], now: datetime) -> bool:
        """Floor first, then whatever the other lines and the account still have."""
        tenant = job.tenant
        for line in sorted(tenant.lines, key=lambda line: -line.committed):
            own = used.get((tenant.namespace, line.flavor), 0)
            within = own + job.gpus <= line.committed
            borrowed = own + job.gpus <= line.ceiling and self._account_has(job, line, used)
            if within or borrowed:
                used[tenant.namespace, line.flavor] = own + job.gpus
                job.flavor = line.flavor
                job.worker = self.chance.choice(self.workers)
                job.admitted = now + timedelta(seconds=1)
                job.finished = job.admitted + timedelta(seconds=job.seconds)
                return True
        return False

    def _account_has(self, job: Job, line: Line, used: dict[tuple[str, str], int]) -> bool:
        account = [t for t in self.tenants if t.account == job.tenant.account]
        floor = sum(row.committed for t in account for row in t.lines if row.flavor == line.flavor)
        total = sum(used.get((t.namespace, line.flavor), 0) for t in account)
        pool = self.pools.get((job.tenant.account, line.flavor), 0)
        return total + job.gpus <= floor + pool


def write_history(
    *, tenants: tuple[Tenant, ...], pools: dict[tuple[str, str], int], days: int
) -> int:
    """Records the days before now; returns how many jobs there were."""
    if days <= 0:
        return 0
    clusters = {cluster.slug: cluster for cluster in Cluster.objects.all()}
    workers = tuple(slug for slug, row in clusters.items() if not row.is_manager)
    manager = next((row.slug for row in clusters.values() if row.is_manager), "")
    now = services.utc_now()
    begin = now - timedelta(days=days) + timedelta(minutes=5)
    jobs = Simulation(tenants, workers, begin, now - timedelta(minutes=2), pools).run()
    events: list[WorkloadEvent] = []
    for number, job in enumerate(jobs):
        if manager:
            events += _events(job, cluster=manager, is_own=True, worker=job.worker, version=number)
        events += _events(job, cluster=job.worker, is_own=not manager, version=number)
    store_events(events)
    for slug, row in clusters.items():
        source = Source(cluster_id=row.pk, slug=slug, gpu_resources=frozenset({GPU}))
        uids = sorted({event.uid for event in events if event.cluster == slug})
        for at in range(0, len(uids), BATCH):
            build(source, uids[at : at + BATCH])
    for slug in clusters:
        services.record_progress(cluster=slug, complete_until=now)
    services.meter_usage(now)
    return len(jobs)


def _events(
    job: Job, *, cluster: str, is_own: bool, version: int, worker: str = ""
) -> Iterator[WorkloadEvent]:
    """Created, admitted, finished: what a watch would have told of a job, or of its copy."""
    moments = (job.created, job.admitted, job.finished)
    for step, at in enumerate(moments):
        if at is None or (step == 0 and not is_own):
            continue
        document = _workload(job, step=step, is_own=is_own, worker=worker)
        # Older than anything that the embedded cluster will ever number.
        document["metadata"]["resourceVersion"] = str(3 * version + step + 1)
        yield event_of(
            Observation(type=WorkloadEvent.Type.SEEN, document=document, at=at),
            cluster=cluster,
            gpu_resources={GPU},
        )


def _workload(job: Job, *, step: int, is_own: bool, worker: str) -> dict[str, Any]:
    created = job.created if is_own else job.admitted
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.name,
        "uid": str(uuid.uuid5(uuid.UUID(job.uid), "job")),
        "controller": True,
    }
    container = {"name": "main", "resources": {"requests": {GPU: str(job.gpus)}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{job.name}-{job.uid[:5]}",
            "namespace": job.tenant.namespace,
            "uid": job.uid if is_own else str(uuid.uuid5(uuid.UUID(job.uid), job.worker)),
            "creationTimestamp": _text(created),
            "labels": {} if is_own else {labels.ORIGIN: settings.PORTAL_INSTALLATION},
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "queueName": "default",
            "priority": 0,
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            ],
        },
        "status": _status(job, is_finished=step == 2, worker=worker) if step else {},
    }


def _status(job: Job, *, is_finished: bool, worker: str) -> dict[str, Any]:
    changes = [
        (
            "QuotaReserved",
            "QuotaReserved",
            job.admitted,
            f"Quota reserved in {job.tenant.namespace}",
        ),
        ("Admitted", "Admitted", job.admitted, "The workload is admitted"),
        ("Finished", "Succeeded", job.finished, "Job finished successfully"),
    ]
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {GPU: job.flavor},
        "resourceUsage": {GPU: str(job.gpus)},
    }
    return {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": _text(at),
            }
            for kind, reason, at, message in (changes if is_finished else changes[:2])
        ],
        "admission": {"clusterQueue": job.tenant.namespace, "podSetAssignments": [assignment]},
        **({"clusterName": worker} if worker else {}),
    }


def _text(at: datetime | None) -> str:
    return "" if at is None else time_text(at)
