"""A cluster that knows more than the database: an admin decides which side is right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from budgets.errors import Rejected
from budgets.models import User
from budgets.services.audit import state_of
from budgets.services.guards import require_admin, require_reason
from clusters.credentials import connection_to
from clusters.documents import labels
from clusters.errors import ClusterError
from clusters.kube.client import KubeClient, Selection
from clusters.models import Cluster
from clusters.reconcile.context import registered
from clusters.reconcile.quota.decide import (
    Newer,
    newer_than_known,
    resources_of,
)
from clusters.reconcile.quota.wanted import SUBJECTS, known_generations
from clusters.services.generations import locked, record_change


def resolve_block(
    actor: User | None, *, cluster: Cluster, apply_ours: bool, reason: str
) -> Cluster:
    """Decide after a restored backup.

    With `apply_ours` the database is right: its generations are raised above the cluster's, what
    the cluster knows and the database does not is drained and pruned. Otherwise the cluster is
    left as it is: writing to it is stopped, and budgets can be entered again in peace.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: it is not blocked, no reason is given, or the cluster cannot be read.
    """
    require_admin(actor)
    require_reason(reason)
    if not cluster.blocked_reason:
        raise Rejected.because("cluster", "not_blocked", "This cluster is not blocked.")
    newer = _newer_on(cluster) if apply_ours else []
    with transaction.atomic():
        row = locked(cluster)
        before = state_of(row, "blocked_reason")
        row.blocked_reason = ""
        if apply_ours:
            unknown = {item.subject for item in newer if item.in_database is None}
            row.forgotten_subjects = sorted({*row.forgotten_subjects, *unknown})
            _raise_above(newer)
        else:
            row.writes_enabled = False
        row.save()
        after = {"side": "portal" if apply_ours else "cluster", "objects": len(newer)}
        record_change(
            actor, "cluster.resolve_block", row, reason=reason, before=before, after=after
        )
    cluster.refresh_from_db()
    return cluster


def _newer_on(cluster: Cluster) -> list[Newer]:
    registration = registered(cluster.slug)
    assert registration is not None, "a blocked cluster is registered"
    label = f"{labels.INSTALLATION}={settings.PORTAL_INSTALLATION}"
    kinds = resources_of(
        is_manager=cluster.is_manager, is_single=cluster.is_single, own_queue=cluster.own_queue
    )
    documents: list[dict[str, Any]] = []
    try:
        with KubeClient.from_connection(connection_to(registration.sealed)) as client:
            for resource in kinds:
                documents += client.list(resource, Selection(labels=label)).items
    except ClusterError as error:
        message = f"{error.reason}: {error.message}"
        raise Rejected.because("cluster", "unreachable", message) from error
    known = known_generations(registration.facts)
    return newer_than_known(documents, known, settings.PORTAL_INSTALLATION)


def _raise_above(newer: Iterable[Newer]) -> None:
    """Counters only: what is promised stays as the database has it."""
    highest: dict[str, int] = {}
    for item in newer:
        highest[item.subject] = max(highest.get(item.subject, 0), item.on_cluster)
    for subject, generation in sorted(highest.items()):
        kind, _, name = subject.partition(":")
        if kind in SUBJECTS:
            model, column = SUBJECTS[kind]
            model._default_manager.filter(**{column: name}).update(
                generation=Greatest(F("generation"), generation + 1)
            )
