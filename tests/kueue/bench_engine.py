"""The engine alone on the scheduler benchmark's generator, in virtual time.

Run ``python -m tests.kueue.bench_engine baseline`` (15,000 workloads), ``large`` (50,000), or a
number: the cost of a cycle with so many workloads always pending. One JSON line comes out.
"""

from __future__ import annotations

import gc
import heapq
import json
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.kueue.cycle.engine import Engine

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
    begin, begin_cpu = time.perf_counter(), time.process_time()
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
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {
        "cycles": cycles,
        "admissions": admissions,
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "cycles_per_s": round(cycles / cpu_s),
        "admissions_per_s": round(admissions / cpu_s),
        "us_per_head": round(1e6 * cpu_s / heads, 1),
        "virtual_s": (now - START).total_seconds(),
        "peak_mb": peak_mb(),
    }


def peak_mb() -> int:
    """Peak memory of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def steady(pending: int, *, cohorts: int = 10, queues: int = 10, cycles: int = 400) -> float:
    """CPU seconds of the median cycle while the number of pending workloads stays the same.

    What ends is replaced at once by an equal one; the first quarter of the cycles, in which the
    queues fill up, does not count. One workload in ten is large, two are medium.
    """
    engine, runtimes = load(Shape(cohorts, queues, ()))
    names = [f"c{cohort}-q{queue}" for cohort in range(cohorts) for queue in range(queues)]
    shares = SHAPES["large"].classes
    pattern = [shares[0]] * 7 + [shares[1]] * 2 + [shares[2]]
    places: dict[str, tuple[str, Share]] = {}

    def add(name: str, share: Share, now: datetime) -> None:
        number = len(runtimes)
        engine.upsert(workload_document(number, name, share), kind="Workload", now=now)
        key = f"ns/w{number}"
        runtimes[key] = timedelta(milliseconds=share.runtime_ms)
        places[key] = name, share

    for number in range(pending):
        round_, queue = divmod(number, len(names))
        add(names[queue], pattern[round_ % len(pattern)], START)
    # As the admission shift does once it has read everything.
    gc.freeze()
    costs: list[float] = []
    now, ends, running = START, [], {}
    while len(costs) < cycles:
        begun = time.process_time()
        result = engine.cycle(now)
        if result.heads:
            costs.append(time.process_time() - begun)
        for victim in result.preempted:
            engine.release_evicted(victim.key, now=now)
            running.pop(victim.key, None)
        for admit in result.admitted:
            running[admit.key] = now + runtimes[admit.key]
            heapq.heappush(ends, (running[admit.key], admit.key))
        now = now + CYCLE if result.has_moved else max(now, ends[0][0])
        while ends and ends[0][0] <= now:
            end, key = heapq.heappop(ends)
            if running.get(key) == end:
                del running[key]
                engine.delete("Workload", key=key, now=now)
                add(*places.pop(key), now)
    gc.unfreeze()
    return statistics.median(costs[len(costs) // 4 :])


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        cost_s = steady(int(sys.argv[1]))
        print(json.dumps({"ms_per_cycle": round(1000 * cost_s, 3), "peak_mb": peak_mb()}))
    else:
        print(json.dumps(run(*load(SHAPES[sys.argv[1]]))))
