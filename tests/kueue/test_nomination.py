"""What heads could get: fewer pods by few probes, the place of an older slice, others' victims."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.documents import labels
from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.decisions import Pending
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.cycle.nomination import smallest_reduction
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
    made.release_evicted("ns/big", now=START)
    assert {item.key for item in made.cycle(START).admitted} == {"ns/one", "ns/two"}
