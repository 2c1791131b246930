"""An explanation straight from a cluster: lists its objects once, decides on paper, writes nothing.

For an operator whose portal is away, or who has none. Needs only the right to list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from clusters.documents.keys import Document, key_of
from clusters.errors import Forbidden, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.why import explain
from clusters.reconcile.explained.reporter import evidence_of
from clusters.reconcile.warm_engine import OPTIONAL_KINDS, PLACEMENT_KINDS, engine_kinds

MOST_CYCLES: Final = 200


@dataclass(frozen=True, slots=True)
class OneOff:
    """What the engine says of one workload.

    Attributes:
        key: ``namespace/name`` of the Workload.
        evidence: As ``PendingReason`` stores it; None for one that does not wait.
        would_start: It has no quota on the cluster, and the engine gives it some at once.
    """

    key: str
    evidence: Mapping[str, Any] | None
    would_start: bool = False


def explain_once(
    client: KubeClient,
    key: str,
    *,
    configuration: Mapping[str, Any] | None = None,
    now: datetime,
) -> OneOff:
    """Say why a Workload waits.

    Args:
        client: Of the cluster.
        key: ``namespace/name`` of a Workload, or of its Job.
        configuration: The Kueue Configuration that holds there; None for the defaults.
        now: UTC.

    Raises:
        NotFound: There is no such Workload, and no Workload of such a Job.
        ClusterError: The cluster cannot be read.
        ValueError: An object cannot be read.
    """
    engine = Engine(configuration or None)
    documents: dict[str, Document] = {}
    for resource in engine_kinds(engine.configuration):
        try:
            found = client.list(resource).items
        except (Forbidden, NotFound):
            if resource not in OPTIONAL_KINDS:
                raise
            continue
        for document in found:
            engine.upsert(document, kind=resource.kind, now=now)
            if resource is r.WORKLOAD:
                documents[key_of(document)] = document
    if any(flavor.topology for flavor in engine.state.snapshot.flavors.values()):
        for resource, selection in PLACEMENT_KINDS:
            for document in client.list(resource, selection).items:
                engine.upsert(document, kind=resource.kind, now=now)
    name = _workload_of(key, documents)
    _settle(engine, now=now)
    explanation = explain(engine, name, now=now)
    has_quota = bool((documents[name].get("status") or {}).get("admission"))
    is_reserved = engine.state.snapshot.holding(name) is not None
    if is_reserved and not has_quota:
        return OneOff(name, None, would_start=True)
    if explanation is None:
        return OneOff(name, None)
    return OneOff(name, evidence_of(explanation, documents[name]))


def _workload_of(key: str, documents: Mapping[str, Document]) -> str:
    """The Workload that is meant: of that name, else the newest of a Job of that name."""
    if key in documents:
        return key
    namespace, _, name = key.partition("/")
    owned = [
        (str(document["metadata"].get("creationTimestamp") or ""), found)
        for found, document in documents.items()
        if document["metadata"].get("namespace") == namespace
        and any(
            owner.get("name") == name for owner in document["metadata"].get("ownerReferences") or ()
        )
    ]
    if not owned:
        raise NotFound(f"There is no Workload {key} on the cluster, and none of a Job {key}.")
    return max(owned)[1]


def _settle(engine: Engine, *, now: datetime) -> None:
    """Look at everything that waits, without letting anything stop."""
    looked_at: set[str] = set()
    for _ in range(MOST_CYCLES):
        result = engine.cycle(now)
        keys = {item.key for item in result.pending}
        if not result.heads or (not result.has_moved and keys <= looked_at):
            return
        looked_at |= keys
