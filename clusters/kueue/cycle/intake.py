"""Takes API documents in, kind by kind, and tells the cluster state what they mean.

Level-triggered: a document that says nothing new changes nothing. Each document is read whole
before anything changes: one that cannot be read leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from clusters.documents import labels
from clusters.documents.keys import Document, key_of
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.cycle.topology_feed import set_node, set_pod, set_topology
from clusters.kueue.quota.specifications import (
    LocalQueueSpec,
    parse_check,
    parse_cluster_queue,
    parse_cohort,
    parse_flavor,
    parse_local_queue,
)
from clusters.kueue.quota.usage_ledger import QueueShare, parse_share
from clusters.kueue.topology.nodes import parse_node, parse_pod, parse_topology
from clusters.kueue.workload.requests import parse_bounds


class UnreadableDocument(ValueError):
    """A document that no API server of this version would have let in; it changed nothing."""


class _Kind(NamedTuple):
    """How objects of one kind are read, taken in and forgotten."""

    read: Callable[[Document], Any]
    set: Callable[[Any, datetime], None]
    delete: Callable[[str, datetime], None]


class Intake:
    """Reads documents into a cluster state."""

    def __init__(self, state: ClusterState) -> None:
        queues, around = state.queues, state.surroundings

        def reshape(has_changed: bool, now: datetime) -> None:
            if has_changed:
                state.surroundings_changed(now)

        def set_local_queue(read: tuple[LocalQueueSpec, QueueShare], now: datetime) -> None:
            spec, share = read
            state.ledger.set_share(spec.key, share)
            queues.set_local_queue(spec, now=now)

        def delete_local_queue(key: str, now: datetime) -> None:
            state.ledger.forget(key)
            queues.delete_local_queue(key, now=now)

        self._kinds: Mapping[str, _Kind] = {
            "ResourceFlavor": _noted(
                _named(parse_flavor),
                state.snapshot.flavors,
                changed=state.activity_changed,
                gone=state.activity_changed,
            ),
            "AdmissionCheck": _noted(
                _named(parse_check),
                state.checks,
                changed=state.activity_changed,
                gone=state.activity_changed,
            ),
            "Cohort": _Kind(
                parse_cohort,
                lambda spec, now: state.set_cohort(spec),
                lambda key, now: state.delete_cohort(key),
            ),
            "ClusterQueue": _Kind(
                parse_cluster_queue,
                lambda spec, now: state.set_queue(spec, now=now),
                lambda key, now: state.delete_queue(key, now=now),
            ),
            "Namespace": _noted(_namespace, state.namespaces, changed=state.wake_all),
            "LimitRange": _Kind(
                _limit_range,
                lambda read, now: reshape(around.set_limit_range(*read), now),
                lambda key, now: reshape(around.set_limit_range(key, None), now),
            ),
            "RuntimeClass": _Kind(
                _runtime_class,
                lambda read, now: reshape(around.set_overhead(*read), now),
                lambda key, now: reshape(around.set_overhead(key, None), now),
            ),
            "Topology": _Kind(
                parse_topology,
                lambda read, now: set_topology(state, *read),
                lambda key, now: set_topology(state, key, None),
            ),
            "Node": _Kind(
                parse_node,
                lambda spec, now: set_node(state, spec.name, spec),
                lambda key, now: set_node(state, key, None),
            ),
            "Pod": _Kind(
                parse_pod,
                lambda use, now: set_pod(state, use.key, use),
                lambda key, now: set_pod(state, key, None),
            ),
            "WorkloadPriorityClass": _noted(_priority_class, state.priority_classes),
            "LocalQueue": _Kind(
                _local_queue,
                set_local_queue,
                delete_local_queue,
            ),
            "Workload": _Kind(
                state.read_workload,
                lambda workload, now: state.set_workload(workload, now=now),
                lambda key, now: state.delete_workload(key),
            ),
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that are understood, in the order in which a first feed saves most work."""
        return tuple(self._kinds)

    def upsert(self, document: Document, *, kind: str, now: datetime) -> None:
        """Take in the current version of an object.

        Raises:
            KeyError: the kind is unknown.
            UnreadableDocument: the document is malformed.
        """
        known = self._kinds[kind]
        try:
            found = known.read(document)
        except Exception as error:
            raise UnreadableDocument(f"{type(error).__name__}: {error}") from error
        known.set(found, now)

    def delete(self, kind: str, *, key: str, now: datetime) -> None:
        """Forget an object; raises ``KeyError`` for an unknown kind."""
        self._kinds[kind].delete(key, now)


def _noted(
    read: Callable[[Document], tuple[str, Any]],
    known: dict[str, Any],
    *,
    changed: Callable[[], None] | None = None,
    gone: Callable[[], None] | None = None,
) -> _Kind:
    """Objects of which one value each is noted by name; tells when one changed or is gone."""

    def note(found: tuple[str, Any], now: datetime) -> None:
        name, value = found
        if known.get(name) != value:
            known[name] = value
            if changed is not None:
                changed()

    def forget(key: str, now: datetime) -> None:
        if known.pop(key, None) is not None and gone is not None:
            gone()

    return _Kind(read, note, forget)


def _named(parse: Callable[[Document], Any]) -> Callable[[Document], tuple[str, Any]]:
    def read(document: Document) -> tuple[str, Any]:
        spec = parse(document)
        return spec.name, spec

    return read


def _namespace(document: Document) -> tuple[str, dict[str, str]]:
    metadata = document["metadata"]
    name = metadata["name"]
    return name, {labels.NAMESPACE_NAME: name, **(metadata.get("labels") or {})}


def _local_queue(document: Document) -> tuple[LocalQueueSpec, QueueShare]:
    return parse_local_queue(document), parse_share(document)


def _limit_range(document: Document) -> tuple[str, Document]:
    parse_bounds([document])
    return key_of(document), document


def _runtime_class(document: Document) -> tuple[str, Document | None]:
    return document["metadata"]["name"], (document.get("overhead") or {}).get("podFixed")


def _priority_class(document: Document) -> tuple[str, int]:
    return document["metadata"]["name"], int(document.get("value") or 0)
