"""The engine alone on the scheduler benchmark's generator, in virtual time.

Run ``python -m tests.kueue.bench_engine baseline`` (15,000 workloads) or ``large`` (50,000).
"""

from __future__ import annotations

import heapq
import resource
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.kueue.engine import Engine

START = datetime(2026, 1, 1, tzinfo=UTC)
CYCLE = timedelta(milliseconds=5)


@dataclass(frozen=True)
class Share:
    """One class of workloads in every queue."""

    count: int
    cpu: int
    runtime_ms: int
    priority: int


@dataclass(frozen=True)
class Shape:
    cohorts: int
    queues: int
    classes: tuple[Share, ...]


SHAPES = {
    "baseline": Shape(
        5, 6, (Share(350, 1, 200, 50), Share(100, 5, 500, 100), Share(50, 20, 1000, 200))
    ),
    "large": Shape(
        10, 100, (Share(35, 1, 150, 50), Share(11, 5, 350, 100), Share(4, 20, 700, 200))
    ),
}


def queue_documents(name: str, in_cohort: str) -> list[tuple[str, dict[str, Any]]]:
    cpu = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
    flavors = [{"name": "default", "resources": [cpu]}]
    spec = {
        "cohortName": in_cohort,
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    }
    local = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": name}}
    return [("ClusterQueue", {"metadata": {"name": name}, "spec": spec}), ("LocalQueue", local)]


def workload_document(number: int, queue: str, share: Share) -> dict[str, Any]:
    requests = {"cpu": str(share.cpu)}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    created = (START + timedelta(milliseconds=number)).isoformat()
    return {
        "metadata": {
            "name": f"w{number}",
            "namespace": "ns",
            "uid": f"{number:06}",
            "creationTimestamp": created,
        },
        "spec": {
            "queueName": queue,
            "priority": share.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


def load(shape: Shape) -> tuple[Engine, dict[str, timedelta]]:
    engine = Engine()
    engine.upsert({"metadata": {"name": "default"}}, kind="ResourceFlavor", now=START)
    runtimes: dict[str, timedelta] = {}
    for cohort in range(shape.cohorts):
        for queue in range(shape.queues):
            name = f"c{cohort}-q{queue}"
            for kind, document in queue_documents(name, f"c{cohort}"):
                engine.upsert(document, kind=kind, now=START)
            for share in shape.classes:
                for _ in range(share.count):
                    number = len(runtimes)
                    document = workload_document(number, name, share)
                    engine.upsert(document, kind="Workload", now=START)
                    runtimes[f"ns/w{number}"] = timedelta(milliseconds=share.runtime_ms)
    return engine, runtimes


def run(engine: Engine, runtimes: dict[str, timedelta]) -> dict[str, float]:
    """Run until everything finished; returns counts and seconds."""
    now, left, cycles, heads, admissions = START, len(runtimes), 0, 0, 0
    ends: list[tuple[datetime, str]] = []
    running: dict[str, datetime] = {}
    begin = time.perf_counter()
    while left:
        result = engine.cycle(now)
        cycles += 1
        heads += result.heads
        admissions += len(result.admitted)
        for victim in result.preempted:
            engine.release_evicted(victim.key, now=now)
            running.pop(victim.key, None)
        for admit in result.admitted:
            running[admit.key] = now + runtimes[admit.key]
            heapq.heappush(ends, (running[admit.key], admit.key))
        moved = result.admitted or result.preempted
        now = now + CYCLE if moved else max(now, ends[0][0])
        while ends and ends[0][0] <= now:
            end, key = heapq.heappop(ends)
            if running.get(key) == end:
                del running[key]
                engine.delete("Workload", key=key, now=now)
                left -= 1
    seconds = time.perf_counter() - begin
    return {
        "cycles": cycles,
        "admissions": admissions,
        "seconds": round(seconds, 2),
        "admissions_per_s": round(admissions / seconds),
        "us_per_head": round(1e6 * seconds / heads, 1),
        "virtual_s": (now - START).total_seconds(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    print(run(*load(SHAPES[sys.argv[1]])))
