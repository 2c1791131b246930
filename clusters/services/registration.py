"""Clusters come, get new credentials, and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Max

from budgets import services as promises
from budgets.errors import Fault, Rejected, reject_any
from budgets.models import User
from budgets.services.audit import audit, state_of
from budgets.services.guards import faults_of as model_faults
from budgets.services.guards import require_admin, require_reason
from clusters.credentials import Credential, own_credential
from clusters.errors import ClusterError, CredentialUnusable
from clusters.kube.kubeconfig import KubeconfigFacts
from clusters.models import Cluster, ClusterHealth, ObjectState
from clusters.reconcile.identity import holder_of
from clusters.reconcile.quota.record import FIRST_SYNC
from clusters.services.generations import locked, raise_manager_generation, record_change
from clusters.services.inspection import pasted_credential
from clusters.services.preflight.checks import (
    PreflightTable,
    examine,
    mode_faults,
    own_worker_faults,
    store_table,
)
from clusters.services.switches import read_configuration
from clusters.services.tokens import mint

REGISTERED_ALREADY = "registered_already"
WORKER_LIMIT = 20
"""What one MultiKueueConfig can list."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What becomes of a cluster that was de-registered, and what stays on it."""

    state: str
    stays: tuple[str, ...]


def register_cluster(
    actor: User | None,
    *,
    slug: str,
    name: str,
    role: str,
    mode: str,
    kubeconfig: str = "",
    context: str = "",
    own_account: bool = False,
    kueue_configuration: Mapping[str, Any] | str | None = None,
    allows_local_jobs: bool = False,
) -> Cluster:
    """Examine a cluster, store its credential sealed, and begin to sync it.

    Args:
        actor: An admin, or None for the portal itself.
        slug: Immutable name, as Kubernetes names go.
        name: For people.
        role: ``single`` where jobs are submitted and run on the same cluster; ``manager`` or
            ``worker`` of a fleet.
        mode: ``kueue`` or ``portal``; the proof of a live Kueue decides whether it is offered.
        kubeconfig: Pasted text.
        context: Which context of it; may be left out when there is one, or a current one.
        own_account: In place of a kubeconfig: it is the cluster that the portal runs in, which
            signs in there by its own service account.
        kueue_configuration: What holds on the cluster, as YAML text or a document; None for what
            it tells itself, or the defaults.
        allows_local_jobs: Jobs may be submitted on this worker directly.

    Returns:
        The cluster with its preflight table; an operation ``first_sync`` shows the progress.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: every fault at once, or it is registered already under another name; nothing was
            stored.
    """
    require_admin(actor)
    configuration = read_configuration(kueue_configuration)
    faults = list(_fleet_faults(slug=slug, role=role, mode=mode))
    credential = None
    try:
        credential = _given(kubeconfig, context, own_account=own_account)
    except Rejected as error:
        faults += error.faults
    row = _row(slug, name, role, mode, credential)
    row.kueue_configuration = configuration
    row.allows_local_jobs = allows_local_jobs
    try:
        row.full_clean(exclude=["kubeconfig_sealed", "server", "context", "user_kind"])
    except ValidationError as error:
        faults += model_faults(error)
    faults += own_worker_faults(row)
    reject_any(faults)
    assert credential is not None, "a credential that is refused is a fault"
    table = examine(row, credential.connection)
    _require_offer(table, mode)
    row.uid = table.uid
    _require_no_other(row)
    row.kubeconfig_sealed = credential.stored()
    _store(actor, row, table)
    if row.is_worker:
        _first_token(row)
    return row


def rotate_kubeconfig(
    actor: User | None,
    *,
    cluster: Cluster,
    kubeconfig: str = "",
    context: str = "",
    own_account: bool = False,
) -> Cluster:
    """Replace a cluster's credential; running shifts begin anew with it.

    Also the way from a kubeconfig to the portal's own service account, and back.

    A worker mints a new token as well: that of before may be sealed with a key that is lost, or
    lead to an address that is not served any more.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: it is not usable, does not reach the cluster, or reaches another one.
    """
    require_admin(actor)
    credential = _given(kubeconfig, context, own_account=own_account)
    draft = Cluster(slug=cluster.slug, role=cluster.role, mode=cluster.mode, uid=cluster.uid)
    _show(draft, credential.facts)
    reject_any(own_worker_faults(draft))
    table = examine(draft, credential.connection)
    _require_reached(table)
    draft.uid = table.uid
    _require_no_other(draft)
    if cluster.uid and table.uid != cluster.uid:
        message = (
            f"It leads to a cluster with UID {table.uid or 'unknown'}, and {cluster.name} has the "
            f"UID {cluster.uid}. Give a kubeconfig of the same cluster, or register the other one."
        )
        raise Rejected.because("kubeconfig", "other_cluster", message)
    with transaction.atomic():
        row = locked(cluster)
        before = _credential(row)
        _show(row, credential.facts)
        row.uid = table.uid
        row.kubeconfig_sealed = credential.stored()
        row.save()
        record_change(actor, "cluster.rotate", row, before=before, after=_credential(row))
    store_table(row, table)
    if row.is_worker:
        _first_token(row)
    return row


