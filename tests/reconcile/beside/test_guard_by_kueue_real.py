"""The guard beside a real Kueue that nominates by itself.

Each defect ends well with the guard, and badly where it only tells.
"""

from __future__ import annotations

import pytest

from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.models import GuardIncident
from tests.reconcile.admission_harness import Document, condition, is_true
from tests.reconcile.beside.guarding import (
    guarded,
    incident,
    lose_and_move,
    returns_in_peace,
    stays,
)
from tests.reconcile.beside.roads import Beside
from tests.waiting import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db(transaction=True)]
State = GuardIncident.State
CHECK = "gpu-budget-portal.dev/test"


# (c) A rejected workload that is active again


def reject(found: Beside, name: str) -> Document:
    """Put a second check of nobody's on the queue and say no, as a budget check does."""
    workload = eventually(
        lambda: (
            is_true(w := found.workload(name), "QuotaReserved")
            and len(w["status"].get("admissionChecks") or ()) == 2
            and w
        ),
    )
    checks = [dict(item) for item in workload["status"]["admissionChecks"]]
    [mine] = [item for item in checks if item["name"] == f"{found.name}-second"]
    mine |= {"state": "Rejected", "message": "no budget"}
    found.manager.patch(
        r.WORKLOAD,
        workload["metadata"]["name"],
        {"status": {"admissionChecks": checks}},
        namespace=found.name,
        options=WriteOptions(subresource="status"),
    )
    return eventually(
        lambda: (
            condition(w := found.workload(name), "Requeued").get("reason")
            == "DeactivatedDueToAdmissionCheck"
            and w
        ),
        why=found.story,
    )


def second_check(found: Beside) -> None:
    name = f"{found.name}-second"
    found.manager.create(
        r.ADMISSION_CHECK, {"metadata": {"name": name}, "spec": {"controllerName": CHECK}}
    )
    active = {
        "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    found.manager.patch(
        r.ADMISSION_CHECK,
        name,
        {"status": {"conditions": [active]}},
        options=WriteOptions(subresource="status"),
    )
    both = [{"name": found.name}, {"name": name}]
    spec = {"admissionChecksStrategy": {"admissionChecks": both}}
    found.manager.patch(r.CLUSTER_QUEUE, found.name, {"spec": spec})
    eventually(lambda: is_true(found.manager.get(r.CLUSTER_QUEUE, found.name), "Active"))


def forget_check(found: Beside) -> None:
    """Its finalizer goes with the queue, which the tidying deletes."""
    found.manager.delete(r.ADMISSION_CHECK, f"{found.name}-second")


def test_guard_queues_a_rejected_workload_that_is_active_again(all_at_once: Beside):
    found = all_at_once
    second_check(found)
    found.submit("train", gpus=2)
    reject(found, "train")
    guarded(found, "cure", external=False)
    found.set_active("train", True)
    eventually(lambda: is_true(found.workload("train"), "QuotaReserved"))
    row = eventually(lambda: incident("not-requeued", state=State.CURED))
    assert "Removed the condition Requeued" in row.done
    forget_check(found)


@pytest.mark.slow
def test_rejected_workload_never_queues_again_without_the_guard(all_at_once: Beside):
    """The negative control: the guard tells, and Kueue leaves it out for ever."""
    found = all_at_once
    second_check(found)
    found.submit("train", gpus=2)
    reject(found, "train")
    guarded(found, "tell", external=False)
    found.set_active("train", True)
    stays(lambda: not is_true(found.workload("train"), "QuotaReserved"))
    row = incident("not-requeued", state=State.OPEN)
    assert row is not None and "set to report" in row.done
    forget_check(found)


# (a) A returning worker's old copy


@pytest.mark.slow
def test_guard_removes_the_old_copy_of_a_returning_worker(all_at_once: Beside):
    returns_in_peace(all_at_once, external=False)


@pytest.mark.slow
def test_returning_worker_kills_the_running_job_without_the_guard(all_at_once: Beside):
    """The negative control; where Kueue nominates, for it gets as far as this without a cure."""
    found = guarded(all_at_once, "tell", external=False)
    lost, other = lose_and_move(found)
    found.plane(lost).start_api_server()
    eventually(lambda: found.copy(other, "train") is None, seconds=180, why=found.story)
    assert found.status("train")["clusterName"] == other
    assert found.copy(lost, "train") is not None
    row = eventually(
        lambda: (i := incident("stale-copy", state=State.OPEN)) and "has taken" in i.found and i,
    )
    assert row.worker == lost
