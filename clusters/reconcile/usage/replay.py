"""What happened between two shifts, as far as the API server still remembers it.

A watch from where the last shift ended tells all of it in order, also what came and went meanwhile
and is in no list any more. When it happened is not told: a state is taken to be as old as the
newest time in it, so that nothing lasts longer than the object itself proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from clusters.documents.keys import Document
from clusters.errors import Gone
from clusters.kube.client import KubeClient, WatchOptions
from clusters.kube.resources import WORKLOAD
from clusters.kube.stream import WatchType
from clusters.reconcile.usage.observed import Observation, Type

READ_S: Final = 1
"""The server ends the watch after so long; what it remembers comes first, and at once."""


def replay(client: KubeClient, *, since: str, now: datetime) -> list[Observation] | None:
    """Every state since a resourceVersion, in order; None where it is forgotten.

    Args:
        client: The cluster.
        since: Up to here all was told.
        now: By the cluster's clock, whole seconds; nothing is later.

    Raises:
        ClusterError: the cluster did not tell.
    """
    options = WatchOptions(resource_version=since, timeout_s=READ_S, idle_timeout_s=READ_S + 10)
    found: list[Observation] = []
    try:
        with client.watch(WORKLOAD, options=options) as stream:
            for event in stream:
                if event.type is WatchType.BOOKMARK:
                    continue
                kind = Type.DELETED if event.type is WatchType.DELETED else Type.SEEN
                at = min(now, max(_times(event.document), default=now))
                found.append(Observation(kind, event.document, at, after_gap=True))
    except Gone:
        return None
    return found


def _times(document: Document) -> Iterator[datetime]:
    metadata, status = document["metadata"], document.get("status") or {}
    for text in (
        metadata.get("creationTimestamp"),
        metadata.get("deletionTimestamp"),
        *(row.get("time") for row in _rows(metadata.get("managedFields"))),
        *(row.get("lastTransitionTime") for row in _rows(status.get("conditions"))),
    ):
        try:
            at = datetime.fromisoformat(str(text))
        except ValueError:
            continue
        if at.tzinfo is not None:
            yield at.astimezone(UTC).replace(microsecond=0)


def _rows(value: object) -> Iterator[Document]:
    yield from (row for row in value if isinstance(row, dict)) if isinstance(value, list) else ()
