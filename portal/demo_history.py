"""Jobs since the end of last month, written the way usage shifts write what they see.

The days are simulated: jobs arrive by day more than by night, wait for their workspace's ceiling
and their account's quota, run, and end. Each one becomes the Workload states that a manager and a
worker would have shown, recorded as events; intervals and hour facts follow from these as always.

Three things happened that somebody should see: a job was stopped for another and ran again; a
worker was out of sight for a while, and what ran there meanwhile only the manager knows; and of
one job nothing was told until last month was closed.
"""

from __future__ import annotations

import heapq
import math
import random
import uuid
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.conf import settings

from budgets import services
from budgets.plan import Line
from budgets.selectors.billing import month_at
from budgets.selectors.usage.labels import kept_labels
from budgets.services.usage.labels import store_labels
from budgets.units import time_text
from clusters.documents import labels
from clusters.models import Cluster, WorkloadEvent
from clusters.reconcile.usage.build import Source, build
from clusters.reconcile.usage.record import Observation, event_of, store_events
from clusters.reconcile.usage.unwatched import note_unwatched

SEED = 7
GPU = "nvidia.com/gpu"
NAMES = ("train", "finetune", "eval", "embed", "sweep", "render", "dock", "segment")
TEAM = "team"
TEAMS = ("vision", "language", "robotics", "platform")
BATCH = 200
# Last month is seen by its end; after that, few jobs until the busy days before the demo.
LAST_MONTH = timedelta(hours=36)
QUIET = 10
OUT_OF_SIGHT = timedelta(hours=3)
STOPPED_AFTER = timedelta(minutes=20)
STOPPED_FOR = timedelta(minutes=12)


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
    team: str = ""
    bursts: bool = False
    # When it was stopped, and for which job.
    stopped: datetime | None = None
    stopped_for: Job | None = None
    # Its worker told nothing of it.
    is_unseen: bool = False


@dataclass
class Simulation:
    """First come, first served per workspace, within its ceilings and its account's quota.

    Between ``month`` and ``busy_since`` few jobs arrive.
    """

    tenants: tuple[Tenant, ...]
    workers: tuple[str, ...]
    begin: datetime
    month: datetime
    busy_since: datetime
    end: datetime
    pools: dict[tuple[str, str], int]
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))  # noqa: S311  a demo's load
    # Of jobs that end in the same second.
    order: Iterator[int] = field(default_factory=count)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: list[tuple[datetime, int, Job]] = field(default_factory=list)

    def run(self) -> list[Job]:
        """Every job that was admitted, finished or still running at the end left out."""
        arrivals = sorted(
            (job for tenant in self.tenants for job in self._arrivals(tenant)),
            key=lambda job: job.created,
        )
        waiting: dict[str, deque[Job]] = {t.namespace: deque() for t in self.tenants}
        done: list[Job] = []
        for job in arrivals:
            while self.running and self.running[0][0] <= job.created:
                ended = heapq.heappop(self.running)[2]
                self.used[ended.tenant.namespace, ended.flavor] -= ended.gpus
                done.append(ended)
                self._start_waiting(waiting.values(), ended.finished or job.created)
            waiting[job.tenant.namespace].append(job)
            self._start_waiting(waiting.values(), job.created)
        return [job for job in done if job.finished and job.finished < self.end]

    def _arrivals(self, tenant: Tenant) -> Iterator[Job]:
        at = self.begin
        floor = max(4, sum(line.committed for line in tenant.lines))
        while True:
            busy = 0.35 + 0.65 * max(0.0, math.sin((at.hour - 6) / 24 * 2 * math.pi))
            mean = 26_000 / floor / busy * (QUIET if self.month <= at < self.busy_since else 1)
            at += timedelta(seconds=int(self.chance.expovariate(1 / mean)) + 1)
            if at >= self.end:
                return
            gpus = min(self.chance.choice((1, 2, 2, 4, 4, 8, 8)), floor)
            name = f"{self.chance.choice(NAMES)}-{self.chance.randrange(16**5):05x}"
            seconds = int(self.chance.lognormvariate(8.6, 0.8)) + 60
            uid = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
            team = TEAMS[self.chance.randrange(len(TEAMS))]
            yield Job(tenant, name, gpus, seconds, at, uid, team=team)

    def _start_waiting(self, waiting: Iterable[deque[Job]], now: datetime) -> None:
        for queue in waiting:
            while queue and self._start(queue[0], now):
                job = queue.popleft()
                end = job.finished or now
                heapq.heappush(self.running, (end, next(self.order), job))

    def _start(self, job: Job, now: datetime) -> bool:
        """Floor first, then whatever the other lines and the account still have."""
        tenant = job.tenant
        for line in sorted(tenant.lines, key=lambda line: -line.committed):
            own = self.used[tenant.namespace, line.flavor] + job.gpus
            if own <= line.committed or (own <= line.ceiling and self._account_has(job, line)):
                self.used[tenant.namespace, line.flavor] = own
                job.bursts = own > line.committed
                job.flavor = line.flavor
                job.worker = self.chance.choice(self.workers)
                job.admitted = now + timedelta(seconds=1)
                job.finished = job.admitted + timedelta(seconds=job.seconds)
                return True
        return False

    def _account_has(self, job: Job, line: Line) -> bool:
        account = [t for t in self.tenants if t.account == job.tenant.account]
        floor = sum(row.committed for t in account for row in t.lines if row.flavor == line.flavor)
        total = sum(self.used[t.namespace, line.flavor] for t in account)
        pool = self.pools.get((job.tenant.account, line.flavor), 0)
        return total + job.gpus <= floor + pool


