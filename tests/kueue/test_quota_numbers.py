"""Numbers of every node of one tree, held whole: owned, lent, in use, left, and who borrows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusters.kueue.amounts import UNLIMITED, FlavorResource
from clusters.kueue.quota.fair_sharing import NO_SHARE, DominantShare, share_of
from clusters.kueue.quota.resource_node import Quota, ResourceNode
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import parse_cluster_queue, parse_cohort
from tests.kueue.builders import GPU, cluster_queue, cohort, group, quota

GPUS, CORES, SLOW = (
    FlavorResource("f0", GPU),
    FlavorResource("f0", "cpu"),
    FlavorResource("f1", GPU),
)
NOBODY = FlavorResource("f9", GPU)
# top lends 10 of its own; pool keeps 6 of its 11 for itself and borrows 3 at most; a lends one of
# its five and borrows two at most; c lends nothing of f0; side and d own nothing.
TREE = (
    cohort("top", f0=quota(10)),
    cohort("pool", "top", f0=quota(4, 3, 5)),
    cohort("side", "top"),
    cluster_queue("a", group(f0=[quota(5, 2, 1), quota(2, resource="cpu")]), in_cohort="pool"),
    cluster_queue("b", group(f0=quota(6)), in_cohort="pool"),
    cluster_queue("c", group(f0=quota(7, None, 0), f1=quota(3)), in_cohort="top"),
    cluster_queue("d", in_cohort="side"),
)


def tree(*documents: dict[str, Any]) -> dict[str, ResourceNode]:
    """Nodes by name; every ClusterQueue may admit."""
    snapshot = Snapshot()
    for document in documents or TREE:
        if document["kind"] == "Cohort":
            snapshot.set_cohort(parse_cohort(document))
        else:
            snapshot.set_queue(parse_cluster_queue(document))
            snapshot.set_active(document["metadata"]["name"], is_active=True)
    snapshot.refresh()
    states = (*snapshot.queues.values(), *snapshot.cohorts.values())
    return {state.node.name: state.node for state in states}


def usage(nodes: Mapping[str, ResourceNode]) -> dict[str, dict[FlavorResource, int]]:
    return {name: node.usage for name, node in nodes.items() if node.usage}


def borrowers(nodes: Mapping[str, ResourceNode]) -> dict[str, dict[FlavorResource, list[str]]]:
    found = {
        name: {key: [child.name for child in made] for key, made in node.borrowers.items() if made}
        for name, node in nodes.items()
    }
    return {name: made for name, made in found.items() if made}


def left(nodes: Mapping[str, ResourceNode], key: FlavorResource) -> dict[str, int]:
    return {name: node.available(key) for name, node in nodes.items()}


def used() -> dict[str, ResourceNode]:
    """The tree with a and b beyond their quota, d and side on what others lend."""
    nodes = tree()
    nodes["a"].add_all({GPUS: 6, CORES: 500, NOBODY: 0})
    nodes["b"].add(GPUS, 9)
    nodes["c"].add(SLOW, 1)
    nodes["d"].add_all({GPUS: 4, NOBODY: 2})
    return nodes


def test_nodes_own_and_lend_what_their_quotas_say():
    nodes = tree()
    assert {name: node.subtree_quota for name, node in nodes.items()} == {
        "a": {GPUS: 5, CORES: 2000},
        "b": {GPUS: 6},
        "c": {GPUS: 7, SLOW: 3},
        "d": {},
        "pool": {GPUS: 11, CORES: 2000},
        "side": {},
        "top": {GPUS: 15, CORES: 2000, SLOW: 3},
    }
    assert {name: node.guaranteed for name, node in nodes.items() if node.guaranteed} == {
        "a": {GPUS: 4},
        "c": {GPUS: 7},
        "pool": {GPUS: 6},
    }
    assert {name: node.height for name, node in nodes.items()} == {
        **dict.fromkeys("abcd", 0),
        "pool": 1,
        "side": 1,
        "top": 2,
    }
    assert {name: node.lendable for name, node in nodes.items() if node.lendable} == {
        "pool": {GPU: 17, "cpu": 2000},
        "side": {GPU: 18, "cpu": 2000},
        "top": {GPU: 18, "cpu": 2000},
    }
    assert nodes["a"].quotas == {GPUS: Quota(5, 2, 1), CORES: Quota(2000)}
    assert [nodes["a"].nominal(key) for key in (GPUS, CORES, SLOW)] == [5, 2000, 0]


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (GPUS, {"a": 7, "b": 14, "c": 22, "d": 15, "pool": 14, "side": 15, "top": 15}),
        (CORES, dict.fromkeys(("a", "b", "c", "d", "pool", "side", "top"), 2000)),
        (SLOW, dict.fromkeys(("a", "b", "c", "d", "pool", "side", "top"), 3)),
        (NOBODY, dict.fromkeys(("a", "b", "c", "d", "pool", "side", "top"), 0)),
    ],
    ids=str,
)
def test_most_that_a_node_could_ever_have_is_what_it_has_in_an_empty_tree(key, want):
    nodes = tree()
    assert {name: node.potential(key) for name, node in nodes.items()} == want
    assert left(nodes, key) == want


def test_what_a_node_keeps_for_itself_is_used_first_and_the_rest_is_asked_above():
    nodes = used()
    assert usage(nodes) == {
        "a": {GPUS: 6, CORES: 500},
        "b": {GPUS: 9},
        "c": {SLOW: 1},
        "d": {GPUS: 4, NOBODY: 2},
        "pool": {GPUS: 11, CORES: 500},
        "side": {GPUS: 4, NOBODY: 2},
        "top": {GPUS: 9, CORES: 500, SLOW: 1, NOBODY: 2},
    }
    assert borrowers(nodes) == {
        "pool": {GPUS: ["a", "b"]},
        "side": {GPUS: ["d"], NOBODY: ["d"]},
        "top": {GPUS: ["side"], NOBODY: ["side"]},
    }
    assert left(nodes, GPUS) == {
        "a": 1,
        "b": 3,
        "c": 13,
        "d": 6,
        "pool": 3,
        "side": 6,
        "top": 6,
    }
    assert left(nodes, CORES) == dict.fromkeys(nodes, 1500)
    assert left(nodes, NOBODY) == {**dict.fromkeys(nodes, -2)}
    assert [nodes[name].local_available(GPUS) for name in ("a", "c", "d", "pool")] == [0, 7, 0, 0]
    nodes["c"].add(GPUS, 2)
    assert nodes["c"].local_available(GPUS) == 5
    assert (nodes["top"].usage[GPUS], left(nodes, GPUS)["c"]) == (9, 11)


def test_what_is_taken_away_goes_from_above_first():
    nodes = used()
    nodes["b"].remove(GPUS, 4)
    assert (nodes["b"].usage, nodes["pool"].usage[GPUS]) == ({GPUS: 5}, 7)
    assert nodes["top"].usage[GPUS] == 5
    assert borrowers(nodes)["pool"] == {GPUS: ["a"]}
    nodes["a"].remove(GPUS, 3)
    # Two were asked of the pool for it, and the pool had asked one more for them.
    assert (nodes["a"].usage[GPUS], nodes["pool"].usage[GPUS]) == (3, 5)
    assert nodes["top"].usage[GPUS] == 4
    assert "pool" not in borrowers(nodes)
    nodes["d"].remove_all({GPUS: 4, NOBODY: 2, SLOW: 0})
    nodes["a"].remove_all({GPUS: 3, CORES: 500})
    nodes["b"].remove(GPUS, 5)
    nodes["c"].remove(SLOW, 1)
    assert (usage(nodes), borrowers(nodes)) == ({}, {})


def test_borrower_that_gives_back_down_to_its_quota_borrows_no_more():
    nodes = used()
    nodes["a"].remove(GPUS, 1)
    assert borrowers(nodes)["pool"] == {GPUS: ["b"]}
    nodes["a"].add(GPUS, 1)
    assert borrowers(nodes)["pool"] == {GPUS: ["b", "a"]}


def test_negative_amount_that_is_taken_away_again_changes_nothing_above():
    nodes = used()
    before = {name: dict(made) for name, made in usage(nodes).items()}
    nodes["a"].add(GPUS, -2)
    assert (nodes["a"].usage[GPUS], nodes["pool"].usage) == (4, before["pool"])
    nodes["a"].remove(GPUS, -2)
    assert usage(nodes) == before


def test_numbers_that_are_derived_anew_are_those_that_were_kept():
    nodes = used()
    want = {name: dict(made) for name, made in usage(nodes).items()}
    for name, children in (("pool", "ab"), ("side", "d")):
        nodes[name].collect([nodes[child] for child in children])
    nodes["top"].collect([nodes["pool"], nodes["side"], nodes["c"]])
    assert usage(nodes) == want
    assert borrowers(nodes) == borrowers(used())
    assert nodes["top"].subtree_quota == tree()["top"].subtree_quota
    assert nodes["pool"].guaranteed == {GPUS: 6}


@pytest.mark.parametrize(
    ("name", "requests", "want"),
    [
        pytest.param("a", {GPUS: -1}, (True, {GPUS: 0}), id="less than is held"),
        pytest.param("a", {GPUS: 1}, (False, {GPUS: 1}), id="beyond its quota"),
        pytest.param("c", {GPUS: 7}, (True, {GPUS: 0}), id="all that it keeps"),
        pytest.param("c", {GPUS: 8}, (False, {GPUS: 1}), id="one more"),
        pytest.param(
            "c", {GPUS: 7, SLOW: 3}, (False, {GPUS: 0, SLOW: 3}), id="one of two does not fit"
        ),
        pytest.param("c", {SLOW: 2}, (True, {SLOW: 2}), id="its own, but lent"),
        pytest.param("d", {SLOW: 1}, (False, {SLOW: 1}), id="of what it has no quota of"),
        pytest.param("d", {SLOW: 0}, (True, {SLOW: 0}), id="nothing"),
    ],
)
def test_what_a_node_holds_itself_and_what_it_asks_its_parent_for(name, requests, want):
    assert used()[name].fits_in_quota(requests) == want


@pytest.mark.parametrize(
    ("name", "key", "amount", "want"),
    [
        pytest.param("top", GPUS, 99, (0, False), id="a root"),
        pytest.param("top", GPUS, 1, (0, False), id="a root with room"),
        pytest.param("c", GPUS, 7, (0, True), id="its own"),
        pytest.param("c", GPUS, 8, (2, False), id="the root lends one"),
        pytest.param("a", CORES, 1500, (0, True), id="its own cores"),
        pytest.param("a", CORES, 1501, (2, False), id="nobody has more cores"),
        pytest.param("b", GPUS, 1, (2, False), id="the pool is full"),
        pytest.param("b", SLOW, 1, (2, False), id="the pool has none of them"),
        pytest.param("d", SLOW, 2, (2, False), id="two subtrees without quota"),
    ],
)
def test_lowest_subtree_that_holds_more(name, key, amount, want):
    assert used()[name].borrowing_level(key, amount) == want


@pytest.mark.parametrize(
    ("held", "amount", "want"),
    [
        pytest.param(0, 5, (0, True), id="its own"),
        pytest.param(0, 6, (1, True), id="the pool, which may reclaim outside"),
        # Four of a's are kept: of 15 the pool is asked for 11.
        pytest.param(0, 15, (1, True), id="all that the pool has"),
        # Of 16 the pool is asked for twelve, of which it keeps six; the root is asked for six.
        pytest.param(0, 16, (2, False), id="one more"),
        pytest.param(4, 11, (1, True), id="what it keeps is used already"),
        pytest.param(4, 12, (2, False), id="and one more"),
    ],
)
def test_lender_of_the_first_amount_is_the_lowest_that_has_it(held, amount, want):
    nodes = tree()
    nodes["a"].add(GPUS, held)
    assert nodes["a"].borrowing_level(GPUS, amount) == want


def test_level_counts_on_what_each_subtree_keeps():
    """Of nine more the pool is asked for nine, keeps six free ones, and asks for three."""
    nodes = tree(
        cohort("top", "roof", f0=quota(3)),
        cohort("pool", "top", f0=quota(8, None, 2)),
        cohort("roof", f0=quota(99)),
        cluster_queue("q", group(f0=quota(0)), in_cohort="pool"),
    )
    node = nodes["q"]
    found = {amount: node.borrowing_level(GPUS, amount) for amount in (8, 9, 11, 12)}
    assert found == {8: (1, True), 9: (2, True), 11: (2, True), 12: (3, False)}


@pytest.mark.parametrize(
    ("name", "keys", "want"),
    [
        ("a", [CORES], True),
        ("a", [CORES, GPUS], False),
        ("c", [SLOW, GPUS], True),
        ("c", [], True),
        ("d", [NOBODY], False),
        ("d", [SLOW], True),
        ("pool", [GPUS], True),
        ("side", [GPUS], False),
    ],
)
def test_who_is_within_nominal(name, keys, want):
    assert used()[name].is_within_nominal(keys) is want


def test_one_of_what_a_node_has_no_quota_of_is_borrowed():
    nodes = tree()
    nodes["d"].add(NOBODY, 1)
    for name in ("d", "side", "top"):
        assert not nodes[name].is_within_nominal([NOBODY])
    assert borrowers(nodes) == {"side": {NOBODY: ["d"]}, "top": {NOBODY: ["side"]}}
    nodes["d"].remove(NOBODY, 1)
    assert (usage(nodes), borrowers(nodes)) == ({}, {})


@pytest.mark.parametrize(
    ("name", "key", "amount", "want"),
    [
        ("c", SLOW, 2, False),
        ("c", SLOW, 3, True),
        ("c", NOBODY, 0, False),
        ("c", NOBODY, 1, True),
        ("a", GPUS, -1, False),
        ("a", GPUS, 0, True),
    ],
)
def test_who_would_borrow(name, key, amount, want):
    assert used()[name].exceeds_with(key, amount) is want


def test_path_leads_from_the_root():
    nodes = tree()
    assert [node.name for node in nodes["a"].path()] == ["a", "pool", "top"]
    assert [nodes[name].path_text() for name in ("a", "c", "top")] == [
        "/top/pool/a",
        "/top/c",
        "/top",
    ]


def test_what_is_lendable_never_exceeds_the_unlimited():
    most = str(UNLIMITED)
    nodes = tree(
        cluster_queue("a", group(f0=quota(most), f1=quota(most)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(1)), in_cohort="pool"),
    )
    assert nodes["pool"].lendable == {GPU: UNLIMITED}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        # One GPU above its five, of the 17 that the pool could give at most.
        pytest.param("a", (1000 / 17, GPU, True), id="a borrower"),
        pytest.param("b", (3000 / 17, GPU, True), id="one of three"),
        pytest.param("c", (0.0, "", False), id="nobody's borrower"),
        # Four of f0 and two of f9 are six GPUs, of 18.
        pytest.param("d", (6000 / 18, GPU, True), id="of two flavors"),
        pytest.param("pool", (0.0, "", False), id="a Cohort within its quota"),
        pytest.param("side", (6000 / 18, GPU, True), id="a Cohort without quota"),
        pytest.param("top", (0.0, "", False), id="a root"),
    ],
)
def test_share_is_what_is_borrowed_of_what_could_be_lent(name, want):
    found = share_of(used()[name])
    assert (found.ratio, found.resource, found.is_borrowing, found.weight) == (*want, 1.0)


def test_share_is_that_of_the_dominant_resource_and_has_its_weight():
    nodes = tree(
        cohort("pool", f0=[quota(10), quota(4, resource="cpu"), quota(0, resource="nic")]),
        cluster_queue("a", in_cohort="pool", fairSharing={"weight": "2"}),
    )
    node, nic = nodes["a"], FlavorResource("f0", "nic")
    assert share_of(node) == DominantShare(weight=2.0)
    assert share_of(node).weight == 2.0
    node.add(nic, 5)
    found = share_of(node)
    assert (found.ratio, found.resource, found.is_borrowing, found.weight) == (0.0, "", True, 2.0)
    node.add_all({GPUS: 3, CORES: 1200})
    assert (share_of(node).ratio, share_of(node).resource) == (300.0, "cpu")
    node.add(GPUS, 1)
    assert (share_of(node).ratio, share_of(node).resource) == (400.0, GPU)
    assert share_of(node).sort_key == (False, 200.0)
    # Of equal shares the resource whose name comes first is the dominant one.
    node.add(CORES, 400)
    assert (share_of(node).ratio, share_of(node).resource) == (400.0, "cpu")
    assert share_of(nodes["pool"]) is NO_SHARE


@pytest.mark.parametrize(
    ("share", "want_key", "want_published"),
    [
        pytest.param(DominantShare(), (False, 0.0), 0, id="none"),
        pytest.param(DominantShare(ratio=500.0), (False, 500.0), 500, id="half"),
        pytest.param(DominantShare(ratio=500.0, weight=3.0), (False, 500 / 3), 167, id="rounded"),
        pytest.param(DominantShare(ratio=1.0, weight=4.0), (False, 0.25), 1, id="rounded up"),
        pytest.param(
            DominantShare(ratio=500.0, weight=0.0), (True, 500.0), UNLIMITED, id="infinite"
        ),
        pytest.param(DominantShare(ratio=0.0, weight=0.0), (False, 0.0), 0, id="weight 0, unused"),
    ],
)
def test_share_as_it_is_sorted_and_published(share, want_key, want_published):
    assert (share.sort_key, share.published) == (want_key, want_published)
    assert share.is_infinite is want_key[0]


def test_shares_are_compared_by_what_they_are_sorted_by():
    half, same = DominantShare(ratio=500.0), DominantShare(ratio=1000.0, weight=2.0, resource=GPU)
    more = DominantShare(ratio=1.0, weight=0.0)
    assert half == same
    assert hash(half) == hash(same)
    assert half < more
    assert not half < same
    assert half <= same
    assert half != more
    assert half != (False, 500.0)
