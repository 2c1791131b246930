"""Switches of a registered cluster, each for a platform admin alone."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import transaction

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import User
from budgets.services.guards import by_admin, require_admin, require_reason, save_checked
from budgets.texts import UnreadableText, read_yaml
from clusters.credentials import connection_to
from clusters.errors import CredentialUnusable
from clusters.kueue.configuration import Configuration
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.models import Cluster
from clusters.services.generations import locked, record_change
from clusters.services.preflight.checks import examine, mode_faults, own_worker_faults, store_table

NAMES_MOST: Final = 100
"""Of what is listed in a policy: each request is compared with all of them."""
_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_ACCOUNT: Final = re.compile(rf"{_LABEL}/[a-z0-9]([-a-z0-9.]{{0,250}}[a-z0-9])?")


@by_admin
def set_writes_enabled(
    actor: User | None, *, cluster: Cluster, enabled: bool, reason: str = ""
) -> Cluster:
    """Stop, with a reason, or resume all writing; while it is off, what would be written is shown.

    Raises:
        Rejected: stopped without a reason.
    """
    if not enabled:
        require_reason(reason)
    return _changed(actor, cluster, "cluster.writes", reason, writes_enabled=enabled)


@by_admin
def set_drift_policy(
    actor: User | None, *, cluster: Cluster, policy: str, reason: str = ""
) -> Cluster:
    """Say whether hand edits are put back or kept."""
    return _changed(actor, cluster, "cluster.drift_policy", reason, drift_policy=policy)


@by_admin
def set_local_jobs(actor: User | None, *, cluster: Cluster, allowed: bool) -> Cluster:
    """Say whether jobs may be submitted on this worker directly, outside of the split."""
    return _changed(actor, cluster, "cluster.local_jobs", allows_local_jobs=allowed)


@by_admin
def set_operators(actor: User | None, *, cluster: Cluster, operators: Sequence[str]) -> Cluster:
    """Say which controllers make the parts of queued jobs on a cluster; the policies trust them.

    Args:
        actor: An admin.
        cluster: Any.
        operators: Service accounts, as NAMESPACE/NAME.

    Raises:
        Rejected: some are not; nothing was stored.
    """
    wrong = [name for name in operators if not _ACCOUNT.fullmatch(name)]
    _reject_names("operators", wrong, "is not NAMESPACE/NAME of a service account")
    _reject_many("operators", operators)
    return _changed(actor, cluster, "cluster.operators", operators=sorted(set(operators)))


@by_admin
def set_gpu_namespaces(
    actor: User | None, *, cluster: Cluster, namespaces: Sequence[str] | None
) -> Cluster:
    """Refuse pods with GPUs in every namespace that is no workspace, but in these.

    Args:
        actor: An admin.
        cluster: Any.
        namespaces: Where they are let in; None to refuse nothing outside of workspaces.

    Raises:
        Rejected: some are no names of namespaces; nothing was stored.
    """
    if namespaces is not None:
        wrong = [name for name in namespaces if not _NAMESPACE.fullmatch(name)]
        _reject_names("gpu_namespaces", wrong, "is not the name of a namespace")
        _reject_many("gpu_namespaces", namespaces)
        namespaces = sorted(set(namespaces))
    return _changed(actor, cluster, "cluster.gpu_namespaces", gpu_namespaces=namespaces)


@by_admin
def set_guard(actor: User | None, *, cluster: Cluster, guard: str, reason: str = "") -> Cluster:
    """Say what may be done about known defects of the Kueue on a manager: off, tell or cure.

    Raises:
        Rejected: no such setting, or not a manager.
    """
    if not cluster.is_manager:
        message = (
            f"{cluster.name} is a cluster of its own. The guard looks after dispatch, and nothing "
            "is dispatched there."
            if cluster.is_single
            else f"Set the guard on the manager. It looks after the worker {cluster.name}, too."
        )
        raise Rejected.because("guard", "not_a_manager", message)
    return _changed(actor, cluster, "cluster.guard", reason, guard=guard)


@by_admin
def edit_cluster(actor: User | None, *, cluster: Cluster, name: str) -> Cluster:
    """Rename a cluster; its slug never changes."""
    return _changed(actor, cluster, "cluster.edit", name=name)


@by_admin
def set_kueue_configuration(
    actor: User | None, *, cluster: Cluster, configuration: Mapping[str, Any] | str
) -> Cluster:
    """Store the Kueue Configuration that holds on a cluster; empty for what it tells itself.

    Raises:
        Rejected: it has values that Kueue would refuse.
    """
    read = read_configuration(configuration)
    return _changed(actor, cluster, "cluster.configuration", kueue_configuration=read)


def read_configuration(given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """A Kueue Configuration from YAML text or a document, read as the engine will; may be empty.

    Raises:
        Rejected: it is not one, or has values that Kueue would refuse.
    """
    field = "kueue_configuration"
    if isinstance(given, str):
        try:
            given = read_yaml(given)
        except UnreadableText as error:
            raise Rejected.because(field, "not_yaml", str(error)) from error
    if given is not None and not isinstance(given, Mapping):
        message = "Paste the whole Configuration document as YAML."
        raise Rejected.because(field, "not_a_document", message)
    found = dict(given or {})
    faults = []
    for name in found:
        part = {name: found[name]}
        try:
            Configuration.from_document(part)
            DispatchSettings.from_document(part)
        except ValueError as error:
            faults.append(Fault(field, "invalid", f"{name}: {error}."))
        except (TypeError, AttributeError, KeyError, OverflowError):
            words = "Kueue expects another shape here. Compare it with Kueue's documentation"
            faults.append(Fault(field, "invalid", f"{name}: {words}."))
    reject_any(faults)
    return found


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
    wanted = copy.copy(cluster)
    wanted.mode = mode
    faults = mode_faults(cluster.slug, cluster.role, mode) + own_worker_faults(wanted)
    if cluster.writes_enabled:
        faults.append(Fault("mode", "writes_on", "Stop writing to this cluster first."))
    reject_any(faults)
    try:
        table = examine(cluster, connection_to(cluster.kubeconfig_sealed))
    except CredentialUnusable as error:
        raise Rejected.because("cluster", "not_readable", error.message) from error
    if mode not in table.modes_on_offer:
        found = next((row.found for row in table.rows if row.name == "Kueue controller"), "")
        raise Rejected.because("mode", "proof", f"Not offered now. {found}".strip())
    changed = _changed(actor, cluster, "cluster.mode", reason, mode=mode)
    store_table(changed, table)
    return changed


def _reject_names(field: str, wrong: Sequence[str], words: str) -> None:
    reject_any([Fault(field, "name", f"{name[:100]!r} {words}.") for name in wrong[:10]])


def _reject_many(field: str, listed: Sequence[str]) -> None:
    if len(listed) > NAMES_MOST:
        raise Rejected.because(field, "too_many", f"At most {NAMES_MOST} can be listed.")


@transaction.atomic
def _changed(
    actor: User | None, cluster: Cluster, action: str, reason: str = "", **changes: object
) -> Cluster:
    row = locked(cluster)
    before = {name: getattr(row, name) for name in changes}
    if before == changes:
        return row
    for name, value in changes.items():
        setattr(row, name, value)
    save_checked(row)
    return record_change(actor, action, row, reason=reason, before=before, after=changes)