def history_begins(now: datetime, days: int) -> datetime:
    """When the past of the demo begins: with the end of last month, or so many days ago."""
    return min(now - timedelta(days=days), month_at(now).start - LAST_MONTH)


def write_history(
    *, tenants: tuple[Tenant, ...], pools: dict[tuple[str, str], int], days: int
) -> list[Job]:
    """Record what was before now; returns what was not told in time.

    Args:
        tenants: Who runs jobs.
        pools: (account, flavor) → GPUs beyond its floors.
        days: That were busy before now; 0 for no past at all.

    Returns:
        A job of last month that :func:`record_jobs` is to record once that month is closed; none
        where last month has no job.
    """
    if days <= 0:
        return []
    now = services.utc_now()
    month, busy_since = month_at(now).start, now - timedelta(days=days)
    clusters = Cluster.objects.order_by("position")
    workers = tuple(row.slug for row in clusters if not row.is_manager)
    jobs = Simulation(
        tenants,
        workers,
        history_begins(now, days) + timedelta(minutes=5),
        month,
        busy_since,
        now - timedelta(minutes=2),
        pools,
    ).run()
    _stop_one_for_another(jobs)
    if len(workers) > 1:
        _lose_sight(jobs, workers[-1], now)
    # One that burst: what was told late of committed GPUs would cost nothing more.
    ended = [job for job in jobs if job.bursts and job.finished and job.finished <= month]
    late = max(ended, key=lambda job: job.gpus * job.seconds, default=None)
    record_jobs([job for job in jobs if job is not late])
    return [late] if late else []


def _stop_one_for_another(jobs: list[Job]) -> None:
    """The newest job that ran when another of its account got GPUs of its flavor makes way."""
    for job in sorted(jobs, key=lambda job: job.created, reverse=True):
        assert job.admitted is not None and job.finished is not None, "all of them ended"
        for other in jobs:
            is_sibling = other.tenant.account == job.tenant.account and other.tenant != job.tenant
            if not is_sibling or other.flavor != job.flavor or other.admitted is None:
                continue
            begin, end = job.admitted + STOPPED_AFTER, job.finished - 2 * STOPPED_FOR
            if begin <= other.admitted <= end:
                job.stopped, job.stopped_for = other.admitted - timedelta(seconds=5), other
                return


def _lose_sight(jobs: list[Job], worker: str, now: datetime) -> None:
    """A worker answers nobody for some hours of the day before; then it is back."""
    start = max(now - timedelta(hours=30), month_at(now).start)
    end = min(start + OUT_OF_SIGHT, now - timedelta(minutes=30))
    for job in jobs:
        if job.worker == worker and job.admitted and job.finished and job.stopped is None:
            job.is_unseen = start <= job.admitted and job.finished <= end
    note_unwatched(worker, start=start, end=end)


def record_jobs(jobs: Collection[Job]) -> None:
    """Record jobs as the watches of their clusters would have told them, and meter them."""
    if not jobs:
        return
    clusters = {row.slug: row for row in Cluster.objects.all()}
    manager = next((slug for slug, row in clusters.items() if row.is_manager), "")
    documents: dict[str, list[dict[str, Any]]] = {}
    events: list[WorkloadEvent] = []
    for job in jobs:
        for number, (cluster, at, kind, document) in enumerate(_told(job, manager), start=1):
            documents.setdefault(cluster, []).append(document)
            # Older than anything that the embedded cluster will ever number.
            document["metadata"]["resourceVersion"] = str(number)
            seen = Observation(type=kind, document=document, at=at)
            events.append(event_of(seen, cluster=cluster, gpu_resources={GPU}))
    store_events(events)
    named = kept_labels()
    for slug, told in documents.items():
        store_labels(told, cluster=slug, labels=named)
        source = Source(clusters[slug].pk, slug, frozenset({GPU}))
        uids = sorted({event.uid for event in events if event.cluster == slug})
        for first in range(0, len(uids), BATCH):
            build(source, uids[first : first + BATCH])
    now = services.utc_now()
    for slug in clusters:
        services.record_progress(cluster=slug, complete_until=now)
    services.meter_usage(now)


