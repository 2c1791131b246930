"""Whom preemption chooses is whom Kueue's rules choose, told once more in another way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from typing import Any

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.configuration import Configuration, FairStrategy, Gates
from clusters.kueue.preemption.classic import ClassicalPreemption, Preemptor
from clusters.kueue.preemption.fair import FairPreemption
from clusters.kueue.quota import resource_node
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    ClusterQueueSpec,
    CohortSpec,
    PreemptionPolicy,
    PreemptionRules,
)
from clusters.kueue.workload.matching import NodeRules
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.workloads import PodSet, PodSetHold, PodShape, Reservation, Workload
from tests.kueue.preemption_reference import Asked, Cluster, Held, Key, Node, Quota, classic, fair

START = datetime(2026, 1, 1, tzinfo=UTC)
A, B = ("f0", "gpu"), ("f1", "cpu")
SHAPE = PodShape("", "", PodRequests({}), NodeRules())


def cohort(parent: str = "", weight: float = 1.0, **quotas: Any) -> Node:
    return Node(parent, numbers(**quotas), weight, is_queue=False)


def queue(parent: str = "", weight: float = 1.0, **quotas: Any) -> Node:
    return Node(parent, numbers(**quotas), weight)


def numbers(a: tuple[int | None, ...] = (), b: tuple[int | None, ...] = ()) -> dict[Key, Quota]:
    return {key: Quota(*given) for key, given in ((A, a), (B, b)) if given}


def held(name: str, of: str, a: int = 0, b: int = 0, **more: Any) -> Held:
    return Held(name, of, {key: amount for key, amount in ((A, a), (B, b)) if amount}, **more)


TREES: dict[str, tuple[dict[str, Node], list[Held]]] = {
    "alone": (
        {"q": queue(a=(6,), b=(4,))},
        [
            held("m1", "q", 2, priority=1),
            held("m2", "q", 1, 2, priority=3, at=1),
            held("m3", "q", 2, priority=1, at=2, queued=5),
            held("m4", "q", 1, 1, priority=2, is_evicted=True),
        ],
    ),
    "flat": (
        {
            "top": cohort(a=(2,)),
            "q": queue("top", a=(4, 6), b=(2,)),
            "r": queue("top", 2.0, a=(2,), b=(2,)),
            "s": queue("top", a=(2, None, 1), b=(0,)),
        },
        [
            held("r1", "r", 2, 1, priority=1, at=3),
            held("r2", "r", 2, 2, priority=4, at=1),
            held("s1", "s", 1, priority=2, at=2, queued=3),
            held("s2", "s", 2, priority=0, at=5),
            held("q1", "q", 1, priority=1),
            held("q2", "q", 1, 1, priority=3, at=4),
        ],
    ),
    "equal shares": (
        {
            "top": cohort(a=(9,)),
            "q": queue("top", a=(0,)),
            "r": queue("top", a=(0,)),
            "s": queue("top", a=(0,)),
        },
        [
            held("r1", "r", 1, at=4),
            held("r2", "r", 2, at=2),
            held("r3", "r", 1, at=9),
            held("s1", "s", 1, at=4),
            held("s2", "s", 1, at=3, priority=2),
            held("s3", "s", 2, at=9, is_evicted=True),
        ],
    ),
    "two levels": (
        {
            "top": cohort(a=(3,), b=(1,)),
            "left": cohort("top", a=(1,)),
            "right": cohort("top", 0.5, a=(2, 3, 1)),
            "q": queue("left", a=(3,), b=(2,)),
            "l": queue("left", a=(1, 2), b=(0,)),
            "r": queue("right", a=(1,), b=(1,)),
            "s": queue("right", a=(0,)),
        },
        [
            held("l1", "l", 2, priority=2, at=2),
            held("l2", "l", 1, priority=0, at=3),
            held("r1", "r", 2, 2, priority=1, at=1),
            held("r2", "r", 1, priority=5, at=6),
            held("s1", "s", 2, priority=3, at=4),
            held("q1", "q", 1, 1, priority=0, at=5),
        ],
    ),
    "three levels": (
        {
            "top": cohort(),
            "mid": cohort("top", a=(1,)),
            "low": cohort("mid", a=(2,)),
            "side": cohort("top", a=(1,)),
            "q": queue("low", a=(1, None, 0)),
            "l": queue("low", a=(2,)),
            "m": queue("mid", 3.0, a=(1,)),
            "t": queue("top", 0.0, a=(4,)),
            "s": queue("side", a=(0,)),
        },
        [
            held("l1", "l", 2, priority=1, at=1),
            held("l2", "l", 1, priority=3, at=2),
            held("m1", "m", 2, priority=0, at=3),
            held("m2", "m", 1, priority=2, at=4, is_evicted=True),
            held("t1", "t", 3, priority=1, at=5),
            held("t2", "t", 2, priority=0, at=6, queued=9),
            held("s1", "s", 1, priority=2, at=7),
        ],
    ),
}
REQUESTS: tuple[Mapping[Key, int], ...] = (
    {A: 1},
    {A: 2},
    {A: 3},
    {A: 4, B: 1},
    {A: 2, B: 2},
    {A: 7},
)
POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any")
BORROWING: tuple[tuple[bool, int | None], ...] = ((False, None), (True, None), (True, 1))
FINAL, INITIAL = (
    FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    FairStrategy.LESS_THAN_INITIAL_SHARE,
)


def snapshot_of(
    nodes: Mapping[str, Node], all_held: list[Held], rules: PreemptionRules
) -> Snapshot:
    snapshot = Snapshot()
    for name, node in nodes.items():
        quotas = {
            FlavorResource(*key): resource_node.Quota(
                quota.nominal, borrowing_limit=quota.borrowing, lending_limit=quota.lending
            )
            for key, quota in node.quotas.items()
        }
        if node.is_queue:
            spec = ClusterQueueSpec(
                name, node.parent, quotas=quotas, weight=node.weight, preemption=rules
            )
            snapshot.set_queue(spec)
            snapshot.set_active(name, is_active=True)
        else:
            snapshot.set_cohort(CohortSpec(name, node.parent, quotas, node.weight))
    snapshot.refresh()
    for item in all_held:
        flavors = {resource: flavor for flavor, resource in item.amounts}
        amounts = {resource: amount for (_, resource), amount in item.amounts.items()}
        hold = PodSetHold("main", flavors, amounts, 1)
        at = START + timedelta(seconds=item.at)
        reservation = Reservation(item.queue, (hold,), at, is_admitted=True)
        snapshot.hold(
            workload(item.name, item.priority, item.queued, reservation=reservation),
            is_evicted=item.is_evicted,
        )
    return snapshot


def workload(name: str, priority: int, queued: int, **more: Any) -> Workload:
    return Workload(
        key=f"ns/{name}",
        namespace="ns",
        name=name,
        uid=name,
        job_uid="",
        queue_name="",
        priority=priority,
        created_at=START,
        queued_at=START + timedelta(seconds=queued),
        pod_sets=(PodSet("main", 1, None, SHAPE),),
        shape_hash="",
        **more,
    )


def state(snapshot: Snapshot) -> Any:
    """Numbers and holdings, whatever order they are in."""
    return (
        {
            name: (dict(item.node.usage), set(item.holdings))
            for name, item in snapshot.queues.items()
        },
        {name: dict(item.node.usage) for name, item in snapshot.cohorts.items()},
    )


def check(tree: str, first: int, strategies: tuple[FairStrategy, ...], *, has_gate: bool) -> None:
    """A fixed part of all questions that can be asked of a tree."""
    nodes, all_held = TREES[tree]
    queues = [name for name, node in nodes.items() if node.is_queue]
    every = product(POLICIES, POLICIES, BORROWING, queues, (1, 3), (2, 6), REQUESTS)
    step = 127  # a prime, so that all choices meet
    for within, reclaim, (may_borrow, threshold), of, priority, queued, requests in islice(
        every, first % step, None, step
    ):
        borrow = PreemptionPolicy.LOWER_PRIORITY if may_borrow else PreemptionPolicy.NEVER
        rules = PreemptionRules(
            PreemptionPolicy(within), PreemptionPolicy(reclaim), borrow, threshold
        )
        cluster = Cluster(nodes, list(all_held))
        lacking = (key for key, n in requests.items() if n > max(0, cluster.available(of, key)))
        asked = Asked(
            queue=of,
            requests=requests,
            keys=frozenset(lacking) or frozenset(requests),
            priority=priority,
            queued=queued,
            within=within,
            reclaim=reclaim,
            may_borrow=may_borrow,
            threshold=threshold,
            is_entitled_by_nominal=has_gate,
            strategies=tuple(item.value for item in strategies),
        )
        snapshot = snapshot_of(nodes, all_held, rules)
        before = state(snapshot)
        preemptor = Preemptor(
            workload("w", priority, queued),
            snapshot.queues[of],
            frozenset(FlavorResource(*key) for key in asked.keys),
            {FlavorResource(*key): amount for key, amount in requests.items()},
        )
        gates = Gates(fair_sharing_preempt_within_nominal=has_gate)
        configuration = Configuration(fair_strategies=strategies, gates=gates)
        finder: ClassicalPreemption | FairPreemption = (
            FairPreemption(snapshot, configuration=configuration)
            if strategies
            else ClassicalPreemption(snapshot)
        )
        found = finder.targets(preemptor)
        got = [(item.holding.workload.name, item.reason.text) for item in found]
        want = (fair if strategies else classic)(cluster, asked)
        assert got == want, asked
        assert state(snapshot) == before


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("part", range(4))
def test_victims_are_those_of_the_reference(tree, part):
    check(tree, part * 10 + len(tree), (), has_gate=True)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("has_gate", [True, False])
@pytest.mark.parametrize(
    "strategies", [(FINAL, INITIAL), (FINAL,), (INITIAL,)], ids=["both", "final", "initial"]
)
def test_victims_under_fair_sharing_are_those_of_the_reference(tree, strategies, has_gate):
    first = 7 * len(strategies[0].value) + 11 * len(strategies) + 3 * has_gate
    check(tree, first, strategies, has_gate=has_gate)
