"""Plain documents and a small world around the engine, for table tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.kueue.cycle.decisions import CycleResult
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.why import explain

GPU = "nvidia.com/gpu"
START = datetime(2026, 1, 1, tzinfo=UTC)


def flavor(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def quota(
    nominal: object, borrowing: object = None, lending: object = None, *, resource: str = GPU
) -> dict[str, Any]:
    item = {"name": resource, "nominalQuota": str(nominal)}
    if borrowing is not None:
        item["borrowingLimit"] = str(borrowing)
    if lending is not None:
        item["lendingLimit"] = str(lending)
    return item


def group(**flavors: Any) -> dict[str, Any]:
    """A resource group; each value is one quota item or a list of them."""
    listed = {name: item if isinstance(item, list) else [item] for name, item in flavors.items()}
    first = next(iter(listed.values()))
    return {
        "coveredResources": [item["name"] for item in first],
        "flavors": [{"name": name, "resources": items} for name, items in listed.items()],
    }


def cohort(name: str, parent: str = "", **flavors: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if parent:
        spec["parentName"] = parent
    if flavors:
        spec["resourceGroups"] = [group(**flavors)]
    return {"kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def cluster_queue(name: str, *groups: dict[str, Any], in_cohort: str = "", **spec: Any):
    document = {
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": list(groups), **spec},
    }
    if in_cohort:
        document["spec"]["cohortName"] = in_cohort
    return document


def local_queue(name: str, queue: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"clusterQueue": queue, **spec},
    }


def pod_set(
    requests: dict[str, object], *, name: str = "main", count: int = 1, **extra: Any
) -> dict[str, Any]:
    """A pod set; ``min_count`` apart, extra keys go to the pod spec."""
    document: dict[str, Any] = {"name": name, "count": count}
    if (fewest := extra.pop("min_count", None)) is not None:
        document["minCount"] = fewest
    amounts = {key: str(value) for key, value in requests.items()}
    containers = [{"name": "c", "resources": {"requests": amounts}}]
    document["template"] = {"spec": {"containers": containers, **extra}}
    return document


def workload(
    name: str,
    queue: str,
    *pod_sets: dict[str, Any],
    gpus: int | None = None,
    priority: int = 0,
    age: int = 0,
    **extra: Any,
) -> dict[str, Any]:
    """A Workload for LocalQueue ``queue``, created ``age`` seconds after the start."""
    sets = list(pod_sets) or [pod_set({GPU: 1 if gpus is None else gpus})]
    created = (START + timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    document: dict[str, Any] = {
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": created,
        },
        "spec": {"queueName": queue, "priority": priority, "podSets": sets},
    }
    for key, value in extra.items():
        document[key] = value
    return document


def reserved(
    document: dict[str, Any],
    queue: str,
    *,
    flavor: str = "f0",
    is_admitted: bool = True,
    at: str = "2026-01-01T00:00:00Z",
    conditions: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    """The same Workload with quota reserved for all its pods in one flavor."""
    assignments = []
    for item in document["spec"]["podSets"]:
        requests = item["template"]["spec"]["containers"][0]["resources"]["requests"]
        assignments.append(
            {
                "name": item["name"],
                "count": item["count"],
                "flavors": dict.fromkeys(requests, flavor),
                "resourceUsage": {
                    key: str(int(value) * item["count"]) for key, value in requests.items()
                },
            }
        )
    status = {
        "admission": {"clusterQueue": queue, "podSetAssignments": assignments},
        "conditions": [
            {"type": "QuotaReserved", "status": "True", "lastTransitionTime": at},
            *([{"type": "Admitted", "status": "True"}] if is_admitted else []),
            *conditions,
        ],
    }
    return {**document, "status": status}


def preemption(within: str = "Never", reclaim: str = "Never", **borrow: Any) -> dict[str, Any]:
    rules: dict[str, Any] = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
    if borrow:
        rules["borrowWithinCohort"] = borrow
    return rules


class World:
    """An engine, a clock, and one flavor ``f0``."""

    def __init__(self, configuration: dict[str, Any] | None = None, *documents: dict[str, Any]):
        self.now = START + timedelta(hours=1)
        self.engine = Engine(configuration)
        self.feed({"kind": "Namespace", "metadata": {"name": "ns"}}, flavor("f0"), *documents)

    def feed(self, *documents: dict[str, Any]) -> World:
        for document in documents:
            self.engine.upsert(document, now=self.now)
            if document["kind"] == "ClusterQueue":
                name = document["metadata"]["name"]
                self.engine.upsert(local_queue(name, name), now=self.now)
        return self

    def cycle(self) -> CycleResult:
        self.now += timedelta(seconds=1)
        return self.engine.cycle(self.now)

    def run(self, cycles: int = 20) -> list[CycleResult]:
        """Cycles, victims stopping at once, until one has no head or the number is reached."""
        results = []
        for _ in range(cycles):
            result = self.cycle()
            if not result.heads:
                break
            results.append(result)
            for victim in result.preempted:
                self.engine.release_evicted(victim.key, now=self.now)
        return results

    def admitted(self, cycles: int = 20) -> dict[str, dict[str, Any]]:
        """Admissions of some cycles by workload name."""
        return {
            item.key.removeprefix("ns/"): dict(item.admission)
            for result in self.run(cycles)
            for item in result.admitted
        }

    def message(self, name: str) -> str:
        found = explain(self.engine, f"ns/{name}", now=self.now)
        assert found is not None
        return found.message

    def order(self, queue: str) -> list[str]:
        """Keys that wait in a ClusterQueue: as they would be tried, then the parked."""
        self.engine.state.settle(self.now)
        found = self.engine.state.queues.queue(queue)
        assert found is not None
        return found.active_keys() + found.parked_keys()

    def usage(self) -> dict[str, dict[tuple[str, str], int]]:
        """Usage of every node of every tree, without zeros."""
        self.engine.state.settle(self.now)
        snapshot = self.engine.state.snapshot
        nodes = [item.node for item in (*snapshot.queues.values(), *snapshot.cohorts.values())]
        return {
            node.name: {tuple(key): used for key, used in node.usage.items() if used}
            for node in nodes
        }