Told = tuple[str, datetime, WorkloadEvent.Type, dict[str, Any]]


def _told(job: Job, manager: str) -> Iterator[Told]:
    """What the watches told of a job: the manager's of all of it, the worker's of its copies.

    A copy ends with its admission: a job that is stopped is dispatched anew, as another copy.
    """
    assert job.admitted is not None and job.finished is not None, "all of them ended"
    seen, deleted = WorkloadEvent.Type.SEEN, WorkloadEvent.Type.DELETED
    home = manager or job.worker
    own = Shown(job, worker=job.worker if manager else "")
    yield home, job.created, seen, own.document()
    runs = [(job.admitted, job.finished)]
    if job.stopped is not None:
        runs = [(job.admitted, job.stopped), (job.stopped + STOPPED_FOR, job.finished)]
    for number, (begin, end) in enumerate(runs):
        yield home, begin, seen, own.document(begin)
        is_last = end == job.finished
        yield home, end, seen, own.document(begin, end, is_stopped=not is_last)
        if manager and not job.is_unseen:
            copy = Shown(job, copy=number + 1)
            yield job.worker, begin, seen, copy.document(begin)
            kind = seen if is_last else deleted
            yield job.worker, end, kind, copy.document(begin, end if is_last else None)


@dataclass(frozen=True, slots=True)
class Shown:
    """A job's Workload, or its copy on a worker, as documents."""

    job: Job
    worker: str = ""
    copy: int = 0

    def document(
        self,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        is_stopped: bool = False,
    ) -> dict[str, Any]:
        """As it was created, admitted at ``begin``, and finished or stopped at ``end``."""
        job = self.job
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job.name,
            "uid": str(uuid.uuid5(uuid.UUID(job.uid), "job")),
            "controller": True,
        }
        origin = {labels.ORIGIN: settings.PORTAL_INSTALLATION} if self.copy else {}
        container = {"name": "main", "resources": {"requests": {GPU: str(job.gpus)}}}
        template = {"spec": {"containers": [container]}}
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": f"job-{job.name}-{job.uid[:5]}",
                "namespace": job.tenant.namespace,
                "uid": self.uid,
                "creationTimestamp": time_text(begin if self.copy and begin else job.created),
                "labels": {TEAM: job.team, **origin},
                "ownerReferences": [owner],
            },
            "spec": {
                "active": True,
                "queueName": "default",
                "priority": 0,
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
            "status": self._status(begin, end, is_stopped=is_stopped) if begin else {},
        }

    @property
    def uid(self) -> str:
        """Of the Workload; of each copy another one."""
        if not self.copy:
            return self.job.uid
        return str(uuid.uuid5(uuid.UUID(self.job.uid), f"{self.job.worker} {self.copy}"))

    def _status(self, begin: datetime, end: datetime | None, *, is_stopped: bool) -> dict[str, Any]:
        job = self.job
        quota = f"Quota reserved in {job.tenant.namespace}"
        if is_stopped and end is not None and job.stopped_for is not None:
            why = (
                f"Preempted to accommodate a workload (UID: {job.stopped_for.uid}, JobUID: "
                "unknown) due to reclamation within the cohort"
            )
            return {
                "conditions": [
                    _condition("QuotaReserved", end, "Pending", why, "False"),
                    _condition("Admitted", end, "NoReservation", "It has no quota", "False"),
                    _condition("Evicted", end, "Preempted", why),
                    _condition("Preempted", end, "InCohortReclamation", why),
                ]
            }
        conditions = [
            _condition("QuotaReserved", begin, "QuotaReserved", quota),
            _condition("Admitted", begin, "Admitted", "The workload is admitted"),
        ]
        if end is not None:
            said = "Job finished successfully"
            conditions.append(_condition("Finished", end, "Succeeded", said))
        assignment = {
            "name": "main",
            "count": 1,
            "flavors": {GPU: job.flavor},
            "resourceUsage": {GPU: str(job.gpus)},
        }
        admission = {"clusterQueue": job.tenant.namespace, "podSetAssignments": [assignment]}
        return {
            "conditions": conditions,
            "admission": admission,
            **({"clusterName": self.worker} if self.worker else {}),
        }


def _condition(
    kind: str, at: datetime, reason: str, message: str, status: str = "True"
) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time_text(at),
    }
