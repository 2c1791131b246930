"""Whom Kueue would preempt: its rules told once more, slowly, for tests.

Follows pkg/scheduler/preemption of Kueue v0.19.2. Every number is worked out anew from what is held
whenever it is asked for; nothing is taken from the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Key = tuple[str, str]


@dataclass(frozen=True)
class Quota:
    """Declared numbers; ``None`` for no limit."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True)
class Node:
    """A ClusterQueue or a Cohort; ``parent`` is empty at a root."""

    parent: str
    quotas: Mapping[Key, Quota]
    weight: float = 1.0
    is_queue: bool = True


@dataclass(frozen=True)
class Held:
    """What a workload holds; ``at`` is when it was reserved, ``queued`` when it came."""

    name: str
    queue: str
    amounts: Mapping[Key, int]
    priority: int = 0
    at: int = 0
    queued: int = 0
    is_evicted: bool = False


@dataclass(frozen=True)
class Asked:
    """Who looks for room, by what rules."""

    queue: str
    requests: Mapping[Key, int]
    keys: frozenset[Key]
    priority: int
    queued: int
    within: str = "Never"
    reclaim: str = "Never"
    may_borrow: bool = False
    threshold: int | None = None
    is_entitled_by_nominal: bool = True
    strategies: tuple[str, ...] = ()


@dataclass
class Cluster:
    """The tree, and what is held in it at the moment."""

    nodes: Mapping[str, Node]
    held: list[Held]
    extra: dict[str, dict[Key, int]] = field(default_factory=dict)

    def children(self, name: str) -> list[str]:
        return [other for other, node in self.nodes.items() if node.parent == name]

    def path(self, name: str) -> list[str]:
        found = [name]
        while self.nodes[found[-1]].parent:
            found.append(self.nodes[found[-1]].parent)
        return found

    def subtree(self, name: str, key: Key) -> int:
        own = self.nodes[name].quotas.get(key, Quota(0)).nominal
        lent = (self.subtree(x, key) - self.guaranteed(x, key) for x in self.children(name))
        return own + sum(lent)

    def guaranteed(self, name: str, key: Key) -> int:
        limit = self.nodes[name].quotas.get(key, Quota(0)).lending
        return 0 if limit is None else max(0, self.subtree(name, key) - limit)

    def used(self, name: str, key: Key) -> int:
        if self.nodes[name].is_queue:
            held = sum(item.amounts.get(key, 0) for item in self.held if item.queue == name)
            return held + self.extra.get(name, {}).get(key, 0)
        below = self.children(name)
        return sum(max(0, self.used(x, key) - self.guaranteed(x, key)) for x in below)

    def available(self, name: str, key: Key) -> int:
        subtree, used = self.subtree(name, key), self.used(name, key)
        parent = self.nodes[name].parent
        if not parent:
            return subtree - used
        guaranteed = self.guaranteed(name, key)
        above = self.available(parent, key)
        limit = self.nodes[name].quotas.get(key, Quota(0)).borrowing
        if limit is not None:
            above = min(above, subtree - guaranteed - max(0, used - guaranteed) + limit)
        return max(0, guaranteed - used) + above

    def potential(self, name: str, key: Key) -> int:
        subtree, parent = self.subtree(name, key), self.nodes[name].parent
        if not parent:
            return subtree
        most = self.guaranteed(name, key) + self.potential(parent, key)
        limit = self.nodes[name].quotas.get(key, Quota(0)).borrowing
        return most if limit is None else min(most, subtree + limit)

    def borrows(
        self, name: str, keys: Iterable[Key], more: Mapping[Key, int] | None = None
    ) -> bool:
        extra = more or {}
        return any(self.used(name, x) + extra.get(x, 0) > self.subtree(name, x) for x in keys)

    def keys(self) -> set[Key]:
        return {key for node in self.nodes.values() for key in node.quotas}

    def share(self, name: str) -> tuple[bool, float, bool]:
        """Infinite, weighted share, and whether anything is borrowed."""
        node = self.nodes[name]
        if not node.parent:
            return False, 0.0, False
        borrowed: dict[str, int] = {}
        for key in self.keys():
            above = self.used(name, key) - self.subtree(name, key)
            if above > 0:
                borrowed[key[1]] = borrowed.get(key[1], 0) + above
        ratio = 0.0
        for resource, amount in borrowed.items():
            most = sum(self.potential(node.parent, x) for x in self.keys() if x[1] == resource)
            if most > 0:
                ratio = max(ratio, amount * 1000.0 / most)
        if node.weight == 0 and ratio > 0:
            return True, ratio, True
        return False, ratio / node.weight if ratio else 0.0, bool(borrowed)

    def root(self, name: str) -> str:
        return self.path(name)[-1]

    def queues_below(self, name: str) -> list[str]:
        if self.nodes[name].is_queue:
            return [name]
        return [queue for child in self.children(name) for queue in self.queues_below(child)]


