"""A million raw events metered on PostgreSQL: interpreted, cut into intervals, swept, written.

The events of two workers lie in the table as their watches would have left them, in the order of
time; each job has five. As in a running portal each worker has a process of its own that builds
states and intervals, and one meter sweeps the whole. ``PERF_EVENTS`` changes the size.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import django
from django.db import connection

from tests.perf.bench import Figure

EVENTS = int(os.environ.get("PERF_EVENTS", "1000000"))
WORKSPACES, ACCOUNTS = 1_000, 50
PER_JOB = 5
DAYS = 7
LIMIT_S = 60
STEP = "tests.perf.bench_metering"
GPU = "nvidia.com/gpu"
COLUMNS = (
    "cluster, kind, uid, resource_version, type, namespace, name, observed_at, digest, payload"
)


def first_hour() -> datetime:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=DAYS + 1)


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def job_documents(number: int, namespace: str, flavor: str, begun: datetime) -> Iterator[Any]:
    """(seconds after the beginning, event type, document) of one job's five states."""
    gpus = str(1 + number % 8)
    ends = 1800 + number % 3600
    times = [begun + timedelta(seconds=after) for after in (0, 5, 6, ends, ends + 60)]
    container = {"name": "main", "resources": {"requests": {GPU: gpus}}}
    document: dict[str, Any] = {
        "metadata": {
            "uid": f"uid-{number}",
            "namespace": namespace,
            "name": f"job-{number}",
            "creationTimestamp": stamp(begun),
            "ownerReferences": [
                {"kind": "Job", "name": f"job-{number}", "uid": f"own-{number}", "controller": True}
            ],
        },
        "spec": {
            "queueName": "default",
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
            ],
        },
        "status": {},
    }
    conditions: list[Any] = []
    admission = {
        "clusterQueue": namespace,
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {GPU: flavor},
                "resourceUsage": {GPU: gpus},
                "count": 1,
            }
        ],
    }
    for step, at in enumerate(times):
        if 1 <= step <= 3:
            kind = ("QuotaReserved", "Admitted", "Finished")[step - 1]
            conditions = [*conditions, told(kind, at)]
        document["metadata"]["resourceVersion"] = str(number * 10 + step + 1)
        status: dict[str, Any] = {"conditions": conditions}
        if step >= 1:
            status["admission"] = admission
        document["status"] = status
        yield at, "DELETED" if step == 4 else "SEEN", document


def told(kind: str, at: datetime) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": f"{kind} in the bench",
        "lastTransitionTime": stamp(at),
    }


def make_events(spaces: list[tuple[str, str]]) -> int:
    """Fill the table of raw events in the order of time; returns how many."""
    from budgets import intervals as ledger
    from clusters.reconcile.usage.record import payload_of
    from tests.perf.fleet_rows import WORKERS

    jobs = EVENTS // PER_JOB
    apart = DAYS * 86400 / jobs
    rows: list[tuple[Any, ...]] = []
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY clusters_workloadevent ({COLUMNS}) FROM STDIN") as copy,
    ):
        for number in range(jobs):
            begun = first_hour() + timedelta(seconds=int(number * apart))
            namespace, flavor = spaces[number * 7 % len(spaces)]
            for at, kind, document in job_documents(number, namespace, flavor, begun):
                payload = payload_of(document, gpu_resources=(GPU,))
                metadata = document["metadata"]
                rows.append(
                    (
                        at,
                        WORKERS[number % 2],
                        "Workload",
                        metadata["uid"],
                        metadata["resourceVersion"],
                        kind,
                        namespace,
                        metadata["name"],
                        at,
                        ledger.digest_of(payload),
                        json.dumps(payload),
                    )
                )
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
    return jobs * PER_JOB


def build_cluster(slug: str) -> None:
    """Step in a process of its own: what the shift *usage* does with what its watch put down."""
    from clusters.models import Cluster
    from clusters.reconcile.usage.build import Source, build_from

    cluster = Cluster.objects.get(slug=slug)
    source = Source(cluster.pk, slug, frozenset({GPU}))
    mark, problems = 0, 0
    while True:
        found = build_from(source, mark)
        if found is None:
            break
        mark = found.mark
        problems += len(found.problems)
    assert not problems, problems


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
    events = make_events(spaces)
    for slug in fleet_rows.WORKERS:
        services.record_progress(
            cluster=slug, complete_until=first_hour() + timedelta(days=DAYS + 1)
        )
    begun = time.perf_counter()
    steps = [subprocess.Popen([sys.executable, "-m", STEP, slug]) for slug in fleet_rows.WORKERS]
    assert [step.wait() for step in steps] == [0, 0]
    built = time.perf_counter() - begun
    cpu = time.process_time()
    services.meter_usage()
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
    # Of each job the seconds with quota and without its clock, and those that are billed.
    assert notes["intervals"] == 2 * events // PER_JOB
    return [
        Figure("events", [whole], limit=LIMIT_S, notes=notes),
        Figure("build", [built]),
        Figure("meter", [whole - built]),
    ]


if __name__ == "__main__":
    django.setup()
    if os.environ.get("PERF_PROFILE"):
        import cProfile

        profile = cProfile.Profile(time.process_time)
        profile.runcall(build_cluster, sys.argv[1])
        profile.dump_stats(f"{os.environ['PERF_PROFILE']}.{sys.argv[1]}")
    else:
        build_cluster(sys.argv[1])
