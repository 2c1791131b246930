"""What is written about one workload or check: every rule of spec dispatch 6.2 to 6.4 in a row."""

from __future__ import annotations

from typing import Any

import pytest

from budgets.plan import StopPolicy
from budgets.spending import NO_EFFECT, QueueEffect
from clusters.reconcile.budget_check.answer import activation, answer
from tests.builders import hours

CHECK, CONTROLLER = "gpu-budget-portal-spend", "gpu-budget-portal.dev/spend-test"
HELD = QueueEffect(StopPolicy.HOLD)
SOFT = QueueEffect(floor_only=True)
REJECTED = "DeactivatedDueToAdmissionCheck"
OURS = f'The workload is deactivated due to AdmissionCheck in Rejected state: "{CHECK}" (held)'


def condition(kind: str, status: bool = True, reason: str = "", message: str = "") -> dict:
    return {
        "type": kind, "status": "True" if status else "False", "reason": reason, "message": message,
    }  # fmt: skip


def workload(*conditions: dict, state: str = "Pending", active: bool = True, **metadata: Any):
    """With quota and our entry, unless the conditions say otherwise."""
    given = {item["type"]: item for item in (condition("QuotaReserved"), *conditions)}
    return {
        "metadata": {
            "namespace": "acme-vision", "name": "w", "uid": "u", "resourceVersion": "7", **metadata,
        },
        "spec": {"active": active},
        "status": {
            "conditions": list(given.values()),
            "admissionChecks": [
                {"name": "other", "state": "Pending"}, {"name": CHECK, "state": state},
            ],
        },
    }  # fmt: skip


def written(document: dict, effect: QueueEffect):
    return answer(document, CHECK, effect, controller=CONTROLLER, now=hours(0))


def evicted(**more: Any) -> dict:
    """What a rejected workload comes to."""
    return workload(
        condition("QuotaReserved", False),
        condition("Evicted", True, REJECTED, OURS),
        condition("Requeued", False, REJECTED, OURS),
        **{"active": False, **more},
    )


@pytest.mark.parametrize(
    ("effect", "want"), [(NO_EFFECT, "Ready"), (SOFT, "Ready"), (HELD, "Rejected")]
)
def test_a_job_that_asks_is_answered_with_our_own_entry_bound_to_what_was_seen(effect, want):
    found = written(workload(), effect)
    assert found is not None
    assert found.manager == CONTROLLER
    assert found.body is not None
    assert found.body["metadata"]["resourceVersion"] == "7"
    [entry] = found.body["status"]["admissionChecks"]
    assert (entry["name"], entry["state"]) == (CHECK, want)
    assert entry.keys() == {"name", "state", "message", "lastTransitionTime"}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(workload(condition("QuotaReserved", False)), id="without quota yet"),
        pytest.param(workload(condition("Evicted", True, "Preempted")), id="on its way out"),
        pytest.param(workload(condition("DeactivationTarget")), id="about to be deactivated"),
        pytest.param(workload(condition("Finished")), id="over"),
        pytest.param(workload(active=False), id="switched off"),
        pytest.param(workload(deletionTimestamp="2026-03-01T00:00:00Z"), id="being deleted"),
        pytest.param(workload(state="Ready"), id="answered"),
        pytest.param(workload(state="Rejected"), id="rejected a moment ago"),
        pytest.param({**workload(), "status": {}}, id="without our check"),
    ],
)
@pytest.mark.parametrize("effect", [NO_EFFECT, HELD])
def test_nothing_is_written_where_no_answer_is_due(document, effect):
    assert written(document, effect) is None


def test_a_job_that_runs_is_let_through_under_a_held_queue():
    found = written(workload(condition("Admitted")), HELD)
    assert found is not None
    assert found.step == "answer-ready"


def test_a_rejected_job_comes_back_in_steps_and_only_when_the_cap_allows_it():
    assert written(evicted(), HELD) is None
    steps = [
        written(evicted(state="Rejected"), NO_EFFECT),
        written(evicted(), NO_EFFECT),
        written(evicted(active=True), NO_EFFECT),
    ]
    assert [step and step.step for step in steps] == [
        "answer-pending", "activate", "unmark-rejected",
    ]  # fmt: skip
    assert all(step and step.body and step.body["metadata"]["resourceVersion"] for step in steps)
    last = steps[-1]
    assert last is not None
    assert last.body is not None
    assert "Requeued" not in [item["type"] for item in last.body["status"]["conditions"]]


@pytest.mark.parametrize(
    "ended",
    [
        condition("Evicted", True, "Deactivated", "The workload is deactivated"),
        condition("Evicted", True, REJECTED, OURS.replace(CHECK, "somebody-elses")),
        condition("Evicted", False, REJECTED, OURS),
    ],
)
def test_what_people_and_other_checks_switched_off_stays_off(ended):
    document = workload(condition("QuotaReserved", False), ended, active=False)
    assert written(document, NO_EFFECT) is None


def check(**spec: Any) -> dict:
    return {
        "metadata": {"name": CHECK, "resourceVersion": "3", "generation": 2},
        "spec": {"controllerName": CONTROLLER, **spec},
    }


def told(document: dict):
    return activation(document, controller=CONTROLLER, now=hours(0))


def test_a_check_is_told_once_that_it_is_served():
    found = told(check())
    assert found is not None
    assert found.body is not None
    [active] = found.body["status"]["conditions"]
    assert (active["status"], active["reason"], active["observedGeneration"]) == (
        "True",
        "Active",
        2,
    )
    assert told({**check(), "status": {"conditions": [active]}}) is None


def test_checks_of_others_and_those_that_go_are_left_alone():
    assert told(check(controllerName="example.org/x")) is None
    gone = check()
    gone["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    assert told(gone) is None
