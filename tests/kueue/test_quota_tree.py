"""Numbers of the tree: worked examples of the specification, and laws on random trees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.kueue.amounts import UNLIMITED, FlavorResource
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import parse_cluster_queue, parse_cohort
from tests.kueue.builders import GPU, cluster_queue, cohort, group, quota

KEY = FlavorResource("f0", GPU)


def build(*documents: dict[str, Any]) -> Snapshot:
    snapshot = Snapshot()
    for document in documents:
        if document["kind"] == "Cohort":
            snapshot.set_cohort(parse_cohort(document))
        else:
            snapshot.set_queue(parse_cluster_queue(document))
            snapshot.set_active(document["metadata"]["name"], is_active=True)
    snapshot.refresh()
    return snapshot


def queue(name: str, nominal: object, borrowing=None, lending=None, *, in_cohort: str = "pool"):
    item = quota(nominal, borrowing, lending)
    return cluster_queue(name, group(f0=item), in_cohort=in_cohort)


def available(snapshot: Snapshot) -> dict[str, int]:
    return {name: max(0, item.node.available(KEY)) for name, item in snapshot.queues.items()}


def test_available_follows_the_worked_example():
    snapshot = build(queue("a", 10, 5, 4), queue("b", 8))
    root = snapshot.cohorts["pool"].node
    assert available(snapshot) == {"a": 15, "b": 12}
    assert root.subtree_quota[KEY] == 12

    snapshot.queues["a"].node.add(KEY, 7)
    assert root.usage[KEY] == 1
    assert available(snapshot) == {"a": 8, "b": 11}

    snapshot.queues["b"].node.add(KEY, 10)
    assert available(snapshot) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("documents", "want_available", "want_potential"),
    [
        pytest.param([queue("a", 5, in_cohort="")], 5, 5, id="alone: nominal"),
        pytest.param([queue("a", 5), queue("b", 7)], 12, 12, id="no limits: everything"),
        pytest.param([queue("a", 5, 0), queue("b", 7)], 5, 5, id="borrowing 0 forbids"),
        pytest.param([queue("a", 5, 3), queue("b", 7)], 8, 8, id="borrowing limit caps"),
        pytest.param([queue("a", 5), queue("b", 7, None, 0)], 5, 5, id="lending 0 keeps all"),
        pytest.param([queue("a", 5), queue("b", 7, None, 2)], 7, 7, id="lending limit"),
        pytest.param(
            [cohort("pool", f0=quota(4)), queue("a", 5)], 9, 9, id="quota of the Cohort is extra"
        ),
        pytest.param(
            [
                cohort("top", f0=quota(10)),
                cohort("pool", "top", f0=quota(0, 3)),
                queue("a", 5),
            ],
            8,
            8,
            id="an inner Cohort's borrowing limit caps its subtree",
        ),
        pytest.param(
            [
                cohort("side", "top", f0=quota(0, None, 1)),
                cohort("pool", "top"),
                queue("a", 5),
                queue("b", 9, in_cohort="side"),
            ],
            6,
            6,
            id="a Cohort's lending limit hides its subtree",
        ),
        pytest.param(
            [queue("a", "9223372036854775807"), queue("b", 1)],
            UNLIMITED,
            UNLIMITED,
            id="unlimited stays unlimited",
        ),
    ],
)
def test_available_and_potential(documents, want_available, want_potential):
    snapshot = build(*documents)
    assert snapshot.queues["a"].node.available(KEY) == want_available
    assert snapshot.queues["a"].node.potential(KEY) == want_potential


@pytest.mark.parametrize(
    ("amount", "want_level", "want_reclaim"),
    [
        pytest.param(5, 0, True, id="within nominal"),
        pytest.param(6, 1, True, id="the Cohort lends"),
        pytest.param(12, 2, False, id="only the root lends"),
        pytest.param(99, 2, False, id="nobody does"),
    ],
)
def test_borrowing_level_is_the_height_of_the_lender(amount, want_level, want_reclaim):
    snapshot = build(
        cohort("pool", "top"),
        cohort("top", f0=quota(10)),
        queue("a", 5),
        queue("b", 4),
    )
    assert snapshot.queues["a"].node.borrowing_level(KEY, amount) == (want_level, want_reclaim)


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([cohort("pool", "pool")], id="a Cohort that names itself"),
        pytest.param([cohort("pool", "top"), cohort("top", "pool")], id="two that name each other"),
        pytest.param(
            [cohort("pool", "x"), cohort("x", "y"), cohort("y", "z"), cohort("z", "x")],
            id="a loop above",
        ),
    ],
)
def test_cycle_takes_its_queues_out(documents):
    snapshot = build(*documents, queue("a", 5), queue("other", 5, in_cohort="elsewhere"))
    assert not snapshot.queues["a"].takes_part
    assert snapshot.cohorts["pool"].is_cyclic
    assert snapshot.queues["other"].takes_part
    assert snapshot.tree_queues(snapshot.queues["a"]) == []


def test_cycle_ends_when_an_edge_is_removed():
    snapshot = build(cohort("pool", "top"), cohort("top", "pool"), queue("a", 5), queue("b", 3))
    snapshot.set_cohort(parse_cohort(cohort("top", f0=quota(2))))
    snapshot.refresh()
    assert available(snapshot) == {"a": 10, "b": 10}
    assert not snapshot.cohorts["pool"].is_cyclic


def test_cohort_vanishes_with_its_last_member():
    snapshot = build(queue("a", 5))
    assert "pool" in snapshot.cohorts
    snapshot.delete_queue("a")
    snapshot.refresh()
    assert "pool" not in snapshot.cohorts


def test_cohort_object_deleted_leaves_an_implicit_one():
    snapshot = build(cohort("pool", f0=quota(4)), queue("a", 5))
    snapshot.delete_cohort("pool")
    snapshot.refresh()
    assert available(snapshot) == {"a": 5}


def test_queue_that_moves_takes_its_quota_along():
    snapshot = build(queue("a", 5), queue("b", 7), queue("c", 1, in_cohort="new"))
    snapshot.set_queue(parse_cluster_queue(queue("b", 7, in_cohort="new")))
    snapshot.refresh()
    assert available(snapshot) == {"a": 5, "b": 8, "c": 8}


amounts = st.integers(0, 12)
limits = st.none() | st.integers(0, 8)


@st.composite
def trees(draw: st.DrawFn) -> Snapshot:
    """A random tree of up to five Cohorts and six ClusterQueues."""
    count = draw(st.integers(1, 5))
    documents = []
    for index in range(count):
        parent = f"c{draw(st.integers(0, index - 1))}" if index else ""
        item = quota(draw(amounts), *(draw(st.tuples(limits, limits)) if index else ()))
        documents.append(cohort(f"c{index}", parent, f0=item))
    for index in range(draw(st.integers(1, 6))):
        item = (draw(amounts), draw(limits), draw(limits))
        home = f"c{draw(st.integers(0, count - 1))}"
        documents.append(queue(f"q{index}", *item, in_cohort=home))
    return build(*documents)


def usage_of(snapshot: Snapshot) -> dict[str, dict[FlavorResource, int]]:
    nodes = [item.node for item in (*snapshot.queues.values(), *snapshot.cohorts.values())]
    return {node.name: {key: used for key, used in node.usage.items() if used} for node in nodes}


def assert_parents_hold_what_children_exceed(snapshot: Snapshot) -> None:
    for item in snapshot.cohorts.values():
        children = [child.node for child in (*item.queues.values(), *item.cohorts.values())]
        want = sum(
            max(0, child.usage.get(KEY, 0) - child.guaranteed.get(KEY, 0)) for child in children
        )
        assert item.node.usage.get(KEY, 0) == want
        borrowing = {child for child in children if not child.is_within_nominal([KEY])}
        assert set(item.node.borrowers.get(KEY, ())) == borrowing


changes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=12)


@settings(max_examples=150)
@given(trees(), changes)
def test_usage_added_then_removed_leaves_the_tree_unchanged(snapshot, steps):
    nodes = [item.node for item in snapshot.queues.values()]
    for index, amount in steps[: len(steps) // 2]:
        nodes[index % len(nodes)].add(KEY, amount)
    before = usage_of(snapshot)
    for index, amount in steps:
        nodes[index % len(nodes)].add(KEY, amount)
        assert_parents_hold_what_children_exceed(snapshot)
    for index, amount in steps:
        nodes[index % len(nodes)].remove(KEY, amount)
        assert_parents_hold_what_children_exceed(snapshot)
    assert usage_of(snapshot) == before


@settings(max_examples=150)
@given(trees(), changes)
def test_incremental_usage_equals_a_rebuild(snapshot, steps):
    nodes = [item.node for item in snapshot.queues.values()]
    for index, amount in steps:
        nodes[index % len(nodes)].add(KEY, amount)
    before = usage_of(snapshot)
    for item in list(snapshot.cohorts.values()):
        snapshot.set_cohort(item.spec)
    snapshot.refresh()
    assert usage_of(snapshot) == before
    assert_parents_hold_what_children_exceed(snapshot)


@settings(max_examples=150)
@given(trees(), changes)
def test_taking_only_what_is_available_never_overdraws_a_root(snapshot, steps):
    queues = list(snapshot.queues.values())
    for index, amount in steps:
        state = queues[index % len(queues)]
        if state.fits({KEY: amount}):
            state.node.add(KEY, amount)
        assert state.node.usage.get(KEY, 0) <= state.node.potential(KEY)
    for item in snapshot.cohorts.values():
        if item.node.parent is None:
            assert item.node.usage.get(KEY, 0) <= item.node.subtree_quota.get(KEY, 0)


@settings(max_examples=100)
@given(trees(), st.integers(0, 4), st.integers(0, 4))
def test_cycle_of_cohorts_is_refused_wherever_it_closes(snapshot, lower, upper):
    names = sorted(snapshot.cohorts)
    top, below = "c0", names[lower % len(names)]
    snapshot.set_cohort(parse_cohort(cohort(top, below)))
    snapshot.refresh()
    assert all(snapshot.cohorts[name].is_cyclic for name in names)
    assert not any(item.takes_part for item in snapshot.queues.values())


@pytest.mark.parametrize(
    ("key", "amount", "want"),
    [
        pytest.param(KEY, 10, False, id="all of its own"),
        pytest.param(KEY, 11, True, id="one more"),
        pytest.param(FlavorResource("f9", GPU), 1, True, id="of what it has no quota of"),
    ],
)
def test_who_borrows_is_known_to_the_cohort(key, amount, want):
    snapshot = build(queue("a", 10), queue("b", 8))
    node, root = snapshot.queues["a"].node, snapshot.cohorts["pool"].node
    node.add(key, amount)
    assert (node in root.borrowers.get(key, {})) is want
    node.remove(key, amount)
    assert not root.borrowers.get(key)
    assert not node.usage
