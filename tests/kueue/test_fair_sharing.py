"""Shares, the order of entries, and preemption under fair sharing."""

from __future__ import annotations

import pytest

from clusters.kueue.amounts import UNLIMITED
from clusters.kueue.explanation.reports import (
    cluster_queue_report,
    cohort_share,
    share_reports,
)
from clusters.kueue.quota.fair_sharing import share_of
from tests.kueue.builders import (
    GPU,
    World,
    cluster_queue,
    cohort,
    flavor,
    group,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)

FAIR = {
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
}
RULES = preemption("LowerPriority", "Any")


def fair_queue(name: str, nominal: int, *, weight: object = None, **spec: object):
    extra = {} if weight is None else {"fairSharing": {"weight": str(weight)}}
    return cluster_queue(
        name, group(f0=quota(nominal)), in_cohort="pool", preemption=RULES, **extra, **spec
    )


@pytest.mark.parametrize(
    ("weight", "want_share"),
    [
        pytest.param(None, 167, id="one by default, rounded up"),
        pytest.param(2, 84, id="weight divides"),
        pytest.param("500m", 334, id="fractional weight"),
        pytest.param(0, UNLIMITED, id="weight 0 is infinite when borrowing"),
    ],
)
def test_weighted_share_of_a_borrower(weight, want_share):
    world = World(FAIR).feed(
        cluster_queue("a", group(f0=quota(10, 5, 4)), in_cohort="pool"),
        fair_queue("b", 8, weight=weight),
        reserved(workload("w", "b", gpus=10), "b"),
    )
    assert cluster_queue_report(world.engine, "b").weighted_share == want_share
    assert cluster_queue_report(world.engine, "a").weighted_share == 0


def test_share_counts_what_nobody_can_lend_as_borrowed():
    world = World(FAIR).feed(
        fair_queue("a", 0), reserved(workload("w", "a", gpus=3), "a"), fair_queue("b", 0)
    )
    world.engine.state.settle(world.now)
    share = share_of(world.engine.state.snapshot.queues["a"].node)
    assert (share.ratio, share.is_borrowing) == (0.0, True)


def test_share_counts_what_no_queue_has_quota_of_as_borrowed():
    world = World(FAIR).feed(
        fair_queue("a", 4),
        reserved(workload("w", "a", pod_set({"example.com/nic": 5})), "a"),
        reserved(workload("v", "a", gpus=5), "a"),
    )
    world.engine.state.settle(world.now)
    share = share_of(world.engine.state.snapshot.queues["a"].node)
    assert (share.ratio, share.weight, share.resource, share.is_borrowing) == (
        250.0, 1.0, GPU, True,
    )  # fmt: skip


def test_dominant_resource_is_that_of_the_largest_share():
    both = [quota(4), quota(10, resource="example.com/nic")]
    world = World(FAIR).feed(
        cluster_queue("a", group(f0=both), in_cohort="pool", fairSharing={"weight": "2"}),
        cluster_queue("b", group(f0=both), in_cohort="pool"),
        reserved(workload("w", "a", pod_set({GPU: 5, "example.com/nic": 15})), "a"),
    )
    world.engine.state.settle(world.now)
    share = share_of(world.engine.state.snapshot.queues["a"].node)
    assert (share.ratio, share.weight, share.resource) == (250.0, 2.0, "example.com/nic")
    assert (share.sort_key, share.published) == ((False, 125.0), 125)


def test_share_of_a_cohort_counts_its_whole_subtree():
    world = World(FAIR).feed(
        cohort("left", "pool"),
        cluster_queue("a", group(f0=quota(2)), in_cohort="left"),
        cluster_queue("b", group(f0=quota(2)), in_cohort="left"),
        cluster_queue("c", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("w", "a", gpus=6), "a"),
    )
    assert cohort_share(world.engine, "left") == 250
    assert cohort_share(world.engine, "pool") == 0


def test_report_says_what_is_borrowed_of_what_and_by_which_weight():
    world = World(FAIR).feed(
        cohort("left", "pool"),
        cluster_queue("a", group(f0=quota(2)), in_cohort="left", fairSharing={"weight": "2"}),
        cluster_queue("b", group(f0=quota(2)), in_cohort="left"),
        cluster_queue("c", group(f0=quota(4)), in_cohort="pool"),
        cluster_queue("alone", group(f0=quota(4))),
        reserved(workload("w", "a", gpus=6), "a"),
    )
    found = {row.name: row for row in share_reports(world.engine)}
    assert found.keys() == {"a", "b", "c", "left"}
    a, left = found["a"], found["left"]
    assert (a.parent, a.weight, a.borrowed, a.lendable, a.published) == ("left", 2.0, 4, 8, 250)
    assert (left.is_cohort, left.parent, left.borrowed, left.published) == (True, "pool", 2, 250)
    assert (found["b"].resource, found["b"].borrowed, found["b"].published) == ("", 0, 0)
    for name in "abc":
        report = cluster_queue_report(world.engine, name)
        assert found[name].published == report.weighted_share


def test_lowest_share_goes_first():
    world = World(FAIR).feed(
        cohort("pool", f0=quota(6)),
        fair_queue("a", 0),
        fair_queue("b", 0),
        reserved(workload("held", "a", gpus=2), "a"),
        workload("from-a", "a", gpus=3, priority=9),
        workload("from-b", "b", gpus=3),
    )
    result = world.cycle()
    assert [item.key for item in result.admitted] == ["ns/from-b"]


