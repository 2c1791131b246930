"""The order of a cycle's entries under fair sharing.

Source: Kueue pkg/scheduler/fair_sharing_iterator.go, KEP-1714, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from clusters.kueue.cycle.entries import Entry
from clusters.kueue.quota.fair_sharing import share_of
from clusters.kueue.quota.resource_node import ResourceNode
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.tree import CohortState

_Rank = tuple[bool, tuple[bool, float], int, datetime, str]


@dataclass(slots=True)
class _Tree:
    root: CohortState
    entries: dict[str, Entry]
    ranks: dict[tuple[str, str], _Rank] = field(default_factory=dict)


def tournament(
    entries: Iterable[Entry], *, snapshot: Snapshot, prioritizes_non_borrowing: bool
) -> Iterator[Entry]:
    """Yield entries so that whoever would have the lowest share comes first, again each time.

    The caller changes the snapshot between two entries; only the entries below the same child of
    the root as the last one are weighed again, as no other's share can have changed.
    There is one entry per ClusterQueue, and every queue takes part in the snapshot.
    """
    trees: dict[str, _Tree] = {}
    for item in entries:
        cohort = snapshot.cohort_of(item.queue)
        if cohort is None:
            yield item
            continue
        while cohort.spec.parent:
            cohort = snapshot.cohorts[cohort.spec.parent]
        tree = trees.setdefault(cohort.spec.name, _Tree(cohort, {}))
        tree.entries[item.queue.spec.name] = item
    for _, tree in sorted(trees.items()):
        stale = list(tree.entries.values())
        while tree.entries:
            for item in stale:
                _weigh(tree, item, prioritizes_non_borrowing=prioritizes_non_borrowing)
            winner = _winner(tree, tree.root)
            assert winner is not None
            del tree.entries[winner.queue.spec.name]
            yield winner
            branch = _branch(winner)
            stale = [item for item in tree.entries.values() if _branch(item) is branch]


def _branch(item: Entry) -> ResourceNode:
    return item.queue.node.path()[-2]


def _weigh(tree: _Tree, item: Entry, *, prioritizes_non_borrowing: bool) -> None:
    """Note the rank of an entry at every Cohort above it, its usage added."""
    node, usage, workload = item.queue.node, item.usage, item.workload
    node.add_all(usage)
    name = item.queue.spec.name
    below = node
    while below.parent is not None:
        is_borrowing = prioritizes_non_borrowing and not below.is_within_nominal(usage.keys())
        tree.ranks[below.parent.name, name] = (
            is_borrowing,
            share_of(below).sort_key,
            -workload.priority,
            workload.queued_at,
            workload.uid,
        )
        below = below.parent
    node.remove_all(usage)


def _winner(tree: _Tree, cohort: CohortState) -> Entry | None:
    rivals = [tree.entries[name] for name in cohort.queues if name in tree.entries]
    for child in cohort.cohorts.values():
        rival = _winner(tree, child)
        if rival is not None:
            rivals.append(rival)
    if not rivals:
        return None
    return min(rivals, key=lambda item: tree.ranks[cohort.spec.name, item.queue.spec.name])
