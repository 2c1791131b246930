"""The table that an admin sees before trusting a cluster with budgets, and the modes on offer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from budgets import services as promises
from budgets.errors import Fault
from budgets.models import Operation, User
from budgets.services.guards import require_admin
from clusters.broker import send
from clusters.credentials import connection_to
from clusters.documents.kueue_versions import Release
from clusters.errors import ClusterError, CredentialUnusable
from clusters.kube.client import KubeClient, Probe
from clusters.kube.kubeconfig import Connection
from clusters.kube.shares import IN_TASKS
from clusters.manifests.rights import portal_rules
from clusters.models import Cluster
from clusters.reconcile.health import Contact, record_contact
from clusters.reconcile.identity import uid_of
from clusters.selectors.cluster_detail import PreflightRow
from clusters.selectors.places import post_of
from clusters.services import probes
from clusters.services.health import confirmed
from clusters.services.preflight import rows as shown
from clusters.services.preflight.rows import FAULT

KIND = "preflight"
TASK = "clusters.tasks.run_preflight"
STEPS = 6


@dataclass(frozen=True, slots=True)
class PreflightTable:
    """Everything that a preflight checked, at one moment."""

    checked_at: datetime
    rows: tuple[PreflightRow, ...]
    modes_on_offer: tuple[str, ...] = ()
    is_kueue_alive: bool | None = None
    configuration: Mapping[str, Any] | None = field(default=None)
    probe: Probe | None = None
    kueue_version: str | None = None
    kueue_crds: str = ""
    uid: str = ""

    @property
    def is_reachable(self) -> bool:
        """Whether the cluster answered at all."""
        return self.probe is not None

    def stored(self) -> dict[str, Any]:
        """JSON for ``Cluster.preflight``."""
        return {
            "checked_at": self.checked_at.isoformat(),
            "rows": [asdict(row) for row in self.rows],
            "modes_on_offer": list(self.modes_on_offer),
            "is_kueue_alive": self.is_kueue_alive,
            "kueue_crds": self.kueue_crds,
        }


def examine(
    cluster: Cluster,
    connection: Connection,
    *,
    on_step: Callable[[int, str], None] = lambda done, step: None,
) -> PreflightTable:
    """Look at everything that can be seen with a credential. Nothing is stored.

    Args:
        cluster: As it is, or is to be, registered.
        connection: To it; its kubeconfig has passed inspection.
        on_step: Told how far it is: steps done of :data:`STEPS`, and what comes now.
    """
    now = timezone.now()
    on_step(0, "reaching the cluster")
    with KubeClient.from_connection(connection, share=IN_TASKS.of(cluster.slug)) as client:
        try:
            probe = client.probe(timeout_s=5.0)
        except ClusterError as error:
            return PreflightTable(now, (shown.unreachable(error),))
        rows = list(shown.first_rows(probe, cluster, now))
        try:
            return _examined(client, cluster, probe, rows, on_step)
        except ClusterError as error:
            rows.append(
                PreflightRow("Examination", FAULT, f"{error.reason}: {error.message}", "Try again.")
            )
            return PreflightTable(now, tuple(rows), probe=probe)


def run_preflight(
    actor: User | None, *, cluster: Cluster, operation_id: uuid.UUID | str | None = None
) -> PreflightTable:
    """Examine a registered cluster and store the table.

    Raises:
        NotAllowed: for everybody but an admin.
    """
    require_admin(actor)

    def tell(done: int, step: str) -> None:
        if operation_id is not None:
            promises.advance_operation(operation_id, step=step, done=done, total=STEPS)

    try:
        table = examine(cluster, connection_to(cluster.kubeconfig_sealed), on_step=tell)
    except CredentialUnusable as error:
        advice = "" if cluster.is_own else "Rotate it."
        row = PreflightRow("Credential", FAULT, str(error), advice)
        table = PreflightTable(timezone.now(), (row,))
    store_table(cluster, table)
    if operation_id is not None:
        faults = sum(row.state == FAULT for row in table.rows)
        promises.finish_operation(
            operation_id, message=f"{len(table.rows)} checks, {faults} faults"
        )
    return table


def start_preflight(actor: User | None, *, cluster: Cluster) -> Operation:
    """Examine a cluster in the background; without a broker it is done before this returns.

    Raises:
        NotAllowed: for everybody but an admin.
    """
    require_admin(actor)
    operation = promises.start_operation(
        actor, kind=KIND, subject=f"cluster:{cluster.slug}", total=STEPS
    )
    if not send(TASK, cluster.slug, str(operation.pk)):
        run_preflight(actor, cluster=cluster, operation_id=operation.pk)
    return operation


def store_table(cluster: Cluster, table: PreflightTable) -> None:
    """Keep the newest table, the contact, and a Configuration that the cluster itself told."""
    cluster.preflight = table.stored()
    fields = ["preflight"]
    if table.configuration is not None and not cluster.kueue_configuration:
        cluster.kueue_configuration = dict(table.configuration)
        fields.append("kueue_configuration")
    cluster.save(update_fields=fields)
    if table.probe is not None:
        contact = Contact(table.checked_at, probe=table.probe, kueue_version=table.kueue_version)
        record_contact(cluster.pk, confirmed(cluster.slug, contact, table.uid))


def modes_on_offer(cluster: Cluster, is_kueue_alive: bool | None) -> tuple[str, ...]:
    """Modes that the proof and the matrix of manager and workers allow."""
    if is_kueue_alive is None:
        return ()
    mode = (Cluster.Mode.KUEUE if is_kueue_alive else Cluster.Mode.PORTAL).value
    return () if mode_faults(cluster.slug, cluster.role, mode) else (mode,)


def mode_faults(slug: str, role: str, mode: str) -> list[Fault]:
    """Why a mode is none, or does not go with the rest of the fleet; empty when it does."""
    if mode not in Cluster.Mode.values:
        return [Fault("mode", "unknown", "The modes are kueue and portal.")]
    fleet = Cluster.objects.registered().exclude(role=Cluster.Role.SINGLE).exclude(slug=slug)
    other = fleet.exclude(role=role).exclude(mode=mode).first()
    words = ""
    if other is None:
        return []
    if (role, mode) == (Cluster.Role.WORKER, Cluster.Mode.PORTAL):
        words = (
            f"On the manager {other.name} Kueue decides, and Kueue can only dispatch to "
            "workers that run Kueue, too."
        )
    elif (role, mode) == (Cluster.Role.MANAGER, Cluster.Mode.KUEUE):
        words = (
            f"On the worker {other.name} the portal decides, and a manager's Kueue can only "
            "dispatch to workers that run Kueue, too."
        )
    return [Fault("mode", "matrix", words)] if words else []


def own_worker_faults(cluster: Cluster) -> list[Fault]:
    """Why the portal's own cluster cannot be a worker of a Kueue; empty when it can, or is none.

    The address that kubelet tells leads to this cluster only from within it: on the manager it
    leads to the manager.
    """
    is_dispatched_by_kueue = cluster.is_worker and cluster.mode == Cluster.Mode.KUEUE
    if not (cluster.is_own and is_dispatched_by_kueue) or settings.PORTAL_OWN_CLUSTER_ADDRESS:
        return []
    words = (
        f"The manager's Kueue cannot reach this cluster at {cluster.server}, which leads there "
        "only from within. Set PORTAL_OWN_CLUSTER_ADDRESS (ownCluster.address of the chart) to "
        "the address of its API server for others, or give a kubeconfig that has it."
    )
    return [Fault("role", "own_address", words)]


def _examined(
    client: KubeClient,
    cluster: Cluster,
    probe: Probe,
    rows: list[PreflightRow],
    on_step: Callable[[int, str], None],
) -> PreflightTable:
    uid = uid_of(client)
    rows.append(shown.identity_row(uid, cluster))
    on_step(1, "reading versions")
    served = probes.served_kinds(client)
    version = probes.kueue_version(client)
    line = "" if served.missing else probes.kueue_line_of_crds(client)
    rows.append(shown.served_row(served, version))
    on_step(2, "asking for each right")
    rows += shown.right_rows(client, portal_rules(post_of(cluster)))
    on_step(3, "looking for a live Kueue")
    proof = probes.KueueProof(False, "Kueue's kinds are not installed.")
    if not served.missing:
        proof = probes.prove_kueue(client, installation=settings.PORTAL_INSTALLATION)
    rows.append(shown.proof_row(proof, probes.signs_of_kueue(client), cluster))
    on_step(4, "reading Kueue's configuration")
    configuration = probes.configuration_of(client)
    in_force = cluster.kueue_configuration or configuration or {}
    rows.append(shown.configuration_row(cluster, configuration))
    rows += shown.version_rows(cluster, Release.read(version), line, in_force)
    rows += shown.unfollowed_rows(cluster, in_force)
    rows += shown.device_rows(client, cluster, in_force)
    rows += shown.retention_rows(in_force)
    rows += shown.external_rows(client, cluster, in_force)
    on_step(5, "looking for the generated policies")
    rows += shown.policy_rows(client, cluster)
    on_step(6, "done")
    return PreflightTable(
        checked_at=timezone.now(),
        rows=tuple(rows),
        modes_on_offer=modes_on_offer(cluster, proof.is_alive),
        is_kueue_alive=proof.is_alive,
        configuration=configuration,
        probe=probe,
        kueue_version=version,
        kueue_crds=line,
        uid=uid,
    )
