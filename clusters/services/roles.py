"""A single cluster that becomes a manager and runs jobs itself all the same, and the way back.

Nothing of a workspace changes: its budget, its namespace and its queue ``default`` stay where they
are, and so does what runs there. What is added is a second queue, ``fleet``, for jobs that go to a
worker. So the change itself stops no job and moves none; the ledger tells by the queue of each
Workload where it ran (``clusters.reconcile.usage.build``), whatever role the cluster has by then.
"""

from __future__ import annotations

import copy
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import TextChoices

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import User
from budgets.services.audit import state_of
from budgets.services.guards import by_admin, require_admin, require_reason, save_checked
from clusters.credentials import connection_to
from clusters.documents.queues import FLEET_QUEUE
from clusters.errors import CredentialUnusable
from clusters.models import Cluster, ObjectState, WorkloadState
from clusters.selectors.bars import HOLDING
from clusters.selectors.previews import ClusterChanges, preview_role
from clusters.services.generations import locked, record_change
from clusters.services.preflight.checks import examine, mode_faults, store_table

_OF_FLEET: Final = (*HOLDING, WorkloadState.Phase.PENDING)
_NAMED: Final = 3
"""So many of what is in the way are named."""


class Serving(TextChoices):
    """What a cluster where jobs are submitted is there for."""

    SINGLE = "single", "A single cluster: jobs run here"
    MANAGER_RUNS_JOBS = "manager_runs_jobs", "A manager that also runs jobs itself"
    MANAGER = "manager", "A manager that starts no new jobs itself"


_SHAPES: Final = {
    Serving.SINGLE: (Cluster.Role.SINGLE, Cluster.OwnQueue.OPEN),
    Serving.MANAGER_RUNS_JOBS: (Cluster.Role.MANAGER, Cluster.OwnQueue.OPEN),
    Serving.MANAGER: (Cluster.Role.MANAGER, Cluster.OwnQueue.HELD),
}


def serving_of(cluster: Cluster) -> str:
    """What a cluster is there for now; empty for a worker, and a manager that never ran jobs."""
    if cluster.is_single:
        return Serving.SINGLE
    if not cluster.is_manager or not cluster.own_queue:
        return ""
    is_held = cluster.own_queue == Cluster.OwnQueue.HELD
    return Serving.MANAGER if is_held else Serving.MANAGER_RUNS_JOBS


@by_admin
def preview_role_change(actor: User | None, *, cluster: Cluster, role: str) -> list[ClusterChanges]:
    """What a change of role would write, object by object; nothing is saved.

    Raises:
        Rejected: Everything that :func:`change_role` would refuse, but the reason.
    """
    reject_any(_faults(cluster, role))
    return preview_role(cluster, _as(cluster, role))


def change_role(actor: User | None, *, cluster: Cluster, role: str, reason: str) -> Cluster:
    """Make a single cluster a manager that also runs jobs, or that runs none, or go back.

    Args:
        actor: An admin.
        cluster: A single cluster, or a manager that was one.
        role: One of :class:`Serving`.
        reason: For the audit log.

    Returns:
        The cluster. Quota sync writes what changes within seconds; running shifts begin anew.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: no reason; workers are registered, or jobs are in a queue that would go; there is
            another manager; or the cluster cannot be reached. Nothing was stored.
    """
    require_admin(actor)
    require_reason(reason)
    faults = _faults(cluster, role)
    reject_any(faults)
    if role == serving_of(cluster):
        return cluster
    draft = _as(cluster, role)
    try:
        table = examine(draft, connection_to(cluster.kubeconfig_sealed))
    except CredentialUnusable as error:
        raise Rejected.because("cluster", "not_readable", error.message) from error
    if not table.is_reachable:
        raise Rejected.because("cluster", "unreachable", table.rows[0].found)
    shown = ("role", "own_queue")
    with transaction.atomic():
        row = locked(cluster)
        # What came in between, such as a worker, is in the way just the same.
        reject_any(_faults(row, role))
        before = state_of(row, *shown)
        row.role, row.own_queue = draft.role, draft.own_queue
        try:
            with transaction.atomic():
                save_checked(row)
        except IntegrityError:
            raise Rejected((_another_manager(row),)) from None
        changed = record_change(
            actor,
            "cluster.role",
            row,
            reason=reason,
            before=before,
            after=state_of(row, *shown),
        )
    store_table(changed, table)
    return changed


