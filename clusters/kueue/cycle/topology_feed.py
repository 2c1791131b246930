"""Takes in what placement knows of a cluster: topologies, nodes, pods that it did not place.

Source: Kueue pkg/controller/tas, v0.19.2.
"""

from __future__ import annotations

from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.topology.nodes import NodeSpec, PodUse


def set_topology(state: ClusterState, name: str, levels: tuple[str, ...] | None) -> None:
    """Note a topology, ``None`` for one that is gone."""
    known = state.snapshot.places.topologies
    if known.get(name) == levels:
        return
    if levels is None:
        del known[name]
    else:
        known[name] = levels
    state.activity_changed()
    state.revision += 1


def set_node(state: ClusterState, name: str, spec: NodeSpec | None) -> None:
    """Note a node, ``None`` for one that is gone; what waits may fit now."""
    if state.snapshot.places.set_node(name, spec):
        state.wake_active()
        state.revision += 1


def set_pod(state: ClusterState, key: str, use: PodUse | None) -> None:
    """Note a pod, ``None`` for one that is gone; what waits for its node may fit now."""
    places = state.snapshot.places
    node = places.set_pod(key, use)
    freed = frozenset(places.flavors_of(node)) if node else frozenset()
    for name, queue in state.snapshot.queues.items() if freed else ():
        if any(not freed.isdisjoint(group.flavors) for group in queue.spec.groups):
            state.wake(name)
            state.revision += 1
