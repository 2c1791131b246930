"""Who dispatches to whom, as the manager's AdmissionChecks and MultiKueueConfigs say it. Pure.

Source: spec dispatch 1.1, 1.4; Kueue pkg/controller/admissionchecks/multikueue, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusters.documents import labels
from clusters.documents.keys import Document
from clusters.kube import resources as r
from clusters.kueue.multikueue.decide import check_of
from clusters.reconcile.runtime.cache import Cache


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
