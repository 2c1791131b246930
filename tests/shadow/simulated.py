"""A Kueue that decides with the same engine, but sees, decides and writes at its own pace."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from clusters.kueue.cycle.decisions import Admit, Pending, Preempt
from clusters.kueue.cycle.engine import Engine
from tests.kueue.builders import cluster_queue, flavor, group, local_queue, quota, workload
from tests.shadow.story import Story, evicted, finished, released, stamp, waiting, with_condition

Document = dict[str, Any]
QUEUES = ("a", "b", "c")


def queues(sizes: dict[str, int]) -> list[Document]:
    rules = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    return [
        cluster_queue(
            name,
            group(f0=quota(size), f1=quota(2)),
            in_cohort="" if name == "c" else "pool",
            preemption=rules,
        )
        for name, size in sizes.items()
    ]


class SimulatedKueue:
    """Objects as an API server would have them, a Kueue that lags, and a story that listens.

    Args:
        rng: Decides what happens and when.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sizes = {"a": 4, "b": 4, "c": 3}
        start = [flavor("f1"), *queues(self.sizes)]
        self.story = Story(*start)
        self.engine = Engine()
        for document in ({"kind": "Namespace", "metadata": {"name": "ns"}}, flavor("f0"), *start):
            self._show(document)
        self.objects: dict[str, Document] = {}
        self.writes: dict[str, deque[Callable[[Document], Document | None]]] = {}
        self.count = self.idle = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            actions = (self.create, self.create, self.finish, self.stop, self.resize, self.decide,
                       self.decide, self.write, self.write, self.write, self.rest)  # fmt: skip
            self.rng.choice(actions)()
        for _ in range(20):
            self.work_off()
            self.stop()
        self.story.rest(60)

    def rest(self) -> None:
        """Time passes; Kueue is slow, but not so slow that nobody would wait for it."""
        seconds = self.rng.choice([1, 3, 7])
        if self.idle + seconds > 4:
            self.work_off()
        self.idle += seconds
        self.story.rest(seconds)

    def work_off(self) -> None:
        """Kueue decides and writes until nothing is left to do."""
        self.idle = 0
        for _ in range(10):
            self.decide()
            while self.writes:
                self.write()

    def create(self) -> None:
        self.count += 1
        rng = self.rng
        made = workload(
            f"w{self.count}",
            rng.choice(QUEUES),
            gpus=rng.choice([1, 2, 3, 5]),
            priority=rng.choice([0, 0, 0, 10]),
            age=self.count,
        )
        self._put(made)

    def finish(self) -> None:
        held = self._where(lambda item: "admission" in item.get("status", {}))
        if held:
            self._put(finished(self.objects[self.rng.choice(held)]))

    def stop(self) -> None:
        """The pods of something that was told to stop are gone."""
        stopping = self._where(
            lambda item: "admission" in item.get("status", {}) and _is_evicted(item)
        )
        if stopping:
            self._put(released(self.objects[self.rng.choice(stopping)]))

    def resize(self) -> None:
        name = self.rng.choice(QUEUES)
        self.sizes[name] = self.rng.choice([2, 4, 6])
        [document] = queues({name: self.sizes[name]})
        # Its watch is another one: who listens may learn of it earlier or later than Kueue.
        shows = [lambda: self._show(document), lambda: self.story.tell(document)]
        self.rng.shuffle(shows)
        shows[0]()
        if self.rng.random() < 0.5:
            self.decide()
            self.write()
        shows[1]()

    def decide(self) -> None:
        result = self.engine.cycle(self.story.now)
        for decision in result.decisions:
            if isinstance(decision, Pending) and not decision.has_changed:
                continue
            self.writes.setdefault(decision.key, deque()).append(self._writer(decision))

    def write(self) -> None:
        """One write of some workload reaches the API server; its own stay in order."""
        if not self.writes:
            return
        key = self.rng.choice(sorted(self.writes))
        line = self.writes[key]
        made = line.popleft()
        if not line:
            del self.writes[key]
        document = self.objects.get(key)
        changed = made(document) if document is not None else None
        if changed is not None:
            self._put(changed)
        else:
            self.engine.forget(key, now=self.story.now)

    def _writer(self, decision: Admit | Preempt | Pending) -> Callable[[Document], Document | None]:
        now = stamp(self.story.now)

        def change(document: Document) -> Document | None:
            if _is_finished(document):
                return None
            if isinstance(decision, Preempt):
                return evicted(document, why=decision.reason)
            if "admission" in document.get("status", {}):
                return None
            if isinstance(decision, Pending):
                return waiting(document, decision.reason, decision.message)
            found = with_condition(document, "QuotaReserved", "True", "QuotaReserved")
            found = with_condition(found, "Evicted", "False", "QuotaReserved")
            found = with_condition(found, "Admitted", "True", "Admitted")
            for item in found["status"]["conditions"]:
                item["lastTransitionTime"] = now
            found["status"]["admission"] = dict(decision.admission)
            return found

        return change

    def _where(self, holds: Callable[[Document], bool]) -> list[str]:
        return sorted(
            key for key, item in self.objects.items() if holds(item) and not _is_finished(item)
        )

    def _put(self, document: Document) -> None:
        metadata = document["metadata"]
        self.objects[f"{metadata['namespace']}/{metadata['name']}"] = document
        self.story.now += timedelta(milliseconds=10)
        self._show(document)
        self.story.tell(document)

    def _show(self, document: Document) -> None:
        now = self.story.now
        self.engine.upsert(document, now=now)
        if document["kind"] == "ClusterQueue":
            name = document["metadata"]["name"]
            self.engine.upsert(local_queue(name, name), now=now)


def _is_evicted(document: Document) -> bool:
    return any(
        item["type"] == "Evicted" and item["status"] == "True"
        for item in document["status"]["conditions"]
    )


def _is_finished(document: Document) -> bool:
    conditions = document.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Finished" for item in conditions)
