"""Statuses of ClusterQueues, LocalQueues and Cohorts: computed whole, written only when changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from clusters.documents.conditions import Condition, with_conditions
from clusters.documents.keys import Document, bound
from clusters.documents.times import stamp
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.reports import (
    QueueReport,
    cluster_queue_report,
    cohort_share,
    local_queue_report,
)
from clusters.kueue.quota.usage_ledger import format_nanos
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.writer import Write

_RESOURCES: Mapping[str, Resource] = {
    resource.kind: resource for resource in (r.CLUSTER_QUEUE, r.LOCAL_QUEUE, r.COHORT)
}


def queue_keys(engine: Engine, cache: Cache) -> Iterator[str]:
    """Of each object whose status is kept here: ``Kind:name`` or ``Kind:namespace/name``."""
    for resource in (r.CLUSTER_QUEUE, r.LOCAL_QUEUE, r.COHORT):
        if resource != r.COHORT or engine.configuration.fair_strategies:
            yield from (queue_key(resource, key) for key in cache.of(resource))


def queue_key(resource: Resource, key: str) -> str:
    """What an object whose status is kept here is called in the shift."""
    return f"{resource.kind}:{key}"


def queue_write(engine: Engine, cache: Cache, key: str, *, now: datetime) -> Write | None:
    """The status write that one of ``queue_keys`` needs; None when it shows what is so."""
    kind, _, name = key.partition(":")
    resource = _RESOURCES[kind]
    document = cache.get(resource, name)
    if document is None:
        return None
    is_fair = bool(engine.configuration.fair_strategies)
    state = engine.state
    wanted: dict[str, Any] = {}
    if resource == r.CLUSTER_QUEUE and name in state.snapshot.queues:
        report = cluster_queue_report(engine, name)
        wanted = _queue_status(document, report, now=now)
        if is_fair:
            wanted["fairSharing"] = {"weightedShare": report.weighted_share}
    elif resource == r.LOCAL_QUEUE and name in state.queues.local_queues:
        report = local_queue_report(engine, name)
        wanted = _queue_status(document, report, now=now) | _usage_status(engine, name)
    elif resource == r.COHORT and is_fair and name in state.snapshot.cohorts:
        wanted["fairSharing"] = {"weightedShare": cohort_share(engine, name)}
    return _due(resource, document, wanted)


def _queue_status(document: Document, report: QueueReport, *, now: datetime) -> dict[str, Any]:
    active = report.condition
    change = Condition("Active", active.is_active, active.reason, active.message)
    return {
        "conditions": with_conditions(document, [change], now=now),
        "flavorsReservation": report.flavors_reservation,
        "flavorsUsage": report.flavors_usage,
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.reserving,
        "admittedWorkloads": report.admitted,
    }


def _usage_status(engine: Engine, local_queue: str) -> dict[str, Any]:
    """What a LocalQueue used lately, where that orders workloads: a later shift goes on from it."""
    entry = engine.state.ledger.entry(local_queue)
    if entry is None or not entry.has_history:
        return {}  # what is shown is still to be taken over
    amounts = {name: format_nanos(amount) for name, amount in sorted(entry.consumed.items())}
    shown = {"consumedResources": amounts, "lastUpdate": stamp(entry.updated_at)}
    return {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": shown}}


def _due(resource: Resource, document: Document, wanted: dict[str, Any]) -> Write | None:
    status = document.get("status") or {}
    changed = {key: value for key, value in wanted.items() if not _is_same(status.get(key), value)}
    if not changed:
        return None
    body = {**bound(document), "status": changed}
    return Write.patch("queue-status", resource, document, body, subresource="status")


def _is_same(shown: Any, wanted: Any) -> bool:
    # Servers leave out empty lists.
    return bool(shown == wanted or (wanted == [] and shown is None))
