"""Random fleets and a year of their life, with a second book of accounts beside the engine's.

The book reads the documents that were fed and the admissions that came out, and nothing of the
engine: quotas are worked out anew from the documents at every look, pods are looked up on the nodes
that admissions name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from clusters.kueue.cycle.decisions import Admit, CycleResult
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.changes import AnyChange, Drain, ObjectChange, Raise
from clusters.kueue.workload.placement import parse_placement
from tests.kueue.builders import (
    GPU,
    START,
    cluster_queue,
    cohort,
    flavor,
    group,
    local_queue,
    pod_set,
    preemption,
    quota,
    workload,
)

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
MONTHS, MOST_CYCLES = 12, 12
_TAINTS = ({"key": "broken", "effect": "NoSchedule"}, {"key": "lease", "effect": "NoExecute"})
Document = dict[str, Any]
Pair = tuple[str, str]


@dataclass(slots=True)
class Member:
    """A ClusterQueue or Cohort, by its document."""

    parent: str
    quotas: dict[Pair, Document]
    is_queue: bool

    def limit(self, pair: Pair, name: str) -> int | None:
        found = self.quotas.get(pair, {}).get(name)
        return None if found is None else int(found)


@dataclass(slots=True)
class Held:
    """What one workload was given."""

    queue: str
    usage: Counter[Pair]
    pods: list[tuple[str, str, int, int]] = field(default_factory=list)
    """Flavor, node, number of pods, GPUs of one."""


class Book:
    """What was fed, who holds what, and the rules that every admission has to keep."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.flavors: dict[str, Document] = {}
        self.nodes: dict[str, Document] = {}
        self.workloads: dict[str, Document] = {}
        self.held: dict[str, Held] = {}

    def note(self, document: Document) -> None:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind in ("ClusterQueue", "Cohort"):
            spec = document["spec"]
            quotas = {
                (item["name"], each["name"]): each
                for part in spec.get("resourceGroups") or ()
                for item in part["flavors"]
                for each in item["resources"]
            }
            is_queue = kind == "ClusterQueue"
            parent = spec.get("cohortName" if is_queue else "parentName", "")
            self.members[name] = Member(parent, quotas, is_queue)
        elif kind == "ResourceFlavor":
            self.flavors[name] = document["spec"]
        elif kind == "Node":
            self.nodes[name] = document
        elif kind == "Workload":
            self.workloads[f"ns/{name}"] = document

    # Quota

    def used(self) -> dict[str, Counter[Pair]]:
        """What every member uses beyond what those below it keep for themselves."""
        total: dict[str, Counter[Pair]] = {name: Counter() for name in self.members}
        for held in self.held.values():
            total[held.queue].update(held.usage)
        for name in self._bottom_up():
            parent = self.members[name].parent
            for pair, amount in total[name].items() if parent else ():
                total[parent][pair] += max(0, amount - self.kept(name, pair))
        return total

    def subtree(self, name: str, pair: Pair) -> int:
        """Quota of a member and of all below it, without what those do not lend."""
        own = self.members[name].limit(pair, "nominalQuota") or 0
        below = (child for child, member in self.members.items() if member.parent == name)
        return own + sum(self.subtree(child, pair) - self.kept(child, pair) for child in below)

    def kept(self, name: str, pair: Pair) -> int:
        """What a member does not lend."""
        lends = self.members[name].limit(pair, "lendingLimit")
        return 0 if lends is None else max(0, self.subtree(name, pair) - lends)

    def most(self, name: str, pair: Pair) -> int | None:
        """What a member may use in all; None for as much as the Cohort above has."""
        member, own = self.members[name], self.subtree(name, pair)
        if not member.parent:
            return own
        borrows = member.limit(pair, "borrowingLimit")
        return None if borrows is None else own + borrows

    def _bottom_up(self) -> list[str]:
        def depth(name: str) -> int:
            parent = self.members[name].parent
            return 1 + depth(parent) if parent else 0

        return sorted(self.members, key=depth, reverse=True)

    def check_quota(self, before: dict[str, Counter[Pair]]) -> None:
        """No queue over its quota and what it may borrow, no Cohort over what it has.

        Where that was so before, as quota was lowered, it may not have grown.
        """
        for name, used in self.used().items():
            for pair, amount in used.items():
                most = self.most(name, pair)
                is_kept = most is None or amount <= most or amount <= before[name][pair]
                assert is_kept, f"{name} uses {amount} of {pair}, may use {most}"

    # Places

    def take(self, admit: Admit) -> None:
        """Write an admission down, and look that each of its pods may be where it is."""
        document = self.workloads[admit.key]
        held = Held(str(admit.admission["clusterQueue"]), Counter())
        sets = {item["name"]: item for item in document["spec"]["podSets"]}
        assert admit.key not in self.held, f"{admit.key} was admitted twice"
        for item in admit.admission["podSetAssignments"]:
            asked = sets[item["name"]]
            assert item["count"] <= asked["count"]
            assert item["count"] >= asked.get("minCount", asked["count"])
            [(resource, name)] = item["flavors"].items()
            gpus = int(asked["template"]["spec"]["containers"][0]["resources"]["requests"][GPU])
            assert int(item["resourceUsage"][resource]) == gpus * item["count"]
            held.usage[name, resource] += gpus * item["count"]
            self._check_flavor(name, asked)
            self._place(held, name, asked, item, gpus)
        self.held[admit.key] = held

    def _check_flavor(self, name: str, asked: Document) -> None:
        spec = self.flavors[name]
        pod = asked["template"]["spec"]
        tolerated = {entry["key"] for entry in pod.get("tolerations", ())}
        tolerated |= {entry["key"] for entry in spec.get("tolerations", ())}
        assert {taint["key"] for taint in spec.get("nodeTaints", ())} <= tolerated
        for label, value in pod.get("nodeSelector", {}).items():
            assert label not in spec.get("nodeLabels", {}) or spec["nodeLabels"][label] == value

    def _place(self, held: Held, name: str, asked: Document, item: Document, gpus: int) -> None:
        placement = parse_placement(item.get("topologyAssignment"))
        if "topologyName" not in self.flavors[name]:
            assert placement is None
            return
        assert placement is not None, f"{asked} has no place"
        assert sum(place.count for place in placement.domains) == item["count"]
        request, seen = asked.get("topologyRequest") or {}, set()
        for place in placement.domains:
            node = place.values[-1]
            self.check_node(node, name, asked)
            held.pods.append((name, node, place.count, gpus))
            level = request.get("required")
            seen.add(self.nodes[node]["metadata"]["labels"][level] if level else "")
            size = request.get("podSetSliceSize")
            assert not size or place.count % size == 0
        assert len(seen) == 1, f"{request} is split over {seen}"

    def check_node(self, name: str, of_flavor: str, asked: Document) -> None:
        """It is there, ready, not cordoned, of the flavor, chosen and tolerated by the pods."""
        assert name in self.nodes, f"no node {name}"
        node, spec, pod = self.nodes[name], self.flavors[of_flavor], asked["template"]["spec"]
        has = node["metadata"]["labels"]
        assert not node["spec"].get("unschedulable"), f"{name} is cordoned"
        assert node["status"]["conditions"][0]["status"] == "True", f"{name} is not ready"
        for label, value in {**spec["nodeLabels"], **pod.get("nodeSelector", {})}.items():
            assert has.get(label) == value, f"{name} has no {label}={value}"
        tolerated = {entry["key"] for entry in pod.get("tolerations", ())}
        tolerated |= {entry["key"] for entry in spec.get("tolerations", ())}
        assert {taint["key"] for taint in node["spec"].get("taints", ())} <= tolerated, name

    def on_nodes(self) -> dict[str, Counter[str]]:
        """GPUs and pods by node."""
        total: dict[str, Counter[str]] = {}
        for held in self.held.values():
            for _, node, count, gpus in held.pods:
                found = total.setdefault(node, Counter())
                found["pods"] += count
                found[GPU] += count * gpus
        return total

    def check_nodes(self, before: dict[str, Counter[str]], new: Iterable[Admit]) -> None:
        """No node over what it has; where it was, as it shrank, it got no more.

        How many pods a node takes holds for each job by itself: Kueue's last check of a cycle,
        which keeps two jobs of one cycle apart, does not count pods either.
        """
        for name, used in self.on_nodes().items():
            known = before.get(name, Counter())
            assert used[GPU] <= max(self._has(name, GPU), known[GPU]), f"{name}: {used}"
        for item in new:
            for _, name, count, _ in self.held[item.key].pods:
                pods = count + before.get(name, Counter())["pods"]
                assert pods <= self._has(name, "pods"), f"{name}: {pods} pods"

    def _has(self, node: str, resource: str) -> int:
        document = self.nodes.get(node)
        return int(document["status"]["allocatable"][resource]) if document else 0


