"""What a search for domains begins with, what it takes into account, and why it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusters.kueue.configuration import Gates
from clusters.kueue.topology.need import Conditions, NoPlacement, PodSetNeed
from clusters.kueue.topology.nodes import NodeSpec
from clusters.kueue.topology.placer import Placer, _inner_sizes
from clusters.kueue.topology.search import Search
from clusters.kueue.topology.tree import TopologyTree
from clusters.kueue.workload.matching import Expression, NodeRules, NodeTerm, Taint, Toleration
from clusters.kueue.workload.requests import PodRequests
from clusters.kueue.workload.topology_request import SliceLayer, TopologyRequest
from clusters.kueue.workload.workloads import PodShape

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)
GPU = "gpu"


def node(name: str, gpus: int = 4, *, rack: str = "r", **more: Any) -> NodeSpec:
    labels = {BLOCK: "b", RACK: rack, HOST: name, **more.pop("labels", {})}
    spec = NodeSpec(name, labels, (), {GPU: gpus, "pods": 9}, is_usable=True)
    return replace(spec, **more)


def placer_of(
    *nodes: NodeSpec,
    levels: tuple[str, ...] = LEVELS,
    tolerations: tuple[Toleration, ...] = (),
    **gates: bool,
) -> Placer:
    tree = TopologyTree("topo", levels=levels, node_labels={}, tolerations=tolerations)
    tree.build(nodes, pods={})
    return Placer(tree, gates=Gates(**gates))


def need_of(count: int = 1, *, name: str = "main", gpus: int = 1, **more: Any) -> PodSetNeed:
    rules = more.pop("rules", NodeRules())
    fields = {
        key: more.pop(key) for key in ("selector", "tolerations", "is_implied") if key in more
    }
    request = TopologyRequest(**more)
    requests = {GPU: gpus}
    shape = PodShape("", "", PodRequests(requests, of_pod=requests), rules, request)
    return PodSetNeed(name, shape, count, requests, request, "f0", **fields)


def counts(
    placer: Placer,
    workers: PodSetNeed,
    leader: PodSetNeed | None = None,
    **conditions: Any,
) -> dict[str, dict[str, int]]:
    found = placer.place(workers, leader, Conditions(**conditions))
    return {
        name: {item.domain: item.count for item in placement.domains}
        for name, placement in found.items()
    }


def refusal(placer: Placer, workers: PodSetNeed, **conditions: Any) -> str:
    with pytest.raises(NoPlacement) as failure:
        placer.place(workers, None, Conditions(**conditions))
    return str(failure.value)


def layers(*pairs: tuple[str, int]) -> tuple[SliceLayer, ...]:
    return tuple(SliceLayer(topology, size) for topology, size in pairs)


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(
            {"required": RACK, "layers": layers((RACK, 0))},
            "slice topology requested, but slice size not provided",
            id="a slice without a size",
        ),
        pytest.param({}, "topology level not specified", id="no level"),
        pytest.param({"required": "zone"}, "no requested topology level: zone", id="another level"),
        pytest.param(
            {"preferred": RACK, "layers": layers(("zone", 1))},
            "no requested topology level for slices: zone",
            id="another level of slices",
        ),
        pytest.param(
            {"preferred": RACK, "layers": layers((BLOCK, 1))},
            f"podset slice topology {BLOCK} is above the podset topology {RACK}",
            id="slices above the level",
        ),
        pytest.param(
            {"preferred": BLOCK, "layers": layers((BLOCK, 4), ("zone", 2))},
            "no requested topology level for additional slice layer: zone",
            id="another level of inner slices",
        ),
        pytest.param(
            {"preferred": BLOCK, "layers": layers((RACK, 4), (RACK, 2))},
            f"additional slice layer topology {RACK} must be at a lower level than {RACK}",
            id="inner slices on the same level",
        ),
        pytest.param(
            {"preferred": BLOCK, "layers": layers((RACK, 4), (HOST, 3))},
            "additional slice layer size 3 must evenly divide parent layer size 4",
            id="inner slices that do not come out even",
        ),
        pytest.param(
            {"preferred": BLOCK, "layers": layers((BLOCK, 4), (RACK, 2), (HOST, 4))},
            "additional slice layer size 4 must evenly divide parent layer size 2",
            id="the innermost slices that do not come out even",
        ),
    ],
)
def test_a_request_that_means_nothing_is_refused(request_, want):
    assert refusal(placer_of(node("n")), need_of(**request_)) == want


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param({"required": BLOCK}, BLOCK, id="required"),
        pytest.param({"preferred": RACK}, RACK, id="preferred"),
        pytest.param({"unconstrained": True}, HOST, id="unconstrained"),
        pytest.param({"is_implied": True}, HOST, id="implied"),
        pytest.param({"layers": layers((RACK, 1))}, BLOCK, id="slices alone"),
    ],
)
@pytest.mark.parametrize("is_balanced", [False, True])
def test_where_there_are_no_nodes_the_level_is_named(request_, want, is_balanced):
    placer = placer_of(tas_balanced_placement=is_balanced)
    assert refusal(placer, need_of(**request_)) == f"no topology domains at level: {want}"


@pytest.mark.parametrize(
    ("request_", "leader", "want"),
    [
        pytest.param(
            {"required": RACK},
            None,
            {"level": 1, "slice_level": 2, "is_required": True},
            id="required",
        ),
        pytest.param(
            {"preferred": BLOCK},
            need_of(name="leader"),
            {"level": 0, "slice_level": 2, "leaders": 1},
            id="preferred, with a leader",
        ),
        pytest.param(
            {"unconstrained": True},
            None,
            {"level": 2, "slice_level": 2, "is_unconstrained": True},
            id="unconstrained",
        ),
        pytest.param(
            {"is_implied": True},
            None,
            {"level": 2, "slice_level": 2, "is_unconstrained": True},
            id="implied",
        ),
        pytest.param(
            {"layers": layers((RACK, 2))},
            None,
            {"level": 0, "slice_level": 1, "size": 2, "is_unconstrained": True},
            id="slices alone",
        ),
        pytest.param(
            {"required": BLOCK, "layers": layers((BLOCK, 4), (HOST, 2))},
            None,
            {
                "level": 0,
                "slice_level": 0,
                "size": 4,
                "sizes": {1: 2, 2: 2},
                "layers": layers((BLOCK, 4), (HOST, 2)),
                "is_required": True,
            },
            id="inner slices",
        ),
    ],
)
def test_what_a_search_begins_with(request_, leader, want):
    placer = placer_of(node("n"))
    plain = {"gates": Gates(), "count": 7, "size": 1, "sizes": {}}
    assert placer._search(need_of(7, **request_), leader) == Search(**{**plain, **want})


def test_sizes_of_inner_slices_hold_for_the_levels_between():
    request = TopologyRequest(layers=layers(("a", 8), ("b", 4), ("d", 2)))
    assert _inner_sizes(request, ("a", "b", "c", "d", "e")) == {1: 4, 2: 2, 3: 2}
    assert _inner_sizes(TopologyRequest(layers=layers(("a", 8))), ("a", "b")) == {}
    assert _inner_sizes(TopologyRequest(), ("a", "b")) == {}


SHORT = 'topology "topo" allows to fit only 2 out of 3 pod(s). Total nodes: 2; excluded: '


def test_what_others_were_given_is_not_there():
    placer = placer_of(node("n1", 2), node("n2", 2))
    assert counts(placer, need_of(3, required=RACK)) == {"main": {"n1": 2, "n2": 1}}
    assumed = {"n1": {GPU: 2, "pods": 1}, "gone": {GPU: 9}}
    found = refusal(placer, need_of(3, required=RACK), assumed=assumed)
    assert found == f'{SHORT}resource "gpu": 1'
    assert counts(placer, need_of(2, required=RACK), assumed=assumed) == {"main": {"n2": 2}}
    assert placer.tree.leaves["n1"].rest == {GPU: 2, "pods": 9}
    by_pods = {"n1": {"pods": 9}}
    found = refusal(placer, need_of(3, required=RACK), assumed=by_pods)
    assert found == f'{SHORT}resource "pods": 1'


def test_placed_pods_count_unless_it_is_as_if_there_were_none():
    placer = placer_of(node("n1", 2), node("n2", 2))
    placer.tree.use("n1", {GPU: 2, "pods": 1})
    assert refusal(placer, need_of(3, required=RACK)) == f'{SHORT}resource "gpu": 1'
    found = counts(placer, need_of(3, required=RACK), is_empty=True)
    assert found == {"main": {"n1": 2, "n2": 1}}
    # What the same workload was given counts all the same.
    placer.tree.use_node("n2", {GPU: 1})
    found = counts(placer, need_of(2, required=RACK), is_empty=True, assumed={"n1": {GPU: 1}})
    assert found == {"main": {"n1": 1, "n2": 1}}


def test_a_search_within_a_domain_counts_what_lies_outside():
    nodes = [node("n1", 2), node("n2", 2), node("n3", rack="rr")]
    placer = placer_of(*nodes)
    found = refusal(placer, need_of(5, required=BLOCK), within="b,r")
    assert found == (
        'topology "topo" allows to fit only 4 out of 5 pod(s). Total nodes: 3; excluded: '
        "topologyDomain: 1"
    )
    assert counts(placer, need_of(4, required=BLOCK), within="b,rr") == {"main": {"n3": 4}}
    found = counts(placer, need_of(6, required=BLOCK), within="b")
    assert found == {"main": {"n1": 2, "n3": 4}}


def test_leader_and_workers_are_told_apart():
    placer = placer_of(node("n1", 3), node("n2", 2))
    workers, leader = need_of(3, required=RACK), need_of(name="leader", gpus=2)
    assert counts(placer, workers, leader) == {
        "leader": {"n1": 1},
        "main": {"n1": 1, "n2": 2},
    }
    placer.tree.use("n2", {GPU: 1})
    assert counts(placer, need_of(2, required=RACK), leader) == {
        "leader": {"n1": 1},
        "main": {"n1": 1, "n2": 1},
    }


def test_domains_that_are_no_nodes_are_written_with_all_their_levels():
    broken = node("n2", 3, taints=(Taint("broken", "", "NoSchedule"),))
    placer = placer_of(node("n1"), broken, node("n3", 2, rack="q"), levels=(BLOCK, RACK))
    [placement] = placer.place(need_of(8, unconstrained=True), None, Conditions()).values()
    assert placement.levels == (BLOCK, RACK)
    assert [(x.values, x.count) for x in placement.domains] == [(("b", "q"), 2), (("b", "r"), 6)]
    assert refusal(placer, need_of(10, required=BLOCK)) == (
        'topology "topo" allows to fit only 9 out of 10 pod(s)'
    )
    assert refusal(placer, need_of(2, gpus=7, required=BLOCK)) == (
        'topology "topo" allows to fit only 1 out of 2 pod(s). Total nodes: 2; excluded: '
        'resource "gpu": 1'
    )


TAINT = Taint("broken", "", "NoSchedule")


def test_nodes_that_refuse_the_pods_are_counted_each_time():
    nodes = [
        node("n1"),
        node("n2", taints=(TAINT,)),
        node("n3", labels={"zone": "z"}, gpus=9),
        node("n4", 0),
    ]
    placer = placer_of(*nodes)
    plain = need_of(14, required=BLOCK)
    want = (
        'topology "topo" allows to fit only 13 out of 14 pod(s). Total nodes: 4; excluded: '
        'resource "gpu": 1, taint "broken:NoSchedule": 1'
    )
    assert refusal(placer, plain) == want
    assert refusal(placer, plain) == want
    in_zone = replace(plain, selector={"zone": "z"})
    assert refusal(placer, in_zone) == (
        'topology "topo" allows to fit only 9 out of 14 pod(s). Total nodes: 4; excluded: '
        'nodeSelector: 2, taint "broken:NoSchedule": 1'
    )
    tolerant = replace(plain, tolerations=(Toleration("broken", "Exists"),))
    assert counts(placer, replace(tolerant, count=17)) == {"main": {"n1": 4, "n2": 4, "n3": 9}}
    assert refusal(placer, plain) == want


def test_what_a_flavor_tolerates_its_pods_tolerate():
    placer = placer_of(node("n1", taints=(TAINT,)), tolerations=(Toleration("broken", "Exists"),))
    assert counts(placer, need_of(4, required=HOST)) == {"main": {"n1": 4}}
    other = node("n2", taints=(Taint("other", "", "NoExecute"),))
    placer.tree.add(other, pods={})
    placer.forget_nodes()
    assert refusal(placer, need_of(5, required=RACK)) == (
        'topology "topo" allows to fit only 4 out of 5 pod(s). Total nodes: 2; excluded: '
        'taint "other:NoExecute": 1'
    )


def test_nodes_are_looked_at_again_once_they_are_forgotten():
    placer, need = placer_of(node("n1", 2)), need_of(3, required=RACK)
    refusal(placer, need)
    placer.tree.add(node("n2", 2), pods={})
    placer.forget_nodes()
    assert counts(placer, need) == {"main": {"n1": 2, "n2": 1}}


LIKES = NodeRules(preferences=((5, NodeTerm((Expression("liked", "Exists"),))),))


def test_preferences_count_once_in_a_cycle_for_each_pod_set():
    nodes = [node("n1"), node("n2", labels={"liked": ""})]
    placer = placer_of(*nodes, tas_respect_node_affinity_preferred=True)
    need = need_of(2, required=HOST, rules=LIKES)
    liked, plain = {"main": {"n2": 2}}, {"main": {"n1": 2}}
    assert counts(placer, need, owner="u") == liked
    assert counts(placer, need, owner="u") == plain
    assert counts(placer, need, owner="v") == liked
    assert counts(placer, replace(need, name="other"), owner="u") == {"other": {"n2": 2}}
    placer.begin_cycle()
    assert counts(placer, need, owner="u") == liked
    assert counts(placer, need) == counts(placer, need) == liked


def test_preferences_do_not_count_without_the_gate_or_without_nodes():
    nodes = [node("n1", rack="q"), node("n2", labels={"liked": ""})]
    need = need_of(2, required=HOST, rules=LIKES)
    assert counts(placer_of(*nodes), need) == {"main": {"n1": 2}}
    racks = placer_of(*nodes, levels=(RACK,), tas_respect_node_affinity_preferred=True)
    assert counts(racks, replace(need, request=TopologyRequest(required=RACK))) == {
        "main": {"q": 2}
    }


def test_a_required_domain_is_the_best_of_those_that_hold_everything():
    """The one that is liked best is too small; of the others the one with least to spare."""
    nodes = [
        node("n1", 2, labels={"liked": ""}),
        node("n2", 9),
        node("n3", 4),
        node("n4", 5),
    ]
    placer = placer_of(*nodes, tas_respect_node_affinity_preferred=True)
    assert counts(placer, need_of(3, required=HOST, rules=LIKES)) == {"main": {"n3": 3}}
    assert refusal(placer, need_of(10, required=HOST, rules=LIKES)) == (
        'topology "topo" allows to fit only 2 out of 10 pod(s)'
    )


def test_what_is_implied_and_required_tells_the_most_that_one_domain_holds():
    """A pod set that asks for nothing else may be implied and required at once."""
    placer = placer_of(node("n1", 2), node("n2", 5))
    need = need_of(7, required=HOST, is_implied=True)
    assert refusal(placer, need) == 'topology "topo" allows to fit only 5 out of 7 pod(s)'
    assert counts(placer, replace(need, count=3)) == {"main": {"n2": 3}}
