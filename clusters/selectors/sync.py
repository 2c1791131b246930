"""Whether the clusters carry what a workspace was promised last."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F
from django.utils import timezone

from budgets.models import Budget, BudgetLine, User, Workspace
from clusters.explaining.names import Names
from clusters.models import AppliedGeneration, Cluster, ObjectState
from clusters.selectors.fleet import answers, health_of
from clusters.selectors.names import reader_names
from clusters.selectors.places import homes_of

_BAD = (ObjectState.State.FAILED, ObjectState.State.FOREIGN, ObjectState.State.DRIFTED)


@dataclass(frozen=True, slots=True)
class SyncPlace:
    """One cluster: ``state`` is synced, pending, failed, lost or stopped.

    ``told`` is what the portal or the cluster says of the first object that is not in place.
    """

    cluster: str
    name: str
    is_synced: bool
    state: str
    words: str
    generation: int
    observed_generation: int
    told: str = ""


def sync_state(
    user: User, workspace: Workspace, *, generation: int | None = None
) -> list[SyncPlace]:
    """How far the newest budget of a workspace has come, cluster by cluster. Three queries,
    two more where there are several fleets, up to four more where something failed.

    A cluster that need not carry it, for its GPUs are elsewhere, is not among them.

    Args:
        user: The reader: what a cluster says is told without the names of others.
        workspace: Found through a selector that checks who may see it.
        generation: That of its budget, if it was just read; one query more without.
    """
    subject = f"budget:{workspace.namespace}"
    if generation is None:
        rows = Budget.objects.filter(workspace=workspace).values_list("generation", flat=True)
        generation = rows.first() or 0
    clusters = list(
        Cluster.objects.active().without_secrets().defer("preflight").select_related("health")
    )
    observed = dict(
        AppliedGeneration.objects.filter(subject=subject).values_list(
            "cluster", "observed_generation"
        )
    )
    homes = homes_of(clusters)
    if homes.first is not None:
        in_force = BudgetLine.objects.filter(
            revision__budget__in_force=F("revision"), revision__budget__workspace=workspace
        )
        flavors = set(in_force.values_list("flavor__slug", flat=True))
        clusters = [
            row for row in clusters if row.pk in observed or homes.concern(row.slug, flavors)
        ]
    troubles: dict[int, str] = {}
    names: Names | None = None
    for cluster_id, message in ObjectState.objects.filter(
        subject=subject, state__in=_BAD
    ).values_list("cluster", "message"):
        names = names or reader_names(user)
        troubles.setdefault(cluster_id, names.message(message))
    return [
        _place(cluster, generation, observed.get(cluster.pk, 0), troubles.get(cluster.pk))
        for cluster in clusters
    ]


def _place(cluster: Cluster, generation: int, observed: int, trouble: str | None) -> SyncPlace:
    if trouble is not None:
        state = "failed"
        words = "A part of this budget is not in place. An admin has to look at the cluster's page."
    elif not cluster.writes_enabled or cluster.blocked_reason:
        state, words = "stopped", "Writing to this cluster is stopped by an admin."
        if cluster.blocked_reason:
            words = "This cluster waits for an admin's decision."
        if observed >= generation:
            state, words = "synced", "In force; writing has been stopped since then."
    elif observed >= generation:
        state, words = "synced", "In force."
    elif not answers(health_of(cluster), timezone.now()):
        state = "lost"
        words = "This cluster does not answer. It gets the budget when it answers again."
    else:
        state, words = "pending", "It is being applied."
    return SyncPlace(
        cluster=cluster.slug,
        name=cluster.name,
        is_synced=state == "synced",
        state=state,
        words=words,
        generation=generation,
        observed_generation=observed,
        told=trouble or "",
    )
