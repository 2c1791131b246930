"""Recorded events out of the table, read as the ledger knows them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast
from msgspec.structs import replace

from budgets import intervals as ledger
from budgets.models.reading import read_rows
from budgets.services.usage.rows import among
from budgets.units import ClusterName, WorkloadUid
from clusters.models import WorkloadEvent
from clusters.reconcile.usage.states import Recorded

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
LONGEST_WORDS = 200
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

    Attributes:
        unreadable: Place → what of its newest such event could not be read.
    """

    def __init__(self, gpu_resources: frozenset[str], *, alone: frozenset[str]) -> None:
        self._gpu_resources, self._alone = gpu_resources, alone
        self._read: dict[int, Recorded | None] = {}
        self._before: dict[Place, ledger.Read] = {}
        self._unread: dict[int, tuple[tuple[Any, ...], str]] = {}
        self.unreadable: dict[Place, str] = {}

    def all_of(self, places: Collection[Place]) -> dict[Place, list[Recorded]]:
        """All events of some Workloads, oldest first, as they stand in the table now.

        A time that cannot be read is when that state was first seen; what cannot be read for
        another reason is left out. Both are in ``unreadable``. A Workload without events is not
        named.
        """
        by_cluster: dict[str, list[str]] = {}
        for cluster, uid in sorted(places):
            by_cluster.setdefault(cluster, []).append(uid)
        keys: list[int] = []
        for cluster, uids in by_cluster.items():
            for at in range(0, len(uids), UIDS_AT_ONCE):
                keys += self._keys_of(cluster, uids[at : at + UIDS_AT_ONCE])
        self._read_by_sight()
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
        pk, cluster, uid, *_, payload = row
        place = cluster, uid
        try:
            read = ledger.read_payload(
                payload, gpu_resources=self._gpu_resources, before=self._before.get(place)
            )
            self._keep(row, read, read.completed_at)
        except ledger.BadDocument as error:
            self._unread[pk], self._read[pk] = (row, str(error)), None
            return int(pk)
        self._before[place] = read
        return int(pk)

    def _read_by_sight(self) -> None:
        """Read again what could not be read, in the order in which it was seen."""
        first_seen: dict[tuple[Place, str], datetime] = {}
        for _, (row, words) in sorted(self._unread.items()):
            _, cluster, uid, _, _, observed, _, payload = row
            self.unreadable[cluster, uid] = words[:LONGEST_WORDS]
            sight = partial(_sight, first_seen, (cluster, uid), observed)
            with suppress(ledger.BadDocument):
                read = ledger.read_payload(payload, gpu_resources=self._gpu_resources, unread=sight)
                self._keep(row, read, None)

    def _keep(self, row: tuple[Any, ...], read: ledger.Read, completed_at: datetime | None) -> None:
        pk, cluster, uid, version, kind, observed, last, payload = row
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


def _sight(
    first_seen: dict[tuple[Place, str], datetime], place: Place, at: datetime, text: str
) -> datetime:
    return first_seen.setdefault((place, text), at)
