"""Recorded events out of the table, read as the ledger knows them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import structlog
from django.db.models import TextField
from django.db.models.functions import Cast
from msgspec.structs import replace

from budgets import intervals as ledger
from budgets.models.reading import read_rows
from budgets.services.usage.rows import among
from budgets.units import ClusterName, WorkloadUid
from clusters.models import WorkloadEvent
from clusters.reconcile.usage.states import Recorded

log = structlog.stdlib.get_logger(__name__)

EVENT_FIELDS = (
    "pk",
    "cluster",
    "uid",
    "resource_version",
    "type",
    "observed_at",
    "last_seen_at",
    Cast("payload", TextField()),
)
UIDS_AT_ONCE = 5_000
"""Keys in one question; SQLite bounds its parameters."""
TYPES = {kind.value: kind for kind in WorkloadEvent.Type}
LEDGER_TYPES = {kind.value: kind for kind in ledger.EventType}

Place = tuple[str, str]
"""(cluster, uid)"""


class EventReader:
    """Reads recorded events, each once: an event never changes, so what was read stays true.

    Args:
        gpu_resources: Device resources that flavors count.
        alone: Single clusters: nothing there is a copy, whatever mark it has.
    """

    def __init__(self, gpu_resources: frozenset[str], *, alone: frozenset[str]) -> None:
        self._gpu_resources, self._alone = gpu_resources, alone
        self._read: dict[int, Recorded | None] = {}
        self._before: dict[Place, ledger.Read] = {}

    def all_of(self, places: Collection[Place]) -> dict[Place, list[Recorded]]:
        """All events of some Workloads, oldest first, as they stand in the table now.

        What cannot be read is reported and left out; a Workload without events is not named.
        """
        by_cluster: dict[str, list[str]] = {}
        for cluster, uid in sorted(places):
            by_cluster.setdefault(cluster, []).append(uid)
        keys: list[int] = []
        for cluster, uids in by_cluster.items():
            for at in range(0, len(uids), UIDS_AT_ONCE):
                keys += self._keys_of(cluster, uids[at : at + UIDS_AT_ONCE])
        found: dict[Place, list[Recorded]] = {}
        for key in sorted(keys):
            event = self._read[key]
            if event is not None:
                found.setdefault((event.seen.cluster, event.seen.uid), []).append(event)
        return found

    def _keys_of(self, cluster: str, uids: Collection[str]) -> list[int]:
        # Both columns, or the index is of no use.
        rows = WorkloadEvent.objects.filter(among("uid", uids), cluster=cluster, kind="Workload")
        if not self._read:
            # In the order of the index, a Workload's states after each other.
            found = rows.order_by().values_list(*EVENT_FIELDS)
            return [self._take(row) for row in read_rows(found)]
        keys = list(rows.order_by().values_list("pk", flat=True))
        new = [key for key in keys if key not in self._read]
        for at in range(0, len(new), UIDS_AT_ONCE):
            part = WorkloadEvent.objects.filter(among("pk", new[at : at + UIDS_AT_ONCE]))
            for row in read_rows(part.order_by("pk").values_list(*EVENT_FIELDS)):
                self._take(row)
        return keys

    def _take(self, row: tuple[Any, ...]) -> int:
        pk, cluster, uid, version, kind, observed, last, payload = row
        place = cluster, uid
        try:
            read = ledger.read_payload(
                payload, gpu_resources=self._gpu_resources, before=self._before.get(place)
            )
            completed_at = read.completed_at
        except ledger.BadDocument as error:
            log.error("workload_unreadable", cluster=cluster, uid=uid, change=pk, error=error)
            self._read[pk] = None
            return int(pk)
        self._before[place] = read
        seen = ledger.WorkloadEvent(
            cluster=ClusterName(cluster),
            uid=WorkloadUid(uid),
            resource_version=version,
            observed_at=observed,
            type=LEDGER_TYPES[kind],
            facts=replace(read.facts, origin="") if cluster in self._alone else read.facts,
            last_seen_at=last,
            completed_at=completed_at,
            after_gap=read.after_gap,
        )
        self._read[pk] = Recorded(pk=pk, type=TYPES[kind], payload=payload, seen=seen)
        return int(pk)
