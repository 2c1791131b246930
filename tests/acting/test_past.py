"""A cluster remembers the newest entry of the audit log; a database without it asks first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from budgets.models import AuditEntry
from budgets.services import utc_now
from clusters import services
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.lease import ClusterLease
from clusters.models import Cluster, WorkloadAction
from clusters.reconcile import past
from clusters.reconcile.shift import lease_name
from tests.acting.conftest import NAMESPACE, SubmitJob
from tests.acting.test_workload_actions import ask, later
from tests.builders import SmallFleet

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]


@pytest.fixture
def lease(worker: Cluster, kube: KubeClient) -> ClusterLease:
    name = lease_name("quota", settings.PORTAL_INSTALLATION)
    return ClusterLease(kube, name, holder="quota-shift")


def remember(lease: ClusterLease, note: str) -> None:
    lease.notes = {past.NOTE: note}
    assert lease.try_acquire()


def look(kube: KubeClient, worker: Cluster) -> str:
    name = lease_name("quota", settings.PORTAL_INSTALLATION)
    past.look_back(kube, name, cluster_id=worker.pk, slug=worker.slug)
    worker.refresh_from_db()
    return worker.blocked_reason


def lost_entry() -> str:
    """Of one that was made after the backup that this database is."""
    return f"{AuditEntry.objects.latest('pk').pk + 7} {utc_now().isoformat()}"


def test_same_database_goes_on(
    worker: Cluster, kube: KubeClient, lease: ClusterLease, fleet: SmallFleet
) -> None:
    assert look(kube, worker) == ""
    remember(lease, past.newest_entry())
    assert look(kube, worker) == ""
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=False, reason="later")
    assert look(kube, worker) == ""


def test_database_without_the_newest_entry_waits_for_a_decision_once(
    worker: Cluster, kube: KubeClient, lease: ClusterLease, fleet: SmallFleet
) -> None:
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=False, reason="lost")
    remember(lease, lost_entry())
    for _ in range(2):
        assert "Was a backup restored?" in look(kube, worker)
    assert AuditEntry.objects.filter(action="cluster.blocked").count() == 1
    services.resolve_block(fleet.admin, cluster=worker, apply_ours=True, reason="we know")
    assert look(kube, worker) == ""


def test_decision_that_comes_just_before_the_block_stands(
    worker: Cluster,
    kube: KubeClient,
    lease: ClusterLease,
    fleet: SmallFleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two shifts look back at once; the slower one blocks when an admin has decided already."""
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=False, reason="lost")
    remember(lease, lost_entry())
    assert "Was a backup restored?" in look(kube, worker)
    block = past.block

    def late(*about: Any, **how: Any) -> None:
        worker.refresh_from_db()
        services.resolve_block(fleet.admin, cluster=worker, apply_ours=True, reason="we know")
        block(*about, **how)

    monkeypatch.setattr(past, "block", late)
    assert look(kube, worker) == ""


def test_entry_of_the_same_number_and_another_time_is_another(
    worker: Cluster, kube: KubeClient, lease: ClusterLease, fleet: SmallFleet
) -> None:
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=False, reason="one past")
    row = AuditEntry.objects.latest("pk")
    remember(lease, f"{row.pk} {(row.at - timedelta(hours=1)).isoformat()}")
    assert "Was a backup restored?" in look(kube, worker)


@pytest.mark.parametrize("note", ["", "x", "7", "9" * 5000 + " 2026-03-02T12:00:00+00:00", "7 x"])
def test_note_that_nobody_can_read_says_nothing(
    worker: Cluster, kube: KubeClient, lease: ClusterLease, note: str
) -> None:
    remember(lease, note)
    if not note.startswith("9"):
        assert look(kube, worker) == ""
    else:
        assert "Was a backup restored?" in look(kube, worker)


def test_note_outlives_renewals_and_holders(kube: KubeClient, lease: ClusterLease) -> None:
    remember(lease, "7 2026-03-02T12:00:00+00:00")
    foreign = {"metadata": {"annotations": {"somebody": "was here"}}}
    name = lease_name("quota", settings.PORTAL_INSTALLATION)
    kube.patch(r.LEASE, name.name, foreign, namespace=name.namespace)
    lease.renew()
    lease.release()
    other = ClusterLease(kube, name, holder="another")
    assert other.try_acquire()
    found = kube.get(r.LEASE, name.name, namespace=name.namespace)
    assert found["metadata"]["annotations"] == {
        past.NOTE: "7 2026-03-02T12:00:00+00:00",
        "somebody": "was here",
    }


def test_wish_of_a_restored_backup_is_not_carried_out_before_the_decision(
    fleet: SmallFleet, worker: Cluster, kube: KubeClient, submit: SubmitJob, lease: ClusterLease
) -> None:
    state = submit("train")
    wish = ask(fleet, state, "delete_job")
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=True, reason="lost")
    remember(lease, lost_entry())
    assert later(wish).state == WorkloadAction.State.WAITING
    assert kube.get(r.JOB, "train", namespace=NAMESPACE)
    worker.refresh_from_db()
    services.resolve_block(fleet.admin, cluster=worker, apply_ours=True, reason="we know")
    WorkloadAction.objects.update(next_attempt_at=utc_now())
    assert later(wish).state == WorkloadAction.State.DONE
