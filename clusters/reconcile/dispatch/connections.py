"""Who is connected, as the manager's MultiKueueClusters and AdmissionChecks say it. Pure.

Source: spec dispatch 1.1, 1.4; Kueue pkg/controller/admissionchecks/multikueue, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from clusters.documents.conditions import Condition, condition, with_conditions
from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.quota.specifications import MULTIKUEUE_CONTROLLER
from clusters.reconcile.dispatch.links import LinkState
from clusters.reconcile.runtime.writer import Verb, Write

_BAD_REFERENCE = "Cannot load the AdmissionChecks parameters: "


def workers_of(check: Document, configs: Mapping[str, Document]) -> tuple[str, ...]:
    """Workers that an AdmissionCheck dispatches to, in the order of its configuration."""
    reference = (check.get("spec") or {}).get("parameters") or {}
    config = configs.get(str(reference.get("name", "")))
    return tuple(((config or {}).get("spec") or {}).get("clusters") or ())


def is_dispatch_check(check: Document) -> bool:
    return bool((check.get("spec") or {}).get("controllerName") == MULTIKUEUE_CONTROLLER)


def connection_writes(
    checks: Mapping[str, Document],
    configs: Mapping[str, Document],
    clusters: Mapping[str, Document],
    *,
    states: Mapping[str, LinkState],
    now: datetime,
) -> Iterator[Write]:
    """The status writes that are due."""
    for name, cluster in clusters.items():
        state = states.get(name)
        if state is not None:
            change = Condition("Active", state.is_connected, state.reason, state.message)
            yield from _due(r.MULTIKUEUE_CLUSTER, cluster, change, now)
    for check in checks.values():
        if is_dispatch_check(check):
            change = _check_condition(check, configs, clusters, states)
            yield from _due(r.ADMISSION_CHECK, check, change, now)


def _check_condition(
    check: Document,
    configs: Mapping[str, Document],
    clusters: Mapping[str, Document],
    states: Mapping[str, LinkState],
) -> Condition:
    reference = (check.get("spec") or {}).get("parameters") or {}
    name = str(reference.get("name", ""))
    if name not in configs:
        text = (
            f'MultiKueueConfig.kueue.x-k8s.io "{name}" not found'
            if name
            else ("missing parameters reference")
        )
        return Condition("Active", False, "BadConfig", _BAD_REFERENCE + text)
    wanted = workers_of(check, configs)
    missing = [worker for worker in wanted if worker not in clusters]
    inactive = [
        worker
        for worker in wanted
        if worker in clusters and not (worker in states and states[worker].is_connected)
    ]
    parts = []
    if missing:
        parts.append(f"Missing clusters: [{' '.join(missing)}]")
    if inactive:
        parts.append(f"Inactive clusters: [{' '.join(inactive)}]")
    text = ", ".join(parts)
    if len(missing) + len(inactive) == len(wanted):
        return Condition("Active", False, "NoUsableClusters", text)
    if parts:
        return Condition("Active", True, "SomeActiveClusters", text)
    return Condition("Active", True, "Active", "The admission check is active")


def _due(
    resource: Resource, document: Document, change: Condition, now: datetime
) -> Iterator[Write]:
    shown = condition(document, "Active")
    wanted = ("True" if change.status else "False", change.reason, change.message)
    if (shown.get("status"), shown.get("reason"), shown.get("message")) == wanted:
        return
    metadata = document["metadata"]
    body: dict[str, Any] = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "status": {"conditions": with_conditions(document, [change], now=now)},
    }
    yield Write(
        "connection", Verb.PATCH, resource, "", metadata["name"], body, subresource="status"
    )
