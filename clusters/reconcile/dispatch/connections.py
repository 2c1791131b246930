"""Who is connected, as the manager's MultiKueueClusters and AdmissionChecks say it. Pure.

Source: spec dispatch 1.1, 1.4; Kueue pkg/controller/admissionchecks/multikueue, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from clusters.documents import labels
from clusters.documents.conditions import Condition, condition
from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.multikueue.decide import check_of
from clusters.reconcile import workload_status as status
from clusters.reconcile.dispatch.links import LinkState
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.writer import Write

_BAD_REFERENCE = "Cannot load the AdmissionChecks parameters: "


def workers_of(check: Document, configs: Mapping[str, Document]) -> tuple[str, ...]:
    """Workers that an AdmissionCheck dispatches to, in the order of its configuration."""
    config = configs.get(config_of(check))
    return tuple(((config or {}).get("spec") or {}).get("clusters") or ())


def config_of(check: Document) -> str:
    """Name of the MultiKueueConfig that an AdmissionCheck refers to; empty when it names none."""
    reference = (check.get("spec") or {}).get("parameters") or {}
    return str(reference.get("name", ""))


def dispatched_workers(manager: Cache) -> frozenset[str]:
    """Workers that any AdmissionCheck of the manager dispatches to, and that it has."""
    configs, clusters = manager.of(r.MULTIKUEUE_CONFIG), manager.of(r.MULTIKUEUE_CLUSTER)
    return frozenset(
        worker
        for check in manager.of(r.ADMISSION_CHECK).values()
        if is_dispatch_check(check)
        for worker in workers_of(check, configs)
        if worker in clusters
    )


def dispatch_check(manager: Cache, workload: Document) -> str:
    """The AdmissionCheck of a workload that stands for dispatch; empty when it lists none."""
    controllers = {
        name: (check.get("spec") or {}).get("controllerName", "")
        for name, check in manager.of(r.ADMISSION_CHECK).items()
    }
    return check_of(workload, controllers=controllers)


def is_dispatch_check(check: Document) -> bool:
    return bool((check.get("spec") or {}).get("controllerName") == labels.MULTIKUEUE)


def connection_writes(
    manager: Cache, *, states: Mapping[str, LinkState], now: datetime
) -> Iterator[Write]:
    """The status writes that are due."""
    configs, clusters = manager.of(r.MULTIKUEUE_CONFIG), manager.of(r.MULTIKUEUE_CLUSTER)
    for name, cluster in clusters.items():
        state = states.get(name)
        if state is not None:
            change = Condition("Active", state.is_connected, state.reason, state.message)
            yield from _due(r.MULTIKUEUE_CLUSTER, cluster, change, now)
    for check in manager.of(r.ADMISSION_CHECK).values():
        if is_dispatch_check(check):
            change = _check_condition(check, configs, clusters, states)
            yield from _due(r.ADMISSION_CHECK, check, change, now)


def _check_condition(
    check: Document,
    configs: Mapping[str, Document],
    clusters: Mapping[str, Document],
    states: Mapping[str, LinkState],
) -> Condition:
    name = config_of(check)
    if name not in configs:
        text = (
            f'MultiKueueConfig.kueue.x-k8s.io "{name}" not found'
            if name
            else "missing parameters reference"
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
    body = status.conditions_patch(document, [change], now=now)
    yield Write.patch("connection", resource, document, body, subresource="status")
