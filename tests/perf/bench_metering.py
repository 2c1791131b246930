"""A million raw events metered on PostgreSQL: interpreted, cut into intervals, swept, written.

The load is a fleet's month. A workspace, of which there is one per thousand events, promises 8
GPUs and runs about six jobs a day. Six of ten jobs take 2 to 30 minutes, three up to 4 hours, one
in eleven up to a day and one in a hundred 1 to 5 days: 2.9 hours on average, so that a job comes
to four hour facts of its own beside those of its workspace. A job waits for seconds to an hour,
has 5 events (created, quota reserved, admitted, finished, deleted), every second one another for
PodsReady, and one in ten was evicted once and admitted again: four more. What would lie in the
future is left out, so that some still run at the end.

The events of two workers lie in the table as their watches would have left them, in the order of
time. The clock runs from there to the hour facts: writing the events down is not in it. As in a
running portal each worker has a process of its own that builds states and intervals, and one meter
sweeps the whole. ``PERF_EVENTS`` changes the size and keeps the proportions; ``PERF_PROFILE`` names
a file for profiles (CPU time) of the steps.
"""

from __future__ import annotations

import cProfile
import json
import os
import resource
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import django
from django.db import connection

from tests.perf.bench import Figure

EVENTS = int(os.environ.get("PERF_EVENTS", "1000000"))
WORKSPACES = max(20, EVENTS // 1000)
ACCOUNTS = WORKSPACES // 20
PER_JOB = 5.9
DAYS = 30
LIMIT_S = 60
STEP = "tests.perf.bench_metering"
GPU = "nvidia.com/gpu"
COLUMNS = (
    "cluster, kind, uid, resource_version, type, namespace, name, observed_at, digest, payload"
)
# (share of the jobs in percent, shortest, longest in seconds)
LENGTHS = ((60, 120, 1_800), (30, 1_800, 14_400), (9, 14_400, 86_400), (1, 86_400, 432_000))
GPUS = (1, 1, 1, 1, 2, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Job:
    """One job: when it was made, and in what steps it went on from there (seconds after)."""

    number: int
    worker: str
    namespace: str
    flavor: str
    begun: datetime
    rng: Random

    def steps(self) -> Iterator[tuple[datetime, str, list[Any], bool]]:
        """(when, event type, conditions, whether it holds quota), one for each event."""
        rng, at = self.rng, self.begun
        held: dict[str, Any] = {}
        yield at, "SEEN", [], False
        admissions = 2 if rng.random() < 0.1 else 1
        length = self.length()
        for nth in range(1, admissions + 1):
            at += timedelta(seconds=int(2 + 3600 * rng.random() ** 6))
            held = {name: row for name, row in held.items() if name == "Evicted"}
            if "Evicted" in held:
                held["Evicted"] = told("Evicted", at, status="False")
            for kind in ("QuotaReserved", "Admitted", "PodsReady"):
                if kind != "PodsReady" or self.number % 2:
                    held[kind] = told(kind, at)
                    yield at, "SEEN", [*held.values()], True
                    at += timedelta(seconds=rng.choice((1, 1, 2, 20)))
            at += timedelta(seconds=length // (2 if nth < admissions else 1))
            if nth < admissions:
                held["Evicted"] = told("Evicted", at, reason="Preempted")
                yield at, "SEEN", [*held.values()], True
                at += timedelta(seconds=rng.randint(1, 30))
                for kind in ("QuotaReserved", "Admitted"):
                    held[kind] = told(kind, at, status="False", reason="Pending")
                yield at, "SEEN", [*held.values()], False
        held["Finished"] = told("Finished", at, reason="Succeeded")
        yield at, "SEEN", [*held.values()], True
        yield at + timedelta(seconds=60), "DELETED", [*held.values()], True

    def length(self) -> int:
        rng = self.rng
        (_, shortest, longest), *_ = rng.choices(LENGTHS, [row[0] for row in LENGTHS])
        return rng.randint(shortest, longest)


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def job_documents(job: Job) -> Iterator[Any]:
    """(time, event type, document) of one job's states."""
    gpus = str(job.rng.choice(GPUS))
    container = {"name": "main", "resources": {"requests": {GPU: gpus}}}
    owner = {"kind": "Job", "name": f"job-{job.number}", "controller": True}
    document: dict[str, Any] = {
        "metadata": {
            "uid": f"uid-{job.number}",
            "namespace": job.namespace,
            "name": f"job-{job.number}",
            "creationTimestamp": stamp(job.begun),
            "ownerReferences": [owner | {"uid": f"own-{job.number}"}],
        },
        "spec": {
            "queueName": "default",
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            ],
        },
        "status": {},
    }
    assignment = {
        "name": "main",
        "flavors": {GPU: job.flavor},
        "resourceUsage": {GPU: gpus},
        "count": 1,
    }
    admission = {"clusterQueue": job.namespace, "podSetAssignments": [assignment]}
    for step, (at, kind, conditions, holds) in enumerate(job.steps(), start=1):
        document["metadata"]["resourceVersion"] = str(job.number * 100 + step)
        document["status"] = {
            "conditions": conditions,
            **({"admission": admission} if holds else {}),
        }
        yield at, kind, document


def told(kind: str, at: datetime, *, status: str = "True", reason: str = "") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason or kind,
        "message": f"{kind} in the bench",
        "lastTransitionTime": stamp(at),
    }


def make_events(spaces: list[tuple[str, str]], *, until: datetime) -> tuple[int, int]:
    """Fill the table of raw events in the order of time.

    Returns:
        How many events, and how many admissions are seen to begin in them.
    """
    from budgets import intervals as ledger
    from clusters.reconcile.usage.record import payload_of
    from tests.perf.fleet_rows import WORKERS, begin

    jobs = int(EVENTS / PER_JOB)
    apart = (until - begin()).total_seconds() / jobs
    rows: list[tuple[Any, ...]] = []
    events, admissions = 0, 0
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY clusters_workloadevent ({COLUMNS}) FROM STDIN") as copy,
    ):
        for number in range(jobs):
            begun = begin() + timedelta(seconds=int(number * apart))
            space = number * 7 % len(spaces)
            # A workspace has its budget on one worker.
            job = Job(number, WORKERS[space % 2], *spaces[space], begun, Random(number))
            admitted: set[str] = set()
            for at, kind, document in job_documents(job):
                if at >= until:
                    break
                events += 1
                payload = payload_of(document, gpu_resources=(GPU,))
                for row in payload["status"]["conditions"]:
                    if row["type"] == "Admitted" and row["status"] == "True":
                        admitted.add(row["lastTransitionTime"])
                metadata = document["metadata"]
                rows.append(
                    (
                        at,
                        job.worker,
                        "Workload",
                        metadata["uid"],
                        metadata["resourceVersion"],
                        kind,
                        job.namespace,
                        metadata["name"],
                        at,
                        ledger.digest_of(payload),
                        json.dumps(payload),
                    )
                )
            admissions += len(admitted)
            if len(rows) > 50_000:
                # Nothing that is still to come is older than the beginning of the newest job.
                rows.sort(key=lambda row: row[0])
                ready = bisect_left(rows, begun, key=lambda row: row[0])
                for row in rows[:ready]:
                    copy.write_row(row[1:])
                del rows[:ready]
        for row in sorted(rows, key=lambda row: row[0]):
            copy.write_row(row[1:])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return events, admissions


