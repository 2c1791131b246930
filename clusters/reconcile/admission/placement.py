"""Nodes and pods of a cluster, for the engine that places pods and for whoever lets them go.

Nothing is watched until a flavor has a topology. Of nodes and pods only what placement reads is
kept, whatever else somebody wrote into them; pods that were placed keep what tells where they go.

Source: Kueue pkg/controller/tas/{node_controller,non_tas_usage_controller,indexer}, v0.19.2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.conditions import conditions_of
from clusters.documents.keys import (
    Document,
    annotations_of,
    identity_of,
    labels_of,
    status_of,
    without_writers,
)
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.topology.nodes import PLACED_BY_KUEUE
from clusters.reconcile.admission.node_health import nodes_of
from clusters.reconcile.admission.placed_pods import is_placed, told_node
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.runtime.cache import Cache, Effect, Index
from clusters.reconcile.runtime.watches import Change, Seen, Sink, Watches
from clusters.reconcile.warm_engine import PLACEMENT_KINDS

LABELS_MOST: Final = 64
CONDITIONS_MOST: Final = 16
TEXT_LONGEST: Final = 253
_WORKLOAD, _TOLD, _HOST = "workload", "told", "host"
_PODS: Final = frozenset({r.POD})
_NODES: Final = frozenset({r.NODE})
_KEPT_MARKS: Final = (labels.WORKLOAD, labels.INDEX_OFFSET)
_REQUESTED: Final = ("containers", "initContainers")


@dataclass(frozen=True, slots=True)
class Placing(Seen):
    """Something about a topology, a node or a pod."""


class Placement:
    """What is known of nodes and pods.

    Args:
        context: The shift.
        tell: Takes what watches tell.

    Attributes:
        cache: Topologies, nodes and pods, as far as they are kept.
        is_wanted: There is, or was, a flavor with a topology.
        is_refused: Pods may not be told where to run.
    """

    def __init__(self, context: ShiftContext, tell: Sink) -> None:
        self._context = context
        self._watches = Watches(
            context.client,
            cluster=context.cluster.slug,
            pulse=context.pulse,
            sink=lambda seen: tell(
                Placing(seen.change, seen.cluster, seen.resource, seen.document)
            ),
        )
        self._listed: set[Resource] = set()
        self._on_node: dict[str, dict[str, None]] = {}
        self._nodes_of: dict[str, list[str]] = {}
        self.cache = Cache(
            (
                Index(_WORKLOAD, _PODS, _workload_key),
                Index(_TOLD, _PODS, _told),
                Index(_HOST, _NODES, _hostnames),
            )
        )
        self.is_wanted = self.is_refused = False

    def want(self) -> None:
        """A flavor has a topology: watch from now on."""
        if self.is_wanted:
            return
        self.is_wanted = True
        keeps = {r.NODE: kept_node, r.POD: kept_pod}
        for resource, selection in PLACEMENT_KINDS:
            keep = keeps.get(resource, without_writers)
            self._watches.add(resource, selection=selection, is_optional=True, keep=keep)

    def close(self) -> None:
        """Watch no more."""
        self._watches.close()

    def listed(self, resource: Resource) -> None:
        """All of a kind was taken in."""
        self._listed.add(resource)

    @property
    def is_missing(self) -> bool:
        """Whether a kind is not served or forbidden, or pods cannot be told where they run."""
        is_unread = self.is_wanted and not self._is_listed and bool(self._watches.missing())
        return self.is_refused or is_unread

    @property
    def is_known(self) -> bool:
        """Whether the engine has been told all that there is to tell."""
        return not self.is_wanted or self._is_listed or bool(self._watches.missing())

    @property
    def _is_listed(self) -> bool:
        return len(self._listed) == len(PLACEMENT_KINDS)

    def seen(self, effect: Effect) -> Placing | None:
        """What a write, or a reading after it, showed of a pod; None for one that is not known."""
        document, change = effect.document, Change.UPSERT
        if document is None:
            document, change = self.cache.get(r.POD, effect.key), Change.DELETED
            return None if document is None else Placing(change, effect.cluster, r.POD, document)
        return Placing(change, effect.cluster, r.POD, kept_pod(document))

    # Who is concerned

    def concerned(self, resource: Resource, document: Document) -> Iterable[str]:
        """Keys of placed Workloads that something about a node or a pod is about."""
        if resource == r.POD:
            return _workload_key(document)
        if resource != r.NODE:
            return ()
        found: set[str] = set()
        for host in (document["metadata"]["name"], *_hostnames(document)):
            found.update(self._on_node.get(host, ()))
            for pod in self.cache.found(_TOLD, host):
                found.update(_workload_key(pod))
        return found

    def follow(self, key: str, workload: Document | None) -> None:
        """Note which nodes a Workload is placed on; None for one that is gone.

        Raises:
            KeyError, ValueError: its admission cannot be read.
        """
        found = nodes_of(workload) if workload is not None and is_placed(workload) else []
        before = self._nodes_of.get(key, [])
        if found == before:
            return
        for name in before:
            there = self._on_node[name]
            there.pop(key, None)
            if not there:
                del self._on_node[name]
        for name in found:
            self._on_node.setdefault(name, {})[key] = None
        if found:
            self._nodes_of[key] = found
        else:
            self._nodes_of.pop(key, None)

    def pods_of(self, key: str) -> list[dict[str, Any]]:
        """Pods of a placed Workload, in order of their names."""
        return sorted(self.cache.found(_WORKLOAD, key), key=lambda pod: pod["metadata"]["name"])

    def nodes(self, hostname: str) -> Sequence[dict[str, Any]]:
        """Nodes that a placement means by a hostname: the one of that name, else those labelled."""
        node = self.cache.get(r.NODE, hostname)
        return self.cache.found(_HOST, hostname) if node is None else [node]

    def documents(self) -> Iterator[tuple[Resource, str, dict[str, Any]]]:
        """All that the engine reads, in the order in which it is fed best."""
        for resource, _ in PLACEMENT_KINDS:
            for key, document in self.cache.of(resource).items():
                yield resource, key, document


def kept_node(node: Document) -> dict[str, Any]:
    """What placement reads of a node."""
    spec, status = node.get("spec") or {}, status_of(node)
    ready = [item for item in conditions_of(node) if item.get("type") == "Ready"][:1]
    return {
        "metadata": {
            **identity_of(node),
            "labels": {
                sys.intern(key): sys.intern(value) for key, value in labels_of(node).items()
            },
        },
        "spec": {name: spec[name] for name in ("taints", "unschedulable") if spec.get(name)},
        "status": {
            "allocatable": {
                sys.intern(name): text for name, text in (status.get("allocatable") or {}).items()
            },
            "conditions": [
                {name: item.get(name) for name in ("type", "status", "lastTransitionTime")}
                for item in ready
            ],
        },
    }


def kept_pod(pod: Document) -> dict[str, Any]:
    """What placement reads of a pod: what it takes, or of a placed one where it goes."""
    annotations, spec = annotations_of(pod), pod.get("spec") or {}
    marks = [name for name in PLACED_BY_KUEUE if name in annotations]
    phase = status_of(pod).get("phase")
    if not marks:
        return {
            "metadata": identity_of(pod),
            "spec": {"nodeName": sys.intern(spec.get("nodeName") or ""), **_requests(spec)},
            "status": {"phase": phase},
        }
    metadata: dict[str, Any] = {**identity_of(pod), "annotations": dict.fromkeys(marks, "")}
    for name in _KEPT_MARKS:
        if name in annotations:
            metadata["annotations"][name] = annotations[name][:TEXT_LONGEST]
    metadata["labels"] = dict(list(labels_of(pod).items())[:LABELS_MOST])
    if pod["metadata"].get("deletionTimestamp"):
        metadata["deletionTimestamp"] = pod["metadata"]["deletionTimestamp"]
    fields = ("nodeName", "nodeSelector", "schedulingGates")
    return {
        "metadata": metadata,
        "spec": {name: spec[name] for name in fields if spec.get(name)},
        "status": {"phase": phase, "conditions": conditions_of(pod)[:CONDITIONS_MOST]},
    }


def _requests(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Requests of a pod; pods of one template share them."""
    kept = {
        name: [
            {field: item[field] for field in ("resources", "restartPolicy") if item.get(field)}
            for item in spec.get(name) or ()
            if item.get("resources")
        ]
        for name in _REQUESTED
        if spec.get(name)
    }
    if spec.get("overhead"):
        kept["overhead"] = spec["overhead"]
    if spec.get("resources"):
        kept["resources"] = spec["resources"]
    return _shared(json.dumps(kept, separators=(",", ":")))


@lru_cache(maxsize=4096)
def _shared(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(text)
    return found


def _workload_key(pod: Document) -> Collection[str]:
    name = annotations_of(pod).get(labels.WORKLOAD)
    return (f"{pod['metadata']['namespace']}/{name}",) if name else ()


def _hostnames(node: Document) -> Collection[str]:
    """Hostname by which placements mean a node, where that is not its name."""
    hostname = labels_of(node).get(labels.HOSTNAME)
    return (hostname,) if hostname and hostname != node["metadata"]["name"] else ()


def _told(pod: Document) -> Collection[str]:
    """Node that a placed pod was told."""
    name = told_node(pod)
    return (name,) if name else ()