Victims = list[tuple[str, str]]


def classic(cluster: Cluster, asked: Asked) -> Victims:
    """Names and reasons without fair sharing, in Kueue's order."""
    same = [("same", "", item) for item in _of_policy(cluster, asked, asked.queue, asked.within)]
    others = _elsewhere(cluster, asked)
    turns = [
        [item for item in others if item[0] == "hierarchy"],
        [item for item in others if item[0] != "hierarchy"],
        same,
    ]
    for turn in turns:
        turn.sort(key=lambda item: _order(asked, item[2]))
    candidates = [
        item
        for evicted in (True, False)
        for turn in turns
        for item in turn
        if item[2].is_evicted is evicted
    ]
    is_under = not any(
        cluster.used(asked.queue, key)
        >= cluster.nodes[asked.queue].quotas.get(key, Quota(0)).nominal
        for key in asked.keys
    )
    attempts = (True, False)
    if not others or (not asked.may_borrow and not is_under):
        attempts = (True,)
    elif not asked.may_borrow and not turns[0]:
        attempts = (False, True)
    for is_borrowing in attempts:
        taken: list[tuple[Held, str]] = []
        for kind, lowest, item in candidates:
            if not _is_valid(cluster, asked, kind, lowest, item, is_borrowing):
                continue
            cluster.held.remove(item)
            taken.append((item, _REASONS[kind]))
            if _fits(cluster, asked, is_borrowing):
                return _filled_back(cluster, asked, taken, is_borrowing)
        cluster.held.extend(item for item, _ in taken)
    return []


_REASONS = {
    "hierarchy": "InCohortReclamation",
    "without": "InCohortReclamation",
    "while": "InCohortReclaimWhileBorrowing",
    "same": "InClusterQueue",
}


def _of_policy(cluster: Cluster, asked: Asked, queue: str, policy: str) -> list[Held]:
    def is_let(item: Held) -> bool:
        if policy == "Any":
            return True
        is_newer = item.priority == asked.priority and asked.queued < item.queued
        if policy == "LowerOrNewerEqualPriority" and is_newer:
            return True
        return policy != "Never" and item.priority < asked.priority

    return [
        item
        for item in cluster.held
        if item.queue == queue and asked.keys & item.amounts.keys() and is_let(item)
    ]


def _order(asked: Asked, item: Held) -> tuple[bool, bool, int, int, str]:
    return (
        not item.is_evicted,
        item.queue == asked.queue,
        item.priority,
        -item.at,
        item.name,
    )


