"""Another domain for the pods of a node that failed; the others stay where they are.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go (findReplacementAssignment), v0.19.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.tree import TopologyTree
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.topology_request import SliceLayer


def replaced_placement(
    placer: Placer, need: PodSetNeed, *, before: Placement, failed: str, conditions: Conditions
) -> tuple[Placement, Placement]:
    """Place the pods of a failed node anew.

    Args:
        placer: of the flavor.
        need: the pod set; its count does not matter.
        before: its placement so far.
        failed: name of the node.
        conditions: with what other pod sets of the workload took.

    Returns:
        The whole placement, and the part of it that is new.

    Raises:
        NoPlacement: nothing replaces the node.
    """
    tree = placer.tree
    kept = Placement(
        before.levels, tuple(item for item in before.domains if item.values[-1] != failed)
    )
    lost = next((item.count for item in reversed(before.domains) if item.values[-1] == failed), 0)
    gone = tree.missing(kept)
    if gone is not None:
        raise NoPlacement(
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it "
            f"contains the stale domain {gone}"
        )
    need = replace(need, count=lost)
    within = _within(tree, need, kept)
    layers = need.request.layers
    if layers and within and lost % need.request.slice_size:
        # The slice is broken: its rest is placed in the largest groups that come out even.
        even = next((layer for layer in reversed(layers) if lost % layer.size == 0), None)
        need = replace(need, request=replace(need.request, layers=() if even is None else (even,)))
    new = placer.place(need, None, replace(conditions, within=within))[need.name]
    if not new.domains:
        raise NoPlacement(f"cannot find replacement assignment for unhealthy node: {failed}")
    return merged(tree, new, kept), new


def merged(tree: TopologyTree, new: Placement, kept: Placement) -> Placement:
    """Two placements of one pod set as one."""
    counts: dict[tuple[str, ...], int] = {}
    for item in (*new.domains, *kept.domains):
        counts[item.values] = counts.get(item.values, 0) + item.count
    placed = [PlacedPods(values, count) for values, count in counts.items()]
    placed.sort(key=lambda item: ",".join(tree.leaves[item.domain].values))
    return Placement(new.levels, tuple(placed))


def _within(tree: TopologyTree, need: PodSetNeed, kept: Placement) -> str:
    """The domain that the new pods must lie in, empty for any."""
    request, levels = need.request, tree.levels
    level = request.level(levels) or (levels[-1] if need.is_implied else None)
    if level not in levels or not kept.domains:
        return ""
    if request.layers and need.count % request.slice_size:
        broken = request.layers[0]
        if len(request.layers) > 1:
            broken = next(layer for layer in reversed(request.layers) if need.count % layer.size)
        return _incomplete(tree, kept.domains, need.count, broken)
    if request.required is None:
        return ""
    leaf = tree.leaves.get(kept.domains[0].domain)
    return "" if leaf is None else leaf.above(levels.index(level)).name


def _incomplete(
    tree: TopologyTree, kept: Sequence[PlacedPods], lost: int, layer: SliceLayer
) -> str:
    """The domain whose slice the lost pods complete."""
    if layer.topology not in tree.levels:
        return ""
    counts: dict[str, int] = {}
    for item in kept:
        leaf = tree.leaves.get(item.domain)
        if leaf is not None:
            name = leaf.above(tree.levels.index(layer.topology)).name
            counts[name] = counts.get(name, 0) + item.count
    return next((name for name, count in counts.items() if (count + lost) % layer.size == 0), "")
