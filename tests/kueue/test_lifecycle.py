"""Steps outside of cycles: checks, stops, time-outs, deactivation, requeueing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters.kueue.configuration import PodsReadyRules, parse_duration
from clusters.kueue.lifecycle.decide import backoff, is_requeued_at_once, next_steps
from clusters.kueue.lifecycle.steps import (
    Evict,
    ExplainWaiting,
    ListChecks,
    LookAgain,
    MarkAdmitted,
    MarkRequeued,
    SetInactive,
    SetPriority,
    TargetDeactivation,
    Withdraw,
)
from tests.kueue.builders import (
    GPU,
    START,
    World,
    cluster_queue,
    group,
    local_queue,
    pod_set,
    quota,
    workload,
)
from tests.kueue.builders import reserved as reserve

QUIET = {"waitForPodsReady": {"enable": False}}


def condition(kind: str, status: str = "True", reason: str = "", **extra: str) -> dict[str, Any]:
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at, **extra}


def held(*conditions: dict[str, Any], is_admitted: bool = True, **status: Any) -> dict[str, Any]:
    """A Workload with reserved quota and, unless said otherwise, admitted an hour ago."""
    document = reserve(workload("w", "q", gpus=1), "q", is_admitted=False)
    listed = document["status"]["conditions"]
    if is_admitted:
        listed.append(condition("Admitted"))
    listed.extend(conditions)
    document["status"].update(status)
    return document


def waiting(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**workload("w", "q", gpus=1), "status": {"conditions": list(conditions), **status}}


def steps(document: dict[str, Any], *, configuration=QUIET, queue=None, local=None, checks=()):
    strategy = {"admissionChecks": [{"name": name} for name in checks]}
    spec = {"admissionChecksStrategy": strategy} if checks else {}
    world = World(configuration).feed(
        cluster_queue("q", group(f0=quota(4)), **spec, **(queue or {}))
    )
    if local:
        world.feed(local_queue("q", "q", **local))
    world.feed(document)
    world.engine.state.settle(world.now)
    return next_steps(world.engine, document, now=world.now)


def check(name: str, state: str, **extra: Any) -> dict[str, Any]:
    at = "2026-01-01T00:30:00Z"
    return {"name": name, "state": state, "message": "m", "lastTransitionTime": at, **extra}


@pytest.mark.parametrize(
    ("document", "want_steps"),
    [
        pytest.param(
            held(is_admitted=False, admissionChecks=[check("c", "Ready")]),
            (MarkAdmitted(),),
            id="all ready admits",
        ),
        pytest.param(
            held(is_admitted=False, admissionChecks=[check("c", "Pending")]),
            (),
            id="pending holds the quota",
        ),
        pytest.param(held(is_admitted=False), (ListChecks(("c",)),), id="check not listed yet"),
        pytest.param(
            held(is_admitted=False, admissionChecks=[check("c", "Retry", requeueAfterSeconds=60)]),
            (
                Evict(
                    "AdmissionCheck",
                    'Evicted due to AdmissionCheck in Retry state: "c" (m)',
                    requeue_at=START + timedelta(minutes=31),
                ),
            ),
            id="retry evicts",
        ),
        pytest.param(
            held(admissionChecks=[check("c", "Rejected")]),
            (TargetDeactivation("AdmissionCheck", 'AdmissionCheck in Rejected state: "c" (m)'),),
            id="rejected deactivates",
        ),
        pytest.param(
            held(condition("Evicted"), admissionChecks=[check("c", "Rejected")]),
            (),
            id="nothing more while it stops",
        ),
    ],
)
def test_checks_decide_in_the_second_phase(document, want_steps):
    world_checks = ("c",)
    assert steps(document, checks=world_checks) == want_steps


@pytest.mark.parametrize(
    ("kind", "policy", "is_admitted", "want_steps"),
    [
        pytest.param("queue", "Hold", True, (), id="hold lets admitted ones run"),
        pytest.param(
            "queue",
            "Hold",
            False,
            (Withdraw("Suspended", "The ClusterQueue is stopped"),),
            id="hold withdraws reservations",
        ),
        pytest.param(
            "queue",
            "HoldAndDrain",
            True,
            (Evict("ClusterQueueStopped", "The ClusterQueue is stopped"),),
            id="drain evicts",
        ),
        pytest.param(
            "local",
            "HoldAndDrain",
            True,
            (Evict("LocalQueueStopped", "The LocalQueue is stopped"),),
            id="drain of a LocalQueue",
        ),
    ],
)
def test_stop_policy(kind, policy, is_admitted, want_steps):
    document = held(is_admitted=is_admitted)
    assert steps(document, **{kind: {"stopPolicy": policy}}) == want_steps


@pytest.mark.parametrize(
    ("document", "want_steps"),
    [
        pytest.param(
            waiting(condition("Requeued", "False", "PodsReadyTimeout")),
            (MarkRequeued("BackoffFinished", "The workload backoff was finished"),),
            id="no time to wait for",
        ),
        pytest.param(
            waiting(
                condition("Requeued", "False", "AdmissionCheck"),
                requeueState={"requeueAt": "2026-01-01T02:00:00Z"},
            ),
            (LookAgain(START + timedelta(hours=2)),),
            id="still backing off",
        ),
        pytest.param(
            waiting(condition("Requeued", "False", "Deactivated")),
            (MarkRequeued("Reactivated", "The workload was reactivated"),),
            id="active again",
        ),
        pytest.param(
            waiting(condition("Requeued", "False", "ClusterQueueStopped")),
            (
                MarkRequeued(
                    "ClusterQueueRestarted",
                    "The ClusterQueue was restarted after being stopped",
                ),
            ),
            id="ClusterQueue runs again",
        ),
        pytest.param(
            waiting(condition("Requeued", "False", "LocalQueueStopped")),
            (
                MarkRequeued(
                    "LocalQueueRestarted", "The LocalQueue was restarted after being stopped"
                ),
            ),
            id="LocalQueue runs again",
        ),
        pytest.param(waiting(), (), id="nothing blocks it"),
    ],
)
def test_requeueing(document, want_steps):
    assert steps(document) == want_steps


def inactive(document: dict[str, Any]) -> dict[str, Any]:
    document["spec"]["active"] = False
    return document


@pytest.mark.parametrize(
    ("document", "want_steps"),
    [
        pytest.param(held(condition("DeactivationTarget")), (SetInactive(),), id="target"),
        pytest.param(
            inactive(held()),
            (Evict("Deactivated", "The workload is deactivated"),),
            id="deactivated by a user",
        ),
        pytest.param(
            inactive(
                held(condition("DeactivationTarget", reason="AdmissionCheck", message="no money"))
            ),
            (
                Evict(
                    "DeactivatedDueToAdmissionCheck",
                    "The workload is deactivated due to no money",
                    "AdmissionCheck",
                ),
            ),
            id="deactivated with a cause",
        ),
        pytest.param(
            inactive(held(condition("Evicted", reason="Deactivated"))), (), id="already evicted"
        ),
        pytest.param(held(condition("Finished")), (), id="finished"),
        pytest.param(
            inactive(held(condition("Finished"))), (), id="finished before it was deactivated"
        ),
    ],
)
def test_deactivation(document, want_steps):
    assert steps(document) == want_steps


def test_execution_time_counts_earlier_runs():
    document = held(accumulatedPastExecutionTimeSeconds=600)
    document["spec"]["maximumExecutionTimeSeconds"] = 4800
    assert steps(document) == (LookAgain(START + timedelta(seconds=4200)),)
    document["spec"]["maximumExecutionTimeSeconds"] = 4200
    over = TargetDeactivation(
        "MaximumExecutionTimeExceeded",
        "exceeding the maximum execution time",
        resets_execution_time=True,
    )
    assert steps(document) == (over,)
    first = held()
    first["spec"]["maximumExecutionTimeSeconds"] = 3601
    assert steps(first) == (LookAgain(START + timedelta(seconds=3601)),)
    first["spec"]["maximumExecutionTimeSeconds"] = 3600
    assert steps(first) == (over,)


@pytest.mark.parametrize(
    ("tries", "limit", "want_step"),
    [
        pytest.param(
            0,
            None,
            Evict(
                "PodsReadyTimeout",
                "Exceeded the PodsReady timeout ns/w",
                cause="WaitForStart",
                requeue_count=1,
                requeue_at=START + timedelta(minutes=61),
            ),
            id="first time",
        ),
        pytest.param(
            2,
            None,
            Evict(
                "PodsReadyTimeout",
                "Exceeded the PodsReady timeout ns/w",
                cause="WaitForStart",
                requeue_count=3,
                requeue_at=START + timedelta(minutes=64),
            ),
            id="waits longer each time",
        ),
        pytest.param(
            2,
            2,
            TargetDeactivation(
                "RequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries"
            ),
            id="too often",
        ),
    ],
)
def test_pods_that_do_not_get_ready_in_time(tries, limit, want_step):
    configuration = {"waitForPodsReady": {"requeuingStrategy": {"backoffLimitCount": limit}}}
    document = held(requeueState={"count": tries})
    assert steps(document, configuration=configuration) == (want_step,)


RECOVERING = held(condition("PodsReady", "False", "WaitForRecovery"))


@pytest.mark.parametrize(
    ("section", "document", "want_step"),
    [
        pytest.param({"timeout": "2h"}, held(), LookAgain(START + timedelta(hours=2)), id="start"),
        pytest.param(
            {"timeout": "5m", "recoveryTimeout": "3h"},
            RECOVERING,
            LookAgain(START + timedelta(hours=3)),
            id="a recovery has its own time",
        ),
        pytest.param(
            {"timeout": "2h", "recoveryTimeout": "1h"},
            RECOVERING,
            Evict(
                "PodsReadyTimeout",
                "Exceeded the PodsReady timeout ns/w",
                cause="WaitForRecovery",
                requeue_count=1,
                requeue_at=START + timedelta(minutes=61),
            ),
            id="pods that were lost and do not come back",
        ),
        pytest.param({"enable": False}, held(), None, id="switched off"),
    ],
)
def test_pods_get_ready_within_their_time(section, document, want_step):
    found = steps(document, configuration={"waitForPodsReady": section})
    assert found == ((want_step,) if want_step else ())


def test_the_nearest_deadline_is_looked_at():
    document = held()
    document["spec"]["maximumExecutionTimeSeconds"] = 5400
    configuration = {"waitForPodsReady": {"timeout": "2h"}}
    found = steps(document, configuration=configuration)
    assert found == (LookAgain(START + timedelta(seconds=5400)),)


@pytest.mark.parametrize(
    ("on_flavors", "want_steps"),
    [
        pytest.param(["f0"], (ListChecks(("c",)),), id="its flavor has the check"),
        pytest.param(["other"], (MarkAdmitted(),), id="another flavor has it"),
    ],
)
def test_checks_are_those_of_the_flavors_that_are_held(on_flavors, want_steps):
    rule = {"name": "c", "onFlavors": on_flavors}
    found = steps(
        held(is_admitted=False),
        queue={"admissionChecksStrategy": {"admissionChecks": [rule]}},
    )
    assert found == want_steps


def test_several_checks_are_told_in_order_and_the_last_wish_holds():
    listed = [
        check("d", "Retry", requeueAfterSeconds=600),
        {**check("b", "Retry"), "message": ""},
        check("c", "Ready"),
    ]
    found = steps(held(is_admitted=False, admissionChecks=listed), checks=("b", "c", "d"))
    assert found == (
        Evict(
            "AdmissionCheck",
            'Evicted due to AdmissionChecks in Retry state: "b"; "d" (m)',
            requeue_at=START + timedelta(minutes=40),
        ),
    )


def test_pods_that_are_ready_stay():
    assert steps(held(condition("PodsReady")), configuration=None) == ()


def test_waiting_nowhere_is_explained_once():
    document = {**workload("w", "gone", gpus=1), "status": {"conditions": []}}
    world = World(QUIET).feed(document)
    (step,) = next_steps(world.engine, document, now=world.now)
    assert step == ExplainWaiting("Misconfigured", "LocalQueue gone doesn't exist")
    document["status"]["conditions"] = [
        condition("QuotaReserved", "False", step.reason, message=step.message)
    ]
    assert next_steps(world.engine, document, now=world.now) == ()


BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
FINE = {"featureGates": {"UnadmittedWorkloadsObservability": True}}


@pytest.mark.parametrize(
    ("reason", "configuration", "want"),
    [
        pytest.param("Deactivated", FINE, True, id="put back into its queue"),
        pytest.param("Suspended", FINE, True, id="its queue was stopped"),
        pytest.param("PendingEvaluation", FINE, True, id="it was evicted"),
        pytest.param(None, FINE, False, id="nothing is written before it was looked at"),
        pytest.param("WaitingForQuota", FINE, False, id="what a cycle found stays"),
        pytest.param("Deactivated", QUIET, False, id="without the gate"),
    ],
)
def test_what_is_passed_over_for_an_equal_one_has_the_reason_of_that(reason, configuration, want):
    world = World(configuration).feed(
        cluster_queue("q", group(f0=quota(4))), workload("first", "q", gpus=8)
    )
    world.run()
    told = [condition("QuotaReserved", "False", reason)] if reason is not None else []
    document = {**workload("w", "q", gpus=8, age=1), "status": {"conditions": told}}
    world.feed(document)
    found = next_steps(world.engine, document, now=world.now)
    assert found == ((ExplainWaiting("ExceedsMaxQuota", BYPASSED),) if want else ())


def test_deletion_of_a_workload_that_waits_has_others_looked_at_again():
    world = World().feed(cluster_queue("q", group(f0=quota(4))), workload("first", "q", gpus=8))
    world.run()
    world.feed(workload("second", "q", gpus=8, age=1))
    assert not world.cycle().heads
    world.engine.delete("Workload", key="ns/first", now=world.now)
    [pending] = world.cycle().pending
    assert (pending.key, pending.reason) == ("ns/second", "ExceedsMaxQuota")


def test_priority_follows_its_class():
    document = workload("w", "q", gpus=1)
    document["spec"]["priorityClassRef"] = {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "high",
    }
    world = World(QUIET).feed(
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 7},
        cluster_queue("q", group(f0=quota(4))),
        document,
    )
    world.engine.state.settle(world.now)
    assert next_steps(world.engine, document, now=world.now) == (SetPriority(7),)
    document["spec"]["priority"] = 7
    assert next_steps(world.engine, document, now=world.now) == ()


@pytest.mark.parametrize(
    "reference",
    [
        {},
        {"group": "scheduling.k8s.io", "name": "high"},
        {"group": "kueue.x-k8s.io"},
        {"group": "kueue.x-k8s.io", "name": "gone"},
    ],
    ids=["none", "of pods", "without a name", "unknown"],
)
def test_priority_stays_where_no_class_of_the_cluster_sets_it(reference):
    document = workload("w", "q", gpus=1, priority=3)
    document["spec"]["priorityClassRef"] = reference
    world = World(QUIET).feed(
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 7},
        cluster_queue("q", group(f0=quota(4))),
        document,
    )
    world.engine.state.settle(world.now)
    assert next_steps(world.engine, document, now=world.now) == ()


def test_backoff_doubles_up_to_its_maximum():
    rules = PodsReadyRules(backoff_base_s=60, backoff_max_s=300)
    waits = [backoff(count, rules=rules).total_seconds() for count in (1, 2, 3, 4, 99)]
    assert waits == [60, 120, 240, 300, 300]


def test_only_some_evictions_requeue_at_once():
    assert is_requeued_at_once("Preempted")
    assert is_requeued_at_once("NodeFailures")
    assert not is_requeued_at_once("PodsReadyTimeout")


@pytest.mark.parametrize(("text", "want_seconds"), [("1h30m", 5400), ("5m0s", 300), ("500ms", 0.5)])
def test_parse_duration(text, want_seconds):
    assert parse_duration(text) == want_seconds


def test_parse_duration_refuses_nonsense():
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration("soon")


DEACTIVATED = Evict("Deactivated", "The workload is deactivated")
TIMED = {"waitForPodsReady": {"timeout": "30m"}}


def limited(document: dict[str, Any], seconds: object) -> dict[str, Any]:
    document["spec"]["maximumExecutionTimeSeconds"] = seconds
    return document


@pytest.mark.parametrize(
    ("conditions", "want_steps"),
    [
        pytest.param(
            [condition("Evicted", reason="Preempted")], (DEACTIVATED,), id="evicted for another"
        ),
        pytest.param([condition("Evicted")], (DEACTIVATED,), id="evicted without a reason"),
        pytest.param(
            [condition("Evicted", "False", "Deactivated")], (DEACTIVATED,), id="evicted once"
        ),
        pytest.param(
            [condition("Evicted", reason="DeactivatedDueToX")], (), id="evicted with a cause"
        ),
        pytest.param(
            [condition("DeactivationTarget", "False", "X", message="m")],
            (DEACTIVATED,),
            id="a target that is none any more",
        ),
        pytest.param(
            [{"type": "DeactivationTarget", "status": "True"}],
            (Evict("DeactivatedDueTo", "The workload is deactivated due to "),),
            id="a target without words",
        ),
    ],
)
def test_what_is_switched_off_is_evicted_once(conditions, want_steps):
    assert steps(inactive(held(*conditions))) == want_steps


@pytest.mark.parametrize("active", [True, None])
def test_only_false_switches_off(active):
    document = held(condition("DeactivationTarget"))
    document["spec"]["active"] = active
    assert steps(document) == (SetInactive(),)
    assert steps({**held(), "spec": document["spec"]}) == ()


def test_target_that_is_false_switches_nothing_off():
    assert steps(held(condition("DeactivationTarget", "False"))) == ()


CLASS = {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 7}
OF_CLASS = {"group": "kueue.x-k8s.io", "name": "high"}


def prior(document: dict[str, Any]) -> dict[str, Any]:
    document["spec"]["priorityClassRef"] = OF_CLASS
    return document


def all_due(*left_out: str) -> dict[str, Any]:
    """A workload of which every rule has something to say, but those that are left out."""
    conditions = [condition("Admitted"), condition("DeactivationTarget")]
    conditions.append(condition("Requeued", "False", "Deactivated"))
    document = held(
        *(item for item in conditions if item["type"] not in left_out),
        is_admitted=False,
        admissionChecks=[check("c", "Rejected")] if "check" not in left_out else [],
    )
    if "class" not in left_out:
        prior(document)
    return limited(document, 60) if "time" not in left_out else document


@pytest.mark.parametrize(
    ("left_out", "want_step"),
    [
        pytest.param((), SetInactive(), id="deactivation"),
        pytest.param(("DeactivationTarget",), SetPriority(7), id="priority"),
        pytest.param(
            ("DeactivationTarget", "class"),
            MarkRequeued("Reactivated", "The workload was reactivated"),
            id="requeueing",
        ),
        pytest.param(
            ("DeactivationTarget", "class", "Requeued"),
            TargetDeactivation(
                "MaximumExecutionTimeExceeded", "exceeding the maximum execution time", True
            ),
            id="execution time",
        ),
        pytest.param(
            ("DeactivationTarget", "class", "Requeued", "time"),
            Evict("ClusterQueueStopped", "The ClusterQueue is stopped"),
            id="stopped queue",
        ),
        pytest.param(
            ("DeactivationTarget", "class", "Requeued", "time", "queue"),
            TargetDeactivation("AdmissionCheck", 'AdmissionCheck in Rejected state: "c" (m)'),
            id="checks",
        ),
        pytest.param(
            ("DeactivationTarget", "class", "Requeued", "time", "queue", "check"),
            Evict(
                "PodsReadyTimeout",
                "Exceeded the PodsReady timeout ns/w",
                "WaitForStart",
                1,
                START + timedelta(minutes=61),
            ),
            id="pods",
        ),
    ],
)
def test_most_urgent_step_comes_first(left_out, want_step):
    policy = "None" if "queue" in left_out else "HoldAndDrain"
    world = World(TIMED).feed(CLASS, cluster_queue("q", group(f0=quota(4)), stopPolicy=policy))
    document = all_due(*left_out)
    world.feed(document)
    world.engine.state.settle(world.now)
    assert next_steps(world.engine, document, now=world.now) == (want_step,)


@pytest.mark.parametrize(
    ("local", "queue", "is_admitted", "want_steps"),
    [
        pytest.param(
            "Hold",
            "HoldAndDrain",
            True,
            (Evict("ClusterQueueStopped", "The ClusterQueue is stopped"),),
            id="one held, the other drained",
        ),
        pytest.param(
            "HoldAndDrain",
            "HoldAndDrain",
            True,
            (Evict("LocalQueueStopped", "The LocalQueue is stopped"),),
            id="both drained",
        ),
        pytest.param(
            "Hold",
            "HoldAndDrain",
            False,
            (Withdraw("Suspended", "The LocalQueue is stopped"),),
            id="both, and only reserved",
        ),
        pytest.param(
            "None",
            "HoldAndDrain",
            False,
            (Withdraw("Suspended", "The ClusterQueue is stopped"),),
            id="drained, and only reserved",
        ),
        pytest.param("None", "None", True, (), id="neither"),
    ],
)
def test_both_queues_may_stop_a_workload(local, queue, is_admitted, want_steps):
    found = steps(
        held(is_admitted=is_admitted, admissionChecks=[check("c", "Pending")]),
        local={"stopPolicy": local},
        queue={"stopPolicy": queue},
        checks=("c",),
    )
    assert found == want_steps


def test_stop_asks_for_nothing_of_what_stops_already_or_holds_nothing():
    drained = {"stopPolicy": "HoldAndDrain"}
    assert steps(held(condition("Evicted", reason="Preempted")), queue=drained) == ()
    only_true = waiting(condition("QuotaReserved"))
    assert steps(only_true, queue=drained) == (
        ExplainWaiting("Suspended", "ClusterQueue q is inactive"),
    )


@pytest.mark.parametrize(
    ("checks", "want_steps"),
    [
        pytest.param(
            [check("b", "Rejected"), check("a", "Rejected"), check("c", "Retry")],
            (
                TargetDeactivation(
                    "AdmissionCheck", 'AdmissionChecks in Rejected state: "a" (m); "b" (m)'
                ),
            ),
            id="rejected by two, in order of names",
        ),
        pytest.param(
            [{"name": "c", "state": "Rejected"}],
            (TargetDeactivation("AdmissionCheck", 'AdmissionCheck in Rejected state: "c"'),),
            id="rejected without a word",
        ),
        pytest.param(
            [check("c", "Retry")],
            (
                Evict(
                    "AdmissionCheck",
                    'Evicted due to AdmissionCheck in Retry state: "c" (m)',
                    requeue_at=START + timedelta(minutes=30),
                ),
            ),
            id="tried again at once",
        ),
        pytest.param(
            [{"name": "c", "state": "Retry", "requeueAfterSeconds": 60}],
            (Evict("AdmissionCheck", 'Evicted due to AdmissionCheck in Retry state: "c"'),),
            id="nobody knows since when",
        ),
        pytest.param(
            [check("c", "Retry", requeueAfterSeconds=10**12)],
            (Evict("AdmissionCheck", 'Evicted due to AdmissionCheck in Retry state: "c" (m)'),),
            id="after the end of all calendars",
        ),
        pytest.param(
            [{"name": "b", "state": "Retry"}, check("c", "Retry", requeueAfterSeconds="7")],
            (
                Evict(
                    "AdmissionCheck",
                    'Evicted due to AdmissionChecks in Retry state: "b"; "c" (m)',
                    requeue_at=START + timedelta(minutes=30, seconds=7),
                ),
            ),
            id="one knows",
        ),
        pytest.param(
            [check("c", "Ready"), check("old", "Ready")],
            (ListChecks(("c",)),),
            id="one too many is listed",
        ),
        pytest.param([{"name": "c"}], (), id="not said yet"),
    ],
)
def test_checks_are_followed(checks, want_steps):
    found = steps(held(is_admitted=False, admissionChecks=checks), checks=("c",))
    assert found == want_steps


def test_checks_of_what_waits_are_listed_and_admit_nothing():
    assert steps(waiting(), checks=("c",)) == (ListChecks(("c",)),)
    # Nobody has an object of that check, so the queue takes nothing for now.
    assert steps(waiting(admissionChecks=[check("c", "Ready")]), checks=("c",)) == (
        ExplainWaiting("Suspended", "ClusterQueue q is inactive"),
    )
    assert steps(held(is_admitted=False)) == (MarkAdmitted("The workload is admitted"),)
    assert steps(held()) == ()
    stopped = inactive(held(condition("Evicted", reason="Deactivated"), is_admitted=False))
    assert steps(stopped, checks=("c",)) == ()


def test_workload_without_a_cluster_queue_is_asked_for_no_check():
    world = World(QUIET).feed(local_queue("q", "gone"))
    document = waiting(admissionChecks=[check("c", "Rejected")])
    world.feed(document)
    assert next_steps(world.engine, document, now=world.now) == (
        ExplainWaiting("Misconfigured", "ClusterQueue gone doesn't exist"),
    )


def test_queue_that_holds_its_quota_counts_not_the_one_it_is_in_now():
    world = World(QUIET).feed(
        cluster_queue("q", group(f0=quota(4))),
        cluster_queue("other", group(f0=quota(4)), stopPolicy="HoldAndDrain"),
    )
    document = held()
    document["status"]["admission"]["clusterQueue"] = "other"
    world.feed(document)
    world.engine.state.settle(world.now)
    assert next_steps(world.engine, document, now=world.now) == (
        Evict("ClusterQueueStopped", "The ClusterQueue is stopped"),
    )


@pytest.mark.parametrize(
    ("reason", "stopped", "want"),
    [
        ("ClusterQueueStopped", {"queue": {"stopPolicy": "Hold"}}, None),
        ("LocalQueueStopped", {"local": {"stopPolicy": "Hold"}}, None),
        ("LocalQueueStopped", {"queue": {"stopPolicy": "Hold"}}, "LocalQueue"),
        ("ClusterQueueStopped", {"local": {"stopPolicy": "Hold"}}, "ClusterQueue"),
        ("Preempted", {}, None),
        ("", {}, None),
    ],
)
def test_queueing_goes_on_once_the_queue_that_was_stopped_runs(reason, stopped, want):
    [*found] = steps(waiting(condition("Requeued", "False", reason)), **stopped)
    requeued = [item for item in found if isinstance(item, MarkRequeued)]
    text = f"The {want} was restarted after being stopped"
    assert requeued == ([MarkRequeued(f"{want}Restarted", text)] if want else [])


def test_only_what_is_blocked_and_active_is_requeued():
    assert steps(waiting(condition("Requeued", "True", "PodsReadyTimeout"))) == ()
    blocked = inactive(waiting(condition("Requeued", "False", "Deactivated")))
    assert steps(blocked) == (DEACTIVATED,)


@pytest.mark.parametrize(
    ("requeue_at", "want_step"),
    [
        (
            "2026-01-01T01:00:00Z",
            MarkRequeued("BackoffFinished", "The workload backoff was finished"),
        ),
        ("2026-01-01T01:00:01Z", LookAgain(START + timedelta(hours=1, seconds=1))),
    ],
)
@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck"])
def test_backoff_ends_at_its_second(reason, requeue_at, want_step):
    document = waiting(
        condition("Requeued", "False", reason), requeueState={"requeueAt": requeue_at}
    )
    assert steps(document) == (want_step,)


def test_times_that_are_not_told_begin_now():
    document = limited(held(is_admitted=False), 10)
    document["status"]["conditions"].append({"type": "Admitted", "status": "True"})
    assert steps(document) == (LookAgain(START + timedelta(hours=1, seconds=10)),)


def test_execution_time_is_counted_only_while_it_runs():
    assert steps(limited(held(condition("Evicted", reason="Preempted")), 10)) == ()
    assert steps(limited(held(accumulatedPastExecutionTimeSeconds=None), "3601")) == (
        LookAgain(START + timedelta(seconds=3601)),
    )
    assert steps(limited(held(), 10**12)) == ()
    again = held(condition("Evicted", "False"))
    assert steps(limited(again, 3602)) == (LookAgain(START + timedelta(seconds=3602)),)


def test_tries_are_counted_up_to_their_limit():
    section = {"timeout": "1h", "requeuingStrategy": {"backoffLimitCount": 2}}
    configuration = {"waitForPodsReady": section}
    found = steps(held(requeueState={"count": 1}), configuration=configuration)
    assert found == (
        Evict(
            "PodsReadyTimeout",
            "Exceeded the PodsReady timeout ns/w",
            "WaitForStart",
            2,
            START + timedelta(minutes=62),
        ),
    )
    [found] = steps(held(requeueState={"count": 2}), configuration=configuration)
    assert isinstance(found, TargetDeactivation)
    [found] = steps(held(requeueState=None), configuration=configuration)
    assert (found.requeue_count, found.requeue_at) == (1, START + timedelta(minutes=61))


def test_pods_are_waited_for_only_where_they_run_and_a_time_is_set():
    assert steps(held(condition("Evicted", reason="Preempted")), configuration=TIMED) == ()
    assert steps(held(condition("PodsReady")), configuration=TIMED) == ()
    waits = held(is_admitted=False, admissionChecks=[check("c", "Pending")])
    assert steps(waits, configuration=TIMED, checks=("c",)) == ()
    late = held(condition("PodsReady", "False", "WaitForRecovery"))
    [found] = steps(late, configuration={"waitForPodsReady": {"timeout": "3h"}})
    assert found == LookAgain(START + timedelta(hours=3))
    both = limited(held(), 7200)
    found = steps(both, configuration={"waitForPodsReady": {"timeout": "90m"}})
    assert found == (LookAgain(START + timedelta(minutes=90)),)


def test_waiting_is_explained_where_the_words_change():
    world = World(QUIET)
    document = {**workload("w", "gone", gpus=1), "status": {}}
    world.feed(document)
    want = (ExplainWaiting("Misconfigured", "LocalQueue gone doesn't exist"),)
    text = "LocalQueue gone doesn't exist"
    for told in ([], [("False", "else")], [("True", text)], [("Unknown", text)]):
        document["status"]["conditions"] = [
            condition("QuotaReserved", status, message=message) for status, message in told
        ]
        assert next_steps(world.engine, document, now=world.now) == want


@pytest.mark.parametrize(
    ("configuration", "want_steps"),
    [
        pytest.param(FINE, (ExplainWaiting("Deactivated", DEACTIVATED.message),), id="finely"),
        pytest.param({}, (), id="not without the gate"),
    ],
)
def test_what_was_switched_off_says_so(configuration, want_steps):
    document = inactive(waiting(condition("Evicted", reason="Deactivated")))
    assert steps(document, configuration=configuration) == want_steps


def test_workload_in_a_queue_that_cannot_run_says_so():
    world = World(QUIET).feed(cluster_queue("q", group(missing=quota(4))))
    document = waiting()
    world.feed(document)
    world.engine.state.settle(world.now)
    assert next_steps(world.engine, document, now=world.now) == (
        ExplainWaiting("Suspended", "ClusterQueue q is inactive"),
    )


def test_checks_of_several_flavors_are_listed_together():
    rules = [{"name": name, "onFlavors": [on]} for name, on in (("a", "f0"), ("b", "f1"))]
    document = held(is_admitted=False)
    document["spec"]["podSets"].append(pod_set({GPU: 1}, name="second"))
    document["status"]["admission"]["podSetAssignments"].append(
        {"name": "second", "count": 1, "flavors": {GPU: "f1"}, "resourceUsage": {GPU: "1"}}
    )
    found = steps(document, queue={"admissionChecksStrategy": {"admissionChecks": rules}})
    assert found == (ListChecks(("a", "b")),)
    document["status"]["admission"]["podSetAssignments"] = [{"name": "main"}]
    found = steps(document, queue={"admissionChecksStrategy": {"admissionChecks": rules}})
    assert found == (MarkAdmitted(),)
