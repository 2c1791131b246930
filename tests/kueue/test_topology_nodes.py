"""Nodes and pods as placement reads them, and what keeps pods off a node."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clusters.kueue.topology.nodes import (
    Exclusions,
    NodeSpec,
    PodNeeds,
    PodUse,
    is_member,
    parse_node,
    parse_pod,
    parse_topology,
)
from clusters.kueue.workload.matching import Expression, NodeRules, NodeTerm, Taint, Toleration

READY = {"type": "Ready", "status": "True"}


def test_a_topology_is_its_name_and_its_levels():
    document = {"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": x} for x in "ab"]}}
    assert parse_topology(document) == ("t", ("a", "b"))
    assert parse_topology({"metadata": {"name": "t"}, "spec": {}}) == ("t", ())
    assert parse_topology({"metadata": {"name": "t"}}) == ("t", ())


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(
            {
                "metadata": {"name": "n", "labels": {"pool": "a"}},
                "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
                "status": {
                    "allocatable": {"cpu": "1500m", "gpu": 8, "memory": "1Ki"},
                    "conditions": [READY],
                },
            },
            NodeSpec(
                "n",
                {"pool": "a"},
                (Taint("k", "v", "NoExecute"),),
                {"cpu": 1500, "gpu": 8, "memory": 1024},
                is_usable=True,
            ),
            id="all of it",
        ),
        pytest.param(
            {"metadata": {"name": "n"}}, NodeSpec("n", {}, (), {}, is_usable=False), id="bare"
        ),
        pytest.param(
            {
                "metadata": {"name": "n", "labels": None},
                "spec": {"unschedulable": True},
                "status": {"conditions": [READY], "allocatable": None},
            },
            NodeSpec("n", {}, (), {}, is_usable=False),
            id="cordoned",
        ),
        pytest.param(
            {
                "metadata": {"name": "n"},
                "spec": {"unschedulable": False},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            },
            NodeSpec("n", {}, (), {}, is_usable=False),
            id="not ready",
        ),
    ],
)
def test_a_node_is_read(document, want):
    assert parse_node(document) == want


def pod(*, phase: str | None = None, node: str | None = "n", **annotations: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": "2", "gpu": "1"}}}]}
    if node is not None:
        spec["nodeName"] = node
    document: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}
    if annotations:
        document["metadata"]["annotations"] = annotations
    if phase is not None:
        document["status"] = {"phase": phase}
    return document


TAKES = PodUse("ns/p", "n", {"cpu": 2000, "gpu": 1, "pods": 1})
NOTHING = PodUse("ns/p", "", {"pods": 1})


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(pod(), TAKES, id="bound"),
        pytest.param(pod(phase="Running"), TAKES, id="running"),
        pytest.param(pod(phase="Succeeded"), NOTHING, id="done"),
        pytest.param(pod(phase="Failed"), NOTHING, id="failed"),
        pytest.param(pod(node=None), NOTHING, id="not bound"),
        pytest.param(pod(node=""), NOTHING, id="bound to nothing"),
        pytest.param(pod(**{"kueue.x-k8s.io/other": "x"}), TAKES, id="another annotation"),
        *(
            pytest.param(pod(**{f"kueue.x-k8s.io/podset-{name}": "x"}), NOTHING, id=name)
            for name in (
                "preferred-topology",
                "required-topology",
                "unconstrained-topology",
                "slice-required-topology",
                "slice-required-topology-constraints",
            )
        ),
        pytest.param(
            {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n"}},
            PodUse("ns/p", "n", {"pods": 1}),
            id="asks for nothing",
        ),
        pytest.param({"metadata": {"name": "p", "namespace": "ns"}}, NOTHING, id="bare"),
    ],
)
def test_a_pod_is_read(document, want):
    assert parse_pod(document) == want


@pytest.mark.parametrize(
    ("flavor", "levels", "want"),
    [
        pytest.param({}, (), True, id="nothing asked for"),
        pytest.param({"pool": "a"}, ("rack", "host"), True, id="all there"),
        pytest.param({"pool": "b"}, ("rack",), False, id="another value"),
        pytest.param({"pool": "a", "zone": "z"}, ("rack",), False, id="one label is not there"),
        pytest.param({"pool": "a"}, ("rack", "block"), False, id="one level is not there"),
    ],
)
def test_members_of_a_flavor(flavor, levels, want):
    labels = {"pool": "a", "rack": "r", "host": "h"}
    assert is_member(labels, flavor=flavor, levels=levels) is want


def test_what_was_left_out_is_listed_in_order():
    counted = Exclusions(5)
    assert counted.text() == ""
    counted.reasons["nodeSelector"] += 2
    counted.reasons["affinity"] += 1
    assert counted.text() == ". Total nodes: 5; excluded: affinity: 1, nodeSelector: 2"
    assert counted == Exclusions(5, Counter({"nodeSelector": 2, "affinity": 1}))
    assert Exclusions() == Exclusions(0, Counter())


TERM = NodeTerm((Expression("zone", "In", ("z",)),))
NAMED = NodeTerm(fields=(Expression("metadata.name", "In", ("n",)),))


def test_needs_are_those_of_the_pods_the_flavor_and_the_checks():
    rules = NodeRules(
        node_selector=(("a", "1"),),
        affinity_terms=(TERM,),
        tolerations=(Toleration("own"),),
        preferences=((3, TERM),),
    )
    added = {"tolerations": (Toleration("of flavor"),), "selector": {"c": "3", "b": "2"}}
    assert PodNeeds.of(rules, prefers=True, **added) == PodNeeds(
        selector=(("a", "1"), ("b", "2"), ("c", "3")),
        terms=(TERM,),
        preferences=((3, TERM),),
        tolerations=(Toleration("own"), Toleration("of flavor")),
    )
    assert PodNeeds.of(rules, prefers=False, **added).preferences == ()


@pytest.mark.parametrize(
    ("needs", "taints", "want"),
    [
        pytest.param({}, (), "", id="nothing in the way"),
        pytest.param({}, (Taint("k", "v", "NoSchedule"),), 'taint "k=v:NoSchedule"', id="a taint"),
        pytest.param(
            {"tolerations": (Toleration("k", "Exists"),)},
            (Taint("k", "v", "NoSchedule"),),
            "",
            id="a taint that is tolerated",
        ),
        pytest.param({"selector": (("zone", "z"),)}, (), "", id="a label"),
        pytest.param(
            {"selector": (("zone", "z"), ("zone", "y"))}, (), "nodeSelector", id="another value"
        ),
        pytest.param({"terms": ()}, (), "affinity", id="no term at all"),
        pytest.param({"terms": (TERM,)}, (), "", id="a term"),
        pytest.param({"terms": (NodeTerm(), NAMED)}, (), "", id="one of two terms, by name"),
        pytest.param(
            {"terms": (NodeTerm((Expression("zone", "DoesNotExist"),)),)},
            (),
            "affinity",
            id="a term that is not met",
        ),
        pytest.param(
            {"selector": (("x", "y"),), "terms": ()},
            (Taint("k", "", "NoExecute"),),
            'taint "k:NoExecute"',
            id="the taint is named first",
        ),
        pytest.param(
            {"selector": (("x", "y"),), "terms": ()}, (), "nodeSelector", id="then the selector"
        ),
    ],
)
def test_why_a_node_is_refused(needs, taints, want):
    node = NodeSpec("n", {"zone": "z"}, taints, {}, is_usable=True)
    empty = {"selector": (), "terms": None, "preferences": (), "tolerations": ()}
    assert PodNeeds(**{**empty, **needs}).refusal(node) == want


def test_preferences_that_a_node_meets_add_up():
    other = NodeTerm((Expression("zone", "NotIn", ("z",)),))
    preferences = ((3, TERM), (10, other), (4, NAMED), (-1, TERM))
    needs = PodNeeds((), None, preferences, ())
    assert needs.score(NodeSpec("n", {"zone": "z"}, (), {}, is_usable=True)) == 6
    assert needs.score(NodeSpec("m", {"zone": "y"}, (), {}, is_usable=True)) == 10
