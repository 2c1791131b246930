"""Balanced placement: domains that share the slices as evenly as can be.

Behind the gate TASBalancedPlacement, and only for a preferred level.

Source: Kueue pkg/cache/scheduler/tas_balanced_placement.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log2
from operator import attrgetter, itemgetter
from typing import NamedTuple

from clusters.kueue.topology.counts import Counted, FitCounts
from clusters.kueue.topology.search import Search

_by_values = attrgetter("values")


class _Greedy(NamedTuple):
    """How many domains are needed when the largest are taken first, and the last of them."""

    used: int
    last_led: Counted | None
    last: Counted | None


def balanced_domains(counts: FitCounts, search: Search) -> tuple[int, list[Counted]] | None:
    """The level and the domains with what each gets, ``None`` when nothing balanced is found."""
    found = _best_siblings(counts, search)
    if found is None:
        return None
    domains, threshold = found
    level = search.level
    if search.level < search.slice_level:
        chosen = _optimal(search, domains, by_entropy=True)
        if chosen is None:
            return None
        domains = [child for item in chosen for child in item.children]
        level += 1
    placed = _shared_evenly(search, domains, threshold)
    return None if placed is None else (level, placed)


def _best_siblings(counts: FitCounts, search: Search) -> tuple[list[Counted], int] | None:
    """Domains below one parent that allow for the highest least number of slices in each."""
    if search.level == 0:
        candidates = [list(counts.by_level[0].values())]
    else:
        above = sorted(counts.by_level[search.level - 1].values(), key=_by_values)
        candidates = [item.children for item in above]
    best, best_threshold, best_used = None, 0, 0
    for siblings in candidates:
        found = _pruned(search, siblings, best_threshold)
        if found is None:
            continue
        domains, threshold, used = found
        if threshold > best_threshold or (threshold == best_threshold and used < best_used):
            best, best_threshold, best_used = domains, threshold, used
    return (best, best_threshold) if best is not None and best_threshold > 0 else None


def _pruned(
    search: Search, siblings: Sequence[Counted], at_least: int
) -> tuple[list[Counted], int, int] | None:
    """Copies of siblings without what holds less than the threshold; it, and how many are used."""
    domains = [item.subtree_copy() for item in siblings]
    lower = domains
    if search.level < search.slice_level:
        lower = [child for item in domains for child in item.children]
    greedy = _greedy(search, lower)
    if greedy is None or not greedy.used:
        return None
    threshold = search.slices // greedy.used
    if greedy.last_led is not None:
        threshold = min(threshold, greedy.last_led.slices_led)
    if greedy.last is not None:
        threshold = min(threshold, greedy.last.slices)
    with_room = threshold
    if search.leaders and greedy.last is not None:
        with_room = min(threshold, greedy.last.slices_led)
    if threshold < at_least:
        return None
    _prune(search, domains, threshold)
    after = _greedy(search, domains)
    if after is None and with_room < threshold:
        # With room for the leader kept, a lower threshold may do.
        if with_room <= 0 or with_room < at_least:
            return None
        threshold = with_room
        domains = [item.subtree_copy() for item in siblings]
        _prune(search, domains, threshold)
        after = _greedy(search, domains)
    return None if after is None else (domains, threshold, after.used)


def _greedy(search: Search, domains: Iterable[Counted]) -> _Greedy | None:
    left, leaders, used = search.slices, search.leaders, 0
    last_led = last = None
    rest = list(domains)
    if leaders > 0:
        rest = search.sorted_led(rest)
        while leaders > 0 and rest and rest[0].leaders > 0:
            last_led = rest.pop(0)
            used += 1
            leaders -= last_led.leaders
            left -= last_led.slices_led
    if leaders > 0:
        return None
    for item in search.sorted(rest):
        if left <= 0 or item.slices <= 0:
            break
        last = item
        used += 1
        left -= item.slices
    return None if left > 0 else _Greedy(used, last_led, last)


def _optimal(
    search: Search, domains: Sequence[Counted], *, by_entropy: bool
) -> list[Counted] | None:
    """As few domains as possible that hold everything with the least to spare."""
    greedy = _greedy(search, domains)
    if greedy is None:
        return None
    ordered = sorted(domains, key=_by_entropy if by_entropy else _by_values)
    # By number of domains: what is chosen, by leaders and pods that are still to be placed.
    choices: list[dict[tuple[int, int], tuple[Counted, ...]]] = [{} for _ in range(greedy.used + 1)]
    choices[0][search.leaders, search.slices * search.size] = ()
    for item in ordered:
        for used in range(greedy.used, 0, -1):
            for (leaders, pods), before in sorted(choices[used - 1].items(), key=itemgetter(0)):
                if leaders <= 0 and pods <= 0:
                    continue
                chosen = (*before, item)
                if leaders > 0 and item.leaders > 0:
                    left = leaders - item.leaders, pods - item.pods_led
                    choices[used].setdefault(left, chosen)
                if item.slices > 0:
                    choices[used].setdefault((leaders, pods - item.pods), chosen)
    fitting = [pods for leaders, pods in choices[-1] if leaders == 0 and pods <= 0]
    return list(choices[-1][0, max(fitting)]) if fitting else None


def _by_entropy(domain: Counted) -> tuple[int, int, float, tuple[str, ...]]:
    return (-domain.leaders, -domain.slices_led, -_entropy(domain.children), domain.values)


def _entropy(domains: Iterable[Counted]) -> float:
    """How evenly pods are spread over domains, in bits."""
    counts = [item.pods for item in domains]
    total = sum(counts)
    entropy = 0.0
    for count in counts:
        if count > 0:
            part = count / total
            entropy += -part * log2(part)
    return entropy


def _shared_evenly(
    search: Search, domains: Sequence[Counted], threshold: int
) -> list[Counted] | None:
    """Give every domain the threshold, and the first ones what is left."""
    chosen = _optimal(search, domains, by_entropy=False)
    if chosen is None or search.slices < len(chosen) * threshold:
        return None
    chosen = search.sorted_led(chosen)
    extra, leaders = search.slices - len(chosen) * threshold, search.leaders
    for item in chosen:
        more = 0
        if leaders > 0:
            more = min(item.slices_led - threshold, extra)
            item.leaders = 1
            leaders -= 1
        else:
            item.leaders = 0
            if extra > 0:
                more = min(item.slices - threshold, extra)
        item.slices = item.slices_led = threshold + more
        item.pods = item.slices * search.size
        item.pods_led = item.pods - item.leaders
        extra -= more
    return None if extra > 0 or leaders > 0 else chosen


def _prune(search: Search, domains: Iterable[Counted], threshold: int) -> None:
    """Take away what holds fewer slices than the threshold."""
    flat = replace(search.cut, inner=())
    for item in domains:
        for child in item.children:
            _drop_below(search, child, threshold)
    for item in domains:
        flat.roll_up(item, search.level)
        _drop_below(search, item, threshold)


def _drop_below(search: Search, domain: Counted, threshold: int) -> None:
    if domain.slices < threshold:
        _clear(domain)
    elif search.leaders and domain.leaders > 0 and domain.slices_led < threshold:
        _clear_led(domain)


def _clear(domain: Counted) -> None:
    domain.clear()
    for child in domain.children:
        _clear(child)


def _clear_led(domain: Counted) -> None:
    domain.pods_led = domain.slices_led = domain.leaders = 0
    for child in domain.children:
        _clear_led(child)
