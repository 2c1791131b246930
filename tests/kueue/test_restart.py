"""Random histories against a store of documents: restarts, stale reads, and never too much."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.configuration import DEFAULT_STRATEGIES, Configuration
from clusters.kueue.cycle.decisions import CycleResult
from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    cohort,
    flavor,
    group,
    local_queue,
    preemption,
    quota,
    workload,
)
from tests.kueue.load import load_engine

KEY = FlavorResource("f0", GPU)
QUEUES = ("a", "b", "c")


def condition(kind: str, status: str, at: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": at, "reason": "r"}


class Cluster:
    """Documents as an API server would hold them, and an engine that follows."""

    def __init__(self, *, is_fair: bool, rules: dict[str, Any]) -> None:
        strategies = DEFAULT_STRATEGIES if is_fair else ()
        self.world = World()
        self.configuration = Configuration(fair_strategies=strategies)
        self.world.engine = load_engine([], configuration=self.configuration, now=self.world.now)
        self.documents = [
            {"kind": "Namespace", "metadata": {"name": "ns"}},
            flavor("f0"),
            cohort("left", "pool", f0=quota(2, 3, 1)),
            cluster_queue("a", group(f0=quota(4, 2, 1)), in_cohort="pool", preemption=rules),
            cluster_queue("b", group(f0=quota(3)), in_cohort="left", preemption=rules),
            cluster_queue("c", group(f0=quota(0, 4)), in_cohort="left", preemption=rules),
            *[local_queue(name, name) for name in QUEUES],
        ]
        self.workloads: dict[str, dict[str, Any]] = {}
        self.arrivals = 0
        for document in self.documents:
            self.world.engine.upsert(document, now=self.world.now)

    def arrive(self, gpus: int, priority: int, queue: str) -> None:
        self.arrivals += 1
        name = f"w{self.arrivals:02}"
        document = workload(name, queue, gpus=gpus, priority=priority, age=self.arrivals)
        self.workloads[f"ns/{name}"] = document
        self.show(f"ns/{name}")

    def show(self, key: str) -> None:
        self.world.engine.upsert(copy.deepcopy(self.workloads[key]), now=self.world.now)

    def cycle(self) -> None:
        result: CycleResult = self.world.cycle()
        at = self.world.now.isoformat()
        for admit in result.admitted:
            self.show(admit.key)  # a late watch event, from before the write
            self.workloads[admit.key]["status"] = {
                "admission": dict(admit.admission),
                "conditions": [condition("QuotaReserved", "True", at)],
            }
            self.show(admit.key)
        for victim in result.preempted:
            self.workloads[victim.key]["status"]["conditions"].append(
                condition("Evicted", "True", at)
            )
            self.show(victim.key)

    def stop_evicted(self) -> None:
        for key, document in self.workloads.items():
            kinds = [item["type"] for item in document.get("status", {}).get("conditions", [])]
            if "Evicted" in kinds and "admission" in document["status"]:
                document["status"] = {
                    "conditions": [
                        condition("Evicted", "True", "2026-01-01T00:00:00Z"),
                        condition("QuotaReserved", "False", "2026-01-01T00:00:00Z"),
                    ]
                }
                self.show(key)

    def finish(self, index: int) -> None:
        held = [
            key for key, item in self.workloads.items() if "admission" in item.get("status", {})
        ]
        if held:
            key = held[index % len(held)]
            self.workloads[key]["status"]["conditions"].append(
                condition("Finished", "True", "2026-01-01T00:00:00Z")
            )
            self.show(key)
            del self.workloads[key]

    def run(self, actions: list[tuple[str, int, int]]) -> None:
        for action, number, priority in actions:
            if action == "arrive":
                self.arrive(number % 6, priority, QUEUES[number % 3])
            elif action == "cycle":
                self.cycle()
            elif action == "stop":
                self.stop_evicted()
            else:
                self.finish(number)

    def waiting(self) -> dict[str, set[str]]:
        queues = self.world.engine.state.queues.queues()
        return {queue.name: {item.key for item in queue.items()} for queue in queues}


actions = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "cycle", "cycle", "stop", "finish"]),
        st.integers(0, 30),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=80)
@given(actions, st.booleans())
def test_restart_finds_the_same_usage_and_the_same_waiting(history, is_fair):
    rules = preemption("LowerPriority", "Any", policy="LowerPriority")
    cluster = Cluster(is_fair=is_fair, rules=rules)
    cluster.run(history)
    usage, waiting = cluster.world.usage(), cluster.waiting()

    documents = [*cluster.documents, *cluster.workloads.values()]
    cluster.world.engine = load_engine(
        reversed(documents), configuration=cluster.configuration, now=cluster.world.now
    )
    assert cluster.world.usage() == usage
    assert cluster.waiting() == waiting


@settings(max_examples=80)
@given(actions, st.booleans())
def test_nothing_is_admitted_beyond_what_is_available(history, is_fair):
    cluster = Cluster(is_fair=is_fair, rules=preemption("Never", "Never"))
    snapshot = cluster.world.engine.state.snapshot
    for action in history:
        cluster.run([action])
        snapshot.refresh()
        root = snapshot.cohorts["pool"].node
        assert root.usage.get(KEY, 0) <= root.subtree_quota.get(KEY, 0)
        for queue in snapshot.queues.values():
            assert queue.node.usage.get(KEY, 0) <= queue.node.potential(KEY)
            assert queue.node.available(KEY) >= 0
