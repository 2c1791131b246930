"""Takes API documents in, kind by kind, and tells the cluster state what they mean.

Level-triggered: a document that says nothing new changes nothing. Each document is read whole
before anything changes: one that cannot be read leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from clusters.documents import labels
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.quota.specifications import (
    CheckSpec,
    ClusterQueueSpec,
    CohortSpec,
    FlavorSpec,
    LocalQueueSpec,
    parse_check,
    parse_cluster_queue,
    parse_cohort,
    parse_flavor,
    parse_local_queue,
)
from clusters.kueue.workload.requests import parse_bounds
from clusters.kueue.workload.workloads import Workload

Document = Mapping[str, Any]


class Unreadable(ValueError):
    """A document that no API server of this version would have let in; it changed nothing."""


class _Kind(NamedTuple):
    """How objects of one kind are read, taken in and forgotten."""

    read: Callable[[Document], Any]
    set: Callable[[Any, datetime], None]
    delete: Callable[[str, datetime], None]


class Intake:
    """Reads documents into a cluster state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._kinds: Mapping[str, _Kind] = {
            "ResourceFlavor": _Kind(parse_flavor, self._set_flavor, self._delete_flavor),
            "AdmissionCheck": _Kind(parse_check, self._set_check, self._delete_check),
            "Cohort": _Kind(parse_cohort, self._set_cohort, self._delete_cohort),
            "ClusterQueue": _Kind(
                parse_cluster_queue, self._set_cluster_queue, self._delete_cluster_queue
            ),
            "Namespace": _Kind(_namespace, self._set_namespace, self._delete_namespace),
            "LimitRange": _Kind(_limit_range, self._set_limit_range, self._delete_limit_range),
            "RuntimeClass": _Kind(
                _runtime_class, self._set_runtime_class, self._delete_runtime_class
            ),
            "WorkloadPriorityClass": _Kind(
                _priority_class, self._set_priority_class, self._delete_priority_class
            ),
            "LocalQueue": _Kind(parse_local_queue, self._set_local_queue, self._delete_local_queue),
            "Workload": _Kind(state.read_workload, self._set_workload, self._delete_workload),
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that are understood, in the order in which a first feed saves most work."""
        return tuple(self._kinds)

    def upsert(self, document: Document, *, kind: str, now: datetime) -> None:
        """Take in the current version of an object.

        Raises:
            KeyError: the kind is unknown.
            Unreadable: the document is malformed.
        """
        known = self._kinds[kind]
        try:
            found = known.read(document)
        except Exception as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error
        known.set(found, now)

    def delete(self, kind: str, *, key: str, now: datetime) -> None:
        """Forget an object; raises ``KeyError`` for an unknown kind."""
        self._kinds[kind].delete(key, now)

    def _set_flavor(self, spec: FlavorSpec, now: datetime) -> None:
        flavors = self._state.snapshot.flavors
        if flavors.get(spec.name) != spec:
            flavors[spec.name] = spec
            self._state.flavors_changed()

    def _delete_flavor(self, key: str, now: datetime) -> None:
        if self._state.snapshot.flavors.pop(key, None) is not None:
            self._state.flavors_changed()

    def _set_check(self, spec: CheckSpec, now: datetime) -> None:
        if self._state.checks.get(spec.name) != spec:
            self._state.checks[spec.name] = spec
            self._state.checks_changed()

    def _delete_check(self, key: str, now: datetime) -> None:
        if self._state.checks.pop(key, None) is not None:
            self._state.checks_changed()

    def _set_cohort(self, spec: CohortSpec, now: datetime) -> None:
        self._state.set_cohort(spec)

    def _delete_cohort(self, key: str, now: datetime) -> None:
        before = self._state.snapshot.cohorts.get(key)
        if before is not None and before.spec.parent:
            self._state.wake_cohort(before.spec.parent)
        self._state.wake_cohort(key)
        self._state.snapshot.delete_cohort(key)

    def _set_cluster_queue(self, spec: ClusterQueueSpec, now: datetime) -> None:
        self._state.set_queue(spec, now=now)

    def _delete_cluster_queue(self, key: str, now: datetime) -> None:
        self._state.wake_tree_of(key)
        self._state.snapshot.delete_queue(key)
        self._state.queues.delete_queue(key, now=now)

    def _set_local_queue(self, spec: LocalQueueSpec, now: datetime) -> None:
        self._state.queues.set_local_queue(spec, now=now)

    def _delete_local_queue(self, key: str, now: datetime) -> None:
        self._state.queues.delete_local_queue(key, now=now)

    def _set_namespace(self, read: tuple[str, dict[str, str]], now: datetime) -> None:
        name, marks = read
        if self._state.namespaces.get(name) != marks:
            self._state.namespaces[name] = marks
            self._state.wake_all()

    def _delete_namespace(self, key: str, now: datetime) -> None:
        self._state.namespaces.pop(key, None)

    def _set_priority_class(self, read: tuple[str, int], now: datetime) -> None:
        name, value = read
        self._state.priority_classes[name] = value

    def _delete_priority_class(self, key: str, now: datetime) -> None:
        self._state.priority_classes.pop(key, None)

    def _set_limit_range(self, read: tuple[str, str, Document], now: datetime) -> None:
        if self._state.surroundings.set_limit_range(*read):
            self._state.surroundings_changed(now)

    def _delete_limit_range(self, key: str, now: datetime) -> None:
        namespace, _, name = key.partition("/")
        if self._state.surroundings.set_limit_range(namespace, name, None):
            self._state.surroundings_changed(now)

    def _set_runtime_class(self, read: tuple[str, Document | None], now: datetime) -> None:
        if self._state.surroundings.set_overhead(*read):
            self._state.surroundings_changed(now)

    def _delete_runtime_class(self, key: str, now: datetime) -> None:
        if self._state.surroundings.set_overhead(key, None):
            self._state.surroundings_changed(now)

    def _set_workload(self, workload: Workload, now: datetime) -> None:
        self._state.set_workload(workload, now=now)

    def _delete_workload(self, key: str, now: datetime) -> None:
        self._state.delete_workload(key)


def _namespace(document: Document) -> tuple[str, dict[str, str]]:
    metadata = document["metadata"]
    name = metadata["name"]
    return name, {labels.NAMESPACE_NAME: name, **(metadata.get("labels") or {})}


def _limit_range(document: Document) -> tuple[str, str, Document]:
    parse_bounds([document])
    return document["metadata"].get("namespace", ""), document["metadata"]["name"], document


def _runtime_class(document: Document) -> tuple[str, Document | None]:
    return document["metadata"]["name"], (document.get("overhead") or {}).get("podFixed")


def _priority_class(document: Document) -> tuple[str, int]:
    return document["metadata"]["name"], int(document.get("value") or 0)
