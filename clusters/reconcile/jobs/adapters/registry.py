"""Which adapter speaks for a document or an owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.documents.keys import Document, annotations_of
from clusters.documents.labels import OWNER_GVK, OWNER_NAME
from clusters.errors import Refusal, Terminal
from clusters.kube.client import EVERYTHING, Selection
from clusters.kube.resources import Resource
from clusters.kueue.multikueue.settings import DispatchSettings, Framework
from clusters.reconcile.jobs.adapters.adapter import Adapter
from clusters.reconcile.jobs.adapters.batch_job import BatchJob
from clusters.reconcile.jobs.adapters.leader_worker_sets import SetCopies
from clusters.reconcile.jobs.adapters.pod_copies import PodCopies
from clusters.reconcile.jobs.adapters.shapes import resource_of, shape_of

_OWN: Final[Mapping[Resource, Adapter]] = {
    adapter.resource: adapter for adapter in (PodCopies(), SetCopies())
}


def settings_of(configuration: Mapping[str, Any]) -> DispatchSettings:
    """What a stored Kueue Configuration says of dispatch.

    Raises:
        Terminal: something in it is not usable.
    """
    try:
        return DispatchSettings.from_document(configuration)
    except ValueError as error:
        raise Terminal(Refusal(f"Kueue Configuration: {error}", "BadConfiguration")) from error


def adapter_of(kind: Framework) -> Adapter:
    """The adapter of a kind besides Job."""
    return _OWN.get(resource_of(kind)) or shape_of(kind)


class Adapters:
    """The adapters in force.

    Args:
        adapters: One for each kind.
    """

    def __init__(self, adapters: Iterable[Adapter]) -> None:
        self._known = {
            (adapter.resource.api_version, adapter.resource.kind): adapter for adapter in adapters
        }
        found = tuple(self._known.values())
        self._resources = tuple(adapter.resource for adapter in found)
        self._optional = tuple(item.resource for item in found if not item.is_required)

    @classmethod
    def of_settings(cls, settings: DispatchSettings) -> Adapters:
        """Jobs, and the kinds that a cluster's Configuration names."""
        return cls([BatchJob(), *(adapter_of(kind) for kind in settings.kinds)])

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Every kind."""
        return self._resources

    @property
    def optional(self) -> tuple[Resource, ...]:
        """Kinds that a cluster may not serve."""
        return self._optional

    def selection_of(self, resource: Resource) -> Selection:
        """Which objects of a kind can be jobs."""
        found = self._known.get((resource.api_version, resource.kind))
        return found.selection if found is not None else EVERYTHING

    def of(self, document: Document) -> Adapter | None:
        """The adapter of a job; None for a kind that nobody named."""
        return self._known.get((str(document.get("apiVersion")), str(document.get("kind"))))

    def owner_of(self, workload: Document) -> tuple[Adapter | None, str, str]:
        """Who a Workload stands for: adapter, kind and name; empty texts when it has no owner.

        Annotations first, then the owner that controls it, then the first owner.
        """
        marks = annotations_of(workload)
        owners = workload["metadata"].get("ownerReferences") or ()
        found = next((item for item in owners if item.get("controller")), None)
        found = found or next(iter(owners), None)
        if marks.get(OWNER_GVK) and marks.get(OWNER_NAME):
            group_version, _, kind = marks[OWNER_GVK].partition(", Kind=")
            return self._known.get((group_version, kind)), kind, marks[OWNER_NAME]
        if found is None:
            return None, "", ""
        kind, version = str(found.get("kind", "")), str(found.get("apiVersion", ""))
        return self._known.get((version, kind)), f"{version}, Kind={kind}", str(found["name"])


JOBS_ONLY = Adapters([BatchJob()])
