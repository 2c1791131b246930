"""Switches of a registered cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from budgets import services as promises
from budgets.errors import Fault, Rejected
from budgets.models import User
from budgets.services.guards import require_admin, require_reason, save_checked
from budgets.texts import UnreadableText, read_yaml
from clusters.kueue.configuration import Configuration
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import Cluster
from clusters.services.generations import raise_generation
from clusters.services.preflight.checks import examine, matrix_fault, store_table
from clusters.vault import unseal


def set_writes_enabled(
    actor: User | None, *, cluster: Cluster, enabled: bool, reason: str = ""
) -> Cluster:
    """Stop or resume all writing to a cluster; while it is off, what would be written is shown.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: stopped without a reason.
    """
    require_admin(actor)
    if not enabled:
        require_reason(reason)
    return _changed(actor, cluster, "cluster.writes", reason, writes_enabled=enabled)


def set_drift_policy(
    actor: User | None, *, cluster: Cluster, policy: str, reason: str = ""
) -> Cluster:
    """Say whether hand edits are put back or kept.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: no such policy.
    """
    require_admin(actor)
    return _changed(actor, cluster, "cluster.drift_policy", reason, drift_policy=policy)


def set_local_jobs(actor: User | None, *, cluster: Cluster, allowed: bool) -> Cluster:
    """Say whether jobs may be submitted on this worker directly, outside of the split.

    Raises:
        NotAllowed: for everybody but an admin.
    """
    require_admin(actor)
    return _changed(actor, cluster, "cluster.local_jobs", "", allows_local_jobs=allowed)


def set_guard(actor: User | None, *, cluster: Cluster, guard: str, reason: str = "") -> Cluster:
    """Say what may be done about known defects of the Kueue on a manager: off, tell or cure.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: no such setting, or not a manager.
    """
    require_admin(actor)
    if not cluster.is_manager:
        message = f"The guard is set on the manager; it looks after the worker {cluster.slug}, too."
        raise Rejected([Fault("guard", "not_a_manager", message)])
    return _changed(actor, cluster, "cluster.guard", reason, guard=guard)


def edit_cluster(actor: User | None, *, cluster: Cluster, name: str) -> Cluster:
    """Rename a cluster; its slug never changes.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: not a name.
    """
    require_admin(actor)
    return _changed(actor, cluster, "cluster.edit", "", name=name)


def set_kueue_configuration(
    actor: User | None, *, cluster: Cluster, configuration: Mapping[str, Any] | str
) -> Cluster:
    """Store the Kueue Configuration that holds on a cluster; empty for what it tells itself.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: it has values that Kueue would refuse.
    """
    require_admin(actor)
    read = read_configuration(configuration)
    return _changed(actor, cluster, "cluster.configuration", "", kueue_configuration=read)


def read_configuration(given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """A Kueue Configuration from YAML text or a document; empty when there is none.

    Raises:
        Rejected: it is not one, or has values that Kueue would refuse.
    """
    if isinstance(given, str):
        try:
            given = read_yaml(given)
        except UnreadableText as error:
            raise Rejected([Fault("kueue_configuration", "not_yaml", str(error))]) from error
    if given is not None and not isinstance(given, Mapping):
        message = "Paste the whole Configuration document."
        raise Rejected([Fault("kueue_configuration", "not_a_document", message)])
    found = dict(given or {})
    check_configuration(found)
    return found


def check_configuration(configuration: Mapping[str, Any]) -> None:
    """Read a Configuration as the engine will.

    Raises:
        Rejected: it has values that Kueue would refuse.
    """
    try:
        Configuration.from_document(configuration)
        DispatchSettings.from_document(configuration)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        raise Rejected(
            [Fault("kueue_configuration", "invalid", f"Not a Kueue Configuration: {error}")]
        ) from error


def set_mode(actor: User | None, *, cluster: Cluster, mode: str, reason: str) -> Cluster:
    """Change who decides on a cluster, after the matrix and the proof were checked again.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: writing is on, the fleet or the proof speaks against it, or no reason is given.
    """
    require_admin(actor)
    require_reason(reason)
    if cluster.mode == mode:
        return cluster
    faults = []
    if mode not in Cluster.Mode.values:
        faults.append(Fault("mode", "unknown", "The modes are kueue and portal."))
    if cluster.writes_enabled:
        faults.append(Fault("mode", "writes_on", "Stop writing to this cluster first."))
    fault = matrix_fault(cluster.slug, cluster.role, mode)
    if fault:
        faults.append(Fault("mode", "matrix", fault))
    if faults:
        raise Rejected(faults)
    table = examine(cluster, unseal(cluster.kubeconfig_sealed))
    if mode not in table.modes_on_offer:
        found = next((row.found for row in table.rows if row.name == "Kueue controller"), "")
        raise Rejected([Fault("mode", "proof", f"Not offered now. {found}".strip())])
    changed = _changed(actor, cluster, "cluster.mode", reason, mode=mode)
    store_table(changed, table)
    return changed


@transaction.atomic
def _changed(
    actor: User | None, cluster: Cluster, action: str, reason: str, **changes: object
) -> Cluster:
    row = Cluster.objects.select_for_update().get(pk=cluster.pk)
    before = {name: getattr(row, name) for name in changes}
    if before == changes:
        return row
    for name, value in changes.items():
        setattr(row, name, value)
    save_checked(row)
    raise_generation(row)
    row.refresh_from_db()
    promises.audit(
        actor,
        action=action,
        subject=f"cluster:{row.slug}",
        cluster=row.slug,
        reason=reason,
        before=before,
        after=changes,
    )
    return row
