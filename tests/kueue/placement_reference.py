"""Where Kueue would place pods: its search told once more, step by step and slowly, for tests.

Follows ``findTopologyAssignment`` and ``tas_balanced_placement.go`` of Kueue v0.19.2 over plain
numbers: what a leaf holds is counted pod by pod, and nothing is taken from the product but the
words of its messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cmp_to_key


@dataclass
class Spot:
    """A domain: what fits without a leader and beside one, in pods and in slices."""

    values: tuple[str, ...]
    children: list[Spot] = field(default_factory=list)
    pods: int = 0
    slices: int = 0
    led_pods: int = 0
    led_slices: int = 0
    leaders: int = 0
    liked: int = 0


@dataclass(frozen=True)
class Asked:
    """One question: everything that the search goes by.

    Attributes:
        levels: labels from coarse to fine; ``is_by_host`` where the last one is the hostname.
        rooms: what is free, by the values of each leaf.
        worker, leader: what one pod takes; ``leader`` is ``None`` where there is none.
        likes: scores of leaves; none where preferences do not count.
        level, slice_level: indexes.
        layers: level and size of inner slices.
    """

    levels: tuple[str, ...]
    is_by_host: bool
    rooms: Mapping[tuple[str, ...], Mapping[str, int]]
    worker: Mapping[str, int]
    leader: Mapping[str, int] | None
    count: int
    size: int
    level: int
    slice_level: int
    layers: tuple[tuple[int, int], ...] = ()
    is_required: bool = False
    is_unconstrained: bool = False
    is_mixed: bool = True
    is_balanced: bool = False
    likes: Mapping[tuple[str, ...], int] | None = None
    within: tuple[str, ...] = ()


class NotFound(Exception):
    """With Kueue's reason."""


Counted = dict[tuple[str, ...], int]


def placed(asked: Asked) -> tuple[Counted, Counted]:
    """Pods of the workers and of the leader by the values of their domains.

    Raises:
        NotFound: there is no place for all of them.
    """
    return _Search(asked).found()


