"""What dispatch knows of the manager and its workers, and whom a thing that was seen concerns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.reconcile.admission.image import Image, object_key
from clusters.reconcile.dispatch.lanes import MANAGER
from clusters.reconcile.dispatch.links import Link
from clusters.reconcile.jobs.adapters import Adapters
from clusters.reconcile.runtime.watches import Change, Seen


@dataclass(frozen=True, slots=True)
class Taken:
    """What one thing that was seen came to.

    Attributes:
        keys: Of workloads to look at.
        is_of_connections: Which workers are dispatched to, or how, may have changed.
    """

    keys: tuple[str, ...]
    is_of_connections: bool = False


class Images:
    """The manager's image and those of the linked workers.

    Args:
        manager: Of the manager.
        links: Workers by name, as they come and go.
        adapters: Of the kinds that are dispatched.
    """

    def __init__(self, manager: Image, links: Mapping[str, Link], adapters: Adapters) -> None:
        self._manager, self._links, self._adapters = manager, links, adapters

    def of(self, cluster: str) -> Image:
        """The image of the manager, or of a worker; an empty one of a worker without a link."""
        if cluster == MANAGER:
            return self._manager
        link = self._links.get(cluster)
        return link.image if link is not None else Image(self._adapters.resources)

    def all_keys(self) -> Iterator[str]:
        """Everything that is to be looked at when all of it is."""
        yield from self._manager.of(r.WORKLOAD)
        for link in self._links.values():
            yield from link.image.keys_to_plan()

    def take(self, seen: Seen) -> Taken:
        """Take in what a watch told; known already, it concerns only what it was linked to."""
        image = self.of(seen.cluster)
        linked = tuple(self.linked(image, seen.resource, seen.document))
        put = image.drop if seen.change is Change.DELETED else image.put
        if not put(seen.resource, seen.document):
            return Taken(linked)
        if seen.resource == r.WORKLOAD:
            return Taken((*linked, *self._of_workload(seen.document)))
        if seen.resource in self._adapters.resources:
            return Taken((*linked, *image.workloads_of(seen.document)))
        return Taken(linked, is_of_connections=True)

    def linked(self, image: Image, resource: Resource, document: Document) -> Iterable[str]:
        """Workloads that a job was linked to so far; an elastic one goes from slice to slice."""
        if resource not in self._adapters.resources:
            return ()
        known = image.get(resource, object_key(document))
        return image.workloads_of(known) if known is not None else ()

    def _of_workload(self, document: Document) -> Iterator[str]:
        yield object_key(document)
        annotations = annotations_of(document)
        if annotations.get(labels.SLICE_OF):
            yield annotations[labels.SLICE_OF]
        if labels.COMPONENT_INDEX in annotations:
            owner = self._manager.owner_of(document)
            yield from self._manager.workloads_of(owner) if owner is not None else ()
