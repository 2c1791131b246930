"""The state that decisions read: who holds what where, what a try takes out, trees that change."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.configuration import AdmissionFairSharing, Configuration
from clusters.kueue.quota.resource_node import Quota
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    CohortSpec,
    FlavorSpec,
    ResourceGroup,
    parse_cluster_queue,
    parse_cohort,
)
from clusters.kueue.quota.tree import cohorts_below, queues_below
from clusters.kueue.quota.usage_ledger import QueueShare, UsageLedger
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from clusters.kueue.workload.workloads import Workload
from tests.kueue.builders import (
    GPU,
    cluster_queue,
    cohort,
    group,
    pod_set,
    quota,
    reserved,
    workload,
)

PARSER = WorkloadParser(Configuration())
AROUND = SurroundingsByNamespace(Configuration()).of("ns")
GPUS, CORES = FlavorResource("f0", GPU), FlavorResource("f0", "cpu")


def holder(
    name: str,
    queue: str,
    gpus: int,
    *sets: dict[str, Any],
    local_queue: str = "l",
    **changes: Any,
) -> Workload:
    """A workload that holds quota, admitted unless that is changed."""
    document = workload(name, local_queue, *(sets or (pod_set({GPU: gpus}),)))
    return PARSER.parse(reserved(document, queue, **changes), surroundings=AROUND)


def change(snapshot: Snapshot, *documents: dict[str, Any]) -> None:
    """Feed quota objects; every ClusterQueue may admit."""
    for document in documents:
        if document["kind"] == "Cohort":
            snapshot.set_cohort(parse_cohort(document))
        else:
            snapshot.set_queue(parse_cluster_queue(document))
            snapshot.set_active(document["metadata"]["name"], is_active=True)
    snapshot.refresh()


def made(*documents: dict[str, Any], ledger: UsageLedger | None = None) -> Snapshot:
    snapshot = Snapshot(ledger=ledger)
    change(snapshot, *documents)
    return snapshot


def queue(name: str, nominal: int = 4, in_cohort: str = "pool", **spec: Any) -> dict[str, Any]:
    return cluster_queue(name, group(f0=quota(nominal)), in_cohort=in_cohort, **spec)


def used(snapshot: Snapshot) -> dict[str, int]:
    """GPUs in use by name of the node, without zeros."""
    states = (*snapshot.queues.values(), *snapshot.cohorts.values())
    return {state.node.name: state.node.usage[GPUS] for state in states if GPUS in state.node.usage}


def trees(snapshot: Snapshot) -> dict[str, tuple[list[str], list[str]]]:
    """By Cohort: its ClusterQueues and the Cohorts below it."""
    return {
        name: (sorted(state.queues), sorted(state.cohorts))
        for name, state in sorted(snapshot.cohorts.items())
    }


# What workloads hold


def test_what_a_workload_holds_is_counted_and_given_back():
    snapshot = made(queue("a"), queue("b", 2))
    sets = pod_set({GPU: 3, "cpu": 0}), pod_set({GPU: 1}, name="more", count=2)
    item = holder("w", "a", 0, *sets)
    before = snapshot.queues["a"].generation
    holding = snapshot.hold(item, is_evicted=True)
    assert (holding.workload, holding.is_evicted, holding.places) == (item, True, ())
    assert holding.usage == {GPUS: 5, CORES: 0}
    assert (holding.keys, holding.cluster_queue) == (frozenset({GPUS, CORES}), "a")
    assert snapshot.holding("ns/w") is holding
    assert list(snapshot.holdings()) == [holding]
    assert snapshot.queues["a"].holdings == {"ns/w": holding}
    assert used(snapshot) == {"a": 5, "pool": 5}
    copy = holding.copy()
    assert copy is not holding
    for name in ("workload", "usage", "keys", "is_evicted", "places"):
        assert getattr(copy, name) == getattr(holding, name)
    with pytest.raises(AssertionError):
        snapshot.hold(item, is_evicted=False)
    assert snapshot.queues["a"].generation == before
    assert snapshot.release("ns/w") is holding
    assert (snapshot.holding("ns/w"), list(snapshot.holdings()), used(snapshot)) == (None, [], {})
    assert snapshot.queues["a"].holdings == {}
    # What was refused before may fit now; of the other queue it does not.
    assert snapshot.queues["a"].generation == before + 1
    assert snapshot.release("ns/w") is None
    with pytest.raises(AssertionError):
        snapshot.hold(PARSER.parse(workload("v", "l"), surroundings=AROUND), is_evicted=False)


def test_what_is_held_in_a_queue_that_is_away_counts_when_it_comes():
    snapshot = made(queue("a"))
    kept = snapshot.hold(holder("w", "b", 3), is_evicted=False)
    gone = snapshot.hold(holder("v", "b", 1), is_evicted=False)
    assert used(snapshot) == {}
    assert snapshot.holding("ns/w") is kept
    assert snapshot.release("ns/v") is gone
    change(snapshot, queue("b"))
    assert used(snapshot) == {"b": 3, "pool": 3}
    assert snapshot.queues["b"].holdings == {"ns/w": kept}
    state = snapshot.queues["b"]
    snapshot.delete_queue("b")
    snapshot.refresh()
    assert (used(snapshot), list(snapshot.queues)) == ({}, ["a"])
    assert state.node.parent is None
    assert snapshot.holding("ns/w") is kept
    change(snapshot, queue("b"))
    assert used(snapshot) == {"b": 3, "pool": 3}
    snapshot.delete_queue("b")
    assert snapshot.release("ns/w") is kept
    change(snapshot, queue("b"))
    assert (used(snapshot), snapshot.queues["b"].holdings) == ({}, {})
    snapshot.delete_queue("unknown")


def test_workload_that_is_taken_out_is_no_candidate_until_it_is_put_back():
    snapshot = made(queue("a"), queue("b"))
    first = snapshot.hold(holder("w", "a", 5), is_evicted=False)
    second = snapshot.hold(holder("v", "b", 2), is_evicted=False)
    want = used(snapshot)
    assert want == {"a": 5, "b": 2, "pool": 7}
    with pytest.raises(KeyError, match="inside"), snapshot.without([first]):
        assert used(snapshot) == {"b": 2, "pool": 2}
        assert (snapshot.queues["a"].holdings, snapshot.holding("ns/w")) == ({}, first)
        raise KeyError("inside")
    assert (used(snapshot), snapshot.queues["a"].holdings) == (want, {"ns/w": first})
    with pytest.raises(KeyError, match="inside"), snapshot.usage_without([first, second]):
        assert used(snapshot) == {}
        assert snapshot.queues["a"].holdings == {"ns/w": first}
        raise KeyError("inside")
    assert used(snapshot) == want
    with (
        pytest.raises(KeyError, match="inside"),
        snapshot.usage_with(snapshot.queues["a"], {GPUS: 2}),
    ):
        assert used(snapshot) == {"a": 7, "b": 2, "pool": 9}
        raise KeyError("inside")
    assert used(snapshot) == want


def test_amounts_fit_where_they_are_available_all_of_them():
    snapshot = made(cluster_queue("a", group(f0=[quota(4), quota(2, resource="cpu")])))
    state = snapshot.queues["a"]
    assert state.fits({GPUS: 4, CORES: 2000})
    assert not state.fits({GPUS: 4, CORES: 2001})
    assert not state.fits({GPUS: 5})
    assert state.fits({})
    snapshot.hold(holder("w", "a", 9), is_evicted=False)
    # Nothing of what there is too little of fits always.
    assert state.fits({GPUS: 0, CORES: 1})
    assert not state.fits({GPUS: 1})


def test_what_is_admitted_from_a_local_queue_is_summed_by_resource():
    snapshot = made(queue("a", 99), queue("b", 99))
    for item in (
        holder("w", "a", 3),
        holder("v", "a", 0, pod_set({GPU: 2, "cpu": 1}), flavor="f1"),
        holder("u", "a", 5, is_admitted=False),
        holder("t", "a", 7, local_queue="m"),
        holder("s", "b", 11),
    ):
        snapshot.hold(item, is_evicted=False)
    assert snapshot.admitted_of("ns/l", queue="a") == {GPU: 5, "cpu": 1000}
    assert snapshot.admitted_of("ns/m", queue="a") == {GPU: 7}
    assert snapshot.admitted_of("ns/l", queue="b") == {GPU: 11}
    assert snapshot.admitted_of("ns/x", queue="a") == {}
    assert snapshot.admitted_of("ns/l", queue="gone") == {}


def test_past_usage_counts_where_it_orders_the_queue():
    by_usage = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    ledger = UsageLedger(AdmissionFairSharing(half_life_s=3600, sampling_interval_s=3600))
    ledger.set_share("ns/l", QueueShare(consumed={GPU: 6 * 10**9}))
    documents = queue("a", **by_usage), queue("b")
    for rules, want in ((ledger, 6.0), (None, None)):
        snapshot = made(*documents, ledger=rules)
        first = snapshot.hold(holder("w", "a", 1), is_evicted=False)
        second = snapshot.hold(holder("v", "b", 1), is_evicted=False)
        assert snapshot.past_usage(first) == want
        assert snapshot.past_usage(second) is None


def test_pods_are_ready_when_those_of_all_that_is_admitted_are():
    snapshot = made(queue("a", 99))
    assert snapshot.are_pods_ready()
    snapshot.hold(holder("w", "a", 1, is_admitted=False), is_evicted=False)
    ready = ({"type": "PodsReady", "status": "True"},)
    snapshot.hold(holder("v", "a", 1, conditions=ready), is_evicted=False)
    assert snapshot.are_pods_ready()
    snapshot.hold(holder("u", "a", 1), is_evicted=False)
    assert not snapshot.are_pods_ready()


# Trees that change


def test_tree_follows_its_objects():
    snapshot = made(
        cohort("top", f0=quota(10)),
        cohort("pool", "top", f0=quota(1, 2)),
        queue("a"),
        queue("b", 2, in_cohort="side"),
        queue("alone", 3, in_cohort=""),
    )
    assert trees(snapshot) == {"pool": (["a"], []), "side": (["b"], []), "top": ([], ["pool"])}
    pool, top = snapshot.cohorts["pool"], snapshot.cohorts["top"]
    assert pool.spec == CohortSpec("pool", "top", {GPUS: Quota(1, 2)})
    assert (pool.is_declared, snapshot.cohorts["side"].is_declared) == (True, False)
    assert snapshot.cohort_of(snapshot.queues["a"]) is pool
    assert snapshot.cohort_of(snapshot.queues["alone"]) is None
    assert [state.spec.name for state in cohorts_below(top)] == ["top", "pool"]
    assert [state.spec.name for state in queues_below(top)] == ["a"]
    # A Cohort that moves takes its queues along.
    change(snapshot, cohort("pool", "side", f0=quota(1)))
    assert trees(snapshot) == {"pool": (["a"], []), "side": (["b"], ["pool"]), "top": ([], [])}
    names = [state.spec.name for state in snapshot.tree_queues(snapshot.queues["b"])]
    assert names == ["b", "a"]
    assert [state.spec.name for state in snapshot.cohort_queues("pool")] == ["b", "a"]
    alone = snapshot.queues["alone"]
    assert snapshot.tree_queues(alone) == [alone]
    assert (snapshot.cohort_queues("top"), snapshot.cohort_queues("gone")) == ([], [])
    assert snapshot.cohorts["side"].node.subtree_quota == {GPUS: 7}
    assert top.node.subtree_quota == {GPUS: 10}
    # A queue that moves leaves nothing behind, nor does the one that goes last.
    change(snapshot, queue("b", 2, in_cohort="pool"))
    assert trees(snapshot) == {"pool": (["a", "b"], []), "side": ([], ["pool"]), "top": ([], [])}
    change(snapshot, cohort("pool"))
    assert trees(snapshot) == {"pool": (["a", "b"], []), "top": ([], [])}
    assert pool.node.parent is None
    change(snapshot, queue("b", 2, in_cohort=""))
    assert snapshot.queues["b"].node.parent is None
    assert (snapshot.queues["b"].node.height, snapshot.queues["b"].node.lendable) == (0, {})
    assert pool.node.subtree_quota == {GPUS: 4}


def test_cohort_whose_object_goes_stays_as_long_as_others_name_it():
    snapshot = made(
        cohort("top", f0=quota(10)),
        cohort("pool", "top", f0=quota(3)),
        cohort("empty", "top"),
        queue("a"),
    )
    weighted = cohort("pool", "top", f0=quota(3))
    weighted["spec"]["fairSharing"] = {"weight": "2"}
    change(snapshot, weighted)
    pool = snapshot.cohorts["pool"]
    assert (pool.node.weight, pool.node.quotas) == (2.0, {GPUS: Quota(3)})
    snapshot.delete_cohort("pool")
    snapshot.delete_cohort("pool")
    snapshot.delete_cohort("empty")
    snapshot.delete_cohort("unknown")
    snapshot.refresh()
    assert trees(snapshot) == {"pool": (["a"], []), "top": ([], [])}
    assert (pool.spec, pool.is_declared) == (CohortSpec("pool"), False)
    assert (pool.node.weight, pool.node.quotas, pool.node.parent) == (1.0, {}, None)
    assert pool.node.subtree_quota == {GPUS: 4}
    assert snapshot.cohorts["top"].node.subtree_quota == {GPUS: 10}
    snapshot.delete_cohort("top")
    assert list(snapshot.cohorts) == ["pool"]
    snapshot.delete_queue("a")
    snapshot.refresh()
    assert snapshot.cohorts == {}


def test_parent_that_was_only_named_goes_with_its_last_child():
    snapshot = made(cohort("pool", "top"), queue("a"))
    assert trees(snapshot) == {"pool": (["a"], []), "top": ([], ["pool"])}
    snapshot.delete_cohort("pool")
    snapshot.refresh()
    assert trees(snapshot) == {"pool": (["a"], [])}


def test_height_of_a_cohort_counts_queues_that_may_admit():
    snapshot = made(cohort("pool", "top"), cohort("top", "roof"), queue("a"))
    heights = {name: state.node.height for name, state in snapshot.cohorts.items()}
    assert heights == {"pool": 1, "top": 2, "roof": 3}
    snapshot.set_active("a", is_active=False)
    snapshot.refresh()
    heights = {name: state.node.height for name, state in snapshot.cohorts.items()}
    assert heights == {"pool": 0, "top": 1, "roof": 2}
    assert not snapshot.queues["a"].takes_part
    snapshot.set_active("a", is_active=True)
    snapshot.refresh()
    assert snapshot.cohorts["roof"].node.height == 3
    assert snapshot.queues["a"].takes_part


def test_queue_is_looked_at_anew_only_when_its_tree_changed():
    snapshot = made(queue("a"), queue("b"), queue("c", in_cohort="far"), queue("d", in_cohort=""))

    def generations() -> list[int]:
        return [snapshot.queues[name].generation for name in "abcd"]

    before = generations()
    snapshot.refresh()
    snapshot.set_active("a", is_active=True)
    snapshot.refresh()
    assert generations() == before
    change(snapshot, queue("b", 5))
    assert generations() == [before[0] + 1, before[1] + 1, *before[2:]]
    change(snapshot, queue("d", 5, in_cohort=""))
    assert generations()[2:] == [before[2], before[3] + 1]
    assert snapshot.queues["d"].node.subtree_quota == {GPUS: 5}


def test_queues_below_a_cycle_are_cut_off_until_it_ends():
    snapshot = made(
        cohort("pool", "top"),
        cohort("top", "pool"),
        cohort("low", "pool"),
        queue("a"),
        queue("b", in_cohort="low"),
        queue("c", in_cohort="far"),
    )
    assert {name for name, state in snapshot.cohorts.items() if state.is_cyclic} == {
        "pool",
        "top",
        "low",
    }
    assert [snapshot.queues[name].is_reachable for name in "abc"] == [False, False, True]
    assert [snapshot.queues[name].node.parent for name in "ab"] == [None, None]
    assert [snapshot.cohort_queues(name) for name in ("pool", "top", "low")] == [[], [], []]
    change(snapshot, cohort("top"))
    assert not any(state.is_cyclic for state in snapshot.cohorts.values())
    assert [snapshot.queues[name].is_reachable for name in "abc"] == [True, True, True]
    assert [node.name for node in snapshot.queues["b"].node.path()] == ["b", "low", "pool", "top"]
    change(snapshot, cohort("top", "pool"), queue("a", in_cohort=""))
    assert snapshot.queues["a"].is_reachable


def test_resource_of_two_groups_belongs_to_the_first():
    document = cluster_queue("a", group(f0=quota(4)), group(f1=[quota(1), quota(2, resource="x")]))
    snapshot = made(document)
    first, second = ResourceGroup((GPU,), ("f0",)), ResourceGroup((GPU, "x"), ("f1",))
    assert snapshot.queues["a"].group_of == {GPU: first, "x": second}


# Copies


def test_copy_has_whole_trees_of_some_queues_and_what_is_held_there():
    first = made(
        cohort("pool", "top", f0=quota(1)),
        queue("a", fairSharing={"weight": "3"}),
        queue("b", 2),
        queue("c", 9, in_cohort="far"),
    )
    first.set_active("b", is_active=False)
    first.queues["a"].is_placed_only = True
    first.refresh()
    kept = first.hold(holder("w", "a", 3), is_evicted=True)
    first.hold(holder("v", "c", 1), is_evicted=False)
    first.hold(holder("u", "away", 2), is_evicted=False)
    first.queues["a"].generation = 17
    copy = Snapshot()
    copy.adopt(first, names=["a", "b"])
    assert trees(copy) == {"pool": (["a", "b"], []), "top": ([], ["pool"])}
    assert used(copy) == {"a": 3, "pool": 3, "top": 3}
    assert copy.queues["a"].node.weight == 3.0
    assert [copy.queues[name].is_active for name in "ab"] == [True, False]
    assert [copy.queues[name].is_placed_only for name in "ab"] == [True, False]
    assert [copy.queues[name].generation for name in "ab"] == [17, first.queues["b"].generation]
    found = copy.holding("ns/w")
    assert found is not None
    assert found is not kept
    assert (found.workload, found.is_evicted) == (kept.workload, True)
    assert (copy.holding("ns/v"), copy.holding("ns/u") is not None) == (None, True)
    for name in ("pool", "top"):
        there, here = first.cohorts[name].node, copy.cohorts[name].node
        assert (here.subtree_quota, here.height) == (there.subtree_quota, there.height)
        assert here.lendable == there.lendable
    copy.release("ns/w")
    assert used(first) == {"a": 3, "c": 1, "pool": 3, "top": 3, "far": 1}
    change(copy, queue("away"))
    assert used(copy) == {"away": 2, "pool": 2, "top": 2}


def test_copy_of_a_copy_still_has_cohorts_that_nobody_is_in():
    first = made(cohort("empty", f0=quota(5)), queue("a", in_cohort=""))
    second, third = Snapshot(), Snapshot()
    second.adopt(first, names=["a"])
    third.adopt(second, names=[])
    assert third.cohorts["empty"].node.subtree_quota == {GPUS: 5}
    assert third.queues == {}


def test_flavors_with_a_topology_have_their_places():
    snapshot = made(queue("a"))
    snapshot.flavors["f0"] = FlavorSpec("f0", topology="topo")
    snapshot.flavors["f1"] = FlavorSpec("f1")
    snapshot.flavors["f2"] = FlavorSpec("f2", topology="gone")
    snapshot.places.topologies["topo"] = ("rack",)
    snapshot.reshape_places()
    found = [snapshot.places.placer(name) is not None for name in ("f0", "f1", "f2")]
    assert found == [True, False, False]


def test_snapshot_without_a_ledger_has_one_without_rules():
    assert Snapshot().ledger.rules is None
    ledger = UsageLedger(AdmissionFairSharing(1.0, 1.0))
    assert Snapshot(ledger=ledger).ledger is ledger
