"""What heads could get: fewer pods by few probes, the place of an older slice, others' victims."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.documents import labels
from clusters.kueue.amounts import FlavorResource
from clusters.kueue.assignment.outcome import FlavorMode
from clusters.kueue.configuration import Configuration, Gates
from clusters.kueue.cycle.decisions import Pending
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.cycle.entries import Entry
from clusters.kueue.cycle.nomination import Nominator, replaced_slice, smallest_reduction
from clusters.kueue.queueing.buckets import QueueItem
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import SurroundingsByNamespace
from tests.kueue.builders import (
    GPU,
    START,
    cluster_queue,
    flavor,
    group,
    local_queue,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)


def parsed(*pod_sets: dict[str, Any]) -> Any:
    around = SurroundingsByNamespace(Configuration()).of("ns")
    return WorkloadParser(Configuration()).parse(workload("w", "q", *pod_sets), surroundings=around)


@pytest.mark.parametrize(
    ("most", "want_counts", "want_probes"),
    [(10, [10], [6, 8, 9, 10]), (6, [6], [6, 8, 7]), (2, [2], [6, 3, 2]), (1, None, [6, 3, 2])],
)
def test_most_pods_that_fit_are_found_by_halving(most, want_counts, want_probes):
    probes: list[int] = []

    def attempt(counts: Any) -> Any:
        probes.append(counts[0])
        return list(counts) if counts[0] <= most else None

    item = parsed(pod_set({GPU: 1}, count=10, min_count=2))
    assert smallest_reduction(item, attempt=attempt) == want_counts
    assert probes == want_probes


def test_only_the_pod_set_that_takes_fewer_is_reduced():
    item = parsed(pod_set({GPU: 1}, name="head"), pod_set({GPU: 1}, count=4, min_count=1))
    found = smallest_reduction(item, attempt=lambda counts: counts if counts[1] < 4 else None)
    assert found == [1, 3]


def world(*documents: dict[str, Any], gates: dict[str, bool] | None = None) -> Engine:
    made = Engine({"featureGates": gates or {}})
    for name in ("f0", "f1"):
        made.upsert(flavor(name), now=START)
    for document in documents:
        made.upsert(document, now=START)
    return made


def sliced(name: str, gpus: int, *, of: str, **extra: Any) -> dict[str, Any]:
    document = workload(name, "q", pod_set({GPU: 1}, count=gpus), **extra)
    document["metadata"]["annotations"] = {labels.ELASTIC: "true", labels.SLICE_OF: f"ns/{of}"}
    return document


def older(gpus: int, *, flavor: str = "f0") -> dict[str, Any]:
    return reserved(workload("old", "q", pod_set({GPU: 1}, count=gpus)), "q", flavor=flavor)


def test_slice_asks_for_the_difference_and_ends_the_older_one():
    made = world(cluster_queue("q", group(f0=quota(4))), local_queue("q", "q"), older(3))
    made.upsert(sliced("new", 4, of="old"), now=START)
    result = made.cycle(START)
    assert [item.key for item in result.admitted] == ["ns/new"]
    assert result.admitted[0].admission["podSetAssignments"][0]["count"] == 4
    assert result.replaced == ("ns/old",)
    made.delete("Workload", key="ns/old", now=START)
    assert sum(made.state.snapshot.queues["q"].node.usage.values()) == 4


def test_slice_keeps_the_flavor_of_the_older_one():
    queue = cluster_queue("q", group(f0=quota(9), f1=quota(4)))
    made = world(queue, local_queue("q", "q"), older(3, flavor="f1"))
    made.upsert(sliced("new", 5, of="old"), now=START)
    result = made.cycle(START)
    assert not result.admitted
    assert not result.replaced
    text = "could not assign f0 flavor since the original workload is assigned: f1"
    assert text in result.pending[0].message


def test_slice_is_a_workload_like_others_where_it_replaces_nothing_or_the_gate_is_off():
    queue = cluster_queue("q", group(f0=quota(4)))
    for gates, of in (({}, "gone"), ({"ElasticJobsViaWorkloadSlices": False}, "old")):
        made = world(queue, local_queue("q", "q"), older(3), gates=gates)
        made.upsert(sliced("new", 4, of=of), now=START)
        assert not made.cycle(START).admitted


def test_smaller_slice_gives_back_what_it_no_longer_needs():
    made = world(cluster_queue("q", group(f0=quota(4))), local_queue("q", "q"), older(3))
    before = dict(made.state.snapshot.queues["q"].node.usage)
    made.upsert(sliced("new", 1, of="old"), now=START)
    assert made.cycle(START).replaced == ("ns/old",)
    made.delete("Workload", key="ns/new", now=START)
    assert made.state.snapshot.queues["q"].node.usage == before


def two_preemptors(*, is_recomputed: bool) -> Engine:
    """Two queues of one Cohort that lack the quota which one borrower holds."""
    rules = {"preemption": {"reclaimWithinCohort": "Any"}}
    gate = "RecomputeAssignmentUponPreemptionTargetsOverlap"
    made = world(gates={gate: is_recomputed})
    for name, nominal in (("a", 2), ("b", 2), ("c", 0)):
        made.upsert(
            cluster_queue(name, group(f0=quota(nominal)), in_cohort="pool", **rules), now=START
        )
        made.upsert(local_queue(name, name), now=START)
    made.upsert(reserved(workload("big", "c", gpus=4), "c"), now=START)
    made.upsert(workload("one", "a", gpus=2), now=START)
    made.upsert(workload("two", "b", gpus=2, age=1), now=START)
    return made


@pytest.mark.parametrize(
    ("is_recomputed", "want"),
    [
        (False, "Workload has overlapping preemption targets with another workload"),
        (
            True,
            "Workload has overlapping preemption targets with another workload, but will fit after "
            "these preemptions complete",
        ),
    ],
)
def test_victims_of_another_are_counted_on_where_the_gate_says_so(is_recomputed, want):
    made = two_preemptors(is_recomputed=is_recomputed)
    result = made.cycle(START)
    assert [item.key for item in result.preempted] == ["ns/big"]
    [told] = [item for item in result.pending if item.key == "ns/two"]
    reason = "WaitingForPreemptedWorkloads" if is_recomputed else "WaitingForQuota"
    assert told == Pending("ns/two", reason, want, "b", has_changed=True)
    queue = made.state.queues.queue("b")
    assert queue is not None
    assert queue.is_active("ns/two")
    made.release_evicted("ns/big", now=START)
    assert {item.key for item in made.cycle(START).admitted} == {"ns/one", "ns/two"}


def test_who_counts_on_the_victims_of_another_keeps_the_flavor_that_it_was_nominated_with():
    """Without the victim it could borrow f0, too, and would take that from who has it."""
    made = world(gates={"RecomputeAssignmentUponPreemptionTargetsOverlap": True})
    rules = preemption("Never", "Any")
    for name, flavors in (
        ("a", {"f1": quota(4)}),
        ("b", {"f0": quota(0), "f1": quota(4)}),
        ("c", {"f0": quota(0), "f1": quota(0)}),
        ("d", {"f0": quota(4)}),
    ):
        queue = cluster_queue(name, group(**flavors), in_cohort="pool", preemption=rules)
        made.upsert(queue, now=START)
        made.upsert(local_queue(name, name), now=START)
    pod_sets = pod_set({GPU: 2}), pod_set({GPU: 8}, name="more")
    big = reserved(workload("big", "c", *pod_sets), "c")
    big["status"]["admission"]["podSetAssignments"][1]["flavors"] = {GPU: "f1"}
    made.upsert(big, now=START)
    made.upsert(workload("one", "a", gpus=4), now=START)
    made.upsert(workload("two", "b", gpus=4, age=1), now=START)
    made.upsert(workload("three", "d", gpus=2, age=2), now=START)
    result = made.cycle(START)
    assert [item.key for item in result.preempted] == ["ns/big"]
    assert [item.key for item in result.admitted] == ["ns/three"]
    [told] = [item for item in result.pending if item.key == "ns/two"]
    assert told.message.endswith(", but will fit after these preemptions complete")


KEY = FlavorResource("f0", GPU)


@pytest.mark.parametrize(
    ("holders", "amount", "want"),
    [
        pytest.param(["a:3:9"], 2, (FlavorMode.NO_CANDIDATES, 1), id="nobody of lower priority"),
        pytest.param(["a:3:-1"], 2, (FlavorMode.PREEMPT, 0), id="one of its own queue"),
        pytest.param(["a:3:-1"], 4, (FlavorMode.PREEMPT, 1), id="and it borrows all the same"),
        pytest.param(["b:5:0"], 2, (FlavorMode.RECLAIM, 0), id="a borrower"),
        pytest.param(
            ["a:1:-1", "b:4:0"], 3, (FlavorMode.PREEMPT, 0), id="a borrower, and one of its own"
        ),
        pytest.param([], 2, (FlavorMode.NO_CANDIDATES, 0), id="nobody at all"),
    ],
)
def test_what_preemption_for_one_resource_leads_to(holders, amount, want):
    """a owns three GPUs and c two, which b has borrowed or may borrow."""
    rules = preemption("LowerPriority", "Any")
    made = world(
        cluster_queue("a", group(f0=quota(3)), in_cohort="pool", preemption=rules),
        cluster_queue("b", group(f0=quota(0)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(2)), in_cohort="pool"),
    )
    for index, holder in enumerate(holders):
        queue, gpus, priority = holder.split(":")
        document = workload(f"h{index}", queue, gpus=int(gpus), priority=int(priority))
        made.upsert(reserved(document, queue), now=START)
    made.state.settle(START)
    state, usage = made.state.snapshot.queues["a"], made.state.snapshot.queues["a"].node.usage
    before = dict(usage)
    nominator = Nominator(made.state.snapshot, configuration=made.configuration)
    found = nominator.try_preemption(
        parsed(pod_set({GPU: amount})), queue=state, key=KEY, amount=amount
    )
    assert found == want
    assert usage == before


@pytest.mark.parametrize(
    ("keeps", "tried_cycle", "tried_generation", "want"),
    [
        pytest.param(True, 4, 6, False, id="tried in the cycle before"),
        pytest.param(True, 3, 6, True, id="tried earlier, and something changed"),
        pytest.param(True, 3, 7, False, id="tried earlier, and nothing changed"),
        pytest.param(False, 4, 6, True, id="gate off: something changed"),
        pytest.param(False, 4, 7, False, id="gate off: nothing changed"),
    ],
)
def test_scan_of_flavors_begins_again_when_something_changed(
    keeps, tried_cycle, tried_generation, want
):
    made = world(cluster_queue("q", group(f0=quota(4))))
    state = made.state.snapshot.queues["q"]
    state.generation = 7
    gates = Gates(flavor_fungibility_preserve_scan_progress=keeps)
    nominator = Nominator(made.state.snapshot, configuration=Configuration(gates=gates))
    item = QueueItem(parsed(pod_set({GPU: 1})))
    item.tried_cycle, item.tried_generation = tried_cycle, tried_generation
    assert nominator._is_outdated(Entry(item, state), 5) is want


def test_nomination_is_noted_whole_on_its_entry():
    made = world(cluster_queue("q", group(f0=quota(4), f1=quota(2))), local_queue("q", "q"))
    made.state.settle(START)
    state = made.state.snapshot.queues["q"]
    state.generation = 7
    nominator = Nominator(made.state.snapshot, configuration=made.configuration)
    entry = Entry(QueueItem(parsed(pod_set({GPU: 3}))), state)
    nominator.nominate(entry, cycle=5)
    assert entry.usage == {KEY: 3}
    assert (entry.outcome.value, entry.targets, entry.replaced) == ("Fit", [], None)
    assert (entry.message, entry.places) == ("", ())
    assert (entry.item.tried_generation, entry.item.tried_cycle) == (7, 5)
    assert entry.item.last_tried == entry.assignment.last_tried
    assert entry.item.attempts == tuple(entry.assignment.attempts)
    assert [attempt.flavor for attempt in entry.item.attempts] == ["f0"]
    again = Entry(QueueItem(parsed(pod_set({GPU: 3}))), state)
    nominator.nominate(again, cycle=6, allowed={("main", GPU): "f1"})
    assert (again.outcome.value, again.usage.get(KEY, 0)) == ("NoFit", 0)


@pytest.mark.parametrize(
    ("of", "is_on", "namespace", "want"),
    [
        pytest.param("ns/old", True, "ns", "ns/old", id="the older one"),
        pytest.param("ns/old", False, "ns", None, id="gate off"),
        pytest.param("ns/gone", True, "ns", None, id="one that holds nothing"),
        pytest.param("", True, "ns", None, id="it replaces nothing"),
        pytest.param("ns/old", True, "other", None, id="one of another namespace"),
    ],
)
def test_older_slice_is_one_of_the_same_queue_and_namespace(of, is_on, namespace, want):
    made = world(cluster_queue("q", group(f0=quota(9))), local_queue("q", "q"), older(3))
    document = sliced("new", 4, of=of.removeprefix("ns/"))
    document["metadata"]["namespace"] = namespace
    if not of:
        del document["metadata"]["annotations"][labels.SLICE_OF]
    found = replaced_slice(
        made.state.read_workload(document),
        queue=made.state.snapshot.queues["q"],
        gates=Gates(elastic_jobs_via_workload_slices=is_on),
    )
    assert (found.workload.key if found else None) == want
