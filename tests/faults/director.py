"""Plays a schedule: submits and deletes jobs, puts faults on roads and takes them off again."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable

from clusters.errors import ClusterError, NotFound
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, Propagation
from tests.faults.ground import Ground, job_of, squatter_of
from tests.faults.invariants import Facts, Outage
from tests.faults.schedule import Arrival, Fault, Schedule
from tests.faults.timeline import MANAGER
from tests.faults.troupe import DISPATCHERS, Kill, Troupe
from tests.reconcile.admission_harness import NS

Deed = Callable[[], None]


class Director:
    """One performance.

    Args:
        schedule: What to do, and when.
        ground: The clusters.
        troupe: The shifts.
        facts: Takes what was done, for the judgement.
    """

    def __init__(self, schedule: Schedule, ground: Ground, troupe: Troupe, facts: Facts) -> None:
        self._schedule, self._ground = schedule, ground
        self._troupe, self._facts = troupe, facts
        self._order = itertools.count()
        self._due: list[tuple[float, int, Deed]] = []
        self._begun = 0.0
        self.done: Counter[str] = Counter()

    def play(self) -> None:
        """Everything in its time; returns when the last fault is over."""
        self._begun = time.monotonic()
        for arrival in self._schedule.arrivals:
            self._at(arrival.at_s, lambda a=arrival: self._submit(a))
            if arrival.deleted_at_s is not None:
                self._at(arrival.deleted_at_s, lambda a=arrival: self._delete(a))
        for fault in self._schedule.faults:
            self._at(fault.at_s, lambda f=fault: self._begin(f))
        while self._due:
            at, _, deed = heapq.heappop(self._due)
            time.sleep(max(0.0, self._begun + at - time.monotonic()))
            deed()
        self._troupe.disarm()
        for road in self._troupe.roads:
            road.clear()

    def _at(self, at_s: float, deed: Deed) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), deed))

    def _after(self, seconds: float, deed: Deed) -> None:
        self._at(time.monotonic() - self._begun + seconds, deed)

    # People

    def _submit(self, arrival: Arrival) -> None:
        if arrival.squatted:
            self._ground.clients[arrival.squatted].create(r.JOB, squatter_of(arrival))
            self.done["squatter"] += 1
        self._ground.clients[MANAGER].create(r.JOB, job_of(arrival))
        self.done["arrival"] += 1

    def _delete(self, arrival: Arrival) -> None:
        options = DeleteOptions(propagation=Propagation.BACKGROUND)
        with contextlib.suppress(NotFound):
            self._ground.clients[MANAGER].delete(r.JOB, arrival.name, namespace=NS, options=options)
            self.done["deletion"] += 1

    # Faults

    def _begin(self, fault: Fault) -> None:
        self.done[fault.kind] += 1
        _FAULTS[fault.kind](self, fault)

    def _outage(self, fault: Fault) -> None:
        roads = self._troupe.roads_of(program="dispatch", cluster=fault.cluster)
        began = time.monotonic()
        for road in roads:
            road.freeze() if fault.kind == "freeze" else road.cut()

        def heal() -> None:
            for road in roads:
                road.heal()
            self._facts.outages.append(Outage(fault.cluster, began, time.monotonic()))

        self._after(fault.seconds, heal)

    def _errors(self, fault: Fault) -> None:
        code, what = fault.what
        for road in self._troupe.roads_of(cluster=fault.cluster):
            road.troubles.errors[what] += [int(code)] * fault.count
        if fault.kind == "conflicts" and fault.cluster == MANAGER:
            self._touch_workloads(fault.count)

    def _touch_workloads(self, count: int) -> None:
        """Another writer comes between: conflicts that are none of a road's making."""
        client = self._ground.clients[MANAGER]
        for item in client.list(r.WORKLOAD).items[-count:]:
            note = {"metadata": {"annotations": {"somebody": str(next(self._order))}}}
            with contextlib.suppress(ClusterError):
                client.patch(r.WORKLOAD, item["metadata"]["name"], note, namespace=NS)

    def _slow(self, fault: Fault) -> None:
        roads = self._troupe.roads_of(cluster=fault.cluster)
        name = "watch_lag_s" if fault.kind == "slow-watch" else "latency_s"
        for road in roads:
            setattr(road.troubles, name, float(fault.what[0]))
        self._after(fault.seconds, lambda: [setattr(road.troubles, name, 0.0) for road in roads])

    def _watches(self, fault: Fault) -> None:
        for road in self._troupe.roads_of(cluster=fault.cluster):
            road.troubles.expired_watches += fault.count
            road.drop()

    def _lose_answers(self, fault: Fault) -> None:
        for road in self._troupe.roads_of(cluster=fault.cluster):
            road.troubles.lost_answers += fault.count

    def _kill(self, fault: Fault) -> None:
        is_dispatch = fault.kind == "kill-dispatch"
        programs = DISPATCHERS if is_dispatch else (f"admission-{fault.cluster}",)
        self._troupe.arm(Kill(programs, fault.count, fault.what[0]))

    def _pause(self, fault: Fault) -> None:
        self._after(fault.seconds, self._troupe.pause(self._troupe.holder().program))

    def _block_lease(self, fault: Fault) -> None:
        road = self._troupe.holder()
        road.troubles.leases_closed_until = time.monotonic() + fault.seconds

    def _drain(self, fault: Fault) -> None:
        began = time.monotonic()
        self._stop_policy("HoldAndDrain")

        def resume() -> None:
            self._stop_policy("None")
            self._facts.drains.append((began, time.monotonic()))

        self._after(fault.seconds, resume)

    def _stop_policy(self, policy: str) -> None:
        client = self._ground.clients[MANAGER]
        client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": policy}})


_FAULTS: dict[str, Callable[[Director, Fault], None]] = {
    "cut-within": Director._outage,
    "cut-beyond": Director._outage,
    "freeze": Director._outage,
    "errors": Director._errors,
    "conflicts": Director._errors,
    "slow": Director._slow,
    "slow-watch": Director._slow,
    "drop-watches": Director._watches,
    "expire-watches": Director._watches,
    "lost-answer": Director._lose_answers,
    "kill-dispatch": Director._kill,
    "kill-admission": Director._kill,
    "pause": Director._pause,
    "lease-blocked": Director._block_lease,
    "drain": Director._drain,
}