def deregister_cluster(
    actor: User | None, *, cluster: Cluster, reason: str, abandon: bool = False
) -> Departure:
    """Let a cluster go: its queues are held and drained, what the portal made is deleted.

    Namespaces and what runs outside of the portal's queues stay. Quota sync does the work and
    forgets the credentials at the end; with `abandon` that happens at once and nothing is cleaned
    up, for a cluster that is lost for good.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: no reason, or a manager that still has workers.
    """
    require_admin(actor)
    require_reason(reason)
    if cluster.is_manager and Cluster.objects.registered().workers().exists():
        message = "De-register its workers first, then the manager."
        raise Rejected.because("cluster", "has_workers", message)
    state = Cluster.State.REMOVED if abandon else Cluster.State.DRAINING
    with transaction.atomic():
        row = locked(cluster)
        row.state = state
        # Whatever the admin had switched off: going is a decision to write once more.
        row.writes_enabled = True
        row.multikueue_kubeconfig_sealed, row.multikueue_token_expires_at = None, None
        if abandon:
            row.kubeconfig_sealed = b""
        row.save()
        raise_manager_generation()
        promises.retire_capacity(actor, cluster=row.slug, reason=reason)
        after = {"state": str(state.value), "abandoned": abandon}
        record_change(actor, "cluster.deregister", row, reason=reason, after=after)
    cluster.refresh_from_db()
    return Departure(str(state.value), tuple(_stays(row, abandon=abandon)))


def _stays(row: Cluster, *, abandon: bool) -> list[str]:
    left = ObjectState.objects.filter(cluster=row)
    if not abandon:
        left = left.filter(kind="Namespace")
    return [f"{found.kind} {found.path}" for found in left]


def _fleet_faults(*, slug: str, role: str, mode: str) -> list[Fault]:
    faults = []
    if role not in Cluster.Role.values:
        faults.append(Fault("role", "unknown", "The roles are single, manager and worker."))
    alike = Cluster.objects.registered().filter(role=role)
    if role == Cluster.Role.MANAGER and alike.exists():
        words = (
            "There is already a manager, and a fleet has one. You can register a single cluster "
            "beside it."
        )
        faults.append(Fault("role", "one_manager", words))
    if role == Cluster.Role.WORKER and alike.count() >= WORKER_LIMIT:
        message = f"There are already {WORKER_LIMIT} workers, the most that one manager can list."
        faults.append(Fault("role", "worker_limit", message))
    return faults + mode_faults(slug, role, mode)


def _given(kubeconfig: str, context: str, *, own_account: bool) -> Credential:
    """The credential that somebody chose.

    Raises:
        Rejected: every fault of it.
    """
    if not own_account:
        return pasted_credential(kubeconfig, context=context)
    if kubeconfig:
        message = "Give a kubeconfig, or choose the portal's own service account, but not both."
        raise Rejected.because("own_account", "both", message)
    try:
        return own_credential()
    except CredentialUnusable as error:
        raise Rejected.because("own_account", "not_readable", error.message) from error


def _row(slug: str, name: str, role: str, mode: str, credential: Credential | None) -> Cluster:
    last = Cluster.objects.filter(role=role).aggregate(last=Max("position"))["last"]
    row = Cluster(
        slug=slug, name=name, role=role, mode=mode, position=0 if last is None else last + 1
    )
    if credential is not None:
        _show(row, credential.facts)
    return row


def _show(row: Cluster, facts: KubeconfigFacts) -> None:
    """What a person may see of a credential."""
    row.server = facts.server
    row.context = facts.context
    row.user_kind = facts.user_kind
    row.ca_fingerprint = facts.ca_fingerprint
    row.certificate_expires_at = facts.ends


def _require_reached(table: PreflightTable) -> None:
    if not table.is_reachable:
        raise Rejected.because("kubeconfig", "unreachable", table.rows[0].found)


def _require_no_other(row: Cluster) -> None:
    found = holder_of(
        uid=row.uid, server=row.server, authority=row.ca_fingerprint, other_than=row.slug
    )
    if found is not None:
        raise _registered_already(found, row)


def _registered_already(found: Cluster, row: Cluster) -> Rejected:
    message = (
        f"This is the cluster {found.name} ({found.slug}), which is registered already. Give the "
        f"kubeconfig of another cluster, or renew the kubeconfig of {found.name} on its page."
    )
    if found.role != row.role and found.is_single and row.is_manager:
        message += f" To make a manager of {found.name}, change its role on its page: no job stops."
    elif found.role != row.role:
        message += (
            f" A registered cluster keeps its role: to make a {row.role} of the {found.role} "
            f"{found.name}, de-register it first. That stops the jobs of workspaces there."
        )
    field = "own_account" if row.is_own else "kubeconfig"
    return Rejected.because(field, REGISTERED_ALREADY, message)


def _require_offer(table: PreflightTable, mode: str) -> None:
    _require_reached(table)
    if mode not in table.modes_on_offer:
        found = next((row for row in table.rows if row.name == "Kueue controller"), table.rows[-1])
        raise Rejected.because("mode", "not_offered", f"{found.found} {found.advice}".strip())


@transaction.atomic
def _store(actor: User | None, row: Cluster, table: PreflightTable) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        # Somebody else registered it a moment ago.
        found = holder_of(uid=row.uid, server=row.server, other_than="")
        raise _registered_already(found or row, row) from None
    ClusterHealth.objects.create(cluster=row)
    raise_manager_generation()
    shown = state_of(row, "role", "mode", "server", "user_kind")
    audit(actor, "cluster.register", row, cluster=row.slug, after=shown)
    promises.start_operation(actor, kind=FIRST_SYNC, subject=f"cluster:{row.slug}")
    store_table(row, table)
    row.refresh_from_db()


def _first_token(row: Cluster) -> None:
    """A worker that gives no token yet is registered all the same; beat tries again."""
    try:
        mint(row)
    except ClusterError as error:
        ClusterHealth.objects.filter(cluster=row).update(
            multikueue_active="", multikueue_message=f"{error.reason}: {error.message}"[:500]
        )


def _credential(row: Cluster) -> dict[str, Any]:
    """What the log keeps of a credential."""
    ends = row.certificate_expires_at
    ends_at = None if ends is None else ends.isoformat()
    return {"server": row.server, "user_kind": row.user_kind, "ends": ends_at}
