"""Counts that are kept from search to search are those of a search that counts anew."""

from __future__ import annotations

import random
from typing import Any

import pytest

from clusters.kueue.configuration import Gates
from clusters.kueue.topology import counts as module
from clusters.kueue.topology import tree as tree_module
from clusters.kueue.topology.counts import Counted, Cut, FitCounts, KeptCounts, Question
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import NodeSpec, PodNeeds
from clusters.kueue.topology.placer import Placer
from clusters.kueue.topology.tree import TopologyTree, Touched
from clusters.kueue.workload.matching import Expression, NodeRules, NodeTerm, Taint
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import TopologyRequest
from clusters.kueue.workload.workloads import PodShape

RACK, HOST, GPU = "example.com/rack", "kubernetes.io/hostname", "gpu"
DISLIKED = (Taint("bad", "", "NoSchedule"),)
GATES = [
    pytest.param(Gates(), id=""),
    pytest.param(Gates(tas_balanced_placement=True), id="balanced"),
    pytest.param(Gates(tas_respect_node_affinity_preferred=True), id="liked"),
]
LIKES = NodeRules(preferences=((3, NodeTerm((Expression("fast", "In", ("yes",)),))),))


def node(name: str, rack: str, gpus: int = 8, **more: Any) -> NodeSpec:
    labels = {RACK: rack, HOST: name, "fast": more.pop("fast", "no")}
    taints = more.pop("taints", ())
    return NodeSpec(name, labels, taints, {GPU: gpus, "pods": 20}, is_usable=True)


def need_of(rng: random.Random) -> PodSetNeed:
    kind = rng.choice(("required", "preferred", "unconstrained"))
    request: dict[str, Any] = {kind: True if kind == "unconstrained" else rng.choice((RACK, HOST))}
    requests = {GPU: rng.choice((1, 2))}
    rules = rng.choice((NodeRules(), LIKES))
    shape = PodShape(
        "", "", PodRequests(requests, of_pod=requests), rules, TopologyRequest(**request)
    )
    return PodSetNeed("main", shape, rng.choice((1, 3, 6, 20)), requests, shape.topology, "f0")