class _Search:
    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.inner: dict[int, int] = {}
        above = asked.slice_level
        for level, size in asked.layers:
            for between in range(above + 1, level + 1):
                self.inner[between] = size
            above = level
        self.leaders = 0 if asked.leader is None else 1
        self.wanted = asked.count // asked.size
        self.least_free = asked.is_unconstrained and asked.is_mixed
        self.short: dict[str, int] = {}
        self.by_level: list[list[Spot]] = [[] for _ in asked.levels]
        for values in asked.rooms:
            self._leaf(values)
        for root in self.by_level[0]:
            self._roll_up(root, 0, self.inner)

    # Phase 1: what fits

    def _leaf(self, values: tuple[str, ...]) -> None:
        parent: Spot | None = None
        for depth in range(1, len(values) + 1):
            known = [spot for spot in self.by_level[depth - 1] if spot.values == values[:depth]]
            spot = known[0] if known else Spot(values[:depth])
            if not known:
                self.by_level[depth - 1].append(spot)
                if parent is not None:
                    parent.children.append(spot)
            parent = spot
        assert parent is not None
        asked = self.asked
        parent.liked = (asked.likes or {}).get(values, 0)
        if values[: len(asked.within)] != asked.within:
            self.short["topologyDomain"] = self.short.get("topologyDomain", 0) + 1
            return
        room = dict(asked.rooms[values])
        parent.pods = _fitting(asked.worker, room)
        if parent.pods == 0:
            name = _scarcest(asked.worker, room)
            self.short[f'resource "{name}"'] = self.short.get(f'resource "{name}"', 0) + 1
        if asked.leader is not None and _fitting(asked.leader, room):
            parent.leaders = 1
            for name, amount in (*asked.leader.items(), ("pods", 1)):
                room[name] = room.get(name, 0) - amount
        parent.led_pods = _fitting(asked.worker, room)

    def _roll_up(self, spot: Spot, level: int, inner: Mapping[int, int]) -> None:
        asked = self.asked
        if not spot.children:
            if level == asked.slice_level:
                spot.slices = spot.pods // asked.size
                spot.led_slices = spot.led_pods // asked.size
            return
        pods = slices = leaders = liked = 0
        pod_losses, slice_losses = [], []
        for child in spot.children:
            self._roll_up(child, level + 1, inner)
            whole, whole_led = child.pods, child.led_pods
            if level + 1 in inner:
                whole -= whole % inner[level + 1]
                whole_led -= whole_led % inner[level + 1]
            pods += whole
            slices += child.slices
            if self.leaders == 0 or child.leaders > 0:
                pod_losses.append(whole - whole_led)
                slice_losses.append(child.slices - child.led_slices)
            leaders = max(leaders, child.leaders)
            liked += child.liked
        spot.pods, spot.leaders, spot.liked = pods, leaders, liked
        spot.led_pods = pods - min(pod_losses) if pod_losses else 0
        spot.slices = slices
        spot.led_slices = slices - min(slice_losses) if slice_losses else 0
        if level == asked.slice_level:
            spot.slices, spot.led_slices = spot.pods // asked.size, spot.led_pods // asked.size

    # Orders

    def _sorted(self, spots: Sequence[Spot], *, least_free: bool) -> list[Spot]:
        def compare(one: Spot, other: Spot) -> int:
            if self.asked.likes is not None and one.liked != other.liked:
                return other.liked - one.liked
            if one.slices != other.slices:
                return (one.slices - other.slices) if least_free else (other.slices - one.slices)
            if one.pods != other.pods:
                return one.pods - other.pods
            return -1 if one.values < other.values else 1

        return sorted(spots, key=cmp_to_key(compare))

    def _sorted_led(self, spots: Sequence[Spot], *, least_free: bool) -> list[Spot]:
        def compare(one: Spot, other: Spot) -> int:
            if one.leaders != other.leaders:
                return other.leaders - one.leaders
            if self.asked.likes is not None and one.liked != other.liked:
                return other.liked - one.liked
            if one.led_slices != other.led_slices:
                less = one.led_slices - other.led_slices
                return less if least_free else -less
            if one.led_pods != other.led_pods:
                return one.led_pods - other.led_pods
            return -1 if one.values < other.values else 1

        return sorted(spots, key=cmp_to_key(compare))

    def _best(self, spots: Sequence[Spot], needed: int, leaders: int, unit: str) -> Spot:
        if self.asked.likes is not None:
            end = next((n for n, x in enumerate(spots) if x.liked != spots[0].liked), len(spots))
            spots = spots[:end]
        best, smallest = spots[0], math.inf
        for spot in spots:
            fits = _of(spot, unit, leaders > 0)
            if spot.leaders >= leaders and needed <= fits < smallest:
                best, smallest = spot, fits
        return best

    def _leader_first(self, spots: list[Spot], needed: int, leaders: int, unit: str) -> list[Spot]:
        if leaders == 0 or len(spots) < 2:
            return spots
        available = sum(_of(spot, unit, False) for spot in spots)
        for spot in spots:
            penalty = _of(spot, unit, False) - _of(spot, unit, True)
            if spot.leaders >= leaders and available - penalty >= needed:
                return [spot, *(other for other in spots if other is not spot)]
        return spots

    # Phase 2a: which domains

    def _level_that_fits(self, level: int) -> tuple[int, list[Spot]]:
        asked, wanted = self.asked, self.wanted
        spots = self._sorted_led(self.by_level[level], least_free=self.least_free)
        top = spots[0]

        def takes_all(spot: Spot) -> bool:
            return spot.led_slices >= wanted and spot.leaders >= self.leaders

        if not self.least_free and takes_all(top):
            top = self._best(spots, wanted, self.leaders, "slices")
        if self.least_free:
            for spot in spots:
                if self.leaders and spot.leaders < self.leaders:
                    continue
                if (spot.led_slices if self.leaders else spot.slices) >= wanted:
                    return level, [spot]
            if asked.is_required:
                raise NotFound(self._not_fit(spots[-1].pods, level))
        if takes_all(top):
            return level, [top]
        if asked.is_required:
            if asked.likes is not None:
                for index in range(1, len(spots)):
                    if takes_all(spots[index]):
                        return level, [self._best(spots[index:], wanted, self.leaders, "slices")]
            raise NotFound(self._not_fit(top.slices, level))
        if level > 0 and not asked.is_unconstrained:
            return self._level_that_fits(level - 1)
        return level, self._together(spots, level)

    def _together(self, spots: list[Spot], level: int) -> list[Spot]:
        left, leaders, found = self.wanted, self.leaders, []
        rest = self._leader_first(spots, self.wanted, leaders, "slices")
        while leaders > 0 and rest and rest[0].leaders > 0:
            spot = rest[0]
            if not self.least_free and spot.led_slices >= left:
                spot = self._best(rest, left, leaders, "slices")
            found.append(spot)
            leaders -= spot.leaders
            left -= spot.led_slices
            rest = rest[1:]
        if leaders > 0:
            raise NotFound(self._not_fit(self.leaders - leaders, level))
        rest = self._sorted(rest, least_free=self.least_free)
        while left > 0 and rest:
            spot = rest[0]
            if not self.least_free and spot.slices >= left:
                spot = self._best(rest, left, 0, "slices")
            found.append(spot)
            left -= spot.slices
            rest = rest[1:]
        if left > 0:
            raise NotFound(self._not_fit(self.wanted - left, level))
        return found

    def _not_fit(self, fits: int, level: int) -> str:
        asked = self.asked
        listed = sorted(f"{name}: {count}" for name, count in self.short.items())
        end = f". Total nodes: {len(asked.rooms)}; excluded: {', '.join(listed)}" if listed else ""
        if asked.layers:
            best = min(
                self.by_level[level],
                key=lambda spot: (
                    -spot.slices,
                    spot.values[-1]
                    if asked.is_by_host and level == len(asked.levels) - 1
                    else ",".join(spot.values),
                ),
            )
            counted = "".join(
                f"; {self._below(best, level, at, size)}/{asked.count // size} "
                f"slice(s) fit on level {asked.levels[at]}"
                for at, size in ((asked.slice_level, asked.size), *asked.layers)
            )
            return f'topology "topo" doesn\'t allow to fit{counted}{end}'
        unit = "pod" if asked.size == 1 else "slice"
        said = "doesn't allow to fit any" if fits == 0 else f"allows to fit only {fits} out"
        return f'topology "topo" {said} of {self.wanted} {unit}(s){end}'

    def _below(self, spot: Spot, level: int, at: int, size: int) -> int:
        if level == at:
            return spot.pods // size
        return sum(self._below(child, level + 1, at, size) for child in spot.children)

    # Phase 2b: down to the leaves

    def _filled(
        self, spots: list[Spot], count: int, leaders: int, size: int, unit: str
    ) -> list[Spot]:
        left = count // size if unit == "slices" else count
        each = size if unit == "slices" else 1
        spots = self._leader_first(spots, left, leaders, unit)
        found = []
        for index in range(len(spots)):
            spot = spots[index]
            has_leader = leaders > 0
            if (
                not self.least_free
                and _of(spot, unit, has_leader) >= left
                and spot.leaders >= leaders
            ):
                spot = self._best(spots[index:], left, leaders, unit)
            fits = _of(spot, unit, has_leader)
            found.append(spot)
            if fits >= left and spot.leaders >= leaders:
                spot.leaders = leaders
                spot.pods = left * each
                if unit == "slices":
                    spot.slices = left
                return found
            taken = min(fits, left)
            spot.leaders = min(spot.leaders, leaders)
            spot.pods = taken * each
            if unit == "slices":
                spot.slices = taken
            leaders -= spot.leaders
            left -= taken
        return []

    def found(self) -> tuple[Counted, Counted]:
        asked = self.asked
        balanced = None
        if asked.is_balanced and not asked.is_required and not asked.is_unconstrained:
            balanced = self._balanced()
        level, spots = balanced or self._level_that_fits(asked.level)
        spots = self._filled(spots, asked.count, self.leaders, asked.size, "slices")
        if balanced is None:
            while level < min(len(asked.levels) - 1, asked.slice_level):
                below = [child for spot in spots for child in spot.children]
                below = self._sorted(below, least_free=self.least_free)
                spots = self._filled(below, asked.count, self.leaders, asked.size, "slices")
                level += 1
        while level < len(asked.levels) - 1:
            size = asked.size
            if level >= asked.slice_level:
                size = self.inner.get(level + 1, 1)
            lower = []
            for spot in spots:
                below = self._sorted(spot.children, least_free=self.least_free)
                if size > 1:
                    for child in below:
                        child.slices = child.pods // size
                        child.led_slices = child.led_pods // size
                unit = "slices" if size > 1 else "pods"
                lower += self._filled(below, spot.pods, spot.leaders, size, unit)
            spots = lower
            level += 1
        return (
            {spot.values: spot.pods for spot in spots if spot.pods},
            {spot.values: spot.leaders for spot in spots if spot.leaders},
        )

    # Balanced placement

    def _greedy(self, spots: Sequence[Spot]) -> tuple[int, Spot | None, Spot | None] | None:
        used, left, leaders = 0, self.wanted, self.leaders
        last_led = last = None
        rest = list(spots)
        if leaders:
            rest = self._sorted_led(rest, least_free=False)
            while leaders > 0 and rest and rest[0].leaders > 0:
                last_led = rest.pop(0)
                used += 1
                leaders -= last_led.leaders
                left -= last_led.led_slices
        rest = self._sorted(rest, least_free=False)
        if leaders > 0:
            return None
        while left > 0 and rest and rest[0].slices > 0:
            last = rest.pop(0)
            used += 1
            left -= last.slices
        return None if left > 0 else (used, last_led, last)

    def _balanced(self) -> tuple[int, list[Spot]] | None:
        asked = self.asked
        siblings = [self.by_level[0]]
        if asked.level > 0:
            above = sorted(self.by_level[asked.level - 1], key=lambda spot: spot.values)
            siblings = [spot.children for spot in above]
        best: list[Spot] = []
        best_threshold = best_used = 0
        for group in siblings:
            spots = deepcopy(group)
            is_above = asked.level < asked.slice_level
            lower = [c for spot in spots for c in spot.children] if is_above else spots
            greedy = self._greedy(lower)
            if greedy is None or greedy[0] == 0:
                continue
            used, last_led, last = greedy
            threshold = self.wanted // used
            if last_led is not None:
                threshold = min(threshold, last_led.led_slices)
            if last is not None:
                threshold = min(threshold, last.slices)
            reserving = threshold
            if self.leaders and last is not None:
                reserving = min(threshold, last.led_slices)
            if threshold < best_threshold:
                continue
            self._prune(spots, threshold)
            after = self._greedy(spots)
            if after is None and reserving < threshold:
                if reserving <= 0 or reserving < best_threshold:
                    continue
                threshold = reserving
                spots = deepcopy(group)
                self._prune(spots, threshold)
                after = self._greedy(spots)
            if after is None:
                continue
            is_better = threshold == best_threshold and after[0] < best_used
            if threshold > best_threshold or is_better:
                best, best_threshold, best_used = spots, threshold, after[0]
        if best_threshold <= 0:
            return None
        level = asked.level
        if asked.level < asked.slice_level:
            chosen = self._optimal(best, is_by_entropy=True)
            if chosen is None:
                return None
            best = [child for spot in chosen for child in spot.children]
            level += 1
        shared = self._shared(best, best_threshold)
        return None if shared is None else (level, shared)

    def _prune(self, spots: Sequence[Spot], threshold: int) -> None:
        for spot in spots:
            for child in spot.children:
                self._cut(child, threshold)
        for spot in spots:
            self._roll_up(spot, self.asked.level, {})
            self._cut(spot, threshold)

    def _cut(self, spot: Spot, threshold: int) -> None:
        if spot.slices < threshold:
            for each in _all_below(spot):
                each.pods = each.slices = 0
                each.led_pods = each.led_slices = each.leaders = 0
        elif self.leaders and spot.leaders > 0 and spot.led_slices < threshold:
            for each in _all_below(spot):
                each.led_pods = each.led_slices = each.leaders = 0

    def _optimal(self, spots: Sequence[Spot], *, is_by_entropy: bool) -> list[Spot] | None:
        """All subsets of the number of domains, in the order in which Kueue comes to them."""
        greedy = self._greedy(spots)
        if greedy is None:
            return None
        ordered = sorted(spots, key=lambda spot: spot.values)
        if is_by_entropy:
            ordered.sort(key=lambda x: (-x.leaders, -x.led_slices, -_entropy(x.children)))
        tables: list[dict[int, dict[int, list[Spot]]]] = [{} for _ in range(greedy[0] + 1)]
        tables[0][self.leaders] = {self.wanted * self.asked.size: []}
        for spot in ordered:
            for number in range(greedy[0], 0, -1):
                for leaders in sorted(tables[number - 1]):
                    for pods in sorted(tables[number - 1][leaders]):
                        if leaders <= 0 and pods <= 0:
                            continue
                        chosen = [*tables[number - 1][leaders][pods], spot]
                        if leaders > 0 and spot.leaders > 0:
                            table = tables[number].setdefault(leaders - spot.leaders, {})
                            table.setdefault(pods - spot.led_pods, chosen)
                        if spot.slices > 0:
                            table = tables[number].setdefault(leaders, {})
                            table.setdefault(pods - spot.pods, chosen)
        fitting = {pods: x for pods, x in tables[greedy[0]].get(0, {}).items() if pods <= 0}
        return fitting[max(fitting)] if fitting else None

    def _shared(self, spots: Sequence[Spot], threshold: int) -> list[Spot] | None:
        chosen = self._optimal(spots, is_by_entropy=False)
        if chosen is None or self.wanted < len(chosen) * threshold:
            return None
        chosen = self._sorted_led(chosen, least_free=False)
        extra, leaders = self.wanted - len(chosen) * threshold, self.leaders
        for spot in chosen:
            more = 0
            if leaders > 0:
                more = min(spot.led_slices - threshold, extra)
                spot.leaders = 1
                leaders -= 1
            else:
                spot.leaders = 0
                if extra > 0:
                    more = min(spot.slices - threshold, extra)
            spot.slices = spot.led_slices = threshold + more
            spot.pods = spot.slices * self.asked.size
            spot.led_pods = spot.pods - spot.leaders
            extra -= more
        return None if extra > 0 or leaders > 0 else chosen


def _fitting(each: Mapping[str, int], room: Mapping[str, int]) -> int:
    """Pods that fit, counted one by one."""
    left, count = dict(room), 0
    need = dict(each)
    need["pods"] = need.get("pods", 0) + 1
    while all(left.get(name, 0) >= amount for name, amount in need.items()):
        for name, amount in need.items():
            left[name] = left.get(name, 0) - amount
        count += 1
    return count


def _scarcest(each: Mapping[str, int], room: Mapping[str, int]) -> str:
    """The first resource by name of which there is not enough for one pod."""
    need = dict(each)
    need["pods"] = need.get("pods", 0) + 1
    return next(name for name in sorted(need) if room.get(name, 0) < need[name])


def _of(spot: Spot, unit: str, has_leader: bool) -> int:
    if unit == "slices":
        return spot.led_slices if has_leader else spot.slices
    return spot.led_pods if has_leader else spot.pods


def _all_below(spot: Spot) -> list[Spot]:
    return [spot, *(each for child in spot.children for each in _all_below(child))]


def _entropy(spots: Sequence[Spot]) -> float:
    total = sum(spot.pods for spot in spots)
    parts = [spot.pods / total for spot in spots if spot.pods > 0]
    return sum(-part * math.log2(part) for part in parts)
