"""Find domains for the pods of a pod set, or say why there are none.

Two phases: know what fits each domain, see ``counts``; then choose domains at the level
that is asked for and go down from there, with as few domains as possible on each level.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go, KEP-2724, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.balanced import balanced_domains
from clusters.kueue.topology.counts import Counted, FitCounts, KeptCounts, Question, Requests
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import PODS, PodNeeds
from clusters.kueue.topology.search import Search
from clusters.kueue.topology.tree import TopologyTree
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.topology_request import TopologyRequest


class Placer:
    """Places pods on the domains of one flavor."""

    def __init__(self, tree: TopologyTree, *, gates: Gates) -> None:
        self.tree = tree
        self._gates = gates
        self._counts = KeptCounts(tree)
        self._scored: set[tuple[str, str]] = set()

    def forget_nodes(self) -> None:
        """Look at the nodes again, after some came, went or changed."""
        self._counts.forget()

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
            NoPlacement: with the reason. Cost: nodes x resources for what was not asked lately,
                else leaves that changed, and domains that are compared.
        """
        search = self._search(workers, leader)
        question = self._question(search, workers, leader, conditions)
        counts = self._counts.answer(question, assumed=conditions.assumed, within=conditions.within)
        try:
            return self._placed(search, counts, workers, leader)
        finally:
            search.restore()

    def _placed(
        self, search: Search, counts: FitCounts, workers: PodSetNeed, leader: PodSetNeed | None
    ) -> dict[str, Placement]:
        chosen = None
        if self._gates.tas_balanced_placement and not (
            search.is_required or search.is_unconstrained
        ):
            chosen = balanced_domains(counts, search)
        level, domains = chosen or self._choose(search, counts, search.level)
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

    def _question(
        self,
        search: Search,
        workers: PodSetNeed,
        leader: PodSetNeed | None,
        conditions: Conditions,
    ) -> Question:
        needs = self._needs(workers) if self.tree.is_by_host else None
        return Question(
            needs=needs,
            requests=_with_pod(workers),
            led_by=None if leader is None else _with_pod(leader),
            cut=search.cut,
            is_empty=conditions.is_empty,
            likes=needs is not None and self._likes(needs, conditions.owner, workers.name),
        )

    def _likes(self, needs: PodNeeds, owner: str, pod_set: str) -> bool:
        """Whether preferences count: once in a cycle for each pod set, as in Kueue.

        What it finds later for the same pod set in the same cycle knows no preferences.
        """
        is_known = not needs.preferences or (owner, pod_set) in self._scored
        if owner and not is_known:
            self._scored.add((owner, pod_set))
        return not is_known

    def _needs(self, workers: PodSetNeed) -> PodNeeds:
        return PodNeeds.of(
            workers.shape.rules,
            tolerations=(*workers.tolerations, *self.tree.tolerations),
            selector=workers.selector,
            prefers=self._gates.tas_respect_node_affinity_preferred,
        )

    def _choose(self, search: Search, counts: FitCounts, level: int) -> tuple[int, list[Counted]]:
        """The level, and the domains of it, that can take everything."""
        known = counts.by_level[level]
        if not known:
            raise NoPlacement(f"no topology domains at level: {self.tree.levels[level]}")
        ordered = search.sorted_led(known.values())
        top, wanted = ordered[0], search.slices

        def takes_all(item: Counted) -> bool:
            return item.slices_led >= wanted and item.leaders >= search.leaders

        if search.takes_least_free:
            for item in ordered:
                fits = item.slices_led if search.leaders else item.slices
                if item.leaders >= search.leaders and fits >= wanted:
                    return level, [item]
            if search.is_required:
                raise NoPlacement(self._not_fit(search, counts, level, ordered[-1].pods))
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
            raise NoPlacement(self._not_fit(search, counts, level, top.slices))
        if level > 0 and not search.is_unconstrained:
            return self._choose(search, counts, level - 1)
        return level, self._several(search, counts, level, ordered)

    def _several(
        self, search: Search, counts: FitCounts, level: int, ordered: list[Counted]
    ) -> list[Counted]:
        """Domains of one level that take everything together: first those that lead."""
        ordered = search.led_first(
            ordered, count=search.slices, leaders=search.leaders, unit="slices"
        )
        chosen: list[Counted] = []
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
            raise NoPlacement(self._not_fit(search, counts, level, search.leaders - leaders))
        ordered, index = search.sorted(ordered[index:]), 0
        while left > 0 and index < len(ordered):
            item = ordered[index]
            if not search.takes_least_free and item.slices >= left:
                item = search.best_fit(ordered[index:], left, leaders=0, unit="slices")
            chosen.append(item)
            left -= item.slices
            index += 1
        if left > 0:
            raise NoPlacement(self._not_fit(search, counts, level, search.slices - left))
        return chosen

    def _filled(self, search: Search, domains: list[Counted]) -> list[Counted]:
        return search.fill(
            domains, count=search.count, leaders=search.leaders, size=search.size, unit="slices"
        )

    def _descend_apart(self, search: Search, level: int, domains: list[Counted]) -> list[Counted]:
        """Down to the lowest level: the children of each share what it was given."""
        while level < len(self.tree.levels) - 1:
            level += 1
            size = search.sizes.get(level, 1) if level > search.slice_level else search.size
            domains = [child for item in domains for child in self._share_out(search, item, size)]
        return domains

    def _share_out(self, search: Search, parent: Counted, size: int) -> list[Counted]:
        children = search.sorted(parent.children)
        if size > 1:
            for child in children:
                search.keep(child)
                child.slices = child.pods // size
                child.slices_led = child.pods_led // size
        return search.fill(
            children,
            count=parent.pods,
            leaders=parent.leaders,
            size=size,
            unit="slices" if size > 1 else "pods",
        )

    def _placement(self, counted: Sequence[tuple[Counted, int]]) -> Placement:
        start = len(self.tree.levels) - 1 if self.tree.is_by_host else 0
        return Placement(
            self.tree.levels[start:],
            tuple(
                PlacedPods(item.values[start:], count)
                for item, count in sorted(counted, key=lambda pair: pair[0].values)
                if count
            ),
        )

    def _not_fit(self, search: Search, counts: FitCounts, level: int, fitting: int) -> str:
        refusal = f'topology "{self.tree.topology}"'
        end = counts.excluded.text()
        if search.layers:
            fits = self._by_layer(search, counts.by_level[level].values())
            return f"{refusal} doesn't allow to fit{fits}{end}"
        unit = "pod" if search.size == 1 else "slice"
        if not fitting:
            return f"{refusal} doesn't allow to fit any of {search.slices} {unit}(s){end}"
        return f"{refusal} allows to fit only {fitting} out of {search.slices} {unit}(s){end}"

    def _by_layer(self, search: Search, domains: Iterable[Counted]) -> str:
        """How many slices of each layer the best of some domains holds."""
        best = min(domains, key=lambda item: (-item.slices, item.name))
        return "".join(
            f"; {_slices_below(best, self.tree.levels.index(layer.topology), layer.size)}"
            f"/{search.count // layer.size} slice(s) fit on level {layer.topology}"
            for layer in search.layers
        )


def _slices_below(domain: Counted, level: int, size: int) -> int:
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


def _with_pod(need: PodSetNeed) -> Requests:
    requests = dict(need.requests)
    requests[PODS] = requests.get(PODS, 0) + 1
    return tuple(sorted(requests.items()))