def build_cluster(slug: str) -> None:
    """Step in a process of its own: what the shift *usage* does with what its watch put down."""
    from clusters.models import Cluster
    from clusters.reconcile.usage.build import Source
    from clusters.reconcile.usage.record import Backlog
    from tests.reconcile.usage_hand import build_next

    cluster = Cluster.objects.get(slug=slug)
    print("ready", flush=True)
    sys.stdin.read()
    source = Source(cluster.pk, slug, frozenset({GPU}))
    backlog = Backlog(slug, 0)
    while (problems := build_next(source, backlog)) is not None:
        assert not problems, problems


def start_step(slug: str) -> subprocess.Popen[str]:
    """A process that waits, as that of a running shift, until there is something to build."""
    command = [sys.executable, "-m", STEP, slug]
    step = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert step.stdout is not None
    assert step.stdout.readline() == "ready\n"
    return step


def measure() -> list[Figure]:
    """Seconds from raw events to hour facts, and of the two parts of the way."""
    from budgets import services
    from budgets.models import Interval, UsageRecord, WorkloadUsage, Workspace
    from clusters.models import Cluster
    from tests.perf import fleet_rows

    fleet_rows.people()
    fleet_rows.promises(accounts=ACCOUNTS, workspaces=WORKSPACES)
    for slug in ("manager", *fleet_rows.WORKERS):
        role = Cluster.Role.MANAGER if slug == "manager" else Cluster.Role.WORKER
        Cluster.objects.create(
            slug=slug, name=slug, role=role, mode=Cluster.Mode.KUEUE, kubeconfig_sealed=b"x"
        )
    spaces = list(Workspace.objects.values_list("namespace", "home_flavor__slug").order_by("pk"))
    until = fleet_rows.begin() + timedelta(days=DAYS)
    events, admissions = make_events(spaces, until=until)
    for slug in fleet_rows.WORKERS:
        services.record_progress(cluster=slug, complete_until=until)
    steps = [start_step(slug) for slug in fleet_rows.WORKERS]
    begun = time.perf_counter()
    for step in steps:
        assert step.stdin is not None
        step.stdin.close()
    assert [step.wait() for step in steps] == [0, 0]
    built = time.perf_counter() - begun
    cpu = time.process_time()
    profiled(services.meter_usage, "meter")
    whole = time.perf_counter() - begun
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    notes = {
        "events": events,
        "intervals": Interval.objects.count(),
        "hour_facts": UsageRecord.objects.count(),
        "workload_facts": WorkloadUsage.objects.count(),
        "cpu_s_build": round(spent.ru_utime + spent.ru_stime, 1),
        "cpu_s_meter": round(time.process_time() - cpu, 1),
    }
    # Every admission was billed once; each also has seconds with quota and without its clock.
    assert Interval.objects.filter(kind=Interval.Kind.BILLABLE).count() == admissions
    return [
        Figure("events", [whole], limit=LIMIT_S, notes=notes),
        Figure("build", [built]),
        Figure("meter", [whole - built]),
    ]


def profiled(step: Callable[[], object], name: str) -> None:
    """Run a step; with a profile by CPU time where one is asked for."""
    path = os.environ.get("PERF_PROFILE")
    if path is None:
        step()
        return
    profile = cProfile.Profile(time.process_time)
    profile.runcall(step)
    profile.dump_stats(f"{path}.{name}")


if __name__ == "__main__":
    django.setup()
    profiled(partial(build_cluster, sys.argv[1]), sys.argv[1])
