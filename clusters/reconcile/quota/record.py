"""What quota sync tells the database: object states, drift, observed generations, progress.

Only what changed is written; what was written last is kept in memory for the shift.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Q

from budgets import services as promises
from budgets.models import Operation
from clusters.documents.conditions import condition
from clusters.manifests.names import Document, Key, owner_of
from clusters.models import AppliedGeneration, Cluster, ClusterHealth, Drift, ObjectState
from clusters.reconcile.quota.decide import GOING, Decision, Step
from clusters.reconcile.runtime.rows import store_apart

log = structlog.stdlib.get_logger(__name__)

FIRST_SYNC = "first_sync"
EDITS_TOLD = 20
State = ObjectState.State
_STANDING = {
    Step.NOTHING: State.SYNCED,
    Step.KEEP: State.DRIFTED,
    Step.REFUSE: State.FOREIGN,
    Step.WAIT: State.STAYS,
    Step.DRAIN: State.STAYS,
}


@dataclass(frozen=True, slots=True)
class Result:
    """A decision and what came of it; `error` is a sentence, empty when all went well."""

    decision: Decision
    was_written: bool = False
    error: str = ""
    live: Document | None = None

    @property
    def state(self) -> State:
        if self.error:
            return State.FAILED
        if self.decision.step in _STANDING:
            return _STANDING[self.decision.step]
        return State.SYNCED if self.was_written else State.PENDING

    @property
    def is_gone(self) -> bool:
        return self.decision.step in GOING and self.was_written

    @property
    def message(self) -> str:
        """For people: the error, or what Kueue says of a queue that it does not serve."""
        if self.error or self.decision.message:
            return (self.error or self.decision.message)[:1000]
        active = condition(self.live or {}, "Active")
        if active.get("status") == "False":
            return f"Kueue: {active.get('message') or active.get('reason') or 'not active'}"[:1000]
        return ""

    @property
    def would(self) -> dict[str, Any] | None:
        """What would be written, while writing is off."""
        if self.state is not State.PENDING:
            return None
        return {
            "action": str(self.decision.step),
            "changes": [
                {"field": change.path, "wanted": change.wanted, "found": change.found}
                for change in self.decision.changes
            ],
            "document": self.decision.document if self.decision.step is not Step.DELETE else None,
        }


_Row = tuple[str, str, int, bool]


class SyncRecords:
    """Writes the rows of one cluster; used by one thread.

    Args:
        cluster_id: Primary key.
        refused: Told of each result that the database does not take.
    """

    def __init__(self, cluster_id: int, *, refused: Callable[[Result, Exception], None]) -> None:
        self._cluster_id, self._refuse = cluster_id, refused
        self._rows: dict[Key, _Row] = {
            Key(kind, namespace, name): (state, message, generation, would is not None)
            for kind, namespace, name, state, message, generation, would in (
                ObjectState.objects.filter(cluster_id=cluster_id).values_list(
                    "kind", "namespace", "name", "state", "message", "generation", "would"
                )
            )
        }
        self._observed: dict[str, int] = dict(
            AppliedGeneration.objects.filter(cluster_id=cluster_id).values_list(
                "subject", "observed_generation"
            )
        )
        self._has_open_drift = True

    def known(self) -> frozenset[Key]:
        """Objects that the portal has written here and not taken away again."""
        written = (State.SYNCED, State.DRIFTED, State.STAYS)
        return frozenset(
            key
            for key, (state, _, generation, _) in self._rows.items()
            if state in written or generation
        )

    def record(self, results: Sequence[Result], now: datetime) -> list[Result]:
        """Stores results, in one transaction; returns those that the database took."""
        refused: list[Result] = []

        def store(part: Sequence[Result]) -> None:
            with transaction.atomic():
                rows = self._store_states(part, now)
                self._store_drift(part, now)
            self._rows.update(rows)

        def refuse(result: Result, error: Exception) -> None:
            refused.append(result)
            self._refuse(result, error)

        store_apart(results, store, refuse)
        return [result for result in results if result not in refused] if refused else list(results)

    def forget(self, keys: Collection[Key]) -> None:
        """Drops the rows of objects that are neither wanted nor there."""
        gone = [key for key in keys if key in self._rows]
        for start in range(0, len(gone), 200):
            chosen = Q()
            for key in gone[start : start + 200]:
                chosen |= Q(kind=key.kind, namespace=key.namespace, name=key.name)
            ObjectState.objects.filter(chosen, cluster_id=self._cluster_id).delete()
        for key in gone:
            del self._rows[key]

    def recorded(self) -> Collection[Key]:
        """All objects that have a row."""
        return self._rows.keys()

    def observe(self, wanted: Mapping[Key, Document], now: datetime) -> int:
        """Records the generations of subjects all of whose objects are in place.

        Returns:
            Objects that are in place. O(wanted).
        """
        whole: dict[str, int] = {}
        in_place = 0
        for key, document in wanted.items():
            owner = owner_of(document)
            assert owner is not None, "a rendered document always names its owner"
            state, _, generation, _ = self._rows.get(key, ("", "", 0, False))
            is_settled = state == State.SYNCED and generation == owner.generation
            in_place += is_settled
            best = whole.get(owner.subject, owner.generation)
            whole[owner.subject] = best if is_settled else 0
        changed = {
            subject: generation
            for subject, generation in whole.items()
            if generation and self._observed.get(subject) != generation
        }
        gone = [subject for subject in self._observed if subject not in whole]
        if changed or gone:
            self._store_observed(changed, gone, now)
        return in_place

    def progress(self, slug: str, *, done: int, total: int) -> None:
        """Advances the first sync that somebody watches, and ends it when all is in place."""
        running = Operation.objects.filter(
            kind=FIRST_SYNC, subject=f"cluster:{slug}", state=Operation.State.RUNNING
        )
        for operation_id in running.values_list("pk", flat=True):
            step = f"{done} of {total} objects in place"
            promises.advance_operation(operation_id, step=step, done=done, total=total)
            if done >= total:
                promises.finish_operation(operation_id, message=step)

    def connections(self, seen: Mapping[str, Document]) -> None:
        """Stores the manager's view of its workers: slug → MultiKueueCluster."""
        for slug, document in seen.items():
            active = condition(document, "Active")
            ClusterHealth.objects.filter(cluster__slug=slug).update(
                multikueue_active=str(active.get("status") or "")[:8],
                multikueue_message=str(active.get("message") or "")[:500],
            )

    def _store_states(self, results: Iterable[Result], now: datetime) -> dict[Key, _Row]:
        """Writes what changed, and returns it."""
        rows, changed = [], {}
        for result in results:
            key, owner = result.decision.key, result.decision.owner
            if result.is_gone:
                continue  # its row goes when the watch shows that the object did
            before = self._rows.get(key)
            state = result.state
            generation = owner.generation if state is State.SYNCED else (before or (0, 0, 0))[2]
            row = (str(state.value), result.message, int(generation), result.would is not None)
            if before == row and not row[3]:
                continue
            changed[key] = row
            rows.append(
                ObjectState(
                    cluster_id=self._cluster_id,
                    kind=key.kind,
                    namespace=key.namespace,
                    name=key.name,
                    subject=owner.subject[:120],
                    state=row[0],
                    message=row[1],
                    generation=row[2],
                    would=result.would,
                    changed_at=now,
                )
            )
        ObjectState.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["cluster", "kind", "namespace", "name"],
            update_fields=["subject", "state", "message", "generation", "would", "changed_at"],
            batch_size=500,
        )
        return changed

    def _store_observed(
        self, changed: Mapping[str, int], gone: Sequence[str], now: datetime
    ) -> None:
        AppliedGeneration.objects.bulk_create(
            [
                AppliedGeneration(
                    cluster_id=self._cluster_id,
                    subject=subject,
                    observed_generation=generation,
                    applied_at=now,
                )
                for subject, generation in changed.items()
            ],
            update_conflicts=True,
            unique_fields=["cluster", "subject"],
            update_fields=["observed_generation", "applied_at"],
            batch_size=500,
        )
        if gone:
            AppliedGeneration.objects.filter(cluster_id=self._cluster_id, subject__in=gone).delete()
        self._observed.update(changed)
        for subject in gone:
            del self._observed[subject]

    def _store_drift(self, results: Sequence[Result], now: datetime) -> None:
        """Rows stay open while the edit stands; what was put back is history at once."""
        drifted = [result for result in results if result.decision.drift]
        if not drifted and not self._has_open_drift:
            return
        open_rows = self._open_drifts()
        standing: set[tuple[Key, str]] = set()
        noticed: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
        for result in drifted:
            key = result.decision.key
            for change, manager in result.decision.drift:
                path = change.path[:300]
                standing.add((key, path))
                row = open_rows.get((key, path))
                if row is None:
                    row = self._new_drift(key, path, manager, now)
                    noticed[row.manager, result.was_written].append(f"{key} {path}")
                    log.info(
                        "drift_noticed",
                        cluster_id=self._cluster_id,
                        kind=key.kind,
                        name=key.name,
                        field=path,
                        manager=manager,
                    )
                row.wanted, row.found = change.wanted, change.found
                if result.was_written:
                    row.resolved_at, row.resolution = now, "put back"
                row.save()
        looked_at = {result.decision.key for result in results if not result.error}
        for (key, path), row in open_rows.items():
            if key in looked_at and (key, path) not in standing:
                row.resolved_at, row.resolution = now, "no longer differs"
                row.save(update_fields=["resolved_at", "resolution"])
        self._audit_edits(noticed)
        self._has_open_drift = Drift.objects.filter(
            cluster_id=self._cluster_id, resolved_at=None
        ).exists()

    def _audit_edits(self, noticed: Mapping[tuple[str, bool], Sequence[str]]) -> None:
        """Who edited what by hand on the cluster, and whether it was put back."""
        if not noticed:
            return
        slug = Cluster.objects.values_list("slug", flat=True).get(pk=self._cluster_id)
        for (manager, was_put_back), fields in noticed.items():
            after = {
                "manager": manager,
                "fields": list(fields[:EDITS_TOLD]),
                "count": len(fields),
                "put_back": was_put_back,
            }
            promises.audit(None, "cluster.hand_edit", f"cluster:{slug}", cluster=slug, after=after)

    def _open_drifts(self) -> dict[tuple[Key, str], Drift]:
        return {
            (Key(row.kind, row.namespace, row.name), row.field): row
            for row in Drift.objects.filter(cluster_id=self._cluster_id, resolved_at=None)
        }

    def _new_drift(self, key: Key, path: str, manager: str, now: datetime) -> Drift:
        return Drift(
            cluster_id=self._cluster_id,
            kind=key.kind,
            namespace=key.namespace,
            name=key.name,
            field=path,
            manager=manager[:128],
            noticed_at=now,
        )
