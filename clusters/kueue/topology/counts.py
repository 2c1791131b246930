"""How many pods of one kind fit each domain, kept from search to search.

Counting anew takes as long as there are nodes. Between two searches few of them change, and what
waits asks the same again and again: so counts are kept by what was asked, and only leaves that were
touched since, with the domains above them, are counted again.

Source: Kueue pkg/cache/scheduler/tas_flavor_snapshot.go, KEP-2724, v0.19.2.
Deviation: Kueue counts everything in each search.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from clusters.kueue.topology.need import Assumed
from clusters.kueue.topology.nodes import Exclusions, PodNeeds
from clusters.kueue.topology.tree import (
    Amounts,
    Domain,
    Leaf,
    TopologyTree,
    count_in,
    subtract_amounts,
)

Requests: TypeAlias = tuple[tuple[str, int], ...]

# So many counted leaves are kept for a flavor, in so many counts at least and at most.
LEAVES_KEPT: Final = 60_000
FEWEST_KEPT, MOST_KEPT = 4, 64


@dataclass(slots=True, eq=False)
class Counted:
    """A domain with the counters of a search.

    Attributes:
        name: unique within its level.
        values: of the levels down to this one.
        pods, slices: that fit, and later that are placed here.
        pods_led, slices_led: the same with a leader beside them.
        leaders: leaders that fit, and later that are placed here.
        affinity: sum of the weights of the preferences that its nodes meet.
        short_of: resource for want of which no pod fits; of the lowest level.
    """

    name: str
    values: tuple[str, ...]
    parent: Counted | None = None
    children: list[Counted] = field(default_factory=list)
    pods: int = 0
    slices: int = 0
    pods_led: int = 0
    slices_led: int = 0
    leaders: int = 0
    affinity: int = 0
    short_of: str = ""

    def clear(self) -> None:
        """Nothing fits."""
        self.pods = self.slices = self.pods_led = self.slices_led = self.leaders = 0

    def subtree_copy(self, parent: Counted | None = None) -> Counted:
        """The domain and all below it, independent of the original."""
        same = Counted(
            self.name,
            self.values,
            parent,
            [],
            self.pods,
            self.slices,
            self.pods_led,
            self.slices_led,
            self.leaders,
            self.affinity,
            self.short_of,
        )
        same.children = [child.subtree_copy(same) for child in self.children]
        return same


@dataclass(frozen=True, slots=True)
class Cut:
    """How pods are cut into slices.

    Attributes:
        size: pods of an outermost slice.
        level: index of the level that a slice lies in.
        inner: index of a level below, and the pods of an inner slice there.
        has_leader: whether one pod of another pod set goes with the others.
    """

    size: int
    level: int
    inner: tuple[tuple[int, int], ...] = ()
    has_leader: bool = False

    def roll_up(self, domain: Counted, level: int) -> None:
        """Count what fits a domain by what fits the domains of the lowest level below it."""
        for child in domain.children:
            self.roll_up(child, level + 1)
        self.add_up(domain, level)

    def add_up(self, domain: Counted, level: int) -> None:
        """Count what fits a domain by what fits its children."""
        if domain.children:
            self._sum_up(domain, level)
        if level == self.level:
            domain.slices = domain.pods // self.size
            domain.slices_led = domain.pods_led // self.size

    def _sum_up(self, domain: Counted, level: int) -> None:
        pods = slices = leaders = affinity = 0
        inner = dict(self.inner).get(level + 1, 1)
        # With a leader a domain holds what it holds without, less the smallest loss among the
        # children that take one.
        losses: list[tuple[int, int]] = []
        for child in domain.children:
            fits = child.pods // inner * inner
            pods += fits
            slices += child.slices
            leaders = max(leaders, child.leaders)
            affinity += child.affinity
            if not self.has_leader or child.leaders:
                led = child.pods_led // inner * inner
                losses.append((fits - led, child.slices - child.slices_led))
        domain.pods, domain.slices = pods, slices
        domain.leaders, domain.affinity = leaders, affinity
        domain.pods_led = pods - min(loss for loss, _ in losses) if losses else 0
        domain.slices_led = slices - min(loss for _, loss in losses) if losses else 0


@dataclass(frozen=True, slots=True)
class Question:
    """What is counted.

    Attributes:
        needs: of the pods, ``None`` where the lowest level is no node.
        requests: of one pod, itself included, in order of names.
        led_by: the same of the leader, ``None`` for none.
        is_empty: as if no placed pods were there.
        likes: whether preferences count.
    """

    needs: PodNeeds | None
    requests: Requests
    led_by: Requests | None
    cut: Cut
    is_empty: bool
    likes: bool


class FitCounts:
    """The counted domains of a tree.

    Args:
        tree: Whose domains, as they are now: it must not be built anew meanwhile.
        within: The domain that counts, as its values; empty for all.

    Attributes:
        by_level: domains by name, level by level.
        excluded: why leaves hold no pod, as messages count it.
    """

    def __init__(self, tree: TopologyTree, question: Question, *, within: str = "") -> None:
        self._tree, self._question = tree, question
        self.excluded = Exclusions(len(tree.leaves))
        self._assumed: Assumed = {}
        self.by_level: list[dict[str, Counted]] = [{} for _ in tree.levels]
        for root in tree.by_level[0].values():
            self._take_over(root, None)
        self._able = {
            leaf.name: self.by_level[-1][leaf.name]
            for leaf in tree.leaves.values()
            if self._takes(leaf)
        }
        self._like()
        if within:
            self._leave_out_all_but(within)
        self._seen = tree.touched.now
        for leaf in self._able:
            self._count(leaf)
        for top in self.by_level[0].values():
            question.cut.roll_up(top, 0)

    def refresh(self, assumed: Assumed) -> None:
        """Count again what was touched since the last time.

        Args:
            assumed: What is taken besides, by leaf; it holds until the next refresh.
        """
        touched = self._tree.touched.since(self._seen)
        self._seen = self._tree.touched.now
        names: Iterable[str] = self._able if touched is None else touched
        names = {*names, *self._assumed, *assumed}
        self._assumed = assumed
        changed = {self._able[name] for name in names if name in self._able and self._count(name)}
        for level in reversed(range(len(self.by_level))):
            for domain in changed:
                self._question.cut.add_up(domain, level)
            changed = {item.parent for item in changed if item.parent is not None}

    def _take_over(self, domain: Domain, parent: Counted | None) -> None:
        same = Counted(domain.name, domain.values, parent)
        self.by_level[len(domain.values) - 1][domain.name] = same
        if parent is not None:
            parent.children.append(same)
        for child in domain.children:
            self._take_over(child, same)

    def _takes(self, leaf: Leaf) -> bool:
        """Whether a leaf takes the pods, by everything but their resources."""
        needs = self._question.needs
        reason = needs.refusal(leaf.node) if needs is not None and leaf.node is not None else ""
        if reason:
            self.excluded.reasons[reason] += 1
        return not reason

    def _leave_out_all_but(self, within: str) -> None:
        """Leaves outside of a domain are counted as full, though they may be liked."""
        outside = [item for item in self._able.values() if not _belongs(item.values, within)]
        for item in outside:
            del self._able[item.name]
            self.excluded.reasons["topologyDomain"] += 1

    def _like(self) -> None:
        """Note how well nodes are liked."""
        needs = self._question.needs
        if needs is None or not self._question.likes:
            return
        for name, counted in self._able.items():
            node = self._tree.leaves[name].node
            if node is not None:
                counted.affinity = needs.score(node)

    def _count(self, name: str) -> bool:
        """Count one leaf; whether that changed anything."""
        question, leaf, counted = self._question, self._tree.leaves[name], self._able[name]
        rest: Amounts = leaf.free if question.is_empty else leaf.rest
        if name in self._assumed:
            rest = _less(rest, self._assumed[name])
        before = (counted.pods, counted.pods_led, counted.leaders)
        counted.pods, short_of = count_in(question.requests, rest)
        counted.pods_led, counted.leaders = counted.pods, 0
        led_by = question.led_by
        if led_by is not None and count_in(led_by, rest)[0]:
            counted.leaders = 1
            counted.pods_led = count_in(question.requests, _less(rest, dict(led_by)))[0]
        self._note_short(counted, short_of if not counted.pods else "")
        return before != (counted.pods, counted.pods_led, counted.leaders)

    def _note_short(self, counted: Counted, short_of: str) -> None:
        if short_of == counted.short_of:
            return
        reasons = self.excluded.reasons
        for name, step in ((counted.short_of, -1), (short_of, 1)):
            reason = f'resource "{name}"'
            if name:
                reasons[reason] += step
            if not reasons[reason]:
                del reasons[reason]
        counted.short_of = short_of


class KeptCounts:
    """The counts of a tree that were asked for last."""

    def __init__(self, tree: TopologyTree) -> None:
        self._tree = tree
        self._kept: OrderedDict[Question, FitCounts] = OrderedDict()

    def forget(self) -> None:
        """Count anew: nodes came, went or changed."""
        self._kept.clear()

    def answer(self, question: Question, *, assumed: Assumed, within: str) -> FitCounts:
        """Counts as of now.

        Args:
            question: What is counted.
            assumed: What is taken besides, by leaf.
            within: The domain that counts, as its values; empty for all.
        """
        if within:
            counts = FitCounts(self._tree, question, within=within)
        else:
            if question not in self._kept:
                self._kept[question] = FitCounts(self._tree, question)
            self._kept.move_to_end(question)
            counts = self._kept[question]
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        counts.refresh(assumed)
        return counts

    @property
    def _most(self) -> int:
        return min(MOST_KEPT, max(FEWEST_KEPT, LEAVES_KEPT // max(1, len(self._tree.leaves))))


def _belongs(values: Sequence[str], within: str) -> bool:
    name = ",".join(values)
    return name == within or name.startswith(f"{within},")


def _less(rest: Amounts, extra: Amounts) -> dict[str, int]:
    result = dict(rest)
    subtract_amounts(result, extra)
    return result