@pytest.mark.parametrize(
    ("gate", "want_admitted"),
    [
        pytest.param(True, ["ns/within"], id="whoever does not borrow what it asks for"),
        pytest.param(False, ["ns/borrowing"], id="gate off: the lower share"),
    ],
)
def test_who_does_not_borrow_goes_before_a_lower_share(gate, want_admitted):
    """a borrows much of f1, and asks for f0 within its nominal quota."""
    configuration = {**FAIR, "featureGates": {"FairSharingPrioritizeNonBorrowing": gate}}
    world = World(configuration, flavor("f1")).feed(
        cohort("pool", f0=quota(2), f1=quota(8)),
        cluster_queue("a", group(f0=quota(2), f1=quota(0)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(0)), in_cohort="pool"),
        reserved(workload("held", "a", gpus=8), "a", flavor="f1"),
        workload("within", "a", gpus=2),
        workload("borrowing", "b", gpus=3),
    )
    assert [item.key for item in world.cycle().admitted] == want_admitted


@pytest.mark.parametrize(
    ("held", "want_victims"),
    [
        pytest.param([3, 3], {"b1": "InCohortFairSharing"}, id="from the larger share"),
        pytest.param([6], {}, id="not when the victim's queue would fall below"),
    ],
)
def test_preemption_brings_shares_closer(held, want_victims):
    strategies = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}
    world = World(strategies).feed(
        cohort("pool", f0=quota(6)),
        fair_queue("a", 0),
        fair_queue("b", 0),
        *[
            reserved(workload(f"b{index}", "b", gpus=gpus), "b", at=f"2026-01-01T00:00:0{index}Z")
            for index, gpus in enumerate(held)
        ],
        workload("w", "a", gpus=3, priority=1),
    )
    result = world.cycle()
    got = {item.key.removeprefix("ns/"): item.reason for item in result.preempted}
    assert got == want_victims


@pytest.mark.parametrize(
    ("of_b", "of_c", "want_victims"),
    [
        pytest.param(3, 5, ["ns/c0"], id="the last by name"),
        pytest.param(5, 3, ["ns/b0"], id="the first by name"),
        pytest.param(4, 4, ["ns/b0"], id="of equals whose workload began last"),
    ],
)
def test_the_queue_with_the_highest_share_gives_first(of_b, of_c, want_victims):
    held = [
        reserved(workload(f"{name}{index}", name, gpus=1), name, at=f"2026-01-01T00:00:{at}Z")
        for name, count, at in (("b", of_b, "09"), ("c", of_c, "05"))
        for index in range(count)
    ]
    world = World(FAIR).feed(
        cohort("pool", f0=quota(8)),
        *(fair_queue(name, 0) for name in "abc"),
        *held,
        workload("w", "a", gpus=1),
    )
    assert [item.key for item in world.cycle().preempted] == want_victims


@pytest.mark.parametrize("of_c", ["left", "right"])
def test_the_cohort_with_the_highest_share_gives_first(of_c):
    of_b = "right" if of_c == "left" else "left"
    queues = [
        cluster_queue(name, group(f0=quota(0)), in_cohort=above, preemption=RULES)
        for name, above in (("b", of_b), ("c", of_c))
    ]
    world = World(FAIR).feed(
        cohort("pool", f0=quota(8)),
        *(cohort(name, "pool") for name in ("left", "right", "still")),
        *queues,
        cluster_queue("d", group(f0=quota(2)), in_cohort="still", preemption=RULES),
        fair_queue("a", 0),
        reserved(workload("b0", "b", gpus=2), "b"),
        reserved(workload("b1", "b", gpus=1), "b"),
        reserved(workload("c0", "c", gpus=4), "c"),
        reserved(workload("c1", "c", gpus=1), "c"),
        reserved(workload("d0", "d", gpus=2), "d"),
        workload("w", "a", gpus=1),
    )
    assert [item.key for item in world.cycle().preempted] == ["ns/c0"]


def test_second_strategy_compares_with_the_share_before():
    world = World(FAIR).feed(
        cohort("pool", f0=quota(6)),
        fair_queue("a", 0),
        fair_queue("b", 0),
        reserved(workload("big", "b", gpus=6), "b"),
        workload("w", "a", gpus=3),
    )
    result = world.cycle()
    assert [(item.key, item.reason) for item in result.preempted] == [
        ("ns/big", "InCohortFairSharing")
    ]


def test_own_nominal_quota_comes_back_unconditionally():
    world = World(FAIR).feed(
        fair_queue("a", 4),
        fair_queue("b", 0),
        reserved(workload("big", "b", gpus=4), "b"),
        workload("w", "a", gpus=1),
    )
    assert [(item.key, item.reason) for item in world.cycle().preempted] == [
        ("ns/big", "InCohortReclamation")
    ]


def test_weight_zero_takes_from_nobody_with_a_finite_share():
    world = World(FAIR).feed(
        cohort("pool", f0=quota(4)),
        fair_queue("a", 0, weight=0),
        fair_queue("b", 0),
        reserved(workload("held", "b", gpus=4), "b"),
        workload("w", "a", gpus=1, priority=9),
    )
    assert world.cycle().preempted == ()


def test_tree_is_as_before_after_tries():
    world = World(FAIR).feed(
        cohort("left", "pool"),
        fair_queue("a", 1),
        cluster_queue("b", group(f0=quota(3)), in_cohort="left", preemption=RULES),
        cluster_queue("c", group(f0=quota(2, None, 1)), in_cohort="left", preemption=RULES),
        reserved(workload("held", "b", gpus=5), "b"),
        reserved(workload("other", "c", gpus=1, priority=3), "c"),
        workload("w", "a", gpus=7),
        workload("v", "c", gpus=4),
    )
    before = world.usage()
    result = world.cycle()
    assert not result.admitted
    assert world.usage() == before
