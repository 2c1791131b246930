"""Answers of an engine told whole: changes, forecasts, reports, and why a workload waits."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from budgets.plan import StopPolicy
from clusters.kueue.amounts import UNLIMITED, FlavorResource
from clusters.kueue.assignment.outcome import FlavorAttempt, FlavorMode
from clusters.kueue.cycle.decisions import Admit, CycleResult, Pending, Preempt
from clusters.kueue.explanation import asking, what_if, why
from clusters.kueue.explanation.asking import (
    amounts_document,
    answer_document,
    change_fault,
    flavors_of,
    read_changes,
)
from clusters.kueue.explanation.changes import (
    Drain,
    Inapplicable,
    ObjectChange,
    Raise,
    make,
    queues_by_tree,
    touched_queues,
    trees_of,
)
from clusters.kueue.explanation.reports import (
    QueueReport,
    ShareReport,
    cluster_queue_report,
    cohort_share,
    local_queue_report,
    resource_requests,
    share_reports,
)
from clusters.kueue.explanation.what_if import Bounds, Forecast, run_until_quiet
from clusters.kueue.explanation.why import (
    Borrower,
    Explainer,
    Explanation,
    Holder,
    OwnQuota,
    Protection,
    explain,
)
from clusters.kueue.queueing.readiness import ActiveCondition
from clusters.kueue.quota.resource_node import Quota
from tests.kueue.builders import (
    GPU,
    START,
    World,
    cluster_queue,
    cohort,
    flavor,
    group,
    local_queue,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)

KEY = FlavorResource("f0", GPU)
CPU = FlavorResource("f0", "cpu")
KINDS = (
    "AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, Raise, Drain, "
    "AddNodes, TaintNodes"
)
RAISE = {"kind": "Raise", "on": "Cohort", "key": "c", "flavor": "f", "amount": 1}
AMOUNT = "Raise needs amount, a whole number other than 0, not "


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({}, f"Kind None is not one of {KINDS}."),
        ({"kind": "Pod"}, f"Kind 'Pod' is not one of {KINDS}."),
        ({"kind": "Drain"}, ""),
        ({"kind": "Workload"}, "Give the Workload as document, or its key."),
        ({"kind": "Workload", "key": ""}, "Give the Workload as document, or its key."),
        ({"kind": "Workload", "key": 1}, "Give the Workload as document, or its key."),
        ({"kind": "Workload", "key": "ns/w"}, ""),
        ({"kind": "Cohort", "document": {"metadata": {"name": "c"}}}, ""),
        ({"kind": "Cohort", "document": None}, "The document of this Cohort has no metadata.name."),
        ({"kind": "Cohort", "document": []}, "The document of this Cohort has no metadata.name."),
        (
            {"kind": "Cohort", "document": {"metadata": "c"}},
            "The document of this Cohort has no metadata.name.",
        ),
        (
            {"kind": "Cohort", "document": {"metadata": {"name": ""}}},
            "The document of this Cohort has no metadata.name.",
        ),
        (
            {"kind": "Cohort", "document": {"metadata": {"name": 7}}, "key": "c"},
            "The document of this Cohort has no metadata.name.",
        ),
        (RAISE, ""),
        ({**RAISE, "amount": -3, "resource": "cpu", "on": "ClusterQueue"}, ""),
        (
            {**RAISE, "on": "Pod"},
            "Quota is raised on one of ClusterQueue, Cohort, not on 'Pod'.",
        ),
        ({"kind": "Raise"}, "Quota is raised on one of ClusterQueue, Cohort, not on None."),
        ({**RAISE, "key": ""}, "Raise needs key, a name."),
        ({**RAISE, "flavor": None}, "Raise needs flavor, a name."),
        ({**RAISE, "key": None, "flavor": None}, "Raise needs key, a name."),
        ({**RAISE, "resource": 1}, "Raise takes resource as a name."),
        ({**RAISE, "resource": ""}, ""),
        ({**RAISE, "amount": 0}, f"{AMOUNT}0."),
        ({**RAISE, "amount": True}, f"{AMOUNT}True."),
        ({**RAISE, "amount": "8"}, f"{AMOUNT}'8'."),
        ({**RAISE, "amount": None}, f"{AMOUNT}None."),
        ({**RAISE, "amount": 1.0}, f"{AMOUNT}1.0."),
    ],
)
def test_fault_of_a_change_is_told_in_these_words(change, want):
    assert change_fault(change) == want
    if want:
        with pytest.raises(ValueError) as caught:
            read_changes([{"kind": "Drain"}, change])
        assert str(caught.value) == want


def test_changes_are_read_whole():
    document = {"metadata": {"name": "w"}}
    found = read_changes(
        [
            {"kind": "Drain"},
            {**RAISE, "resource": "cpu"},
            {**RAISE, "on": "ClusterQueue", "amount": -2},
            {"kind": "Workload", "document": document},
            {"kind": "LocalQueue", "key": "ns/q"},
        ]
    )
    assert found == [
        Drain(),
        Raise("Cohort", "c", "f", "cpu", 1),
        Raise("ClusterQueue", "c", "f", "", -2),
        ObjectChange("Workload", document, ""),
        ObjectChange("LocalQueue", None, "ns/q"),
    ]


def admit(key: str, *pod_sets: dict[str, Any]) -> Admit:
    admission = {"clusterQueue": f"of-{key}", "podSetAssignments": list(pod_sets)}
    return Admit(key, admission, True, (), "")


def preempt(key: str, preemptor: str = "ns/p", reason: str = "R") -> Preempt:
    return Preempt(key, reason, "m", preemptor, f"of-{key}")


def assigned(name: str, gpus: str, cpus: str | None = None) -> dict[str, Any]:
    usage = {GPU: gpus, **({"cpu": cpus} if cpus is not None else {})}
    return {"name": name, "flavors": {GPU: "f0", "cpu": "f1"}, "resourceUsage": usage}


def test_answer_is_told_whole(monkeypatch):
    world = World().feed(
        cluster_queue("q", group(f0=quota(8))), reserved(workload("held", "q", gpus=3), "q")
    )
    world.engine.state.settle(world.now)
    forecast = Forecast(
        admitted={
            "ns/a": admit("ns/a", assigned("one", "2", "250m"), assigned("two", "1", "1")),
            "ns/held": admit("ns/held", assigned("one", "3")),
            "ns/b": admit("ns/b", {"name": "bare"}),
        },
        preempted=(
            preempt("ns/s1", "", "ClusterQueueStopped"),
            preempt("ns/held"),
            preempt("ns/gone", "ns/x"),
            preempt("ns/s2", "", "ClusterQueueStopped"),
        ),
        pending={},
        waiting=5,
        lost={"q": {KEY: 2, CPU: 500}},
        gained={"r": {KEY: 1}},
        is_settled=False,
    )
    started = [
        {
            "key": "ns/a",
            "clusterQueue": "of-ns/a",
            "flavors": {
                "one": {GPU: "f0", "cpu": "f1"},
                "two": {GPU: "f0", "cpu": "f1"},
            },
            "amounts": {f"f0/{GPU}": 3, "f1/cpu": 1250},
        },
        {"key": "ns/b", "clusterQueue": "of-ns/b", "flavors": {"bare": {}}, "amounts": {}},
    ]
    stopped = [
        {
            "key": key,
            "clusterQueue": f"of-{key}",
            "preemptor": "",
            "reason": "ClusterQueueStopped",
            "amounts": {},
            "restarts": False,
        }
        for key in ("ns/s1", "ns/s2")
    ]
    preempted = [
        {
            "key": "ns/held",
            "clusterQueue": "of-ns/held",
            "preemptor": "ns/p",
            "reason": "R",
            "amounts": {f"f0/{GPU}": 3},
            "restarts": True,
        },
        {
            "key": "ns/gone",
            "clusterQueue": "of-ns/gone",
            "preemptor": "ns/x",
            "reason": "R",
            "amounts": {},
            "restarts": False,
        },
    ]
    want = {
        "started": started,
        "startedCount": 2,
        "preempted": preempted,
        "preemptedCount": 2,
        "stopped": stopped,
        "stoppedCount": 2,
        "barred": [],
        "barredCount": 0,
        "opened": [],
        "openedCount": 0,
        "pending": 5,
        "lost": {"q": {"f0/cpu": 500, f"f0/{GPU}": 2}},
        "gained": {"r": {f"f0/{GPU}": 1}},
        "settled": False,
    }
    assert answer_document(world.engine, forecast) == want
    monkeypatch.setattr(asking, "MOST_LISTED", 1)
    want |= {name: want[name][:1] for name in ("started", "preempted", "stopped")}
    assert answer_document(world.engine, forecast) == want


def test_amounts_and_flavors_of_an_answer():
    second = FlavorResource("e", GPU)
    assert list(amounts_document({KEY: 2, CPU: 1, second: 3}).items()) == [
        (f"e/{GPU}", 3),
        ("f0/cpu", 1),
        (f"f0/{GPU}", 2),
    ]
    assert flavors_of({}) == {}
    assert flavors_of({"podSetAssignments": None}) == {}
    listed = [{"name": "a", "flavors": {GPU: "f"}}, {"flavors": None}]
    assert flavors_of({"podSetAssignments": listed}) == {"a": {GPU: "f"}, "": {}}


# Changes


def pool(*, gpus: int = 4) -> World:
    """Two queues that lend to each other, and one alone, each with GPUs and processors."""
    both = group(f0=[quota(gpus, 2, 3), quota(8, resource="cpu")])
    return World(None, flavor("f1")).feed(
        cohort("pool", f0=quota(2)),
        cluster_queue("a", both, in_cohort="pool"),
        cluster_queue("b", group(f0=quota(gpus), f1=quota(1)), in_cohort="pool"),
        cluster_queue("alone", group(f0=quota(gpus))),
    )


def quotas(world: World, name: str) -> dict[FlavorResource, Quota]:
    snapshot = world.engine.state.snapshot
    return dict((snapshot.queues.get(name) or snapshot.cohorts[name]).spec.quotas)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(Raise("ClusterQueue", "a", "f0", GPU, 3), Quota(7, 2, 3), id="more"),
        pytest.param(Raise("ClusterQueue", "a", "f0", GPU, -2), Quota(2, 2, 2), id="less to lend"),
        pytest.param(Raise("ClusterQueue", "a", "f0", GPU, -4), Quota(0, 2, 0), id="nothing"),
        pytest.param(Raise("ClusterQueue", "a", "f0", GPU, -9), Quota(0, 2, 0), id="never below"),
        pytest.param(Raise("ClusterQueue", "b", "f0", "", 1), Quota(5), id="its only resource"),
        pytest.param(Raise("Cohort", "pool", "f0", "", 5), Quota(7), id="a Cohort"),
    ],
)
def test_raised_quota_keeps_its_limits(change, want):
    world = pool()
    before = quotas(world, change.key)
    make(world.engine, change, now=world.now)
    assert quotas(world, change.key) == {**before, KEY: want}


def test_cohort_gets_quota_that_it_had_not():
    world = pool()
    make(world.engine, Raise("Cohort", "pool", "f1", "cpu", 5), now=world.now)
    new = FlavorResource("f1", "cpu")
    assert quotas(world, "pool") == {KEY: Quota(2), new: Quota(5)}
    make(world.engine, Raise("Cohort", "pool", "f2", "cpu", -5), now=world.now)
    assert quotas(world, "pool")[FlavorResource("f2", "cpu")] == Quota(0)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (Raise("ClusterQueue", "x", "f0", "", 1), "There is no ClusterQueue x on this cluster."),
        (
            Raise("ClusterQueue", "pool", "f0", "", 1),
            "There is no ClusterQueue pool on this cluster.",
        ),
        (Raise("Cohort", "a", "f0", "", 1), "There is no Cohort a on this cluster."),
        (
            Raise("ClusterQueue", "a", "f0", "", 1),
            "ClusterQueue a has quota of 2 resources in flavor f0: name the resource.",
        ),
        (
            Raise("Cohort", "pool", "f9", "", 1),
            "Cohort pool has quota of 0 resources in flavor f9: name the resource.",
        ),
        (
            Raise("ClusterQueue", "b", "f0", "cpu", 1),
            "ClusterQueue b has no quota of cpu in flavor f0: name one of its own.",
        ),
    ],
)  # fmt: skip
def test_change_that_cannot_be_made_says_why(change, want):
    world = pool()
    with pytest.raises(Inapplicable) as caught:
        make(world.engine, change, now=world.now)
    assert str(caught.value) == want


def test_drained_cluster_has_no_quota_and_every_queue_is_drained():
    world = pool()
    world.feed(cluster_queue("c", group(f0=quota(1)), in_cohort="undeclared"))
    make(world.engine, Drain(), now=world.now)
    assert quotas(world, "pool") == {KEY: Quota(0)}
    assert quotas(world, "a") == {KEY: Quota(0, 2, 0), CPU: Quota(0)}
    assert quotas(world, "c") == {KEY: Quota(0)}
    snapshot = world.engine.state.snapshot
    assert {item.spec.stop_policy for item in snapshot.queues.values()} == {
        StopPolicy.HOLD_AND_DRAIN
    }
    assert not snapshot.cohorts["undeclared"].is_declared
    assert snapshot.cohorts["pool"].is_declared


def test_objects_come_and_go_as_changes():
    world = pool()
    new = cluster_queue("new", group(f0=quota(1)))
    make(world.engine, ObjectChange("ClusterQueue", new), now=world.now)
    assert quotas(world, "new") == {KEY: Quota(1)}
    make(world.engine, ObjectChange("ClusterQueue", key="new"), now=world.now)
    world.engine.state.settle(world.now)
    assert "new" not in world.engine.state.snapshot.queues


def test_trees_are_named_by_their_roots():
    world = pool().feed(
        cohort("inner", "pool"), cluster_queue("deep", group(f0=quota(1)), in_cohort="inner")
    )
    world.engine.state.settle(world.now)
    engine = world.engine
    assert queues_by_tree(engine) == {"/pool": {"a", "b", "deep"}, "alone": {"alone"}}
    for change, want in (
        (Raise("Cohort", "inner", "f0", GPU, 1), {"/pool"}),
        (Raise("ClusterQueue", "deep", "f0", GPU, 1), {"/pool"}),
        (Raise("ClusterQueue", "alone", "f0", GPU, 1), {"alone"}),
        (Raise("ClusterQueue", "x", "f0", GPU, 1), set()),
        (ObjectChange("Cohort", cohort("new", "pool")), {"/pool"}),
        (ObjectChange("Cohort", {"metadata": {"name": "new"}}), set()),
        (ObjectChange("LocalQueue", local_queue("alone", "a")), {"alone", "/pool"}),
        (ObjectChange("LocalQueue", local_queue("new", "alone")), {"alone"}),
        (ObjectChange("Workload", {"metadata": {"name": "w", "namespace": "ns"}}), set()),
    ):
        assert trees_of(engine, change) == want, change
    assert trees_of(engine, Drain()) is None
    assert trees_of(engine, ObjectChange("ResourceFlavor", key="f0")) is None
    both = [Raise("Cohort", "inner", "f0", GPU, 1), ObjectChange("ClusterQueue", key="alone")]
    assert touched_queues(engine, both) == {"a", "b", "deep", "alone"}
    assert touched_queues(engine, [both[0], Drain()]) is None
    assert touched_queues(engine, []) is None


def test_workload_touches_every_tree_that_it_is_or_was_in():
    world = pool().feed(
        cluster_queue("other", group(f0=quota(4))),
        cluster_queue("third", group(f0=quota(4))),
        reserved(workload("held", "third", gpus=1), "other"),
        workload("waits", "alone", gpus=9),
    )
    world.engine.state.settle(world.now)
    for change, want in (
        (ObjectChange("Workload", key="ns/held"), {"other"}),
        (ObjectChange("Workload", key="ns/waits"), {"alone"}),
        (ObjectChange("Workload", key="ns/gone"), set()),
        (ObjectChange("Workload", workload("held", "third")), {"other", "third"}),
        (ObjectChange("Workload", workload("waits", "third")), {"alone", "third"}),
        (ObjectChange("Workload", reserved(workload("waits", "third"), "other")),
         {"alone", "third", "other"}),
        (ObjectChange("Workload", workload("new", "gone")), set()),
    ):  # fmt: skip
        assert trees_of(world.engine, change) == want, change


def test_template_of_claims_touches_the_trees_of_what_waits_for_it_and_no_other():
    """One comes with most jobs: it makes nothing else be compared, or tried, anew."""
    queues = [cluster_queue(name, group(f0=quota(4))) for name in ("a", "b")]
    pods = pod_set({"cpu": 1}, resourceClaims=[{"name": "t", "resourceClaimTemplateName": "t"}])
    world = World(None, *queues, workload("w", "a", pods), workload("x", "b", gpus=1))
    world.engine.state.settle(world.now)
    template = {"metadata": {"name": "t", "namespace": "ns"}}
    for change, want in (
        (ObjectChange("ResourceClaimTemplate", template), {"a"}),
        (ObjectChange("ResourceClaimTemplate", key="ns/t"), {"a"}),
        (ObjectChange("ResourceClaimTemplate", key="ns/u"), set()),
    ):
        assert trees_of(world.engine, change) == want, change


def test_question_is_about_everything_where_one_start_hangs_on_all():
    world = World({"waitForPodsReady": {"blockAdmission": True}}).feed(
        cluster_queue("q", group(f0=quota(4)))
    )
    world.engine.state.settle(world.now)
    assert touched_queues(world.engine, [Raise("ClusterQueue", "q", "f0", GPU, 1)]) is None


def test_cohort_in_a_circle_makes_it_a_question_about_everything():
    world = World().feed(
        cohort("x", "y"), cohort("y", "x"), cluster_queue("q", group(f0=quota(1)), in_cohort="x")
    )
    world.engine.state.settle(world.now)
    assert trees_of(world.engine, Raise("Cohort", "x", "f0", GPU, 1)) is None


# Forecasts


def result(number: int, **changes: Any) -> CycleResult:
    return CycleResult(number, 1, **changes)


def test_last_word_on_every_workload_counts():
    first, again = admit("ns/a"), admit("ns/a", {"name": "again"})
    waits, waits_more = (Pending("ns/b", reason, "", "q", True) for reason in "xy")
    was_waiting = Pending("ns/c", "z", "", "q", True)
    results = [
        result(1, admitted=(first, admit("ns/d")), pending=(waits, was_waiting)),
        result(2, preempted=(preempt("ns/a"), preempt("ns/e")), pending=(waits_more,)),
        result(3, admitted=(again, admit("ns/c"))),
        result(4, preempted=(preempt("ns/d"),)),
    ]
    admitted, pending = what_if._outcome(results)
    assert admitted == {"ns/a": again, "ns/c": admit("ns/c")}
    assert pending == {"ns/b": waits_more}


def test_differences_are_what_is_larger():
    other = FlavorResource("f1", GPU)
    larger = {"a": {KEY: 5, CPU: 2, other: 1}, "b": {KEY: 1}, "c": {KEY: 0}, "d": {KEY: 3}}
    smaller = {"a": {KEY: 2, CPU: 2, other: 4}, "b": {KEY: 1}}
    assert what_if._differences(larger, smaller) == {"a": {KEY: 3}, "d": {KEY: 3}}


def test_forecast_is_told_whole():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), preemption=preemption("LowerPriority")),
        cluster_queue("other", group(f0=quota(9))),
        reserved(workload("low", "q", gpus=2, age=1), "q"),
        reserved(workload("stays", "q", gpus=2, priority=9), "q"),
        workload("waits", "q", gpus=3, age=2),
        workload("elsewhere", "other", gpus=99),
    )
    off = workload("off", "q", gpus=1)
    off["spec"]["active"] = False
    world.feed(off)
    asked = [ObjectChange("Workload", workload("high", "q", gpus=2, priority=5, age=3))]
    found = what_if.what_if(world.engine, asked, now=world.now)
    assert list(found.admitted) == ["ns/high"]
    assert [(item.key, item.preemptor, item.cluster_queue) for item in found.preempted] == [
        ("ns/low", "ns/high", "q")
    ]
    assert set(found.pending) == {"ns/low", "ns/waits"}
    # Whoever waits in another tree is counted, though that is not tried; who is off is not.
    assert (found.waiting, found.lost, found.gained, found.is_settled) == (3, {}, {}, True)
    everything = what_if.what_if(world.engine, [], now=world.now)
    assert (everything.waiting, everything.is_settled) == (2, True)
    assert everything.preempted == ()


def test_what_a_drained_queue_holds_stops_in_order_of_keys():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4))),
        *(reserved(workload(name, "q", gpus=1), "q") for name in "cab"),
        cluster_queue("r", group(f0=quota(4))),
        reserved(workload("r", "r", gpus=1), "r"),
    )
    drained = cluster_queue("q", group(f0=quota(4)), stopPolicy="HoldAndDrain")
    found = what_if.what_if(world.engine, [ObjectChange("ClusterQueue", drained)], now=world.now)
    assert found.preempted == tuple(
        Preempt(f"ns/{name}", "ClusterQueueStopped", "The ClusterQueue is stopped", "", "q")
        for name in "abc"
    )
    held = cluster_queue("q", group(f0=quota(4)), stopPolicy="Hold")
    found = what_if.what_if(world.engine, [ObjectChange("ClusterQueue", held)], now=world.now)
    assert found.preempted == ()


def test_bounds_end_a_forecast_after_so_many_cycles():
    def world() -> World:
        documents = [workload(f"w{age}", "q", gpus=1, age=age) for age in range(3)]
        return World().feed(cluster_queue("q", group(f0=quota(9))), *documents)

    for most, want_cycles, want_quiet in (
        (0, 0, False),
        (2, 2, False),
        (3, 3, False),
        (4, 3, True),
    ):
        results, is_quiet = run_until_quiet(
            world().engine, now=START, bounds=Bounds(most_cycles=most)
        )
        assert (len(results), is_quiet) == (want_cycles, want_quiet)
        assert [item.admitted[0].key for item in results] == [
            f"ns/w{age}" for age in range(want_cycles)
        ]
    asked: list[None] = []

    def is_over() -> bool:
        asked.append(None)
        return len(asked) > 2

    results, is_quiet = run_until_quiet(world().engine, now=START, bounds=Bounds(is_over=is_over))
    assert (len(results), is_quiet, len(asked)) == (2, False, 3)
    assert [Bounds().most_cycles, Bounds().is_over()] == [200, False]


@pytest.mark.parametrize(("stops_victims", "want"), [(True, ["ns/high"]), (False, [])])
def test_victims_stop_at_once_or_go_on(stops_victims, want):
    world = World().feed(
        cluster_queue("q", group(f0=quota(2)), preemption=preemption("LowerPriority")),
        reserved(workload("low", "q", gpus=2), "q"),
        workload("high", "q", gpus=2, priority=5),
    )
    results, _ = run_until_quiet(
        world.engine, now=world.now, bounds=Bounds(9), stops_victims=stops_victims
    )
    assert [item.key for item in results[0].preempted] == ["ns/low"]
    assert [item.key for found in results for item in found.admitted] == want


# Reports


def test_reports_are_told_whole():
    world = World(None, flavor("f1")).feed(
        cluster_queue(
            "q",
            group(f0=[quota(2), quota(4, resource="memory")]),
            group(f1=quota(1, resource="cpu")),
            in_cohort="pool",
        ),
        cluster_queue("lender", group(f0=quota(4)), in_cohort="pool"),
        local_queue("second", "q"),
        reserved(workload("only", "q", gpus=1), "q", is_admitted=False),
        reserved(workload("runs", "q", gpus=2), "q"),
        reserved(workload("more", "second", gpus=1), "q"),
        workload("w", "q", gpus=9),
        workload("x", "second", gpus=9, age=1),
    )

    def shown(gpus: str, borrowed: str | None) -> list[dict[str, Any]]:
        def one(name: str, total: str, above: str) -> dict[str, str]:
            return {"name": name, "total": total} | (
                {"borrowed": above} if borrowed is not None else {}
            )

        return [
            {"name": "f0", "resources": [one("memory", "0", "0"), one(GPU, gpus, borrowed or "")]},
            {"name": "f1", "resources": [one("cpu", "0", "0")]},
        ]

    ready = ActiveCondition(True, "Ready", "Can admit new workloads")
    assert cluster_queue_report(world.engine, "q") == QueueReport(
        ready, shown("4", "2"), shown("3", "1"), pending=2, reserving=3, admitted=2,
        weighted_share=334,
    )  # fmt: skip
    submit = ActiveCondition(True, "Ready", "Can submit new workloads to localQueue")
    assert local_queue_report(world.engine, "ns/q") == QueueReport(
        submit, shown("3", None), shown("2", None), pending=1, reserving=2, admitted=1
    )
    assert local_queue_report(world.engine, "ns/second") == QueueReport(
        submit, shown("1", None), shown("1", None), pending=1, reserving=1, admitted=1
    )
    world.feed(local_queue("lost", "gone"))
    nowhere = ActiveCondition(
        False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
    )
    assert local_queue_report(world.engine, "ns/lost") == QueueReport(
        nowhere, [], [], pending=0, reserving=0, admitted=0
    )
    with pytest.raises(KeyError):
        cluster_queue_report(world.engine, "gone")


def test_queue_alone_borrows_nothing():
    world = World().feed(
        cluster_queue("q", group(f0=quota(2))), reserved(workload("w", "q", gpus=5), "q")
    )
    found = cluster_queue_report(world.engine, "q")
    want = [{"name": "f0", "resources": [{"name": GPU, "total": "5", "borrowed": "0"}]}]
    assert (found.flavors_reservation, found.weighted_share) == (want, 0)


def test_requests_of_a_workload_are_told_by_pod_set_and_name():
    world = World().feed(
        cluster_queue("q", group(f0=quota(1))),
        workload(
            "w",
            "q",
            pod_set({GPU: 2, "cpu": 1}, name="a", count=3),
            pod_set({"memory": 1024}, name="b"),
        ),
    )
    assert resource_requests(world.engine.state.workloads["ns/w"]) == [
        {"name": "a", "resources": {"cpu": "3", GPU: "6"}},
        {"name": "b", "resources": {"memory": "1Ki"}},
    ]


def test_shares_are_told_whole():
    world = World({"fairSharing": {}}, flavor("f1")).feed(
        cohort("left", "pool", f0=quota(1)),
        cluster_queue(
            "a",
            group(f0=[quota(2), quota(1, resource="cpu")], f1=[quota(1), quota(0, resource="cpu")]),
            in_cohort="left",
            fairSharing={"weight": "2"},
        ),
        cluster_queue("b", group(f0=[quota(3), quota(9, resource="cpu")]), in_cohort="pool"),
        cluster_queue("alone", group(f0=quota(4))),
        reserved(workload("w", "a", gpus=5), "a"),
        reserved(workload("v", "a", pod_set({GPU: 2})), "a", flavor="f1"),
        reserved(workload("u", "a", pod_set({"cpu": 2})), "a"),
    )
    assert list(share_reports(world.engine)) == [
        ShareReport("a", False, "left", 2.0, GPU, 4, 7, 286),
        ShareReport("b", False, "pool", 1.0, "", 0, 0, 0),
        ShareReport("left", True, "pool", 1.0, GPU, 3, 7, 429),
    ]
    assert cohort_share(world.engine, "left") == 429
    with pytest.raises(KeyError):
        cohort_share(world.engine, "gone")


def test_share_of_a_weight_of_nothing_has_no_end():
    world = World({"fairSharing": {}}).feed(
        cluster_queue("a", group(f0=quota(0)), in_cohort="p", fairSharing={"weight": "0"}),
        cluster_queue("b", group(f0=quota(4)), in_cohort="p"),
        reserved(workload("w", "a", gpus=1), "a"),
    )
    [a, _] = share_reports(world.engine)
    assert a == ShareReport("a", False, "p", 0.0, GPU, 1, 4, UNLIMITED)


# Why


def explained(world: World, name: str) -> Explanation:
    found = explain(world.engine, f"ns/{name}", now=world.now)
    assert found is not None
    return found


def taken() -> World:
    """All of ``a`` is used by ``b``, which borrows it; two wait in ``a``."""
    return World().feed(
        cluster_queue("a", group(f0=quota(8, 4)), in_cohort="pool"),
        cluster_queue("b", group(f0=quota(2)), in_cohort="pool"),
        reserved(workload("late", "b", gpus=6), "b", at="2026-01-01T00:00:09Z"),
        reserved(workload("early", "b", gpus=3), "b"),
        reserved(workload("own", "a", gpus=1), "a", at="2026-01-01T00:00:05Z"),
        workload("first", "a", gpus=4),
        workload("second", "a", gpus=2, age=1),
    )


def test_explanation_is_told_whole():
    world = taken()
    world.run()
    text = (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
        "flavor f0, 4 more needed"
    )
    found = explained(world, "first")
    at = [START + timedelta(seconds=second) for second in (0, 5, 9)]
    want = Explanation(
        reason="WaitingForQuota",
        message=found.message,
        reason_now="WaitingForQuota",
        message_now=text,
        cluster_queue="a",
        position=1,
        waiting=2,
        is_parked=True,
        requests={GPU: 4},
        attempts=(
            FlavorAttempt(
                "main", "f0", FlavorMode.NO_CANDIDATES, {GPU: 4}, found.attempts[0].reasons
            ),
        ),
        lacking={KEY: 4},
        holders=(
            Holder("ns/early", "b", {KEY: 3}, Protection.RECLAIM_NEVER, at[0]),
            Holder("ns/own", "a", {KEY: 1}, Protection.WITHIN_QUEUE_NEVER, at[1]),
            Holder("ns/late", "b", {KEY: 6}, Protection.RECLAIM_NEVER, at[2]),
        ),
        holder_count=3,
        borrowers=(Borrower("b", {KEY: 7}),),
        quota={KEY: OwnQuota(8, 1, 0, 10, 7)},
    )
    differing = [
        item.name for item in fields(want) if getattr(want, item.name) != getattr(found, item.name)
    ]
    assert not differing, [(name, getattr(found, name)) for name in differing]
    assert found.message.startswith(text)
    second = explained(world, "second")
    assert (second.position, second.waiting, second.lacking) == (2, 2, {KEY: 2})


def test_protection_of_each_holder_is_told():
    """Twelve GPUs in a tree, all taken; what asks for all of them may stop only some."""
    stops = {"type": "Evicted", "status": "True", "reason": "Preempted"}
    world = World().feed(
        cluster_queue(
            "a",
            group(f0=quota(4)),
            in_cohort="pool",
            preemption=preemption("LowerPriority", "LowerPriority"),
        ),
        cluster_queue("b", group(f0=quota(4)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("low", "a", gpus=1, priority=1), "a"),
        reserved(workload("same", "a", gpus=1, priority=5), "a"),
        reserved(workload("inside", "b", gpus=4), "b"),
        reserved(workload("high", "c", gpus=3, priority=9), "c"),
        reserved(workload("lowc", "c", gpus=2, priority=1), "c"),
        reserved(workload("stops", "c", gpus=1), "c", conditions=(stops,)),
        workload("w", "a", gpus=12, priority=5),
    )
    world.run()
    found = explained(world, "w")
    assert found.lacking == {KEY: 12}
    assert found.holders == tuple(
        Holder(f"ns/{name}", queue, {KEY: gpus}, protection, START)
        for name, queue, gpus, protection in (
            ("high", "c", 3, Protection.PRIORITY),
            ("inside", "b", 4, Protection.WITHIN_NOMINAL),
            ("low", "a", 1, Protection.NONE),
            ("lowc", "c", 2, Protection.NONE),
            ("same", "a", 1, Protection.PRIORITY),
            ("stops", "c", 1, Protection.STOPPING),
        )
    )
    assert found.borrowers == (Borrower("c", {KEY: 2}),)
    assert found.quota == {KEY: OwnQuota(4, 2, 0, 12, 2)}


def borrowing() -> World:
    """Three queues without quota borrow all of ``a``, ``d`` the most; ``e`` borrows and waits."""
    return World().feed(
        cluster_queue("a", group(f0=quota(9)), in_cohort="pool"),
        *(cluster_queue(name, group(f0=quota(0)), in_cohort="pool") for name in "edcb"),
        reserved(workload("w1", "c", gpus=2), "c", at="2026-01-01T00:00:02Z"),
        reserved(workload("w2", "b", gpus=2), "b", at="2026-01-01T00:00:01Z"),
        reserved(workload("w3", "d", gpus=4), "d", at="2026-01-01T00:00:02Z"),
        reserved(workload("w4", "e", gpus=1), "e"),
        workload("mine", "a", gpus=3),
        workload("yours", "e", gpus=2),
    )


def test_borrowers_and_holders_are_bounded_and_ordered(monkeypatch):
    world = borrowing()
    world.run()
    found = explained(world, "mine")
    assert [(item.cluster_queue, item.amounts[KEY]) for item in found.borrowers] == [
        ("d", 4),
        ("b", 2),
        ("c", 2),
        ("e", 1),
    ]
    assert [item.key for item in found.holders] == ["ns/w4", "ns/w2", "ns/w1", "ns/w3"]
    assert [item.cluster_queue for item in explained(world, "yours").borrowers] == ["d", "b", "c"]
    monkeypatch.setattr(why, "MOST_BORROWERS", 2)
    monkeypatch.setattr(why, "MOST_HOLDERS", 3)
    found = explained(world, "mine")
    assert [item.cluster_queue for item in found.borrowers] == ["d", "b"]
    assert [item.key for item in found.holders] == ["ns/w4", "ns/w2", "ns/w1"]
    assert found.holder_count == 4


def test_explainer_says_of_each_what_it_would_say_alone():
    world = borrowing().feed(
        cluster_queue("alone", group(f0=quota(1))),
        reserved(workload("held", "alone", gpus=1), "alone"),
        workload("x", "alone", gpus=1),
        workload("y", "a", gpus=3, age=5),
        workload("z", "a", gpus=4, age=6, priority=1),
    )
    world.run()
    together = Explainer(world.engine, now=world.now)
    names = ("mine", "x", "z", "yours", "y")
    for name in (*names, *names):
        assert together.explain(f"ns/{name}") == explained(world, name)
    places = {name: (explained(world, name).position, explained(world, name).waiting)
              for name in names}  # fmt: skip
    assert places == {"z": (1, 3), "mine": (2, 3), "y": (3, 3), "x": (1, 1), "yours": (1, 1)}
    assert explained(world, "x").borrowers == ()
    assert [item.key for item in explained(world, "x").holders] == ["ns/held"]


def test_explainer_looks_for_the_borrowers_of_a_tree_once():
    world = borrowing()
    world.run()
    together = Explainer(world.engine, now=world.now)
    mine, yours = together.explain("ns/mine"), together.explain("ns/yours")
    assert mine is not None
    assert yours is not None
    assert yours.borrowers[0] == Borrower("d", {KEY: 4})
    assert yours.borrowers[0] is mine.borrowers[0]


def test_workload_that_was_not_tried_has_its_place_alone():
    world = World().feed(cluster_queue("q", group(f0=quota(8))))
    world.feed(*(workload(name, "q", gpus=2, age=age) for age, name in enumerate(("v", "w"))))
    assert explained(world, "w") == Explanation(
        "", cluster_queue="q", position=2, waiting=2, requests={GPU: 2}
    )
    assert explain(world.engine, "ns/unknown", now=world.now) is None


def test_workload_with_quota_waits_only_for_its_checks():
    world = World().feed(cluster_queue("q", group(f0=quota(8))))
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted"}
    world.feed(
        reserved(workload("runs", "q"), "q"),
        reserved(workload("checked", "q"), "q", is_admitted=False),
        reserved(workload("stops", "q"), "q", is_admitted=False, conditions=(evicted,)),
    )
    assert explain(world.engine, "ns/runs", now=world.now) is None
    assert explain(world.engine, "ns/stops", now=world.now) is None
    assert explained(world, "checked") == Explanation(
        "CheckPending", "Quota reserved in ClusterQueue q", "q"
    )


def test_workload_that_waits_nowhere_says_why():
    off = workload("off", "q")
    off["spec"]["active"] = False
    world = World().feed(
        cluster_queue("q", group(f0=quota(8))),
        off,
        workload("lost", "gone", gpus=3),
        local_queue("held", "q", stopPolicy="Hold"),
        workload("stopped", "held", gpus=2),
        local_queue("drained", "q", stopPolicy="HoldAndDrain"),
        workload("emptied", "drained", gpus=1),
    )
    assert explained(world, "off") == Explanation("Deactivated", "The workload is deactivated")
    assert explained(world, "lost") == Explanation(
        "Misconfigured", "LocalQueue gone doesn't exist", requests={GPU: 3}
    )
    assert explained(world, "stopped") == Explanation(
        "Suspended",
        "LocalQueue held is inactive",
        hold=StopPolicy.HOLD,
        hold_kind="LocalQueue",
        requests={GPU: 2},
    )
    found = explained(world, "emptied")
    assert (found.hold, found.hold_kind) == (StopPolicy.HOLD_AND_DRAIN, "LocalQueue")


def test_workload_in_a_stopped_queue_says_so():
    world = World().feed(
        cluster_queue("q", group(f0=quota(8)), stopPolicy="Hold"), workload("w", "q", gpus=2)
    )
    found = explained(world, "w")
    assert (found.reason, found.message) == ("Suspended", "ClusterQueue q is inactive")
    assert (found.hold, found.hold_kind, found.position) == (StopPolicy.HOLD, "ClusterQueue", 1)


def test_level_that_has_to_hold_a_pod_set_is_named():
    sets = [pod_set({GPU: 1}, name=name) for name in "abc"]
    sets[0]["topologyRequest"] = {"preferred": "block"}
    sets[1]["topologyRequest"] = {"required": "rack"}
    sets[2]["topologyRequest"] = {"required": "block"}
    world = World().feed(cluster_queue("q", group(f0=quota(8))), workload("w", "q", *sets))
    assert explained(world, "w").within == "rack"
    world.feed(workload("v", "q"))
    assert explained(world, "v").within == ""


def test_flavors_stand_beside_what_another_scheduler_told():
    world = World(None, flavor("f1")).feed(
        cluster_queue("q", group(f1=quota(1), f0=[quota(8)])),
        workload("w", "q", gpus=3),
        workload("large", "q", gpus=9, age=1),
        reserved(workload("runs", "q", gpus=1), "q"),
    )
    explainer = Explainer(world.engine, now=world.now)
    found = explainer.told("ns/w", reason="R", message="M")
    assert found is not None
    want = Explanation(
        "R",
        "M",
        "R",
        "M",
        cluster_queue="q",
        position=1,
        waiting=2,
        requests={GPU: 3},
        attempts=found.attempts,
        quota={FlavorResource("f1", GPU): OwnQuota(1, 0, 1, 1, 0), KEY: OwnQuota(8, 1, 7, 8, 0)},
    )
    assert found == want
    assert [(item.flavor, item.mode) for item in found.attempts] == [
        ("f1", FlavorMode.NO_FIT),
        ("f0", FlavorMode.FIT),
    ]
    large = explainer.told("ns/large", reason="R", message="M")
    assert large == Explanation(
        "R", "M", cluster_queue="q", position=2, waiting=2, requests={GPU: 9}
    )
    assert explainer.told("ns/runs", reason="R", message="M") is None
    assert explainer.told("ns/unknown", reason="R", message="M") is None


def test_holder_is_named_by_its_key():
    holder = Holder("team/job/x", "q", {}, Protection.UNKNOWN, None)
    assert (holder.namespace, holder.name) == ("team", "job/x")


def test_largest_gap_of_a_pair_counts():
    def attempt(flavor: str, **missing: int) -> FlavorAttempt:
        return FlavorAttempt("main", flavor, FlavorMode.NO_FIT, missing, ())

    found = why._lacking(
        [attempt("f0", cpu=3), attempt("f1", cpu=9), attempt("f0", cpu=5, mem=1), attempt("f0")]
    )
    assert found == {
        FlavorResource("f0", "cpu"): 5,
        FlavorResource("f1", "cpu"): 9,
        FlavorResource("f0", "mem"): 1,
    }


def test_explainer_keeps_what_lacks_different_things_apart():
    both = group(f0=[quota(2), quota(2, resource="cpu")])
    none = group(f0=[quota(0), quota(0, resource="cpu")])
    world = World().feed(
        cluster_queue("a", both, in_cohort="pool"),
        cluster_queue("b", none, in_cohort="pool"),
        cluster_queue("c", none, in_cohort="pool"),
        reserved(workload("of-gpus", "b", gpus=2), "b"),
        reserved(workload("of-cpus", "c", pod_set({"cpu": 2})), "c"),
        workload("gpu", "a", gpus=1),
        workload("cpu", "a", pod_set({"cpu": 1}), age=1),
    )
    world.run()
    together = Explainer(world.engine, now=world.now)
    for name, holder, borrower, amounts, lacking in (
        ("gpu", "ns/of-gpus", "b", {KEY: 2}, {KEY: 1}),
        ("cpu", "ns/of-cpus", "c", {CPU: 2000}, {CPU: 1000}),
    ):
        found = together.explain(f"ns/{name}")
        assert found == explained(world, name)
        assert found is not None
        assert found.lacking == lacking
        assert [(item.key, item.amounts) for item in found.holders] == [(holder, amounts)]
        assert found.borrowers == (Borrower(borrower, amounts),)


def test_workload_that_is_passed_over_has_the_evidence_of_its_equal():
    world = World().feed(cluster_queue("q", group(f0=quota(4))), workload("first", "q", gpus=8))
    world.run()
    world.feed(workload("second", "q", gpus=8, age=1))
    first = explained(world, "first")
    assert (first.reason, first.reason_now, first.position, first.waiting) == (
        "ExceedsMaxQuota",
        "ExceedsMaxQuota",
        1,
        2,
    )
    assert [item.flavor for item in first.attempts] == ["f0"]
    text = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    want = replace(first, reason="WaitingForQuota", message=text, position=2)
    assert explained(world, "second") == want


def test_reports_follow_a_workload_that_is_admitted_moved_and_gone():
    world = World()
    world.feed(cluster_queue("q", group(f0=quota(8))))
    document = workload("w", "q", gpus=3)

    def counts() -> list[tuple[int, int]]:
        found = [cluster_queue_report(world.engine, "q"), local_queue_report(world.engine, "ns/q")]
        return [(report.reserving, report.admitted) for report in found]

    world.feed(reserved(document, "q", is_admitted=False))
    assert counts() == [(1, 0), (1, 0)]
    world.feed(reserved(document, "q"))
    assert counts() == [(1, 1), (1, 1)]
    used = cluster_queue_report(world.engine, "q").flavors_usage
    assert used == cluster_queue_report(world.engine, "q").flavors_reservation != []
    world.engine.delete("ClusterQueue", key="q", now=world.now)
    world.feed(cluster_queue("q", group(f0=quota(8))))
    assert counts() == [(1, 1), (1, 1)], "what is held is counted again when its queue comes back"
    world.engine.delete("Workload", key="ns/w", now=world.now)
    assert counts() == [(0, 0), (0, 0)]