def _elsewhere(cluster: Cluster, asked: Asked) -> list[tuple[str, str, Held]]:
    if asked.reclaim == "Never":
        return []
    found: list[tuple[str, str, Held]] = []
    has_advantage, rest = _holds(cluster, asked.queue, asked.requests)
    below = asked.queue
    for ancestor in cluster.path(asked.queue)[1:]:
        for queue in _borrowers(cluster, asked, ancestor, below):
            for item in _of_policy(cluster, asked, queue, asked.reclaim):
                kind = "hierarchy" if has_advantage else _kind(asked, item)
                found.append((kind, ancestor, item))
        fits, rest = _holds(cluster, ancestor, rest)
        has_advantage = has_advantage or fits
        below = ancestor
    return found


def _kind(asked: Asked, item: Held) -> str:
    is_above = asked.threshold is not None and item.priority > asked.threshold
    if not asked.may_borrow or item.priority >= asked.priority or is_above:
        return "without"
    return "while"


def _holds(cluster: Cluster, name: str, requests: Mapping[Key, int]) -> tuple[bool, dict[Key, int]]:
    rest = {
        key: max(0, amount - max(0, cluster.guaranteed(name, key) - cluster.used(name, key)))
        for key, amount in requests.items()
    }
    return not cluster.borrows(name, requests, requests), rest


def _borrowers(cluster: Cluster, asked: Asked, name: str, skipped: str) -> list[str]:
    found = []
    for child in cluster.children(name):
        if child in (skipped, asked.queue) or not cluster.borrows(child, asked.keys):
            continue
        is_queue = cluster.nodes[child].is_queue
        found += [child] if is_queue else _borrowers(cluster, asked, child, "")
    return found


def _is_valid(
    cluster: Cluster, asked: Asked, kind: str, lowest: str, item: Held, is_borrowing: bool
) -> bool:
    if kind == "same":
        return True
    if is_borrowing and kind == "without":
        return False
    path = cluster.path(item.queue)
    return all(cluster.borrows(name, asked.keys) for name in path[: path.index(lowest)])


def _fits(cluster: Cluster, asked: Asked, is_borrowing: bool) -> bool:
    if not is_borrowing and cluster.borrows(asked.queue, asked.requests, asked.requests):
        return False
    return all(
        amount <= max(0, cluster.available(asked.queue, key))
        for key, amount in asked.requests.items()
    )


def _filled_back(
    cluster: Cluster, asked: Asked, taken: list[tuple[Held, str]], is_borrowing: bool
) -> Victims:
    for index in reversed(range(len(taken) - 1)):
        cluster.held.append(taken[index][0])
        if _fits(cluster, asked, is_borrowing):
            taken[index] = taken[-1]
            del taken[-1]
        else:
            cluster.held.remove(taken[index][0])
    cluster.held.extend(item for item, _ in taken)
    return [(item.name, reason) for item, reason in taken]


def fair(cluster: Cluster, asked: Asked) -> Victims:
    """Names and reasons under fair sharing; equal Cohorts go to the name that sorts last."""
    candidates = _of_policy(cluster, asked, asked.queue, asked.within)
    if asked.reclaim != "Never":
        for queue in cluster.queues_below(cluster.root(asked.queue)):
            if queue != asked.queue and cluster.borrows(queue, asked.keys):
                candidates += _of_policy(cluster, asked, queue, asked.reclaim)
    if not candidates:
        return []
    candidates.sort(key=lambda item: _order(asked, item))
    cluster.extra = {asked.queue: dict(asked.requests)}
    taken: list[tuple[Held, str]] = []
    spared: list[Held] = []
    has_room = _first(cluster, asked, candidates, taken, spared)
    if not has_room and len(asked.strategies) > 1:
        has_room = _second(cluster, asked, spared, taken)
    cluster.extra = {}
    if has_room:
        return _filled_back(cluster, asked, taken, True)
    cluster.held.extend(item for item, _ in taken)
    return []


def _fits_now(cluster: Cluster, asked: Asked) -> bool:
    extra, cluster.extra = cluster.extra, {}
    fits = _fits(cluster, asked, True)
    cluster.extra = extra
    return fits


