"""What each document changes: who is looked at again, what is news, what was assumed before."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clusters.documents import labels
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.cycle.engine import CycleFailed, Engine, cut
from clusters.kueue.cycle.intake import UnreadableDocument
from clusters.kueue.cycle.second_pass import SecondPasses
from clusters.kueue.cycle.usage_accounts import becomes_admitted
from clusters.kueue.quota.specifications import CheckSpec
from clusters.kueue.workload.workloads import Workload
from tests.kueue.builders import (
    GPU,
    START,
    World,
    cluster_queue,
    cohort,
    flavor,
    group,
    local_queue,
    preemption,
    quota,
    reserved,
    workload,
)

SECOND = timedelta(seconds=1)
HELD = workload("held", "b", gpus=1)


def evicted(reason: str = "Preempted") -> dict[str, str]:
    return {"type": "Evicted", "status": "True", "reason": reason}


def pool() -> World:
    """Three queues of one tree and one alone; in each of them a workload is parked."""
    world = World().feed(
        cohort("pool", "top"),
        cluster_queue("a", group(f0=quota(1)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(1)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(1)), in_cohort="top"),
        cluster_queue("far", group(f0=quota(1))),
        reserved(HELD, "b"),
        *(workload(f"w-{name}", name, gpus=99) for name in ("a", "b", "c", "far")),
    )
    world.run()
    assert woken(world) == []
    return world


def woken(world: World) -> list[str]:
    """Queues of which something is looked at again."""
    state = world.engine.state
    state.settle(world.now)
    return sorted(queue.name for queue in state.queues.queues() if queue.active_count)


def feeding(*documents: dict[str, Any]) -> Callable[[World], object]:
    return lambda world: [world.engine.upsert(item, now=world.now) for item in documents]


def deleting(kind: str, key: str) -> Callable[[World], object]:
    return lambda world: world.engine.delete(kind, key=key, now=world.now)


def waiting(**changes: Any) -> dict[str, Any]:
    """The workload that waits in a, changed."""
    document = workload("w-a", changes.pop("queue", "a"), gpus=changes.pop("gpus", 99))
    document["spec"].update(changes.pop("spec", {}))
    document["metadata"]["annotations"] = changes.pop("annotations", {})
    return {**document, **changes}


def check(name: str, status: str = "True") -> dict[str, Any]:
    return {
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "x"},
        "status": {"conditions": [{"type": "Active", "status": status}]},
    }


def namespace(name: str = "ns", **marked: str) -> dict[str, Any]:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": marked}}


def bounds(space: str, **request: str) -> dict[str, Any]:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": space},
        "spec": {"limits": [{"type": "Container", "defaultRequest": request}]},
    }


TREE, ALL = ["a", "b", "c"], ["a", "b", "c", "far"]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(feeding(cohort("pool", "top")), [], id="the same Cohort"),
        pytest.param(feeding(cohort("pool", "top", f0=quota(1))), TREE, id="a Cohort's quota"),
        pytest.param(feeding(cohort("pool", "side")), TREE, id="a Cohort that moves"),
        pytest.param(feeding(cohort("top")), TREE, id="a Cohort that was only named"),
        pytest.param(feeding(cohort("new", f0=quota(1))), [], id="a Cohort of nobody"),
        pytest.param(deleting("Cohort", "pool"), TREE, id="a Cohort that goes"),
        pytest.param(deleting("Cohort", "unknown"), [], id="an unknown Cohort"),
        pytest.param(
            feeding(cluster_queue("a", group(f0=quota(1)), in_cohort="pool")),
            [],
            id="the same queue",
        ),
        pytest.param(
            feeding(cluster_queue("a", group(f0=quota(2)), in_cohort="pool")), TREE, id="quota"
        ),
        pytest.param(
            feeding(cluster_queue("a", group(f0=quota(1)))), TREE, id="a queue that leaves its tree"
        ),
        pytest.param(
            feeding(cluster_queue("far", group(f0=quota(1)), in_cohort="pool")),
            ALL,
            id="a queue that comes into a tree",
        ),
        pytest.param(feeding(cluster_queue("far", group(f0=quota(2)))), ["far"], id="one alone"),
        pytest.param(feeding(cluster_queue("new", group(f0=quota(2)))), [], id="a new queue"),
        pytest.param(deleting("ClusterQueue", "a"), ["b", "c"], id="a queue that goes"),
        pytest.param(deleting("ClusterQueue", "far"), [], id="one alone that goes"),
        pytest.param(deleting("ClusterQueue", "unknown"), [], id="an unknown queue"),
        pytest.param(feeding(flavor("f0")), [], id="the same flavor"),
        pytest.param(feeding(flavor("f1")), ALL, id="a new flavor"),
        pytest.param(deleting("ResourceFlavor", "f0"), ALL, id="a flavor that goes"),
        pytest.param(deleting("ResourceFlavor", "f9"), [], id="an unknown flavor"),
        pytest.param(feeding(check("c")), ALL, id="a new check"),
        pytest.param(deleting("AdmissionCheck", "c"), [], id="an unknown check"),
        pytest.param(feeding(namespace()), [], id="the same namespace"),
        pytest.param(feeding(namespace(team="a")), ALL, id="a label of the namespace"),
        pytest.param(deleting("Namespace", "ns"), [], id="a namespace that goes"),
        pytest.param(
            feeding({"kind": "WorkloadPriorityClass", "metadata": {"name": "p"}, "value": 3}),
            [],
            id="a priority class",
        ),
        pytest.param(feeding(bounds("ns", cpu="1")), ALL, id="bounds that change requests"),
        pytest.param(feeding(bounds("other", cpu="1")), [], id="bounds of another namespace"),
        pytest.param(deleting("Workload", "ns/held"), TREE, id="a holder that goes"),
        pytest.param(deleting("Workload", "ns/w-a"), ["b", "c"], id="a waiting one that goes"),
        pytest.param(deleting("Workload", "ns/unknown"), [], id="an unknown workload"),
        pytest.param(feeding(reserved(HELD, "b")), [], id="the same holder"),
        pytest.param(
            feeding(reserved(HELD, "b", conditions=({"type": "PodsReady", "status": "True"},))),
            [],
            id="a holder whose pods are ready",
        ),
        pytest.param(
            feeding(reserved(workload("held", "b", gpus=1, priority=1), "b")),
            TREE,
            id="a holder of another priority",
        ),
        pytest.param(
            feeding(reserved(HELD, "b", conditions=({"type": "Finished", "status": "True"},))),
            TREE,
            id="a holder that finishes",
        ),
        pytest.param(feeding(reserved(HELD, "far")), TREE, id="a holder that holds elsewhere"),
        pytest.param(feeding(reserved(HELD, "b", flavor="f1")), TREE, id="another flavor"),
        pytest.param(feeding(HELD), TREE, id="a holder that waits again"),
        pytest.param(feeding(waiting()), [], id="the same waiting one"),
        pytest.param(feeding(waiting(gpus=98)), ["a"], id="a waiting one that asks for less"),
        pytest.param(
            feeding(waiting(spec={"priority": 1})), TREE, id="a waiting one of another priority"
        ),
        pytest.param(
            feeding(waiting(status={"reclaimablePods": [{"name": "main", "count": 1}]})),
            TREE,
            id="a waiting one with pods that are done",
        ),
        pytest.param(feeding(waiting(queue="far")), [], id="one that is moved beside an equal one"),
        pytest.param(feeding(waiting(queue="far", gpus=98)), ["far"], id="one that is moved"),
        pytest.param(
            feeding(waiting(annotations={labels.GATED_BY: "x.io/y"})), [], id="one that is gated"
        ),
        pytest.param(
            feeding(waiting(spec={"active": False})), ["b", "c"], id="one that is switched off"
        ),
        pytest.param(feeding(local_queue("a", "a", stopPolicy="Hold")), [], id="a stopped queue"),
    ],
)
def test_who_is_looked_at_again(change, want):
    world = pool()
    change(world)
    assert woken(world) == want
    world.run()
    # Once is enough; without its flavor no queue looks at anything.
    assert woken(world) == ([] if "f0" in world.engine.state.snapshot.flavors else want)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_whole_tree_of_a_queue_is_woken_on_demand(name):
    world = pool()
    world.engine.wake(name)
    assert woken(world) == TREE
    world.run()
    world.engine.wake("unknown")
    world.engine.state.wake_cohort("unknown")
    assert woken(world) == []


def test_only_queues_that_may_admit_are_woken_with_the_active():
    world = pool()
    world.feed(cluster_queue("far", group(f0=quota(1)), stopPolicy="Hold"))
    assert woken(world) == ["far"]
    world.engine.state.queues.queue("far").pop()
    world.engine.state.wake_active()
    assert woken(world) == TREE


def test_queue_wakes_whom_its_selector_welcomes():
    world = World().feed(
        cluster_queue("q", group(f0=quota(1)), namespaceSelector={"matchLabels": {"team": "a"}}),
        cluster_queue("any", group(f0=quota(1))),
        workload("w", "q", gpus=99),
        workload("v", "any", gpus=99),
    )
    world.run()
    world.engine.wake("q")
    world.engine.wake("any")
    assert woken(world) == ["any"]
    world.run()
    world.feed(namespace(team="a"))
    assert woken(world) == ["any", "q"]


# What is news


def node(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": changes.pop("pool", "a"), "rack": "r"}},
        "status": {
            "allocatable": {GPU: "8", "pods": "99"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **changes,
    }


def pod(name: str, gpus: int, on: str = "n") -> dict[str, Any]:
    requests = {"requests": {GPU: str(gpus)}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "other"},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": requests}]},
    }


def topology(*levels: str, name: str = "topo") -> dict[str, Any]:
    listed = [{"nodeLabel": level} for level in levels]
    return {"kind": "Topology", "metadata": {"name": name}, "spec": {"levels": listed}}


def placed() -> World:
    """One queue over a topology, one beside it, and a workload parked in each."""
    world = World().feed(
        topology("rack"),
        flavor("f0", nodeLabels={"pool": "a"}, topologyName="topo"),
        flavor("f1"),
        cluster_queue("a", group(f0=quota(1))),
        cluster_queue("b", group(f1=quota(1))),
        node("n"),
        pod("daemon", 1),
        workload("w-a", "a", gpus=99),
        workload("w-b", "b", gpus=99),
    )
    world.run()
    return world


@pytest.mark.parametrize(
    ("change", "want_growth", "want_woken"),
    [
        pytest.param(feeding(topology("rack")), 0, [], id="the same topology"),
        pytest.param(feeding(topology("rack", "host")), 1, ["a", "b"], id="another level"),
        pytest.param(feeding(topology("x", name="new")), 1, ["a", "b"], id="a new topology"),
        pytest.param(deleting("Topology", "topo"), 1, ["a", "b"], id="a topology that goes"),
        pytest.param(deleting("Topology", "gone"), 0, [], id="an unknown topology"),
        pytest.param(feeding(node("n")), 0, [], id="the same node"),
        pytest.param(feeding(node("m")), 1, ["a", "b"], id="a new node"),
        pytest.param(feeding(node("m", pool="b")), 0, [], id="a node of no flavor"),
        pytest.param(deleting("Node", "n"), 1, ["a", "b"], id="a node that goes"),
        pytest.param(deleting("Node", "gone"), 0, [], id="an unknown node"),
        pytest.param(feeding(pod("daemon", 1)), 0, [], id="the same pod"),
        pytest.param(feeding(pod("new", 1)), 0, [], id="a new pod"),
        pytest.param(deleting("Pod", "other/daemon"), 1, ["a"], id="a pod that goes"),
        pytest.param(deleting("Pod", "other/gone"), 0, [], id="an unknown pod"),
        pytest.param(feeding(pod("daemon", 0)), 1, ["a"], id="a pod that takes less"),
    ],
)
def test_nodes_and_pods_are_news_where_they_make_room(change, want_growth, want_woken):
    world = placed()
    before = world.engine.state.revision
    change(world)
    assert world.engine.state.revision - before == want_growth
    assert woken(world) == want_woken


def lost(document: dict[str, Any], *nodes: str) -> dict[str, Any]:
    found = copy.deepcopy(document)
    found["status"]["unhealthyNodes"] = [{"name": name} for name in nodes]
    return found


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(reserved(HELD, "b"), 0, id="the same"),
        pytest.param(reserved(HELD, "b", is_admitted=False), 1, id="admitted no more"),
        pytest.param(reserved(HELD, "b", conditions=(evicted(),)), 1, id="evicted"),
        pytest.param(
            reserved(HELD, "b", conditions=({"type": "PodsReady", "status": "True"},)),
            1,
            id="its pods are ready",
        ),
        pytest.param(
            reserved(workload("held", "b", gpus=1, priority=1), "b"), 1, id="another priority"
        ),
        pytest.param(lost(reserved(HELD, "b"), "n"), 1, id="a node failed"),
        pytest.param(
            {
                **reserved(HELD, "b"),
                "metadata": {**HELD["metadata"], "labels": {labels.JOB_UID: "x"}},
            },
            0,
            id="another label",
        ),
        pytest.param(reserved(HELD, "c"), 1, id="held elsewhere"),
        pytest.param(HELD, 1, id="held no more"),
        pytest.param(waiting(), 0, id="the same that waits"),
        pytest.param(waiting(gpus=98), 1, id="another request"),
        pytest.param(
            waiting(status={"admissionChecks": [{"name": "c", "state": "Ready"}]}),
            0,
            id="a check of what waits",
        ),
        pytest.param(
            waiting(status={"requeueState": {"requeueAt": "2026-01-02T00:00:00Z"}}),
            1,
            id="a time to wait for",
        ),
        pytest.param(
            waiting(status={"conditions": [{"type": "Requeued", "status": "False"}]}),
            1,
            id="kept from its queue",
        ),
        pytest.param(waiting(status={"conditions": [evicted()]}), 1, id="was evicted"),
        pytest.param(workload("new", "a"), 1, id="a new one"),
    ],
)
def test_revision_grows_by_one_with_each_document_that_is_news(document, want):
    world = pool()
    before = world.engine.state.revision
    feeding(document)(world)
    assert world.engine.state.revision - before == want
    again = world.engine.state.revision
    feeding(document)(world)
    assert world.engine.state.revision == again
    key = f"ns/{document['metadata']['name']}"
    known = world.engine.state.workloads[key]
    assert known == world.engine.state.read_workload(document)
    holding = world.engine.state.snapshot.holding(key)
    assert holding is None or holding.workload is known
    assert (holding is None) is (known.reservation is None)
    assert holding is None or holding.is_evicted is known.is_evicted
    deleting("Workload", key)(world)
    assert world.engine.state.revision == again + 1
    assert key not in world.engine.state.workloads
    deleting("Workload", key)(world)
    assert world.engine.state.revision == again + 1


def test_flavors_are_tried_again_once_what_holds_quota_is_admitted():
    world = pool()
    queue = world.engine.state.snapshot.queues["b"]
    feeding(reserved(HELD, "b", is_admitted=False))(world)
    before = queue.generation
    feeding(reserved(HELD, "b"))(world)
    assert queue.generation == before + 1
    feeding(reserved(HELD, "b"))(world)
    assert queue.generation == before + 1
    feeding(reserved(HELD, "b", is_admitted=False))(world)
    world.engine.confirm_admitted("ns/held", now=world.now)
    world.engine.confirm_admitted("ns/none", now=world.now)
    assert queue.generation == before + 2
    holding = world.engine.state.snapshot.holding("ns/held")
    assert holding is not None
    assert holding.workload.is_admitted
    assert world.engine.state.workloads["ns/held"] is holding.workload


def test_workload_without_its_queue_is_admitted_all_the_same():
    world = pool()
    feeding(reserved(HELD, "b", is_admitted=False))(world)
    deleting("ClusterQueue", "b")(world)
    world.engine.confirm_admitted("ns/held", now=world.now)
    assert world.engine.state.workloads["ns/held"].is_admitted


def test_who_was_parked_for_an_equal_one_is_noted_until_something_becomes_of_it():
    world = pool()
    bypassed = world.engine.state.bypassed
    feeding(workload("a2", "a", gpus=99, age=1), workload("a3", "a", gpus=99, age=2))(world)
    feeding(workload("a4", "a", gpus=1, age=3))(world)
    assert bypassed == {"ns/a2", "ns/a3"}
    feeding(waiting(queue="far"))(world)
    assert bypassed == {"ns/a2", "ns/a3", "ns/w-a"}
    deleting("Workload", "ns/a3")(world)
    assert bypassed == {"ns/a2", "ns/w-a"}
    feeding(reserved(workload("a2", "a", gpus=99, age=1), "a"))(world)
    assert bypassed == {"ns/w-a"}
    world.engine.wake("far")
    world.run()
    assert bypassed == set()


def test_who_was_parked_for_an_equal_one_is_noted_no_more_once_it_is_admitted():
    world = pool()
    feeding(workload("a2", "a", gpus=99, age=1))(world)
    assert world.engine.state.bypassed == {"ns/a2"}
    world.feed(cluster_queue("a", group(f0=quota(999)), in_cohort="pool"))
    results = world.run()
    assert "ns/a2" in {item.key for result in results for item in result.admitted}
    assert world.engine.state.bypassed == set()


def test_document_of_a_finished_workload_is_forgotten():
    world = pool()
    ended = ({"type": "Finished", "status": "True"},)
    feeding(reserved(HELD, "b", conditions=ended))(world)
    feeding(reserved(HELD, "b", conditions=ended))(world)
    assert "ns/held" not in world.engine.state.workloads
    assert world.engine.state.snapshot.holding("ns/held") is None
    assert world.usage()["b"] == {}


def test_workload_that_comes_without_quota_and_switched_off_is_only_known():
    world = pool()
    document = workload("new", "a")
    document["spec"]["active"] = False
    feeding(document)(world)
    state = world.engine.state
    assert state.workloads["ns/new"].name == "new"
    assert (state.queues.item("ns/new"), state.queues.refusal("ns/new")) == (None, None)
    document["spec"]["active"] = True
    feeding(document)(world)
    assert state.queues.queue_of("ns/new") == "a"


# What was assumed


def preempting() -> tuple[World, dict[str, Any], dict[str, Any]]:
    """A queue in which w has told old to stop and v got what was free."""
    old = reserved(workload("old", "q", gpus=4), "q")
    new = workload("v", "q", gpus=1, priority=9)
    world = World().feed(
        cluster_queue("q", group(f0=quota(5)), preemption=preemption("LowerPriority")),
        old,
        workload("w", "q", gpus=4, priority=5),
        new,
    )
    assert [item.key for item in world.cycle().admitted] == ["ns/v"]
    assert [item.key for item in world.cycle().preempted] == ["ns/old"]
    return world, old, new


def assumed(world: World) -> tuple[set[str], set[str]]:
    return world.engine.state.assumed, world.engine.state.assumed_evicted


def test_what_is_decided_is_assumed_until_a_document_says_it():
    world, old, new = preempting()
    state = world.engine.state
    assert assumed(world) == ({"ns/v"}, {"ns/old"})
    feeding(old, new)(world)
    assert assumed(world) == ({"ns/v"}, {"ns/old"})
    assert state.workloads["ns/v"].reservation is not None
    assert state.workloads["ns/old"].is_evicted
    feeding(reserved(new, "q"))(world)
    assert assumed(world) == (set(), {"ns/old"})
    told = reserved(workload("old", "q", gpus=4), "q", conditions=(evicted(),))
    feeding(told)(world)
    assert assumed(world) == (set(), set())
    assert world.usage()["q"] == {("f0", GPU): 5}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"spec": {"active": False}}, (set(), {"ns/old"}), id="switched off"),
        pytest.param({"metadata": {"uid": "other"}}, (set(), {"ns/old"}), id="another object"),
        pytest.param(
            {"status": {"conditions": [{"type": "Finished", "status": "True"}]}},
            (set(), {"ns/old"}),
            id="finished",
        ),
        pytest.param({"spec": {"priority": 3}}, ({"ns/v"}, {"ns/old"}), id="another priority"),
    ],
)
def test_reservation_is_assumed_as_long_as_it_can_be_written(change, want):
    world, _, new = preempting()
    changed = copy.deepcopy(new)
    for part, values in change.items():
        changed[part] = {**changed.get(part, {}), **values}
    feeding(changed)(world)
    assert assumed(world) == want
    holds = world.engine.state.snapshot.holding("ns/v") is not None
    assert holds is ("ns/v" in want[0])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(workload("old", "q", gpus=4), id="it waits again"),
        pytest.param(workload("old", "q", gpus=4, metadata=None), id="another object"),
    ],
)
def test_eviction_is_assumed_as_long_as_the_workload_holds_its_quota(document):
    world, old, _ = preempting()
    if document["metadata"] is None:
        document = copy.deepcopy(old)
        document["metadata"]["uid"] = "other"
    feeding(document)(world)
    assert assumed(world) == ({"ns/v"}, set())
    assert not world.engine.state.workloads["ns/old"].is_evicted


def test_workload_that_goes_leaves_nothing_assumed():
    world, _, _ = preempting()
    for name in ("v", "old"):
        deleting("Workload", f"ns/{name}")(world)
    assert assumed(world) == (set(), set())
    assert world.usage()["q"] == {}


def test_eviction_that_is_taken_back_counts_as_not_done():
    world, _, _ = preempting()
    holding = world.engine.state.snapshot.holding("ns/old")
    assert holding is not None
    assert holding.is_evicted
    world.engine.forget("ns/old", now=world.now)
    assert (holding.is_evicted, assumed(world)) == (False, ({"ns/v"}, set()))
    assert world.engine.state.snapshot.holding("ns/old") is holding


def test_what_stops_gives_its_quota_back_and_waits():
    world, _, _ = preempting()
    world.engine.release_evicted("ns/old", now=world.now)
    world.engine.release_evicted("ns/none", now=world.now)
    state = world.engine.state
    assert assumed(world) == ({"ns/v"}, set())
    assert (state.workloads["ns/old"].reservation, state.workloads["ns/old"].is_evicted) == (
        None,
        True,
    )
    assert world.usage()["q"] == {("f0", GPU): 1}
    assert world.order("q") == ["ns/w", "ns/old"]
    world.engine.forget("ns/v", now=world.now)
    assert assumed(world) == (set(), set())
    assert not state.workloads["ns/v"].is_evicted
    assert world.order("q") == ["ns/w", "ns/v", "ns/old"]


def test_precedence_ends_with_a_reservation_and_not_without_one():
    world, _, _ = preempting()
    feeding(workload("higher", "q", gpus=4, priority=99))(world)
    state = world.engine.state
    state.end_precedence(state.workloads["ns/w"])
    assert world.order("q") == ["ns/w", "ns/higher"]


def test_engine_that_follows_another_assumes_what_is_still_to_be_written():
    world, old, new = preempting()
    following = World().feed(
        cluster_queue("q", group(f0=quota(5)), preemption=preemption("LowerPriority")),
        old,
        workload("w", "q", gpus=4, priority=5),
        new,
    )
    keys = ["ns/none", "ns/w", "ns/v", "ns/old"]
    following.engine.assume_again(world.engine, keys)
    assert assumed(following) == ({"ns/v"}, {"ns/old"})
    before, after = (item.engine.state.workloads["ns/v"] for item in (world, following))
    assert (after.reservation, after.is_evicted) == (before.reservation, False)
    assert following.usage() == world.usage()
    assert following.cycle().preempted == ()


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(reserved(workload("v", "q", gpus=1), "q"), False, id="it was written"),
        pytest.param(
            {**workload("v", "q"), "spec": {**workload("v", "q")["spec"], "active": False}},
            False,
            id="it was switched off",
        ),
        pytest.param(workload("v", "q", gpus=1), True, id="it waits still"),
    ],
)
def test_reservation_is_assumed_again_where_it_can_be_written_still(document, want):
    world, _, _ = preempting()
    following = World().feed(cluster_queue("q", group(f0=quota(5))), document)
    following.engine.assume_again(world.engine, ["ns/v"])
    assert assumed(following) == ({"ns/v"} if want else set(), set())
    other = copy.deepcopy(document)
    other["metadata"]["uid"] = "other"
    unlike = World().feed(cluster_queue("q", group(f0=quota(5))), other)
    unlike.engine.assume_again(world.engine, ["ns/v"])
    assert assumed(unlike) == (set(), set())


def test_fork_is_a_copy_of_everything_about_its_queues():
    world, _, _ = preempting()
    world.feed(
        check("c"),
        cluster_queue("other", group(f0=quota(1))),
        workload("first", "q", gpus=5, priority=7),
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "p"}, "value": 3},
    )
    world.run()
    first = world.engine
    first.state.bypassed.add("ns/w")
    first.state.second_passes.put_off("ns/old", now=world.now)
    first.state.second_passes.put_off("ns/elsewhere", now=world.now)
    copied = first.fork(now=world.now)
    for name in ("checks", "namespaces", "priority_classes", "workloads"):
        assert getattr(copied.state, name) == getattr(first.state, name)
        assert getattr(copied.state, name) is not getattr(first.state, name)
    assert copied.state.checks == {"c": CheckSpec("c", "x", is_active=True)}
    assert copied.state.priority_classes == {"p": 3}
    for name in ("assumed", "assumed_evicted", "bypassed"):
        assert getattr(copied.state, name) == getattr(first.state, name)
    assert copied.state.second_passes._due == {"ns/old": world.now + SECOND}
    assert copied.configuration is first.configuration
    assert copied._cycles == first._cycles
    assert copied.state.snapshot.flavors == first.state.snapshot.flavors
    assert list(copied.state.snapshot.queues) == ["q", "other"]
    assert list(first.fork(now=world.now, names=["other"]).state.snapshot.queues) == ["other"]


# Second passes


def needing(key: str, *, is_lost: bool = True) -> Workload:
    """A workload that runs on a node, which failed."""
    document = reserved(workload(key, "q", gpus=1), "q")
    assigned = document["status"]["admission"]["podSetAssignments"][0]
    assigned["topologyAssignment"] = {
        "levels": ["kubernetes.io/hostname"],
        "slices": [
            {
                "domainCount": 1,
                "podCounts": {"universal": 1},
                "valuesPerLevel": [{"universal": "n"}],
            }
        ],
    }
    if is_lost:
        document["status"]["unhealthyNodes"] = [{"name": "n"}]
    return ClusterState(Engine().configuration).read_workload(document)


def test_second_passes_are_due_at_once_and_then_ever_more_seldom():
    passes, now = SecondPasses(), START
    found, again = needing("w"), needing("v")
    assert found.has_lost_node
    passes.note(found, now=now)
    passes.note(found, now=now + SECOND)
    passes.note(again, now=now)
    assert (passes.due(now), passes.due(now - SECOND)) == (["ns/v", "ns/w"], [])
    waits = []
    for _ in range(8):
        passes.put_off("ns/w", now=now)
        waits.append((passes._due["ns/w"] - now).total_seconds())
        assert passes.due(now) == ["ns/v"]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    passes.note(found, now=now)
    assert passes.due(now + 29 * SECOND) == ["ns/v"]
    assert passes.due(now + 30 * SECOND) == ["ns/v", "ns/w"]
    other = SecondPasses()
    other.adopt(passes, keys={"ns/w", "ns/none"})
    assert other.due(now + 30 * SECOND) == ["ns/w"]
    other.put_off("ns/w", now=now)
    assert other.due(now + 29 * SECOND) == []
    passes.note(needing("w", is_lost=False), now=now)
    passes.drop("ns/none")
    assert passes.due(now + 99 * SECOND) == ["ns/v"]
    passes.put_off("ns/w", now=now)
    assert passes.due(now + SECOND) == ["ns/v", "ns/w"]


@pytest.mark.parametrize(
    ("before", "after", "is_assumed", "want"),
    [
        pytest.param(None, {}, False, False, id="not known before"),
        pytest.param({"is_admitted": False}, {}, False, True, id="admitted now"),
        pytest.param({}, {}, False, False, id="admitted before"),
        pytest.param({}, {}, True, True, id="was only decided"),
        pytest.param(
            {"is_admitted": False}, {"is_admitted": False}, True, False, id="not admitted"
        ),
        pytest.param({"is_admitted": False}, {"is_active": False}, False, False, id="switched off"),
        pytest.param({"is_admitted": False}, {"is_finished": True}, False, False, id="finished"),
    ],
)
def test_document_that_is_the_first_to_say_admitted(before, after, is_assumed, want):
    known = needing("w")

    def changed(values: dict[str, bool]) -> Workload:
        rest = {name: value for name, value in values.items() if name != "is_admitted"}
        assert known.reservation is not None
        is_admitted = values.get("is_admitted", True)
        return replace(
            known, reservation=replace(known.reservation, is_admitted=is_admitted), **rest
        )

    first = changed(before) if before is not None else None
    assert becomes_admitted(first, changed(after), is_assumed=is_assumed) is want


# The facade


def test_kinds_are_listed_in_the_best_order_of_a_first_feed():
    assert Engine().kinds == (
        "ResourceFlavor",
        "AdmissionCheck",
        "Cohort",
        "ClusterQueue",
        "Namespace",
        "LimitRange",
        "RuntimeClass",
        "DeviceClass",
        "ResourceClaimTemplate",
        "Topology",
        "Node",
        "Pod",
        "WorkloadPriorityClass",
        "LocalQueue",
        "Workload",
    )


def test_document_that_cannot_be_read_says_what_is_wrong():
    with pytest.raises(UnreadableDocument, match=r"^KeyError: 'metadata'$"):
        Engine().upsert({"kind": "Namespace"}, now=START)
    with pytest.raises(KeyError, match="Deployment"):
        Engine().delete("Deployment", key="d", now=START)


def test_failed_cycle_names_all_its_heads():
    failed = CycleFailed(["ns/w", "ns/v"])
    assert (str(failed), failed.heads) == ("no decision about ns/w, ns/v", ["ns/w", "ns/v"])


def test_message_is_cut_where_the_api_would_refuse_it():
    longest = "x" * 32_768
    assert cut(longest) == longest
    assert cut(longest + "y") == "x" * 32_764 + " ..."
    assert cut("") == ""


def test_labels_of_a_namespace_are_at_least_its_name():
    world = World().feed(namespace("other", team="a"))
    name = "kubernetes.io/metadata.name"
    state = world.engine.state
    assert state.namespace_labels("ns") == {name: "ns"}
    assert state.namespace_labels("other") == {name: "other", "team": "a"}
    assert state.namespace_labels("unknown") == {name: "unknown"}
    deleting("Namespace", "other")(world)
    assert state.namespace_labels("other") == {name: "other"}


def test_priority_class_is_noted_with_its_value():
    world = World()
    for name, value in (("p", 3), ("q", None)):
        document = {"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        feeding(document)(world)
    assert world.engine.state.priority_classes == {"p": 3, "q": 0}
    deleting("WorkloadPriorityClass", "p")(world)
    deleting("WorkloadPriorityClass", "p")(world)
    assert world.engine.state.priority_classes == {"q": 0}


def test_overhead_and_bounds_that_go_change_requests_back():
    world = World().feed(
        cluster_queue("q", group(f0=[quota(4), quota(4, resource="cpu")])),
        workload("w", "q", gpus=1),
    )
    shown = []
    for change in (
        feeding(bounds("ns", cpu="2")),
        feeding(bounds("ns", cpu="1")),
        deleting("LimitRange", "ns/l"),
    ):
        change(world)
        [pods] = world.engine.state.workloads["ns/w"].pod_sets
        shown.append(dict(pods.shape.requests.amounts))
    assert shown == [{GPU: 1, "cpu": 2000}, {GPU: 1, "cpu": 1000}, {GPU: 1}]


def test_bounds_that_go_end_no_wait_before_its_time():
    requeue = {"requeueState": {"requeueAt": "2026-01-01T02:00:00Z"}}
    world = World().feed(
        cluster_queue("q", group(f0=[quota(4), quota(4, resource="cpu")])),
        bounds("ns", cpu="9"),
        workload("w", "q", gpus=1, status=requeue),
    )
    deleting("LimitRange", "ns/l")(world)
    assert world.admitted() == {}
    world.now += timedelta(hours=1)
    world.engine.wake("q")
    assert list(world.admitted()) == ["w"]
