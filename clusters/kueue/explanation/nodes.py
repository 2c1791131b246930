"""Changes of nodes that a what-if tries: more of them, or some that take no pods any more.

Made on a copy of an engine only, and only of nodes that it knows: those of flavors with a topology.
Quota stays as it is; nodes alone let nothing start that has none.

Source: taints and cordons as in Kueue pkg/controller/tas/node_controller.go, v0.19.2. Deviation: a
job of which one node is drained counts as stopped, though Kueue may find it another node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from clusters.documents.labels import HOSTNAME, level_word
from clusters.kueue.amounts import wholes
from clusters.kueue.assignment.topology import takes_part
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.changes import AddNodes, Inapplicable, TaintNodes
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import PODS, NodeSpec, is_member
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.places import Places
from clusters.kueue.workload.matching import Taint, untolerated_taint
from clusters.kueue.workload.placement import domain_name
from clusters.kueue.workload.workloads import PodSet, PodSetHold, Workload

MOST_SHAPES: Final = 500
"""So many kinds of waiting jobs are looked at; what else waits is left out."""
_NEW: Final = "what-if"
_ENOUGH: Final = 2**62
_TELLING: Final = 3


def add_nodes(engine: Engine, change: AddNodes, *, now: datetime) -> None:
    """Let there be more nodes. Other resources than GPUs are those of the flavor's largest node.

    Raises:
        Inapplicable: the flavor has no topology here, or the domain is too deep.
    """
    engine.state.settle(now)
    places = engine.state.snapshot.places
    placer = _placer(engine, change.flavor)
    levels = placer.tree.levels
    named = [level for level in levels if level != HOSTNAME]
    if len(change.within) > len(named):
        listed = ", ".join(map(level_word, named)) or "none"
        raise Inapplicable(
            f"{'/'.join(change.within)} goes deeper than the levels of flavor {change.flavor} "
            f"above its nodes: {listed}."
        )
    values = dict(zip(named, change.within, strict=False))
    for level in named[len(change.within) :]:
        known = {node.labels.get(level) for node in places.nodes.values()}
        values[level] = _unused(f"{_NEW}-{level_word(level)}", known)
    spec = engine.state.snapshot.flavors[change.flavor]
    allocatable = {
        **_other_resources(engine, placer),
        change.resource: change.gpus,
    }
    for number in range(change.count):
        name = _unused(f"{_NEW}-{number + 1}", places.nodes)
        places.set_node(
            name,
            NodeSpec(
                name=name,
                labels={**spec.node_labels, **values, HOSTNAME: name},
                taints=spec.taints,
                allocatable=allocatable,
                is_usable=True,
            ),
        )
    engine.state.wake_active()


def taint_nodes(engine: Engine, change: TaintNodes, *, now: datetime) -> list[str]:
    """Let nodes take no new pods.

    Returns:
        Keys of the workloads that have to leave them, in order; none unless it drains.

    Raises:
        Inapplicable: there are no such nodes here, or which jobs run on them is not known.
    """
    engine.state.settle(now)
    places = engine.state.snapshot.places
    nodes = _chosen(engine, change)
    leaving = _leaving(engine, change, nodes) if change.drains else []
    key, value = change.taint
    taint = Taint(key, value, "NoExecute" if change.drains else "NoSchedule")
    for node in nodes:
        after = replace(node, taints=(*node.taints, taint)) if key else None
        places.set_node(node.name, after or replace(node, is_usable=False))
    engine.state.wake_active()
    return leaving


def flavors_on(engine: Engine) -> list[str]:
    """Flavors whose nodes the engine knows, by name; it has to be settled."""
    snapshot = engine.state.snapshot
    return [name for name in sorted(snapshot.flavors) if snapshot.places.placer(name) is not None]


class Footing:
    """Which waiting workloads could have domains if nothing else ran, with nodes as they are.

    A pod set that fits in no flavor of its queue by itself fits nowhere beside others, so that
    "no" is certain; "yes" is not. Cost: nodes x kinds of pod sets.

    Args:
        engine: settled; looked at now, so that later changes do not count.
        is_over: asked before each kind; true ends it.
    """

    def __init__(self, engine: Engine, *, is_over: Callable[[], bool]) -> None:
        self._engine, self._is_over = engine, is_over
        self._known: dict[tuple[str, str], bool] = {}
        self.is_complete = True

    def stands(self, workload: Workload, queue: str) -> bool | None:
        """Whether it could have domains; ``None`` where it asks for none, or was not looked at."""
        state = self._engine.state.snapshot.queues.get(queue)
        if state is None or state.is_remote:
            return None
        asking = [item for item in workload.pod_sets if takes_part(item, state)]
        placers = self._placers(queue)
        if not asking or not placers:
            return None
        place = queue, workload.shape_hash
        if place not in self._known:
            if len(self._known) >= MOST_SHAPES or self._is_over():
                self.is_complete = False
                return None
            self._known[place] = all(
                any(_fits(item, flavor, placer, workload) for flavor, placer in placers)
                for item in asking
            )
        return self._known[place]

    def waiting(self) -> dict[str, bool]:
        """The same for everything that waits and asks for domains, by key."""
        queues, found = self._engine.state.queues, {}
        for key, workload in self._engine.state.workloads.items():
            if workload.reservation is None and workload.is_active:
                stands = self.stands(workload, queues.queue_of(key))
                if stands is not None:
                    found[key] = stands
        return found

    def _placers(self, queue: str) -> list[tuple[str, Placer]]:
        snapshot = self._engine.state.snapshot
        names = {name for group in snapshot.queues[queue].spec.groups for name in group.flavors}
        found = ((name, snapshot.places.placer(name)) for name in sorted(names))
        return [(name, placer) for name, placer in found if placer is not None]


def _fits(pod_set: PodSet, flavor: str, placer: Placer, workload: Workload) -> bool:
    """Whether the fewest pods that may start find domains, on nodes that nobody else uses."""
    fewest = pod_set.count if pod_set.min_count is None else pod_set.min_count
    added = workload.additions.get(pod_set.name)
    need = PodSetNeed(
        name=pod_set.name,
        shape=pod_set.shape,
        count=fewest - min(workload.reclaimable.get(pod_set.name, 0), fewest),
        requests=wholes(pod_set.shape.requests.of_pod),
        request=pod_set.shape.topology,
        flavor=flavor,
        is_implied=not pod_set.shape.topology.is_explicit,
        selector=added.selector if added is not None else {},
        tolerations=added.tolerations if added is not None else (),
    )
    if not need.count:
        return True
    try:
        placer.place(need, None, Conditions(is_empty=True))
    except NoPlacement:
        return False
    return True


def _placer(engine: Engine, flavor: str) -> Placer:
    placer = engine.state.snapshot.places.placer(flavor)
    if placer is not None:
        return placer
    known = flavors_on(engine)
    if not known:
        raise Inapplicable(
            "Of this cluster no node is known to what decides there: no flavor has a topology, or "
            "Kueue decides there by itself. Ask about a node pool instead."
        )
    raise Inapplicable(
        f"Flavor {flavor} has no topology on this cluster. Name one that has: {', '.join(known)}."
    )


def _other_resources(engine: Engine, placer: Placer) -> Mapping[str, int]:
    """What a node of the flavor has besides; without limit where there is no such node yet."""
    tree, found = placer.tree, dict[str, int]()
    for node in engine.state.snapshot.places.nodes.values():
        if is_member(node.labels, flavor=tree.node_labels, levels=tree.levels):
            for name, amount in node.allocatable.items():
                found[name] = max(amount, found.get(name, 0))
    if found:
        return found
    asked = {
        name
        for workload in engine.state.workloads.values()
        for item in workload.pod_sets
        for name in item.shape.requests.of_pod
    }
    return dict.fromkeys([*sorted(asked), PODS], _ENOUGH)


def _unused(name: str, known: Collection[str | None]) -> str:
    """The name, or the first of its kind that nothing has."""
    found, number = name, 1
    while found in known:
        number += 1
        found = f"{name}-{number}"
    return found


def _chosen(engine: Engine, change: TaintNodes) -> list[NodeSpec]:
    """The nodes that a change is about, by name."""
    places = engine.state.snapshot.places
    if change.names:
        lacking = [name for name in change.names if not places.flavors_of(name)]
        if lacking and not flavors_on(engine):
            _placer(engine, "")
        if lacking:
            more = f" and {len(lacking) - _TELLING} more" if len(lacking) > _TELLING else ""
            raise Inapplicable(
                f"No flavor with a topology has a node {', '.join(lacking[:_TELLING])}{more} on "
                "this cluster. Name nodes as the cluster does."
            )
        return [places.nodes[name] for name in sorted(set(change.names))]
    tree = _placer(engine, change.flavor).tree
    found = [
        node
        for _, node in sorted(places.nodes.items())
        if is_member(node.labels, flavor=tree.node_labels, levels=tree.levels)
        and _values(node, tree.levels)[: len(change.within)] == change.within
    ]
    if not found:
        raise Inapplicable(
            f"Flavor {change.flavor} has no node in {'/'.join(change.within)} on this cluster."
        )
    return found


def _values(node: NodeSpec, levels: Sequence[str]) -> tuple[str, ...]:
    return tuple(node.labels[level] for level in levels)


def _leaving(engine: Engine, change: TaintNodes, nodes: Sequence[NodeSpec]) -> list[str]:
    """Workloads with pods on nodes, unless they tolerate the taint."""
    places = engine.state.snapshot.places
    domains = {name: _domains_of(places, name, nodes) for name in flavors_on(engine)}
    found = []
    for holding in engine.state.snapshot.holdings():
        workload = holding.workload
        holds = workload.reservation.pod_sets if workload.reservation is not None else ()
        for hold in holds:
            if _is_tolerated(hold, change, workload, places):
                continue
            there = {item.domain for item in hold.placement.domains} if hold.placement else set()
            touched = [domains[name] for name in hold.flavors.values() if name in domains]
            if any(there & whole for whole, _ in touched):
                found.append(workload.key)
                break
            if any(there & part for _, part in touched):
                raise Inapplicable(
                    "Jobs on this cluster are placed on whole domains, not on nodes: which of them "
                    f"run on {nodes[0].name} is not known. Name all nodes of its domain."
                )
    return sorted(found)


def _domains_of(
    places: Places, flavor: str, nodes: Iterable[NodeSpec]
) -> tuple[set[str], set[str]]:
    """Domains of a flavor's lowest level: all of whose nodes are chosen, and some."""
    placer = places.placer(flavor)
    assert placer is not None
    tree, chosen = placer.tree, {node.name for node in nodes}
    by_domain: dict[str, set[str]] = {}
    for node in places.nodes.values():
        if is_member(node.labels, flavor=tree.node_labels, levels=tree.levels):
            values = _values(node, tree.levels)
            domain = values[-1] if tree.is_by_host else domain_name(values)
            by_domain.setdefault(domain, set()).add(node.name)
    touched = {name: members for name, members in by_domain.items() if members & chosen}
    whole = {name for name, members in touched.items() if members <= chosen}
    return whole, touched.keys() - whole


def _is_tolerated(hold: PodSetHold, change: TaintNodes, workload: Workload, places: Places) -> bool:
    """Whether the pods of a pod set stay beside the taint; nothing tolerates a cordon."""
    key, value = change.taint
    shape = next((item.shape for item in workload.pod_sets if item.name == hold.name), None)
    if not key or shape is None:
        return False
    added = workload.additions.get(hold.name)
    of_flavors = (places.placer(name) for name in hold.flavors.values())
    tolerations = [
        *shape.rules.tolerations,
        *(added.tolerations if added is not None else ()),
        *(each for placer in of_flavors if placer is not None for each in placer.tree.tolerations),
    ]
    return untolerated_taint([Taint(key, value, "NoExecute")], tolerations=tolerations) is None
