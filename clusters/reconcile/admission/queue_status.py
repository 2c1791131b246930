"""Statuses of ClusterQueues, LocalQueues and Cohorts: computed whole, written only when changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.engine import Engine
from clusters.kueue.reports import (
    QueueReport,
    cluster_queue_report,
    cohort_share,
    local_queue_report,
)
from clusters.reconcile.admission.image import Image, object_key
from clusters.reconcile.jobs.conditions import Condition, with_conditions
from clusters.reconcile.jobs.keys import Document
from clusters.reconcile.jobs.writer import Verb, Write


def queue_writes(engine: Engine, image: Image, *, now: datetime) -> Iterator[tuple[str, Write]]:
    """The status writes that are due, each with the key that it goes under."""
    is_fair = bool(engine.configuration.fair_strategies)
    state = engine.state
    for name, document in image.of(r.CLUSTER_QUEUE).items():
        if name in state.snapshot.queues:
            report = cluster_queue_report(engine, name, now=now)
            wanted = _queue_status(document, report, now=now)
            if is_fair:
                wanted["fairSharing"] = {"weightedShare": report.weighted_share}
            yield from _due(r.CLUSTER_QUEUE, document, wanted)
    for key, document in image.of(r.LOCAL_QUEUE).items():
        if key in state.queues.local_queues:
            report = local_queue_report(engine, key, now=now)
            yield from _due(r.LOCAL_QUEUE, document, _queue_status(document, report, now=now))
    if not is_fair:
        return
    for name, document in image.of(r.COHORT).items():
        if name in state.snapshot.cohorts:
            share = cohort_share(engine, name, now=now)
            yield from _due(r.COHORT, document, {"fairSharing": {"weightedShare": share}})


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


def _due(
    resource: Resource, document: Document, wanted: dict[str, Any]
) -> Iterator[tuple[str, Write]]:
    status = document.get("status") or {}
    changed = {key: value for key, value in wanted.items() if not _is_same(status.get(key), value)}
    if not changed:
        return
    metadata = document["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": changed}
    write = Write(
        "queue-status",
        Verb.PATCH,
        resource,
        metadata.get("namespace") or "",
        metadata["name"],
        body,
        subresource="status",
    )
    yield f"{resource.kind}:{object_key(document)}", write


def _is_same(shown: Any, wanted: Any) -> bool:
    # Servers leave out empty lists.
    return bool(shown == wanted or (wanted == [] and shown is None))
