"""Takes API documents in, kind by kind, and tells the cluster state what they mean.

Level-triggered: a document that says nothing new changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.quota.specifications import (
    parse_check,
    parse_cluster_queue,
    parse_cohort,
    parse_flavor,
    parse_local_queue,
)

Document = Mapping[str, Any]


class Intake:
    """Reads documents into a cluster state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._setters: Mapping[str, Callable[[Document, datetime], None]] = {
            "ResourceFlavor": self._set_flavor,
            "AdmissionCheck": self._set_check,
            "Cohort": self._set_cohort,
            "ClusterQueue": self._set_cluster_queue,
            "Namespace": self._set_namespace,
            "LimitRange": self._set_limit_range,
            "RuntimeClass": self._set_runtime_class,
            "WorkloadPriorityClass": self._set_priority_class,
            "LocalQueue": self._set_local_queue,
            "Workload": self._set_workload,
        }
        self._removers: Mapping[str, Callable[[str, datetime], None]] = {
            "ResourceFlavor": self._delete_flavor,
            "AdmissionCheck": self._delete_check,
            "Cohort": self._delete_cohort,
            "ClusterQueue": self._delete_cluster_queue,
            "Namespace": self._delete_namespace,
            "LimitRange": self._delete_limit_range,
            "RuntimeClass": self._delete_runtime_class,
            "WorkloadPriorityClass": self._delete_priority_class,
            "LocalQueue": self._delete_local_queue,
            "Workload": self._delete_workload,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that are understood, in the order in which a first feed saves most work."""
        return tuple(self._setters)

    def upsert(self, document: Document, *, kind: str, now: datetime) -> None:
        """Take in the current version of an object; raises ``KeyError`` for an unknown kind."""
        self._setters[kind](document, now)

    def delete(self, kind: str, *, key: str, now: datetime) -> None:
        """Forget an object; raises ``KeyError`` for an unknown kind."""
        self._removers[kind](key, now)

    def _set_flavor(self, document: Document, now: datetime) -> None:
        flavors, spec = self._state.snapshot.flavors, parse_flavor(document)
        if flavors.get(spec.name) != spec:
            flavors[spec.name] = spec
            self._state.flavors_changed()

    def _delete_flavor(self, key: str, now: datetime) -> None:
        if self._state.snapshot.flavors.pop(key, None) is not None:
            self._state.flavors_changed()

    def _set_check(self, document: Document, now: datetime) -> None:
        spec = parse_check(document)
        if self._state.checks.get(spec.name) != spec:
            self._state.checks[spec.name] = spec
            self._state.checks_changed()

    def _delete_check(self, key: str, now: datetime) -> None:
        if self._state.checks.pop(key, None) is not None:
            self._state.checks_changed()

    def _set_cohort(self, document: Document, now: datetime) -> None:
        self._state.set_cohort(parse_cohort(document))

    def _delete_cohort(self, key: str, now: datetime) -> None:
        before = self._state.snapshot.cohorts.get(key)
        if before is not None and before.spec.parent:
            self._state.wake_cohort(before.spec.parent)
        self._state.wake_cohort(key)
        self._state.snapshot.delete_cohort(key)

    def _set_cluster_queue(self, document: Document, now: datetime) -> None:
        self._state.set_queue(parse_cluster_queue(document), now=now)

    def _delete_cluster_queue(self, key: str, now: datetime) -> None:
        self._state.wake_tree_of(key)
        self._state.snapshot.delete_queue(key)
        self._state.queues.delete_queue(key, now=now)

    def _set_local_queue(self, document: Document, now: datetime) -> None:
        self._state.queues.set_local_queue(parse_local_queue(document), now=now)

    def _delete_local_queue(self, key: str, now: datetime) -> None:
        self._state.queues.delete_local_queue(key, now=now)

    def _set_namespace(self, document: Document, now: datetime) -> None:
        metadata, namespaces = document["metadata"], self._state.namespaces
        name = metadata["name"]
        labels = {"kubernetes.io/metadata.name": name, **(metadata.get("labels") or {})}
        if namespaces.get(name) != labels:
            namespaces[name] = labels
            self._state.wake_all()

    def _delete_namespace(self, key: str, now: datetime) -> None:
        self._state.namespaces.pop(key, None)

    def _set_priority_class(self, document: Document, now: datetime) -> None:
        name = document["metadata"]["name"]
        self._state.priority_classes[name] = int(document.get("value") or 0)

    def _delete_priority_class(self, key: str, now: datetime) -> None:
        self._state.priority_classes.pop(key, None)

    def _set_limit_range(self, document: Document, now: datetime) -> None:
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "")
        if self._state.surroundings.set_limit_range(namespace, metadata["name"], document):
            self._state.surroundings_changed(now)

    def _delete_limit_range(self, key: str, now: datetime) -> None:
        namespace, _, name = key.partition("/")
        if self._state.surroundings.set_limit_range(namespace, name, None):
            self._state.surroundings_changed(now)

    def _set_runtime_class(self, document: Document, now: datetime) -> None:
        overhead = (document.get("overhead") or {}).get("podFixed")
        if self._state.surroundings.set_overhead(document["metadata"]["name"], overhead):
            self._state.surroundings_changed(now)

    def _delete_runtime_class(self, key: str, now: datetime) -> None:
        if self._state.surroundings.set_overhead(key, None):
            self._state.surroundings_changed(now)

    def _set_workload(self, document: Document, now: datetime) -> None:
        self._state.set_workload(document, now=now)

    def _delete_workload(self, key: str, now: datetime) -> None:
        self._state.delete_workload(key)
