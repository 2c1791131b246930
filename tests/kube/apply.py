"""Server-side apply of several documents in an order that holds, and pruning of what is left over.

Every write is preceded by the fence: a function that raises when the writer's lease is not certain
any more. What one object refuses does not stop the others; a cluster that is gone stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from clusters.errors import ClusterError, LeaseLost, Unreachable
from clusters.kube.client import DeleteOptions, KubeClient, Selection, WriteOptions, delete_exactly
from clusters.kube.resources import NAMESPACE, Document, Resource
from tests.resources import ALL, resource_of

Fence = Callable[[], None]
WRITE = WriteOptions()
PRUNE = DeleteOptions()
_ORDER = {resource: rank for rank, resource in enumerate(ALL)}


def no_fence() -> None:
    """For single writes of a person's own doing, where no lease is held."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """One object on a cluster; `namespace` is empty for cluster-scoped kinds."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource.kind} {place}"


@dataclass(frozen=True, slots=True)
class Applied:
    """An object as the cluster holds it after the write."""

    key: ObjectKey
    document: Document = field(repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """An object that could not be written, and why."""

    key: ObjectKey
    error: ClusterError


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What became of each document; `skipped` were not tried because the cluster was gone."""

    applied: tuple[Applied, ...]
    failed: tuple[Failed, ...]
    skipped: tuple[ObjectKey, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failed and not self.skipped


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was deleted (or is being deleted, where finalizers hold it), and what could not be."""

    deleted: tuple[ObjectKey, ...]
    failed: tuple[Failed, ...]


def key_of(document: Document) -> ObjectKey:
    """The key of a document.

    Raises:
        LookupError: of a kind that the portal does not handle.
    """
    metadata = document["metadata"]
    return ObjectKey(resource_of(document), metadata.get("namespace", ""), metadata["name"])


def apply_documents(
    client: KubeClient,
    documents: Iterable[Document],
    *,
    options: WriteOptions = WRITE,
    fence: Fence = no_fence,
) -> ApplyReport:
    """Applies documents in kind order, what others refer to first.

    Args:
        client: the cluster.
        documents: each everything that this field manager wants of its object.
        options: field manager, force, dry run.
        fence: called right before each write.

    Raises:
        LeaseLost: by the fence; nothing was written after it.
    """
    pairs = sorted(
        ((key_of(document), document) for document in documents),
        key=lambda pair: _ORDER[pair[0].resource],
    )
    applied: list[Applied] = []
    failed: list[Failed] = []
    for index, (key, document) in enumerate(pairs):
        fence()
        try:
            applied.append(Applied(key, client.apply(key.resource, document, options=options)))
        except LeaseLost:
            raise
        except ClusterError as error:
            failed.append(Failed(key, error))
            if isinstance(error, Unreachable):
                rest = tuple(key for key, _ in pairs[index + 1 :])
                return ApplyReport(tuple(applied), tuple(failed), rest)
    return ApplyReport(tuple(applied), tuple(failed))


def prune(
    client: KubeClient,
    resources: Sequence[Resource],
    *,
    labels: str,
    keep: Collection[ObjectKey],
    fence: Fence = no_fence,
    options: DeleteOptions = PRUNE,
) -> PruneReport:
    """Deletes the objects that carry the labels and are not to be kept, dependents first.

    Each deletion is bound to the very object that was listed (uid and resourceVersion), so one that
    changed hands in between stays. `labels` selects what is ours; of `options` propagation and dry
    run count.

    Raises:
        ValueError: without labels, or asked to delete Namespaces.
        LeaseLost: by the fence; nothing was deleted after it.
        ClusterError: a list could not be read.
    """
    if not labels:
        raise ValueError("pruning without a label selector would delete what is not ours")
    if NAMESPACE in resources:
        raise ValueError("the portal never deletes a Namespace")
    kept = frozenset(keep)
    deleted: list[ObjectKey] = []
    failed: list[Failed] = []
    for resource in sorted(resources, key=_ORDER.__getitem__, reverse=True):
        for document in client.list(resource, Selection(labels=labels)).items:
            metadata = document["metadata"]
            key = ObjectKey(resource, metadata.get("namespace", ""), metadata["name"])
            if key in kept or "deletionTimestamp" in metadata:
                continue
            fence()
            try:
                delete_exactly(client, key.resource, document, options=options)
                deleted.append(key)
            except ClusterError as error:
                failed.append(Failed(key, error))
    return PruneReport(tuple(deleted), tuple(failed))