def _as(cluster: Cluster, role: str) -> Cluster:
    """The cluster as it would be; not stored."""
    draft = copy.copy(cluster)
    draft.role, draft.own_queue = _SHAPES[Serving(role)]
    return draft


def _faults(cluster: Cluster, role: str) -> list[Fault]:
    """Everything that is in the way, each with the way out."""
    if role not in _SHAPES:
        words = "A cluster can be single, manager_runs_jobs or manager."
        return [Fault("role", "unknown", words)]
    now = serving_of(cluster)
    if role == now:
        return []
    if not now:
        return [Fault("role", "never_single", _never_single(cluster))]
    if cluster.state != Cluster.State.ACTIVE:
        words = f"{cluster.name} is being de-registered. Register it again, in the other role."
        return [Fault("cluster", "leaving", words)]
    faults = []
    if cluster.blocked_reason:
        words = f"{cluster.name} waits for a decision about a restored backup. Decide that first."
        faults.append(Fault("cluster", "blocked", words))
    if not cluster.writes_enabled:
        words = f"Writing to {cluster.name} is off. Switch it on, so that its queues follow."
        faults.append(Fault("cluster", "writes_off", words))
    if role == Serving.SINGLE:
        return [*faults, *_in_the_way_back(cluster)]
    if now == Serving.SINGLE:
        others = Cluster.objects.registered().filter(role=Cluster.Role.MANAGER)
        if others.exclude(pk=cluster.pk).exists():
            faults.append(_another_manager(cluster))
        faults += mode_faults(cluster.slug, Cluster.Role.MANAGER, cluster.mode)
    return faults


def _never_single(cluster: Cluster) -> str:
    if cluster.is_worker:
        return (
            f"{cluster.name} is a worker. De-register it, and register it again as a single "
            "cluster: what was used stays in the books."
        )
    return (
        f"{cluster.name} was registered as a manager, so its queue default sends jobs to workers "
        "and cannot run them itself. Register a single cluster beside it instead."
    )


def _another_manager(cluster: Cluster) -> Fault:
    words = (
        f"There is already a manager, and a fleet has one. {cluster.name} can stay a single "
        "cluster beside it."
    )
    return Fault("role", "one_manager", words)


def _in_the_way_back(cluster: Cluster) -> list[Fault]:
    """Workers, jobs in the queue that would go, and what is still to be taken away."""
    workers = Cluster.objects.registered().workers()
    if names := list(workers.values_list("name", flat=True)):
        words = (
            f"{_listed(names)} {'is a worker' if len(names) == 1 else 'are workers'} of this "
            "manager. De-register every worker first, and wait until it is gone."
        )
        return [Fault("role", "has_workers", words)]
    sent = WorkloadState.objects.filter(cluster=cluster, queue=FLEET_QUEUE, phase__in=_OF_FLEET)
    if jobs := sent.order_by("namespace", "name").values_list("namespace", "name"):
        named = _listed([f"{namespace}/{name}" for namespace, name in jobs])
        words = (
            f"{named} {'is' if len(jobs) == 1 else 'are'} in queue {FLEET_QUEUE}, which goes. Let "
            "these jobs end, or delete them and submit them to queue default."
        )
        return [Fault("role", "has_jobs", words)]
    secrets = ObjectState.objects.filter(cluster=cluster, kind="Secret")
    if secrets.exists():
        words = (
            "The portal is still removing the credential of a worker that is gone. Try again in "
            "a minute."
        )
        return [Fault("role", "has_secrets", words)]
    return []


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