def _first(
    cluster: Cluster,
    asked: Asked,
    candidates: list[Held],
    taken: list[tuple[Held, str]],
    spared: list[Held],
) -> bool:
    is_entitled = asked.is_entitled_by_nominal and not cluster.borrows(asked.queue, asked.keys)
    walk = _Walk(cluster, asked, candidates)
    while (queue := walk.next()) is not None:
        left = walk.left[queue]
        if queue == asked.queue or is_entitled:
            reason = "InClusterQueue" if queue == asked.queue else "InCohortReclamation"
            item = left.pop(0)
            cluster.held.remove(item)
            taken.append((item, reason))
            if _fits_now(cluster, asked):
                return True
            continue
        ours, theirs = _apart(cluster, asked.queue, queue)
        our_share, before = cluster.share(ours)[:2], cluster.share(theirs)[:2]
        while left:
            item = left.pop(0)
            cluster.held.remove(item)
            after = cluster.share(theirs)[:2]
            is_let = (
                our_share <= after
                if asked.strategies[0] == "LessThanOrEqualToFinalShare"
                else our_share < before
            )
            if is_let:
                taken.append((item, "InCohortFairSharing"))
                if _fits_now(cluster, asked):
                    return True
                break
            cluster.held.append(item)
            spared.append(item)
    return False


def _second(
    cluster: Cluster, asked: Asked, spared: list[Held], taken: list[tuple[Held, str]]
) -> bool:
    walk = _Walk(cluster, asked, spared)
    while (queue := walk.next()) is not None:
        ours, theirs = _apart(cluster, asked.queue, queue)
        if cluster.share(ours)[:2] < cluster.share(theirs)[:2]:
            item = walk.left[queue][0]
            cluster.held.remove(item)
            taken.append((item, "InCohortFairSharing"))
            if _fits_now(cluster, asked):
                return True
        walk.left[queue] = []
    return False


def _apart(cluster: Cluster, one: str, other: str) -> tuple[str, str]:
    first, second = cluster.path(one), cluster.path(other)
    common = next(name for name in second if name in first)
    return first[first.index(common) - 1], second[second.index(common) - 1]


class _Walk:
    """Which ClusterQueue gives next, while shares change."""

    def __init__(self, cluster: Cluster, asked: Asked, candidates: list[Held]) -> None:
        self.cluster, self.asked = cluster, asked
        self.left: dict[str, list[Held]] = {}
        for item in candidates:
            self.left.setdefault(item.queue, []).append(item)
        self.pruned: set[str] = set()

    def next(self) -> str | None:
        path = self.cluster.path(self.asked.queue)
        if len(path) == 1:
            return path[0] if self.left.get(path[0]) else None
        while path[-1] not in self.pruned:
            found = self._below(path[-1])
            if found is not None:
                return found
        return None

    def _below(self, name: str) -> str | None:
        cluster, path = self.cluster, self.cluster.path(self.asked.queue)
        queues, cohorts = [], []
        for child in cluster.children(name):
            if child in self.pruned:
                continue
            is_queue = cluster.nodes[child].is_queue
            is_open = cluster.share(child)[2] or child in path
            if not is_open or (is_queue and not self.left.get(child)):
                self.pruned.add(child)
            else:
                (queues if is_queue else cohorts).append(child)
        if not queues and not cohorts:
            self.pruned.add(name)
            return None
        of_queue = max((cluster.share(x)[:2] for x in queues), default=(False, -1.0))
        of_cohort = max((cluster.share(x)[:2] for x in cohorts), default=(False, -1.0))
        if cohorts and of_cohort >= of_queue:
            return self._below(max(x for x in cohorts if cluster.share(x)[:2] == of_cohort))
        equal = [x for x in queues if cluster.share(x)[:2] == of_queue]
        return min(equal, key=lambda queue: _order(self.asked, self.left[queue][0]))


Finder = Callable[[Cluster, Asked], Victims]