def answer(placer: Placer, need: PodSetNeed, leader: PodSetNeed | None, given: Conditions) -> Any:
    try:
        return placer.place(need, leader, given)
    except NoPlacement as failure:
        return str(failure)


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("seed", range(3))
def test_kept_counts_answer_as_counting_anew_does(
    gates: Gates, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where more was touched meanwhile than is remembered, and more asked than is kept."""
    monkeypatch.setattr(tree_module, "MOST_TOUCHED", 12)
    monkeypatch.setattr(module, "LEAVES_KEPT", 12 * 12)
    rng = random.Random(seed)
    tree = TopologyTree("topo", levels=(RACK, HOST), node_labels={}, tolerations=())
    nodes = [
        node(
            f"n{index}",
            f"r{index % 4}",
            fast=rng.choice(("yes", "no")),
            taints=DISLIKED if index == 5 else (),
        )
        for index in range(12)
    ]
    tree.build(nodes, pods={})
    kept = Placer(tree, gates=gates)
    asked = [need_of(rng) for _ in range(16)]
    leader = need_of(rng)
    held: list[tuple[str, dict[str, int]]] = []
    answers = set()
    for _ in range(400):
        match rng.randrange(6):
            case 0 | 1:
                held.append((f"n{rng.randrange(12)}", {GPU: rng.randint(1, 4), "pods": 1}))
                tree.use(*held[-1])
            case 2 if held:
                tree.release(*held.pop(rng.randrange(len(held))))
            case 3:
                tree.use_node(f"n{rng.randrange(12)}", {"pods": 1})
            case 4:
                tree.free_node(f"n{rng.randrange(12)}", {"pods": 1})
            case 5:
                for name, amounts in held[: rng.choice((0, 8))]:
                    tree.release(name, amounts)
                    tree.use(name, amounts)
        given = Conditions(
            assumed=rng.choice(({}, {"n1": {GPU: 8, "pods": 1}, "gone": {GPU: 1}})),
            is_empty=rng.random() < 0.3,
            within=rng.choice(("", "", "r1")),
        )
        need, led_by = rng.choice(asked), rng.choice((None, None, leader))
        found = answer(kept, need, led_by, given)
        assert found == answer(Placer(tree, gates=gates), need, led_by, given)
        answers.add(str(found))
    assert len(answers) > 60


QUESTION = Question(None, ((GPU, 1), ("pods", 1)), None, Cut(1, 1), is_empty=False, likes=False)


def tree_of(*nodes: NodeSpec) -> TopologyTree:
    tree = TopologyTree("topo", levels=(RACK, HOST), node_labels={}, tolerations=())
    tree.build(nodes, pods={})
    return tree


def test_only_what_was_touched_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(*(node(f"n{index}", f"r{index % 10}") for index in range(500)))
    kept = KeptCounts(tree)
    counted: list[int] = []
    original = module.count_in
    monkeypatch.setattr(module, "count_in", lambda *given: (counted.append(1), original(*given))[1])
    first = kept.answer(QUESTION, assumed={}, within="")
    assert len(counted) == 500
    tree.use("n7", {GPU: 3, "pods": 1})
    tree.use("n7", {GPU: 2, "pods": 1})
    assert kept.answer(QUESTION, assumed={}, within="") is first
    assert len(counted) == 501
    assert (first.by_level[1]["n7"].pods, first.by_level[0]["r7"].pods) == (3, 49 * 8 + 3)
    kept.forget()
    assert kept.answer(QUESTION, assumed={}, within="") is not first


def test_counts_that_were_not_asked_for_lately_are_dropped() -> None:
    tree = tree_of(node("n1", "r1"))
    kept = KeptCounts(tree)

    def asked(gpus: int) -> FitCounts:
        question = Question(None, ((GPU, gpus),), None, Cut(1, 1), is_empty=False, likes=False)
        return kept.answer(question, assumed={}, within="")

    first, second = asked(1), asked(2)
    for gpus in range(3, module.MOST_KEPT + 1):
        asked(gpus)
    assert asked(1) is first
    asked(module.MOST_KEPT + 1)
    assert asked(1) is first
    assert asked(2) is not second


def test_what_was_touched_is_known_as_far_back_as_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_module, "MOST_TOUCHED", 4)
    touched = Touched()
    assert touched.since(0) == set()
    for name in "abcd":
        touched.add(name)
    assert (touched.now, touched.since(0), touched.since(2)) == (4, set("abcd"), {"c", "d"})
    touched.add("e")
    assert (touched.now, touched.since(1), touched.since(2)) == (5, None, {"c", "d", "e"})


def test_why_leaves_are_left_out_is_told_with_numbers() -> None:
    needs = PodNeeds.of(NodeRules(), tolerations=(), selector={}, prefers=False)
    question = Question(needs, ((GPU, 4), ("pods", 1)), None, Cut(1, 1), False, False)
    tree = tree_of(node("n1", "r1", 2), node("n2", "r1"), node("n3", "r2", taints=DISLIKED))
    counts = FitCounts(tree, question)
    assert counts.excluded.text() == (
        '. Total nodes: 3; excluded: resource "gpu": 1, taint "bad:NoSchedule": 1'
    )
    tree.use("n2", {"pods": 20})
    counts.refresh({"n1": {"pods": 20}})
    assert counts.excluded.text() == (
        '. Total nodes: 3; excluded: resource "gpu": 1, resource "pods": 1, '
        'taint "bad:NoSchedule": 1'
    )
    tree.release("n2", {"pods": 20})
    counts.refresh({})
    assert counts.excluded.reasons['resource "pods"'] == 0
    assert counts.by_level[1]["n2"].pods == 2


def counters(domain: Counted) -> tuple[int, ...]:
    return (
        domain.pods,
        domain.slices,
        domain.pods_led,
        domain.slices_led,
        domain.leaders,
        domain.affinity,
    )


def test_a_copy_of_a_subtree_is_independent() -> None:
    child = Counted(
        "c", ("r", "c"), pods=7, slices=8, pods_led=9, slices_led=10, leaders=1, affinity=2
    )
    root = Counted("r", ("r",), None, [child], 1, 2, 3, 4, 5, 6)
    child.parent = root
    same = root.subtree_copy()
    [copied] = same.children
    assert (same.name, same.values, same.parent) == ("r", ("r",), None)
    assert (copied.name, copied.values, copied.parent) == ("c", ("r", "c"), same)
    assert copied.children == []
    assert counters(same) == (1, 2, 3, 4, 5, 6)
    assert counters(copied) == (7, 8, 9, 10, 1, 2)
    root.clear()
    child.clear()
    assert (counters(root), counters(child)) == ((0, 0, 0, 0, 0, 6), (0, 0, 0, 0, 0, 2))
    assert counters(copied) == (7, 8, 9, 10, 1, 2)
    assert root.children == [child]