class Life:
    """One fleet, its engine and its book."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = START + timedelta(hours=1)
        self.book = Book()
        self.queues: list[str] = []
        self.cohorts: list[str] = []
        self.admitted = self.preempted = self._named = 0
        configuration: Document = {"waitForPodsReady": {"enable": False}}
        if self.rng.random() < 0.3:
            configuration["fairSharing"] = {}
        if self.rng.random() < 0.2:
            configuration["featureGates"] = {
                "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
                "TASBalancedPlacement": self.rng.random() < 0.5,
            }
        self.engine = Engine(configuration)
        self.feed({"kind": "Namespace", "metadata": {"name": "ns"}})
        for document in self._fleet():
            self.feed(document)

    def feed(self, document: Document) -> None:
        self.book.note(document)
        self.engine.upsert(document, now=self.now)

    def delete(self, kind: str, name: str) -> None:
        if kind == "Workload":
            self.book.workloads.pop(name, None)
            self.book.held.pop(name, None)
        elif kind == "Node":
            self.book.nodes.pop(name, None)
        self.engine.delete(kind, key=name, now=self.now)

    # What there is

    def _fleet(self) -> Iterator[Document]:
        levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
        yield {"kind": "Topology", "metadata": {"name": "topo"}, "spec": {"levels": levels}}
        self.names = [f"f{index}" for index in range(self.rng.randint(1, 3))]
        self.placed = {name for name in self.names if self.rng.random() < 0.5}
        for name in self.names:
            spec: Document = {"nodeLabels": {"pool": name}}
            if name in self.placed:
                spec["topologyName"] = "topo"
            if self.rng.random() < 0.2:
                spec["nodeTaints"] = [dict(self.rng.choice(_TAINTS))]
            if self.rng.random() < 0.2:
                spec["tolerations"] = [{"key": "broken", "operator": "Exists"}]
            yield flavor(name, **spec)
        for name in sorted(self.placed):
            for _ in range(self.rng.randint(1, 6)):
                yield self.node(name)
        for index in range(self.rng.randint(0, 3)):
            self.cohorts.append(f"c{index}")
            yield self._cohort(f"c{index}", index)
        for index in range(self.rng.randint(1, 4)):
            self.queues.append(f"q{index}")
            yield self._queue(f"q{index}")
            yield local_queue(f"q{index}", f"q{index}")

    def node(self, pool: str, name: str = "") -> Document:
        """A new node, or another state of a known one."""
        rng = self.rng
        self._named += not name
        name = name or f"{pool}-n{self._named}"
        rack = f"b{rng.randint(1, 2)}-r{rng.randint(1, 2)}"
        if name in self.book.nodes:
            rack = self.book.nodes[name]["metadata"]["labels"][RACK]
        spec: Document = {}
        if rng.random() < 0.15:
            spec["taints"] = [dict(rng.choice(_TAINTS))]
        if rng.random() < 0.1:
            spec["unschedulable"] = True
        labels = {
            "pool": pool, BLOCK: rack.partition("-")[0], RACK: rack, HOST: name,
            "disk": rng.choice(["ssd", "hdd"]),
        }  # fmt: skip
        ready = "False" if rng.random() < 0.1 else "True"
        return {
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {
                "allocatable": {GPU: str(rng.choice([2, 4, 8])), "pods": str(rng.choice([3, 110]))},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }

    def _amount(self, *, has_parent: bool) -> Document:
        rng, nominal = self.rng, self.rng.randint(0, 12)
        borrows = rng.randint(0, 8) if has_parent and rng.random() < 0.4 else None
        lends = rng.randint(0, nominal) if has_parent and rng.random() < 0.3 else None
        return quota(nominal, borrows, lends)

    def _cohort(self, name: str, index: int) -> Document:
        parent = f"c{self.rng.randrange(index)}" if index and self.rng.random() < 0.6 else ""
        has_quota = self.rng.random() < 0.5
        names = self.names if has_quota else ()
        return cohort(
            name, parent, **{each: self._amount(has_parent=bool(parent)) for each in names}
        )

    def _queue(self, name: str, **more: Any) -> Document:
        rng = self.rng
        known = self.book.members.get(name)
        parent = rng.choice([*self.cohorts, ""]) if known is None else known.parent
        reclaim = rng.choice(["Never", "LowerPriority", "Any"])
        rules = preemption(rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]))
        if parent:
            rules["reclaimWithinCohort"] = reclaim
            if reclaim != "Never" and rng.random() < 0.4:
                rules["borrowWithinCohort"] = {"policy": "LowerPriority"}
        spec: Document = {"preemption": rules, **more}
        if rng.random() < 0.3:
            spec["queueingStrategy"] = "StrictFIFO"
        if rng.random() < 0.3:
            spec["flavorFungibility"] = {
                "whenCanBorrow": rng.choice(["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": rng.choice(["MayStopSearch", "TryNextFlavor"]),
            }
        if rng.random() < 0.3:
            spec["fairSharing"] = {"weight": str(rng.choice([0, 1, 2]))}
        flavors = {each: self._amount(has_parent=bool(parent)) for each in self.names}
        return cluster_queue(name, group(**flavors), in_cohort=parent, **spec)

    def job(self) -> Document:
        rng = self.rng
        self._named += 1
        extra: Document = {}
        if rng.random() < 0.3:
            extra["tolerations"] = [{"key": rng.choice(_TAINTS)["key"], "operator": "Exists"}]
        if rng.random() < 0.15:
            extra["nodeSelector"] = {"disk": "ssd"}
        count = rng.randint(1, 6)
        if count > 1 and rng.random() < 0.2:
            extra["min_count"] = rng.randint(1, count - 1)
        item = pod_set({GPU: rng.choice([1, 1, 2, 4])}, count=count, **extra)
        asks: Document = {}
        if self.placed and rng.random() < 0.5:
            asks = dict(
                rng.choice(
                    [{"required": RACK}, {"required": BLOCK}, {"preferred": RACK},
                     {"unconstrained": True}, {"required": HOST}]
                )
            )  # fmt: skip
            if "min_count" not in extra and not count % 2 and rng.random() < 0.2:
                asks |= {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}
            item["topologyRequest"] = asks
        age = int((self.now - START).total_seconds())
        name = f"w{self._named}"
        return workload(name, rng.choice(self.queues), item, priority=rng.randint(0, 2), age=age)

    # What happens

    def month(self) -> None:
        """Jobs come and go, the fleet changes, cycles run."""
        rng = self.rng
        self.now += timedelta(days=30)
        for _ in range(rng.randint(0, 4)):
            self.feed(self.job())
        for key in sorted(self.book.held):
            if rng.random() < 0.25:
                self.delete("Workload", key)
        for _ in range(rng.randint(0, 2)):
            self._change()
        self.run()

    def _change(self) -> None:
        rng, nodes = self.rng, sorted(self.book.nodes)
        what = rng.random()
        if what < 0.3 and nodes:
            name = rng.choice(nodes)
            self.feed(self.node(self.book.nodes[name]["metadata"]["labels"]["pool"], name))
        elif what < 0.4 and nodes:
            self.delete("Node", rng.choice(nodes))
        elif what < 0.5 and self.placed:
            self.feed(self.node(rng.choice(sorted(self.placed))))
        elif what < 0.8:
            hold = {"stopPolicy": "Hold"} if rng.random() < 0.2 else {}
            self.feed(self._queue(rng.choice(self.queues), **hold))
        elif self.cohorts:
            index = rng.randrange(len(self.cohorts))
            document = self._cohort(f"c{index}", index)
            document["spec"].pop("parentName", None)
            parent = self.book.members[f"c{index}"].parent
            if parent:
                document["spec"]["parentName"] = parent
            else:
                for part in document["spec"].get("resourceGroups") or ():
                    for item in part["flavors"]:
                        for each in item["resources"]:
                            each.pop("borrowingLimit", None)
                            each.pop("lendingLimit", None)
            self.feed(document)

    def run(self) -> None:
        """Cycles until nothing moves; whoever has to go goes after the cycle."""
        for _ in range(MOST_CYCLES):
            self.now += timedelta(seconds=1)
            quotas, places = self.book.used(), self.book.on_nodes()
            result = self.engine.cycle(self.now)
            self._take(result)
            # What others of a cycle get may count on quota of those that it tells to stop.
            for item in (*result.preempted, *result.evicted):
                self.book.held.pop(item.key, None)
                self.engine.release_evicted(item.key, now=self.now)
            self.book.check_quota(quotas)
            self.book.check_nodes(places, result.admitted)
            if not result.has_moved and result.is_settled:
                return

    def _take(self, result: CycleResult) -> None:
        for item in result.preempted:
            assert item.key in self.book.held, f"{item.key} is preempted and holds nothing"
        for item in result.admitted:
            self.book.take(item)
        self.admitted += len(result.admitted)
        self.preempted += len(result.preempted)

    def questions(self) -> list[list[AnyChange]]:
        """Changes to ask about, each list for itself."""
        rng = self.rng
        asked: list[list[AnyChange]] = [
            [ObjectChange("Workload", self.job())],
            [Raise("ClusterQueue", rng.choice(self.queues), rng.choice(self.names), GPU, 4)],
            [Drain()],
        ]
        if self.book.nodes:
            name = rng.choice(sorted(self.book.nodes))
            pool = self.book.nodes[name]["metadata"]["labels"]["pool"]
            asked.append([ObjectChange("Node", key=name), ObjectChange("Node", self.node(pool))])
        if self.book.held:
            asked.append([ObjectChange("Workload", key=rng.choice(sorted(self.book.held)))])
        return [rng.choice(asked)]


def value_of(found: Any, seen: dict[int, int] | None = None) -> Any:
    """A state by value: objects by their fields, and by their number where one comes again."""
    seen = {} if seen is None else seen
    if found is None or isinstance(found, str | int | float | bytes):
        return found
    if isinstance(found, frozenset | set):
        return ("set", *sorted((value_of(each, seen) for each in found), key=repr))
    if isinstance(found, Mapping):
        return {_name(name): value_of(each, seen) for name, each in found.items()}
    if isinstance(found, list | tuple):
        return [value_of(each, seen) for each in found]
    if id(found) in seen:
        return (type(found).__name__, seen[id(found)])
    seen[id(found)] = len(seen)
    slots = {name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())}
    slots -= {"__weakref__"}
    fields = {name: getattr(found, name, None) for name in sorted(slots)} | getattr(
        found, "__dict__", {}
    )
    if not fields or callable(found):
        return type(found).__name__
    return (type(found).__name__, {name: value_of(each, seen) for name, each in fields.items()})


def _name(found: Any) -> Any:
    """A key: by its name where it has one."""
    return getattr(found, "name", found) if not isinstance(found, tuple) else str(found)


def changed(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Where two values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(each for each in after if each not in before)]:
            yield from changed(before.get(name), after.get(name), f"{at}/{name}")
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if len(before) != len(after):
            yield f"{at}: {len(before)} entries, then {len(after)}"
        for index, pair in enumerate(zip(before, after, strict=False)):
            yield from changed(*pair, f"{at}/{index}")
    elif before != after:
        yield f"{at}: {before!r}, then {after!r}"
