"""The guard beside a real Kueue that leaves nominations to the portal.

Each defect ends well with the guard, and badly where it only tells.
"""

from __future__ import annotations

import pytest

from clusters.kube import resources as r
from clusters.models import GuardIncident
from tests.reconcile.admission_harness import is_true
from tests.reconcile.beside.guarding import guarded, incident, returns_in_peace, stays
from tests.reconcile.beside.roads import Beside
from tests.waiting import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db(transaction=True)]
State = GuardIncident.State


# (b) An evicted workload whose remote copy vanished


def evict_without_a_trace(found: Beside) -> None:
    """Deactivate a running job: Kueue removes the copy abruptly, before its end is mirrored."""
    found.submit("train", gpus=2)
    found.wait_running("train")
    eventually(lambda: found.mirrored("train"), why=found.story)
    found.set_active("train", False)
    eventually(lambda: is_true(found.workload("train"), "Evicted"))


@pytest.mark.slow
def test_guard_gives_the_quota_of_an_evicted_workload_back(external: Beside):
    guarded(external, "cure")
    evict_without_a_trace(external)
    eventually(
        lambda: not is_true(external.workload("train"), "QuotaReserved"),
        why=external.story,
    )
    assert not external.mirrored("train")
    row = eventually(lambda: incident("stuck-quota", state=State.CURED))
    assert "no pod of it runs" in row.done
    external.set_active("train", True)
    external.wait_running("train")


@pytest.mark.slow
def test_evicted_workload_keeps_its_quota_without_the_guard(external: Beside):
    guarded(external, "tell")
    evict_without_a_trace(external)
    row = eventually(lambda: incident("stuck-quota", state=State.OPEN))
    assert "Kueue keeps its quota for ever" in row.found
    stays(lambda: is_true(external.workload("train"), "QuotaReserved"))
    # The way out for the tidying: what the guard would have done.
    external.manager.delete(r.JOB, "train", namespace=external.name)


# (a) A returning worker's old copy


@pytest.mark.slow
def test_guard_removes_the_old_copy_of_a_returning_worker(external: Beside):
    returns_in_peace(external, external=True)
