"""The facade: level-triggered feeding, refusals, assumptions and their undoing."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from clusters.kueue.amounts import FlavorResource
from clusters.kueue.cycle.engine import CycleFailed, culprits
from clusters.kueue.cycle.entries import Entry
from clusters.kueue.cycle.intake import UnreadableDocument
from clusters.kueue.cycle.scheduler import Scheduler
from clusters.kueue.explanation.reports import (
    cluster_queue_report,
    local_queue_report,
)
from clusters.kueue.explanation.why import Explainer, Explanation, Holder, Protection, explain
from clusters.kueue.queueing.readiness import ActiveCondition, local_queue_condition
from clusters.kueue.quota.specifications import parse_local_queue
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


def one_queue(**spec) -> World:
    return World().feed(cluster_queue("q", group(f0=quota(4)), **spec))


def is_known(world: World, name: str) -> bool:
    return f"ns/{name}" in world.engine.state.workloads


@pytest.mark.parametrize(
    ("prepare", "want_reason", "want_message"),
    [
        pytest.param(
            lambda world: world.engine.delete("LocalQueue", key="ns/q", now=world.now),
            "Misconfigured",
            "LocalQueue q doesn't exist",
            id="no LocalQueue",
        ),
        pytest.param(
            lambda world: world.feed(local_queue("q", "q", stopPolicy="Hold")),
            "Suspended",
            "LocalQueue q is inactive",
            id="LocalQueue on hold",
        ),
        pytest.param(
            lambda world: world.engine.delete("ClusterQueue", key="q", now=world.now),
            "Misconfigured",
            "ClusterQueue q doesn't exist",
            id="no ClusterQueue",
        ),
        pytest.param(
            lambda world: world.feed(
                cluster_queue("q", group(f0=quota(4)), stopPolicy="HoldAndDrain")
            ),
            "Suspended",
            "ClusterQueue q is inactive",
            id="ClusterQueue stopped",
        ),
    ],
)
def test_workload_waits_nowhere_until_its_queue_is_there(prepare, want_reason, want_message):
    world = one_queue().feed(workload("w", "q", gpus=1))
    prepare(world)
    result = world.cycle()
    assert (result.heads, result.decisions, result.has_moved) == (0, (), False)
    found = explain(world.engine, "ns/w", now=world.now)
    assert (found.reason, found.message) == (want_reason, want_message)

    world.feed(cluster_queue("q", group(f0=quota(4))))
    assert list(world.admitted()) == ["w"]


@pytest.mark.parametrize(
    ("documents", "want_reason", "want_message"),
    [
        pytest.param(
            [
                cluster_queue(
                    "q", group(f0=quota(4)), namespaceSelector={"matchLabels": {"team": "a"}}
                ),
                workload("w", "q", gpus=1),
            ],
            "Misconfigured",
            "workload namespace doesn't match ClusterQueue selector",
            id="namespace",
        ),
        pytest.param(
            [
                cluster_queue("q", group(f0=quota(4))),
                {
                    **workload("w", "q", gpus=1),
                    "status": {"admissionChecks": [{"name": "c", "state": "Retry"}]},
                },
            ],
            "PendingEvaluation",
            "The workload has failed admission checks",
            id="failed check",
        ),
        pytest.param(
            [
                cohort("pool", "pool"),
                cluster_queue("q", group(f0=quota(4)), in_cohort="pool"),
                workload("w", "q", gpus=1),
            ],
            "Suspended",
            "ClusterQueue q is inactive",
            id="cycle of Cohorts",
        ),
    ],
)
def test_head_that_may_not_be_admitted_is_told_why(documents, want_reason, want_message):
    world = World().feed(*documents)
    result = world.cycle()
    assert [(item.reason, item.message) for item in result.pending] == [(want_reason, want_message)]
    assert world.cycle().heads == 0


def test_request_above_limit_is_inadmissible():
    item = pod_set({GPU: 2})
    item["template"]["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}
    world = one_queue().feed(workload("w", "q", item))
    (pending,) = world.cycle().pending
    assert pending.message.startswith("resources validation failed: ")
    assert pending.reason == "Misconfigured"


def test_limit_range_gives_defaults_and_bounds():
    bounds = {
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "ns"},
        "spec": {
            "limits": [
                {"type": "Container", "defaultRequest": {GPU: "3"}, "max": {GPU: "3"}},
            ]
        },
    }
    world = one_queue().feed(
        workload("w", "q", pod_set({})), workload("big", "q", pod_set({GPU: 4}), age=1)
    )
    world.feed(bounds)
    admission = world.admitted()["w"]
    assert admission["podSetAssignments"][0]["resourceUsage"] == {GPU: "3"}
    assert world.message("big").startswith("resources didn't satisfy LimitRange constraints: ")


def test_namespace_labels_let_a_workload_in():
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), namespaceSelector={"matchLabels": {"team": "a"}}),
        workload("w", "q", gpus=1),
    )
    assert world.admitted() == {}
    world.feed({"kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}})
    assert list(world.admitted()) == ["w"]


def test_feeding_the_same_again_changes_nothing():
    documents = [
        flavor("f0"),
        cohort("pool", f0=quota(2)),
        cluster_queue("q", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("held", "q", gpus=3), "q"),
        workload("w", "q", gpus=9),
    ]
    world = World().feed(*documents)
    world.run()
    before = (world.usage(), world.order("q"))
    world.feed(*copy.deepcopy(documents))
    assert world.cycle().heads == 0
    assert (world.usage(), world.order("q")) == before


def test_restart_decides_the_same():
    documents = [
        cluster_queue("q", group(f0=quota(6)), preemption=preemption("LowerPriority")),
        reserved(workload("held", "q", gpus=4), "q"),
        workload("w", "q", gpus=4, priority=9),
        workload("small", "q", gpus=2, age=5),
    ]
    first, second = World().feed(*documents), World().feed(*reversed(documents))
    assert first.cycle() == second.cycle()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"active": False}}, id="deactivated"),
        pytest.param(
            {"status": {"conditions": [{"type": "Finished", "status": "True"}]}}, id="finished"
        ),
    ],
)
def test_workload_that_ends_gives_its_quota_back(change):
    document = reserved(workload("held", "q", gpus=4), "q")
    world = one_queue().feed(document, workload("w", "q", gpus=4, age=1))
    assert world.admitted() == {}
    ended = copy.deepcopy(document)
    if "spec" in change:
        ended["spec"].update(change["spec"])
        del ended["status"]
    else:
        ended["status"]["conditions"].append({"type": "Finished", "status": "True"})
    world.feed(ended)
    assert list(world.admitted()) == ["w"]


def test_assumed_reservation_survives_an_older_document():
    document = workload("w", "q", gpus=4)
    world = one_queue().feed(document)
    assert list(world.admitted()) == ["w"]
    world.feed({**document, "status": {"conditions": []}})
    assert world.cycle().heads == 0
    assert world.usage()["q"] == {("f0", GPU): 4}


def test_reservation_that_was_seen_and_is_gone_is_released():
    document = workload("w", "q", gpus=4)
    world = one_queue().feed(document)
    world.admitted()
    world.feed(reserved(document, "q"), document)
    assert world.usage()["q"] == {}
    assert list(world.admitted()) == ["w"]


def test_forget_takes_a_reservation_back_and_queues_again():
    world = one_queue().feed(workload("w", "q", gpus=4))
    world.admitted()
    world.engine.forget("ns/w", now=world.now)
    assert world.usage()["q"] == {}
    assert list(world.admitted()) == ["w"]


def test_forget_takes_a_preemption_back():
    world = one_queue(preemption=preemption("LowerPriority")).feed(
        reserved(workload("old", "q", gpus=4), "q"), workload("w", "q", gpus=4, priority=1)
    )
    assert [item.key for item in world.cycle().preempted] == ["ns/old"]
    world.engine.forget("ns/old", now=world.now)
    assert [item.key for item in world.cycle().preempted] == ["ns/old"]


def test_assumed_eviction_survives_an_older_document():
    old = workload("old", "q", gpus=4)
    world = one_queue(preemption=preemption("LowerPriority")).feed(
        reserved(old, "q", is_admitted=False), workload("w", "q", gpus=4, priority=1)
    )
    assert [item.key for item in world.cycle().preempted] == ["ns/old"]
    world.feed(reserved(old, "q", is_admitted=True))
    assert world.cycle().preempted == ()
    assert world.usage()["q"] == {("f0", GPU): 4}


def test_update_that_keeps_the_quota_wakes_nobody():
    held = workload("held", "q", gpus=4)
    world = one_queue().feed(reserved(held, "q", is_admitted=False), workload("w", "q", gpus=1))
    world.run()
    world.feed(reserved(held, "q", is_admitted=True))
    assert world.cycle().heads == 0
    assert cluster_queue_report(world.engine, "q").admitted == 1


@pytest.mark.parametrize(
    ("is_seen", "want_first"),
    [
        pytest.param(True, "ns/higher", id="reservation was seen: precedence is over"),
        pytest.param(False, "ns/w", id="preempted before that: first again"),
    ],
)
def test_preemptor_keeps_its_precedence_until_its_reservation_is_seen(is_seen, want_first):
    document = workload("w", "q", gpus=4, priority=1)
    world = one_queue(preemption=preemption("LowerPriority")).feed(
        reserved(workload("old", "q", gpus=4), "q"), document
    )
    assert "w" in world.admitted()
    if is_seen:
        world.feed(reserved(document, "q"))
    world.feed(workload("higher", "q", gpus=4, priority=9))
    world.engine.release_evicted("ns/w", now=world.now)
    assert world.order("q")[0] == want_first


def test_forget_without_an_assumption_does_nothing():
    world = one_queue().feed(reserved(workload("held", "q", gpus=4), "q"))
    world.engine.forget("ns/held", now=world.now)
    world.engine.forget("ns/unknown", now=world.now)
    assert world.usage()["q"] == {("f0", GPU): 4}


def test_usage_stays_counted_while_its_queue_is_away():
    world = one_queue().feed(reserved(workload("held", "q", gpus=3), "q"))
    world.engine.delete("ClusterQueue", key="q", now=world.now)
    world.feed(cluster_queue("q", group(f0=quota(4))), workload("w", "q", gpus=2))
    assert world.usage()["q"] == {("f0", GPU): 3}
    assert world.admitted() == {}


def test_stopped_queue_still_lends_and_counts():
    world = World().feed(
        cluster_queue("a", group(f0=quota(5)), in_cohort="pool"),
        cluster_queue("stopped", group(f0=quota(7)), in_cohort="pool", stopPolicy="Hold"),
        cluster_queue("lost", group(f0=quota(8), gone=quota(3)), in_cohort="pool"),
        reserved(workload("held", "stopped", gpus=2), "stopped"),
    )
    world.engine.state.settle(world.now)
    node = world.engine.state.snapshot.queues["a"].node
    assert node.available(FlavorResource("f0", GPU)) == 18


@pytest.mark.parametrize(
    ("checks", "state", "want_admitted"),
    [
        pytest.param([], None, True, id="no check"),
        pytest.param([{"name": "c"}], None, False, id="check not there yet"),
        pytest.param([{"name": "c"}], "Pending", False, id="check pending"),
        pytest.param([{"name": "c"}], "Ready", True, id="check ready"),
        pytest.param([{"name": "c", "onFlavors": ["f1"]}], None, True, id="other flavor"),
    ],
)
def test_admission_in_two_phases(checks, state, want_admitted):
    document = workload("w", "q", gpus=1)
    if state:
        document["status"] = {"admissionChecks": [{"name": "c", "state": state}]}
    world = World(None, flavor("f1")).feed(
        {
            "kind": "AdmissionCheck",
            "metadata": {"name": "c"},
            "spec": {"controllerName": "x"},
            "status": {"conditions": [{"type": "Active", "status": "True"}]},
        },
        cluster_queue(
            "q",
            group(f0=quota(4), f1=quota(4)),
            admissionChecksStrategy={"admissionChecks": checks},
        ),
        document,
    )
    (admit,) = world.cycle().admitted
    assert admit.is_admitted == want_admitted
    report = cluster_queue_report(world.engine, "q")
    assert (report.reserving, report.admitted) == (1, int(want_admitted))


@pytest.mark.parametrize(
    ("spec", "documents", "want_reason", "want_message"),
    [
        pytest.param({}, [], "Ready", "Can admit new workloads", id="ready"),
        pytest.param(
            {"stopPolicy": "Hold"},
            [],
            "Stopped",
            "Can't admit new workloads: is stopped.",
            id="stopped",
        ),
        pytest.param(
            {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
            [],
            "AdmissionCheckNotFound",
            "Can't admit new workloads: references missing AdmissionCheck(s): c.",
            id="check missing",
        ),
        pytest.param(
            {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}, "stopPolicy": "Hold"},
            [{"kind": "AdmissionCheck", "metadata": {"name": "c"}, "spec": {}}],
            "Stopped",
            "Can't admit new workloads: is stopped, references inactive AdmissionCheck(s): c.",
            id="two reasons, the first counts",
        ),
    ],
)
def test_active_condition(spec, documents, want_reason, want_message):
    world = one_queue(**spec).feed(*documents)
    condition = cluster_queue_report(world.engine, "q").condition
    assert (condition.reason, condition.message) == (want_reason, want_message)
    assert condition.is_active == (want_reason == "Ready")


STOPPED = ActiveCondition(False, "Stopped", "LocalQueue is stopped")
NO_ENTRY = "Can't submit new workloads to clusterQueue"


@pytest.mark.parametrize(
    ("policy", "queue", "want"),
    [
        pytest.param("None", (True, "Ready"), (True, "Ready"), id="ready"),
        pytest.param("None", (False, "Stopped"), (False, "ClusterQueueIsInactive"), id="inactive"),
        pytest.param("None", None, (False, "ClusterQueueDoesNotExist"), id="no ClusterQueue"),
        pytest.param("Hold", (True, "Ready"), STOPPED, id="held"),
        pytest.param("HoldAndDrain", None, STOPPED, id="drained, and no ClusterQueue"),
    ],
)
def test_condition_of_a_local_queue(policy, queue, want):
    spec = parse_local_queue(local_queue("q", "q", stopPolicy=policy))
    if not isinstance(want, ActiveCondition):
        is_active, reason = want
        text = "Can submit new workloads to localQueue" if is_active else NO_ENTRY
        want = ActiveCondition(is_active, reason, text)
    above = ActiveCondition(queue[0], queue[1], "") if queue is not None else None
    assert local_queue_condition(spec, queue=above) == want


def test_reports_list_every_pair_with_borrowing():
    world = World(None, flavor("f1")).feed(
        cluster_queue("q", group(f0=quota(2), f1=quota(1)), in_cohort="pool"),
        cluster_queue("lender", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("held", "q", gpus=3), "q", is_admitted=False),
        workload("w", "q", gpus=9),
    )
    report = cluster_queue_report(world.engine, "q")
    assert report.flavors_reservation == [
        {"name": "f0", "resources": [{"name": GPU, "total": "3", "borrowed": "1"}]},
        {"name": "f1", "resources": [{"name": GPU, "total": "0", "borrowed": "0"}]},
    ]
    assert report.flavors_usage[0]["resources"] == [{"name": GPU, "total": "0", "borrowed": "0"}]
    assert (report.pending, report.reserving, report.admitted) == (1, 1, 0)

    local = local_queue_report(world.engine, "ns/q")
    assert local.flavors_reservation[0] == {
        "name": "f0",
        "resources": [{"name": GPU, "total": "3"}],
    }
    assert (local.pending, local.condition.reason) == (1, "Ready")


def test_stopped_local_queue_shows_nothing_pending():
    world = one_queue().feed(workload("w", "q", gpus=9), local_queue("q", "q", stopPolicy="Hold"))
    report = local_queue_report(world.engine, "ns/q")
    assert (report.pending, report.condition.reason) == (0, "Stopped")


def test_explanation_names_flavor_gap_and_place():
    world = one_queue().feed(
        reserved(workload("held", "q", gpus=3), "q"),
        workload("first", "q", gpus=4, priority=5),
        workload("w", "q", gpus=2),
    )
    world.run()
    found = explain(world.engine, "ns/w", now=world.now)
    assert found.is_parked
    assert found.position == 2
    (attempt,) = found.attempts
    assert (attempt.flavor, dict(attempt.missing)) == ("f0", {GPU: 1})


@pytest.mark.parametrize(
    ("rules", "priority", "want_own", "want_other"),
    [
        pytest.param(
            preemption(), 9, Protection.WITHIN_QUEUE_NEVER, Protection.RECLAIM_NEVER, id="never"
        ),
        pytest.param(
            preemption("LowerPriority", "LowerPriority"),
            0,
            Protection.PRIORITY,
            Protection.PRIORITY,
            id="priority",
        ),
        pytest.param(
            preemption("LowerPriority", "Any"),
            9,
            Protection.NONE,
            Protection.NONE,
            id="not enough room",
        ),
    ],
)
def test_explanation_says_why_holders_are_not_preempted(rules, priority, want_own, want_other):
    world = World().feed(
        cluster_queue("q", group(f0=quota(4)), in_cohort="pool", preemption=rules),
        cluster_queue("b", group(f0=quota(1)), in_cohort="pool"),
        cluster_queue("c", group(f0=quota(4)), in_cohort="pool"),
        reserved(workload("mine", "q", gpus=1), "q"),
        reserved(workload("borrower", "b", gpus=2), "b"),
        reserved(workload("nominal", "c", gpus=3), "c"),
        workload("w", "q", gpus=9, priority=priority),
    )
    world.cycle()
    found = explain(world.engine, "ns/w", now=world.now)
    got = {holder.key: holder.protection for holder in found.holders}
    nominal = Protection.RECLAIM_NEVER if rules == preemption() else Protection.WITHIN_NOMINAL
    assert got == {"ns/mine": want_own, "ns/borrower": want_other, "ns/nominal": nominal}


def test_explanations_of_one_moment_do_not_mix():
    """One lacks GPUs and the other cards of the network, which other workloads hold."""
    nic = "example.com/nic"
    world = World().feed(
        cluster_queue("q", group(f0=[quota(4), quota(4, resource=nic)])),
        reserved(workload("gpus", "q", pod_set({GPU: 3})), "q", at="2026-01-01T00:00:01Z"),
        reserved(workload("cards", "q", pod_set({nic: 4})), "q"),
        workload("w", "q", pod_set({GPU: 2})),
        workload("v", "q", pod_set({nic: 3}), age=1),
    )
    world.run()
    explainer = Explainer(world.engine, now=world.now)
    for name, holder, resource, held, missing in (
        ("w", "gpus", GPU, 3, 1),
        ("v", "cards", nic, 4, 3),
    ):
        found = explainer.explain(f"ns/{name}")
        pair = FlavorResource("f0", resource)
        assert (found.message, found.message_now) == (
            f"couldn't assign flavors to pod set main: insufficient unused quota for {resource} "
            f"in flavor f0, {missing} more needed",
        ) * 2
        assert dict(found.lacking) == {pair: missing}
        since = START + timedelta(seconds=holder == "gpus")
        protection = Protection.WITHIN_QUEUE_NEVER
        assert found.holders == (Holder(f"ns/{holder}", "q", {pair: held}, protection, since),)
        assert list(found.quota) == [pair]


def test_what_is_deactivated_waits_nowhere():
    document = workload("w", "q", gpus=1)
    document["spec"]["active"] = False
    world = one_queue().feed(document)
    found = explain(world.engine, "ns/w", now=world.now)
    assert found == Explanation("Deactivated", "The workload is deactivated")


def test_what_is_deactivated_lets_equal_work_be_looked_at_again():
    world = one_queue().feed(large := workload("large", "q", gpus=99))
    assert len(world.cycle().pending) == 1
    world.feed(workload("equal", "q", gpus=99))
    assert world.cycle().pending == ()  # an equal one has just failed
    large["spec"]["active"] = False
    assert [each.key for each in world.feed(large).cycle().pending] == ["ns/equal"]
    world.engine.delete("Workload", key="ns/equal", now=world.now)
    world.feed(workload("next", "q", gpus=99))
    assert [each.key for each in world.cycle().pending] == ["ns/next"]
    world.engine.delete("Workload", key="ns/large", now=world.now)
    assert [each.key for each in world.cycle().pending] == ["ns/next"]


def test_long_messages_are_cut_for_the_api():
    world = one_queue().feed(workload("w", "q", pod_set({GPU: 99}, name="y" * 40_000)))
    (pending,) = world.cycle().pending
    assert len(pending.message) == 32 * 1024
    assert pending.message.endswith(" ...")


def test_shapes_go_with_the_workloads_that_have_them():
    world = one_queue()
    for index in range(50):
        world.feed(workload(f"w{index}", "q", gpus=5 + index))
    world.run(60)
    shapes = len(world.engine.state.parser._shapes)
    for index in range(50):
        world.engine.delete("Workload", key=f"ns/w{index}", now=world.now)
    gc.collect()
    assert shapes == 50
    assert len(world.engine.state.parser._shapes) <= 1


def test_equal_work_in_different_images_has_one_shape():
    world = one_queue()
    for index in range(3):
        document = workload(f"w{index}", "q", gpus=9)
        container = document["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
        container["image"] = f"image-{index}"
        world.feed(document)
    assert len(world.engine.state.parser._shapes) == 1


def test_naive_time_is_refused():
    world = one_queue()
    with pytest.raises(ValueError, match="aware"):
        world.engine.cycle(world.now.replace(tzinfo=None))


def test_cohort_cycle_is_reported_while_the_queue_stays_ready():
    world = World().feed(
        cohort("pool", "top"),
        cohort("top", "pool"),
        cluster_queue("q", group(f0=quota(4)), in_cohort="pool"),
    )
    world.engine.state.settle(world.now)
    assert world.engine.state.snapshot.cohorts["pool"].is_cyclic
    assert cluster_queue_report(world.engine, "q").condition.is_active


def test_transformation_counts_one_resource_as_another():
    configuration = {
        "resources": {
            "transformations": [
                {"input": "vendor/slice", "strategy": "Replace", "outputs": {GPU: "2"}}
            ],
            "excludeResourcePrefixes": ["ignored/"],
        }
    }
    world = World(configuration).feed(
        cluster_queue("q", group(f0=quota(8))),
        workload("w", "q", pod_set({"vendor/slice": 3, "ignored/x": 5})),
    )
    assert world.admitted()["w"]["podSetAssignments"][0]["resourceUsage"] == {GPU: "6"}


def test_blocked_admission_waits_until_all_pods_are_ready():
    first = workload("first", "a", gpus=1)
    world = World({"waitForPodsReady": {"blockAdmission": True}}).feed(
        cluster_queue("a", group(f0=quota(4))),
        cluster_queue("b", group(f0=quota(4))),
        first,
        workload("second", "b", gpus=1, age=1),
    )
    result = world.cycle()
    assert [item.key for item in result.admitted] == ["ns/first"]
    assert [(item.key, item.reason) for item in result.pending] == [
        ("ns/second", "WaitingForPodsReady")
    ]
    assert world.cycle().admitted == ()
    world.feed(reserved(first, "a", conditions=({"type": "PodsReady", "status": "True"},)))
    assert list(world.admitted()) == ["second"]


def test_gated_workload_waits_outside_the_queue():
    document = workload("w", "q", gpus=1)
    document["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "x.io/y"}
    world = one_queue().feed(document)
    assert world.cycle().heads == 0
    assert world.message("w") == "Admission is gated by: x.io/y"
    assert is_known(world, "w")


def test_unknown_kind_is_an_error():
    world = World()
    with pytest.raises(KeyError):
        world.engine.upsert({"kind": "Deployment", "metadata": {"name": "d"}}, now=world.now)


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param({"spec": {"podSets": [{"name": "main", "count": "9" * 5000}]}}, id="digits"),
        pytest.param({"spec": {"podSets": [pod_set({GPU: "much"})]}}, id="a quantity"),
        pytest.param({"status": {"requeueState": {"requeueAt": "soon"}}}, id="a time"),
        pytest.param({"status": {"conditions": ["QuotaReserved"]}}, id="a shape"),
    ],
)
def test_malformed_document_changes_nothing(malformed):
    held = reserved(workload("w", "q", gpus=3), "q")
    world = one_queue().feed(held)
    before = world.usage()
    with pytest.raises(UnreadableDocument):
        world.engine.upsert({**held, **malformed}, now=world.now)
    assert world.usage() == before
    assert is_known(world, "w")


def failing_cycles(monkeypatch: pytest.MonkeyPatch, is_fatal: Callable[[set[str]], bool]) -> None:
    """Let cycles raise that are about certain heads."""
    run = Scheduler.run

    def fail(self: Scheduler, entries: Sequence[Entry], *, cycle: int) -> list[Entry]:
        decided = run(self, entries, cycle=cycle)
        if is_fatal({entry.workload.name for entry in entries}):
            raise RuntimeError("half-way")
        return decided

    monkeypatch.setattr(Scheduler, "run", fail)


@pytest.mark.parametrize(
    ("is_fatal", "want"),
    [
        pytest.param(lambda names: "w2" in names, ["ns/w2"], id="one"),
        pytest.param(lambda names: bool(names & {"w0", "w4"}), ["ns/w0", "ns/w4"], id="two"),
        pytest.param(lambda names: names >= {"w0", "w1"}, ["ns/w1"], id="only together"),
        pytest.param(lambda names: False, [], id="none of them"),
    ],
)
def test_heads_that_no_cycle_can_be_decided_about_are_named(monkeypatch, is_fatal, want):
    names = [f"q{number}" for number in range(5)]
    queues = [cluster_queue(name, group(f0=quota(1)), in_cohort="pool") for name in names]
    world = World().feed(*queues)
    world.feed(*(workload(f"w{number}", name, gpus=1) for number, name in enumerate(names)))
    world.feed(workload("behind", "q0", gpus=1, age=1))
    keys = [f"ns/w{number}" for number in range(5)]
    failing_cycles(monkeypatch, is_fatal)
    assert list(culprits(world.engine, keys, now=world.now)) == want
    monkeypatch.undo()
    assert [item.key for item in world.cycle().admitted] == keys


def test_failed_cycle_names_its_heads(monkeypatch):
    world = one_queue().feed(workload("w", "q", gpus=1))
    failing_cycles(monkeypatch, lambda names: True)
    with pytest.raises(CycleFailed) as caught:
        world.cycle()
    assert list(caught.value.heads) == ["ns/w"]
