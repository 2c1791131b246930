"""What an assignment tells: its modes, amounts, messages and documents, held whole."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.assignment.outcome import (
    Assignment,
    AssignmentMode,
    FlavorChoice,
    FlavorMode,
    Obstacle,
    PodSetAssignment,
)
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.workloads import PodSetHold

GPU = "gpu"
NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = FlavorMode


def item(
    name: str = "main", count: int = 1, *, level: int = 0, **modes: FlavorMode
) -> PodSetAssignment:
    """Resources in flavors of the same name with ``f-`` in front, five units of each for a pod."""
    choices = {x: FlavorChoice(f"f-{x}", mode, level) for x, mode in modes.items()}
    return PodSetAssignment(name, count, dict.fromkeys(modes, 5 * count), choices=choices)


def changed(given: PodSetAssignment, **values: Any) -> PodSetAssignment:
    for name, value in values.items():
        setattr(given, name, value)
    return given


@pytest.mark.parametrize(
    ("obstacle", "want"),
    [
        (Obstacle.NONE, "WaitingForQuota"),
        (Obstacle.TOPOLOGY_PLACEMENT_FAILED, "TopologyPlacementFailed"),
        (Obstacle.WAITING_FOR_QUOTA, "WaitingForQuota"),
        (Obstacle.EXCEEDS_MAX_QUOTA, "ExceedsMaxQuota"),
        (Obstacle.NO_MATCHING_FLAVOR, "NoMatchingFlavor"),
    ],
)
def test_the_reason_of_a_condition(obstacle, want):
    assert obstacle.text == want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(item(), FIT, id="nothing asked for"),
        pytest.param(item(cpu=FIT, gpu=PREEMPT, tpu=RECLAIM), PREEMPT, id="the worst"),
        pytest.param(changed(item(gpu=FIT), has_failed=True), NO_FIT, id="failed"),
        pytest.param(changed(item(gpu=FIT), error="x"), NO_FIT, id="an error"),
    ],
)
def test_the_mode_of_a_pod_set(given, want):
    assert given.mode is want


@pytest.mark.parametrize(
    ("items", "want"),
    [
        pytest.param([], AssignmentMode.FIT, id="nothing"),
        pytest.param([item(gpu=FIT), item(gpu=FIT)], AssignmentMode.FIT, id="all fit"),
        pytest.param([item(gpu=FIT), item(gpu=RECLAIM)], AssignmentMode.PREEMPT, id="reclaims"),
        pytest.param([item(gpu=PREEMPT)], AssignmentMode.PREEMPT, id="preempts"),
        pytest.param([item(gpu=NO_CANDIDATES)], AssignmentMode.PREEMPT, id="finds no candidates"),
        pytest.param([item(gpu=NO_FIT), item(gpu=FIT)], AssignmentMode.NO_FIT, id="one fails"),
    ],
)
def test_the_outcome_is_the_worst(items, want):
    assert Assignment(items).outcome is want
    assert Assignment(items, forced=AssignmentMode.DEFERRED_FIT).outcome is (
        AssignmentMode.DEFERRED_FIT
    )


def test_what_an_assignment_uses():
    found = Assignment([item("a", level=1, gpu=FIT, cpu=FIT), item("b", level=3, tpu=PREEMPT)])
    assert (found.level, found.flavors) == (3, {"f-gpu", "f-cpu", "f-tpu"})
    assert found.nominated == {("a", "gpu"): "f-gpu", ("a", "cpu"): "f-cpu", ("b", "tpu"): "f-tpu"}
    assert (Assignment().level, Assignment().flavors, Assignment().nominated) == (0, set(), {})
    assert found.item("b") is found.pod_sets[1]


def test_usage_adds_up_without_zeros():
    found = Assignment()
    none = changed(item("none", cpu=FIT), requests={"cpu": 0})
    for each in (item("a", gpu=FIT, cpu=FIT), item("b", 2, gpu=FIT), none, item("c")):
        found.add(each)
    assert found.usage == {FlavorResource("f-gpu", "gpu"): 15, FlavorResource("f-cpu", "cpu"): 5}
    assert [each.name for each in found.pod_sets] == ["a", "b", "none", "c"]
    assert found.to_free() is found.usage


def test_what_a_slice_adds_to_the_one_that_it_replaces():
    """Four pods of 5 each take the place of three that held 4 each."""
    hold = PodSetHold("a", {GPU: "f-gpu"}, {GPU: 12}, 3)
    grown = changed(item("a", 4, gpu=FIT, cpu=FIT), held=hold)
    assert [grown.beyond_held(name) for name in (GPU, "cpu", "tpu")] == [8, 20, 0]
    assert [grown.of_more_pods(name) for name in (GPU, "cpu", "tpu")] == [5, 5, 0]
    other = item("b", 2, gpu=FIT)
    assert [other.beyond_held(name) for name in (GPU, "tpu")] == [10, 0]
    assert [other.of_more_pods(name) for name in (GPU, "tpu")] == [10, 0]
    empty = changed(item("c", 0, gpu=FIT), held=hold)
    assert (empty.beyond_held(GPU), empty.of_more_pods(GPU)) == (-12, 0)
    found = Assignment()
    for each in (grown, other):
        found.add(each)
    gpu, cpu = FlavorResource("f-gpu", "gpu"), FlavorResource("f-cpu", "cpu")
    assert found.usage == {gpu: 18, cpu: 20}
    assert found.to_free() == {gpu: 15, cpu: 5}


def test_a_mode_that_is_forced_holds_for_a_pod_set_and_the_whole():
    found = Assignment([item("a", level=2, gpu=FIT, cpu=RECLAIM), item("b", gpu=FIT)])
    found.force("a", PREEMPT)
    assert found == Assignment(
        [item("a", level=2, gpu=PREEMPT, cpu=PREEMPT), item("b", gpu=FIT)],
        forced=AssignmentMode.PREEMPT,
    )
    found.force("b", NO_FIT)
    assert found == Assignment(
        [item("a", level=2, gpu=PREEMPT, cpu=PREEMPT), item("b", gpu=NO_FIT)],
        forced=AssignmentMode.NO_FIT,
    )


def test_what_has_to_be_freed_first():
    modes = {"a": NO_FIT, "b": NO_CANDIDATES, "c": PREEMPT, "d": RECLAIM, "e": FIT}
    found = Assignment([item(**modes), item(**{"b": PREEMPT, "x": PREEMPT})])
    assert found.needing_preemption() == {FlavorResource(f"f-{x}", x) for x in "bcdx"}


@pytest.mark.parametrize(
    ("items", "want"),
    [
        pytest.param([item(gpu=FIT)], "", id="everything fits"),
        pytest.param(
            [
                changed(item("a"), reasons=["y", "x"]),
                item("b", gpu=FIT),
                changed(item("c"), reasons=["z"]),
            ],
            "couldn't assign flavors to pod set a: x, y; couldn't assign flavors to pod set c: z",
            id="reasons in order",
        ),
        pytest.param(
            [changed(item("a"), reasons=["y"]), changed(item("b"), error="none")],
            "failed to assign flavors to pod set b: none",
            id="an error alone",
        ),
    ],
)
def test_the_message(items, want):
    assert Assignment(items).message() == want


HOSTNAME = "kubernetes.io/hostname"
LONG = "a-pool-with-a-very-long-name-indeed-", "b-pool-of-another-very-long-name-"


def test_the_admission_is_written_whole():
    placement = Placement((HOSTNAME,), (PlacedPods(("n1",), 2),))
    items = [
        changed(item("a", 2, gpu=FIT, cpu=FIT), requests={"cpu": 1500}, placement=placement),
        changed(item("b"), delayed="Pending"),
    ]
    assert Assignment(items).admission("q") == {
        "clusterQueue": "q",
        "podSetAssignments": [
            {
                "name": "a",
                "flavors": {"cpu": "f-cpu", "gpu": "f-gpu"},
                "resourceUsage": {"cpu": "1500m", "gpu": "0"},
                "count": 2,
                "topologyAssignment": {
                    "levels": [HOSTNAME],
                    "slices": [
                        {
                            "domainCount": 1,
                            "valuesPerLevel": [{"universal": "n1"}],
                            "podCounts": {"universal": 2},
                        }
                    ],
                },
            },
            {"name": "b", "count": 1, "delayedTopologyRequest": "Pending"},
        ],
    }


def test_placements_are_split_by_prefix_unless_they_must_not_be():
    placed = tuple(PlacedPods((f"{start * 4}{n}",), 1) for start in LONG for n in range(3))
    found = Assignment([changed(item(), placement=Placement((HOSTNAME,), placed))])
    slices = [
        [
            len(each["topologyAssignment"]["slices"])
            for each in found.admission("q", **how)["podSetAssignments"]
        ]
        for how in ({}, {"splits_by_prefix": True}, {"splits_by_prefix": False})
    ]
    assert slices == [[2], [2], [1]]
