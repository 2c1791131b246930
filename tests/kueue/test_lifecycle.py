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
from tests.kueue.builders import START, World, cluster_queue, group, local_queue, quota, workload
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
