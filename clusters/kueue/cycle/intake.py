"""Takes API documents in, kind by kind, and tells the cluster state what they mean.

Level-triggered: a document that says nothing new changes nothing. Each document is read whole
before anything changes: one that cannot be read leaves everything as it was.

Source: of topologies, nodes and pods, Kueue pkg/controller/tas, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from clusters.documents import labels
from clusters.documents.keys import Document, key_of
from clusters.kueue.cycle.cluster_state import ClusterState
from clusters.kueue.quota.specifications import (
    LocalQueueSpec,
    parse_check,
    parse_cluster_queue,
    parse_cohort,
    parse_flavor,
    parse_local_queue,
)
from clusters.kueue.quota.usage_ledger import QueueShare, parse_share
from clusters.kueue.topology.nodes import NodeSpec, PodUse, parse_node, parse_pod, parse_topology
from clusters.kueue.workload.devices import (
    ClaimTemplate,
    parse_claim_template,
    parse_device_class,
)
from clusters.kueue.workload.requests import parse_bounds


class UnreadableDocument(ValueError):
    """A document that no API server of this version would have let in; it changed nothing."""


_Put: TypeAlias = Callable[[str, Any, datetime], None]
"""Takes in what an object of some name says."""


class _Kind(NamedTuple):
    """How objects of one kind are read, taken in and forgotten."""

    read: Callable[[Document], Any]
    set: Callable[[Any, datetime], None]
    delete: Callable[[str, datetime], None]


class Intake:
    """Reads documents into a cluster state."""

    def __init__(self, state: ClusterState) -> None:
        queues, around = state.queues, state.surroundings
        activity = {"changed": state.activity_changed, "gone": state.activity_changed}

        def reshaping(put: Callable[[str, Any], bool]) -> _Put:
            def reshape(key: str, value: Any, now: datetime) -> None:
                if put(key, value):
                    state.surroundings_changed(now)

            return reshape

        def placing(put: Callable[[ClusterState, str, Any], None]) -> _Put:
            return lambda key, value, now: put(state, key, value)

        def set_local_queue(read: tuple[LocalQueueSpec, QueueShare], now: datetime) -> None:
            spec, share = read
            state.ledger.set_share(spec.key, share)
            queues.set_local_queue(spec, now=now)

        def delete_local_queue(key: str, now: datetime) -> None:
            state.ledger.forget(key)
            queues.delete_local_queue(key, now=now)

        self._kinds: Mapping[str, _Kind] = {
            "ResourceFlavor": _noted(_named(parse_flavor), state.snapshot.flavors, **activity),
            "AdmissionCheck": _noted(_named(parse_check), state.checks, **activity),
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
            "LimitRange": _replaced(_limit_range, reshaping(around.set_limit_range)),
            "RuntimeClass": _replaced(_runtime_class, reshaping(around.set_overhead)),
            "DeviceClass": _replaced(
                parse_device_class,
                lambda name, found, now: state.set_device_class(name, found, now=now),
            ),
            "ResourceClaimTemplate": _replaced(
                _claim_template,
                lambda key, template, now: state.set_template(key, template, now=now),
            ),
            "Topology": _replaced(parse_topology, placing(_set_topology)),
            "Node": _replaced(_named(parse_node), placing(_set_node)),
            "Pod": _replaced(_pod, placing(_set_pod)),
            "WorkloadPriorityClass": _noted(_priority_class, state.priority_classes),
            "LocalQueue": _Kind(_local_queue, set_local_queue, delete_local_queue),
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


def _replaced(read: Callable[[Document], tuple[str, Any]], put: _Put) -> _Kind:
    """Objects of which one value each is put in place by name, ``None`` for one that is gone."""
    return _Kind(
        read,
        lambda found, now: put(found[0], found[1], now),
        lambda key, now: put(key, None, now),
    )


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


def _claim_template(document: Document) -> tuple[str, ClaimTemplate]:
    return key_of(document), parse_claim_template(document)


def _pod(document: Document) -> tuple[str, PodUse]:
    use = parse_pod(document)
    return use.key, use


def _priority_class(document: Document) -> tuple[str, int]:
    return document["metadata"]["name"], int(document.get("value") or 0)


def _set_topology(state: ClusterState, name: str, levels: tuple[str, ...] | None) -> None:
    """Note a topology, ``None`` for one that is gone."""
    known = state.snapshot.places.topologies
    if known.get(name) == levels:
        return
    if levels is None:
        del known[name]
    else:
        known[name] = levels
    state.activity_changed()
    state.revision += 1


def _set_node(state: ClusterState, name: str, spec: NodeSpec | None) -> None:
    """Note a node, ``None`` for one that is gone; what waits may fit now."""
    if state.snapshot.places.set_node(name, spec):
        state.wake_active()
        state.revision += 1


def _set_pod(state: ClusterState, key: str, use: PodUse | None) -> None:
    """Note a pod, ``None`` for one that is gone; what waits for its node may fit now."""
    places = state.snapshot.places
    node = places.set_pod(key, use)
    freed = frozenset(places.flavors_of(node)) if node else frozenset()
    for name, queue in state.snapshot.queues.items() if freed else ():
        if any(not freed.isdisjoint(group.flavors) for group in queue.spec.groups):
            state.wake(name)
            state.revision += 1
