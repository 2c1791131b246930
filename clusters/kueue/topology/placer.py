"""Find domains for the pods of a pod set, or say why there are none.

Two phases: count what fits each domain, from the lowest level up; then choose domains at the level
that is asked for and go down from there, with as few domains as possible on each level.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go, KEP-2724, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from weakref import WeakKeyDictionary

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.balanced import balanced_domains
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import PODS, Amounts, Exclusions, PodNeeds
from clusters.kueue.topology.search import Search
from clusters.kueue.topology.tree import Domain, Leaf, TopologyTree, count_in, subtract_amounts
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.topology_request import TopologyRequest
from clusters.kueue.workload.workloads import PodShape


class Placer:
    """Places pods on the domains of one flavor."""

    def __init__(self, tree: TopologyTree, *, gates: Gates) -> None:
        self.tree = tree
        self._gates = gates
        # Nodes that take the pods of a shape; they hold until the tree is built anew.
        self._able: WeakKeyDictionary[PodShape, tuple[list[Leaf], Exclusions]] = WeakKeyDictionary()
        self._scored: set[tuple[str, str]] = set()

    def forget_nodes(self) -> None:
        """Look at the nodes again, after the tree was built anew."""
        self._able.clear()

    def begin_cycle(self) -> None:
        """Let preferences count again."""
        self._scored.clear()

    def place(
        self, workers: PodSetNeed, leader: PodSetNeed | None, conditions: Conditions
    ) -> dict[str, Placement]:
        """Find domains for a pod set, and for the one pod that leads it.

        Level, slices, selectors and tolerations are those of ``workers``.

        Returns:
            By name of the pod set.

        Raises:
            NoPlacement: with the reason. Cost: nodes x resources.
        """
        search = self._search(workers, leader)
        self._count(search, workers, leader, conditions)
        chosen = None
        if self._gates.tas_balanced_placement and not (
            search.is_required or search.is_unconstrained
        ):
            chosen = balanced_domains(self.tree, search)
        level, domains = chosen or self._choose(search, search.level)
        domains = self._filled(search, domains)
        while chosen is None and level < search.slice_level:
            # Above the level of slices the children of all domains share everything anew.
            level += 1
            domains = self._filled(
                search, search.sorted(child for item in domains for child in item.children)
            )
        domains = self._descend_apart(search, level, domains)
        placed = {}
        if leader is not None:
            placed[leader.name] = self._placement(
                [(item, item.leaders) for item in domains if item.leaders]
            )
        placed[workers.name] = self._placement([(item, item.pods) for item in domains])
        return placed

    def _search(self, workers: PodSetNeed, leader: PodSetNeed | None) -> Search:
        request, levels = workers.request, self.tree.levels
        if request.slice_size <= 0:
            raise NoPlacement("slice topology requested, but slice size not provided")
        wanted = request.level(levels)
        if wanted is None and workers.is_implied:
            wanted = levels[-1]
        if wanted is None:
            raise NoPlacement("topology level not specified")
        if wanted not in levels:
            raise NoPlacement(f"no requested topology level: {wanted}")
        of_slices = request.slice_level(levels)
        if of_slices not in levels:
            raise NoPlacement(f"no requested topology level for slices: {of_slices}")
        if levels.index(wanted) > levels.index(of_slices):
            raise NoPlacement(
                f"podset slice topology {of_slices} is above the podset topology {wanted}"
            )
        sizes = _inner_sizes(request, levels)
        return Search(
            gates=self._gates,
            count=workers.count,
            size=request.slice_size,
            level=levels.index(wanted),
            slice_level=levels.index(of_slices),
            sizes=sizes,
            layers=request.layers if sizes else (),
            leaders=0 if leader is None else 1,
            is_required=request.required is not None,
            is_unconstrained=bool(request.unconstrained)
            or workers.is_implied
            or request.is_slice_only,
        )

    def _count(
        self,
        search: Search,
        workers: PodSetNeed,
        leader: PodSetNeed | None,
        conditions: Conditions,
    ) -> None:
        """Count what fits, from the lowest level up."""
        for level in self.tree.by_level:
            for domain in level.values():
                domain.clear()
        requests, led_by = _with_pod(workers), None if leader is None else _with_pod(leader)
        leaves, search.excluded = self._able_leaves(workers)
        self._score(leaves, workers, conditions.owner)
        for leaf in leaves:
            if conditions.within and not _belongs(leaf.values, conditions.within):
                search.excluded.reasons["topologyDomain"] += 1
                continue
            rest = leaf.free if conditions.is_empty else leaf.rest
            if leaf.name in conditions.assumed:
                rest = _less(rest, conditions.assumed[leaf.name])
            leaf.pods, short_of = count_in(requests, rest)
            if not leaf.pods and short_of:
                search.excluded.reasons[f'resource "{short_of}"'] += 1
            leaf.pods_led = leaf.pods
            if led_by is not None and count_in(led_by, rest)[0]:
                leaf.leaders = 1
                leaf.pods_led = count_in(requests, _less(rest, dict(led_by)))[0]
        for domain in self.tree.by_level[0].values():
            search.roll_up(domain, 0)

    def _score(self, leaves: Sequence[Leaf], workers: PodSetNeed, owner: str) -> None:
        """Note how well nodes are liked: once in a cycle for each pod set, as Kueue does.

        What it finds later for the same pod set in the same cycle knows no preferences.
        """
        if not (self._gates.tas_respect_node_affinity_preferred and self.tree.is_by_host):
            return
        if (owner, workers.name) in self._scored:
            return
        if owner:
            self._scored.add((owner, workers.name))
        needs = self._needs(workers)
        for leaf in leaves if needs.preferences else ():
            if leaf.node is not None:
                leaf.affinity = needs.score(leaf.node)

    def _needs(self, workers: PodSetNeed) -> PodNeeds:
        return PodNeeds.of(
            workers.shape.rules,
            tolerations=(*workers.tolerations, *self.tree.tolerations),
            selector=workers.selector,
            prefers=self._gates.tas_respect_node_affinity_preferred,
        )

    def _able_leaves(self, workers: PodSetNeed) -> tuple[list[Leaf], Exclusions]:
        """Domains of the lowest level that take the pods, by everything but their resources."""
        leaves = list(self.tree.leaves.values())
        if not self.tree.is_by_host:
            return leaves, Exclusions(len(leaves))
        is_plain = not workers.selector and not workers.tolerations
        known = self._able.get(workers.shape) if is_plain else None
        if known is None:
            needs = self._needs(workers)
            excluded, able = Exclusions(len(leaves)), []
            for leaf in leaves:
                reason = needs.refusal(leaf.node) if leaf.node is not None else ""
                if reason:
                    excluded.reasons[reason] += 1
                else:
                    able.append(leaf)
            known = able, excluded
            if is_plain:
                self._able[workers.shape] = known
        return known[0], known[1].copy()

    def _choose(self, search: Search, level: int) -> tuple[int, list[Domain]]:
        """The level, and the domains of it, that can take everything."""
        known = self.tree.by_level[level]
        if not known:
            raise NoPlacement(f"no topology domains at level: {self.tree.levels[level]}")
        ordered = search.sorted_led(known.values())
        top, wanted = ordered[0], search.slices

        def takes_all(item: Domain) -> bool:
            return item.slices_led >= wanted and item.leaders >= search.leaders

        if search.takes_least_free:
            for item in ordered:
                fits = item.slices_led if search.leaders else item.slices
                if item.leaders >= search.leaders and fits >= wanted:
                    return level, [item]
            if search.is_required:
                raise NoPlacement(self._not_fit(search, level, ordered[-1].pods))
        elif takes_all(top):
            return level, [search.best_fit(ordered, wanted, leaders=search.leaders, unit="slices")]
        if takes_all(top):
            return level, [top]
        if search.is_required:
            if self._gates.tas_respect_node_affinity_preferred:
                able = list(dropwhile(lambda item: not takes_all(item), ordered))
                if able:
                    best = search.best_fit(able, wanted, leaders=search.leaders, unit="slices")
                    return level, [best]
            raise NoPlacement(self._not_fit(search, level, top.slices))
        if level > 0 and not search.is_unconstrained:
            return self._choose(search, level - 1)
        return level, self._several(search, level, ordered)

    def _several(self, search: Search, level: int, ordered: list[Domain]) -> list[Domain]:
        """Domains of one level that take everything together: first those that lead."""
        ordered = search.led_first(
            ordered, count=search.slices, leaders=search.leaders, unit="slices"
        )
        chosen: list[Domain] = []
        left, leaders, index = search.slices, search.leaders, 0
        while leaders > 0 and index < len(ordered) and ordered[index].leaders > 0:
            item = ordered[index]
            if not search.takes_least_free and item.slices_led >= left:
                item = search.best_fit(ordered[index:], left, leaders=leaders, unit="slices")
            chosen.append(item)
            leaders -= item.leaders
            left -= item.slices_led
            index += 1
        if leaders > 0:
            raise NoPlacement(self._not_fit(search, level, search.leaders - leaders))
        ordered, index = search.sorted(ordered[index:]), 0
        while left > 0 and index < len(ordered):
            item = ordered[index]
            if not search.takes_least_free and item.slices >= left:
                item = search.best_fit(ordered[index:], left, leaders=0, unit="slices")
            chosen.append(item)
            left -= item.slices
            index += 1
        if left > 0:
            raise NoPlacement(self._not_fit(search, level, search.slices - left))
        return chosen

    def _filled(self, search: Search, domains: list[Domain]) -> list[Domain]:
        return search.fill(
            domains, count=search.count, leaders=search.leaders, size=search.size, unit="slices"
        )

    def _descend_apart(self, search: Search, level: int, domains: list[Domain]) -> list[Domain]:
        """Down to the lowest level: the children of each share what it was given."""
        while level < len(self.tree.levels) - 1:
            level += 1
            size = search.sizes.get(level, 1) if level > search.slice_level else search.size
            domains = [child for item in domains for child in self._share_out(search, item, size)]
        return domains

    def _share_out(self, search: Search, parent: Domain, size: int) -> list[Domain]:
        children = search.sorted(parent.children)
        if size > 1:
            for child in children:
                child.slices = child.pods // size
                child.slices_led = child.pods_led // size
        return search.fill(
            children,
            count=parent.pods,
            leaders=parent.leaders,
            size=size,
            unit="slices" if size > 1 else "pods",
        )

    def _placement(self, counted: Sequence[tuple[Domain, int]]) -> Placement:
        start = len(self.tree.levels) - 1 if self.tree.is_by_host else 0
        return Placement(
            self.tree.levels[start:],
            tuple(
                PlacedPods(item.values[start:], count)
                for item, count in sorted(counted, key=lambda pair: pair[0].values)
                if count
            ),
        )

    def _not_fit(self, search: Search, level: int, fitting: int) -> str:
        refusal = f'topology "{self.tree.topology}"'
        end = search.excluded.text()
        if search.layers:
            return f"{refusal} doesn't allow to fit{self._by_layer(search, level, end)}"
        unit = "pod" if search.size == 1 else "slice"
        if not fitting:
            return f"{refusal} doesn't allow to fit any of {search.slices} {unit}(s){end}"
        return f"{refusal} allows to fit only {fitting} out of {search.slices} {unit}(s){end}"

    def _by_layer(self, search: Search, level: int, end: str) -> str:
        """How many slices of each layer the best domain of a level holds."""
        known = self.tree.by_level[level].values()
        best = min(known, key=lambda item: (-item.slices, item.name))
        parts = [
            f"; {_slices_below(best, self.tree.levels.index(layer.topology), layer.size)}"
            f"/{search.count // layer.size} slice(s) fit on level {layer.topology}"
            for layer in search.layers
        ]
        return f"{''.join(parts)}{end}"


def _slices_below(domain: Domain, level: int, size: int) -> int:
    """Slices of a size that the domains of a level below another hold."""
    if len(domain.values) - 1 == level:
        return domain.pods // size
    return sum(_slices_below(child, level, size) for child in domain.children)


def _inner_sizes(request: TopologyRequest, levels: Sequence[str]) -> dict[int, int]:
    """Size of slices by index of the level, for every level below that of an outermost slice."""
    sizes: dict[int, int] = {}
    for outer, inner in zip(request.layers, request.layers[1:], strict=False):
        if inner.topology not in levels:
            raise NoPlacement(
                f"no requested topology level for additional slice layer: {inner.topology}"
            )
        above, below = levels.index(outer.topology), levels.index(inner.topology)
        if below <= above:
            raise NoPlacement(
                f"additional slice layer topology {inner.topology} must be at a lower level "
                f"than {outer.topology}"
            )
        if outer.size % inner.size:
            raise NoPlacement(
                f"additional slice layer size {inner.size} must evenly divide parent layer "
                f"size {outer.size}"
            )
        sizes.update(dict.fromkeys(range(above + 1, below + 1), inner.size))
    return sizes


def _with_pod(need: PodSetNeed) -> list[tuple[str, int]]:
    requests = dict(need.requests)
    requests[PODS] = requests.get(PODS, 0) + 1
    return sorted(requests.items())


def _belongs(values: Sequence[str], within: str) -> bool:
    name = ",".join(values)
    return name == within or name.startswith(f"{within},")


def _less(rest: Amounts, extra: Amounts) -> dict[str, int]:
    result = dict(rest)
    subtract_amounts(result, extra)
    return result
