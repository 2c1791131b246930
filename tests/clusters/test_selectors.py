"""What admins see of clusters, and how far a budget has come."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml
from django.core.management import call_command
from django.utils import timezone

from budgets import selectors as promised
from budgets.errors import NotAllowed
from budgets.models import Budget
from budgets.plan import RevisionDraft
from clusters import selectors, services
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.models import AppliedGeneration, Cluster, ClusterHealth, ObjectState
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import quota_hand, register

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]


@pytest.fixture
def synced(fleet: SmallFleet, east: DevServer) -> Cluster:
    """Gpu-east with everything applied and one hand edit put back."""
    cluster = register("gpu-east", east.kubeconfig, mode="portal")
    with (
        quota_hand("gpu-east") as hand,
        KubeClient.from_kubeconfig(east.kubeconfig) as kube,
    ):
        hand.settle()
        body = {"spec": {"stopPolicy": "Hold"}}
        options = WriteOptions(field_manager="kubectl-edit")
        kube.patch(r.CLUSTER_QUEUE, "acme-vision", body, options=options)
        hand.settle()
    ClusterHealth.objects.update(reachable=True, checked_at=timezone.now())
    return cluster


def test_row_counts_what_is_applied(synced: Cluster, fleet: SmallFleet) -> None:
    (row,) = selectors.cluster_rows(fleet.auditor)
    assert (row.slug, row.mode_label, row.is_reachable) == (
        "gpu-east",
        "The portal decides",
        True,
    )
    assert row.object_count == row.synced_count == 16
    assert (row.failed_count, row.drift_count) == (0, 0)


def test_health_that_nobody_writes_is_not_believed(synced: Cluster, fleet: SmallFleet) -> None:
    ClusterHealth.objects.update(checked_at=timezone.now() - timedelta(minutes=1))
    (row,) = selectors.cluster_rows(fleet.admin)
    assert not row.is_reachable
    assert "worker of the portal" in row.message


def test_owner_sees_no_clusters(synced: Cluster, fleet: SmallFleet) -> None:
    with pytest.raises(NotAllowed):
        selectors.cluster_rows(fleet.owner)
    with pytest.raises(Cluster.DoesNotExist):
        selectors.cluster_detail(fleet.owner, "gpu-east")
    with pytest.raises(Cluster.DoesNotExist):
        selectors.generated_rights(fleet.owner, "gpu-east")


def test_detail_groups_objects_by_what_they_stand_for(synced: Cluster, fleet: SmallFleet) -> None:
    detail = selectors.cluster_detail(fleet.admin, "gpu-east")
    assert [group.title for group in detail.tree] == [
        "Cluster gpu-east",
        "Flavor a100",
        "Flavor h100",
        "Flavor h100-spot",
        "Flavor l4",
        "Account acme",
        "Account globex",
        "Budget acme-speech",
        "Budget acme-vision",
        "Budget globex-search",
    ]
    assert [(drift.field, drift.manager, drift.resolution) for drift in detail.drifts] == [
        ("spec.stopPolicy", "kubectl-edit", "put back")
    ]


def test_queries_do_not_grow_with_the_fleet(
    synced: Cluster, fleet: SmallFleet, django_assert_max_num_queries
) -> None:
    with django_assert_max_num_queries(6):
        selectors.cluster_rows(fleet.admin)
    with django_assert_max_num_queries(10):
        selectors.cluster_detail(fleet.admin, "gpu-east")
    with django_assert_max_num_queries(4):
        selectors.sync_state(fleet.owner, fleet.vision)


def test_what_a_cluster_refused_is_told_without_names_of_others(
    synced: Cluster, fleet: SmallFleet
) -> None:
    state = ObjectState.objects.filter(subject="budget:acme-vision").first()
    assert state is not None
    ObjectState.objects.filter(pk=state.pk).update(
        state=ObjectState.State.FAILED, message="quota is held by ClusterQueue globex-search"
    )
    (owners,) = selectors.sync_state(fleet.owner, fleet.vision)
    (admins,) = selectors.sync_state(fleet.admin, fleet.vision)
    assert owners.words == admins.words
    assert owners.words.startswith("A part of this budget is not in place.")
    assert owners.told == "quota is held by ClusterQueue somebody else"
    assert admins.told.endswith("globex-search")


def sync(fleet: SmallFleet) -> tuple[str, int, int]:
    (place,) = selectors.sync_state(fleet.owner, fleet.vision)
    return place.state, place.generation, place.observed_generation


def test_sync_state_tells_how_far_a_budget_has_come(synced: Cluster, fleet: SmallFleet) -> None:
    generation = Budget.objects.get(workspace=fleet.vision).generation
    assert sync(fleet) == ("synced", generation, generation)
    fleet.revise(fleet.vision, line("h100", 8, 16))
    assert sync(fleet)[0] == "pending"
    ClusterHealth.objects.update(reachable=False)
    assert sync(fleet)[0] == "lost"
    services.set_writes_enabled(fleet.admin, cluster=synced, enabled=False, reason="upgrade")
    assert sync(fleet)[0] == "stopped"
    AppliedGeneration.objects.filter(subject="budget:acme-vision").update(observed_generation=99)
    assert sync(fleet)[0] == "synced"


def test_what_would_be_written_is_shown_while_writing_is_off(
    synced: Cluster, fleet: SmallFleet
) -> None:
    services.set_writes_enabled(fleet.admin, cluster=synced, enabled=False, reason="upgrade")
    fleet.revise(fleet.vision, line("h100", 8, 24))
    with quota_hand("gpu-east") as hand:
        hand.settle()
    planned = selectors.cluster_detail(fleet.admin, "gpu-east").planned
    change = next(change for change in planned if change.kind == "ClusterQueue")
    assert change.name == "acme-vision"
    assert "resourceGroups" in change.words
    assert yaml.safe_load(change.yaml)["metadata"]["name"] == "acme-vision"


def test_preview_names_only_what_changes(synced: Cluster, fleet: SmallFleet) -> None:
    fleet.revise(fleet.vision, line("h100", 8, 16))
    draft = RevisionDraft(lines=(line("h100", 8, 24),), reason="more")
    fleet.vision.budget.refresh_from_db()
    preview = promised.preview_revision(fleet.owner, fleet.vision, draft)
    both = preview.promises_before, preview.promises_after
    assert selectors.preview_manifests(fleet.owner, *both) == [], "a worker's are not an owner's"
    (place,) = selectors.preview_manifests(fleet.admin, *both)
    (change,) = place.changes
    assert (place.cluster, change.kind, change.name) == ("gpu-east", "ClusterQueue", "acme-vision")
    assert change.words.startswith("h100 may borrow ")
    assert yaml.safe_load(change.yaml)["kind"] == "ClusterQueue"


def test_generated_rights_are_yaml_for_every_identity(synced: Cluster, fleet: SmallFleet) -> None:
    text = selectors.generated_rights(fleet.admin, "gpu-east")
    documents = [document for document in yaml.safe_load_all(text) if document]
    accounts = {
        document["metadata"]["name"]
        for document in documents
        if document["kind"] == "ServiceAccount"
    }
    assert accounts == {"gpu-budget-portal", "multikueue"}
    assert "MutatingAdmissionPolicy" in {document["kind"] for document in documents}


def test_worker_rbac_prints_the_same(synced: Cluster, fleet: SmallFleet, capsys) -> None:
    call_command("worker_rbac", "--cluster", "gpu-east")
    assert (
        capsys.readouterr().out.rstrip()
        == selectors.generated_rights(fleet.admin, "gpu-east").rstrip()
    )
    call_command("worker_rbac", "--role", "manager", "--worker", "new-one")
    assert "multikueue-new-one" in capsys.readouterr().out
