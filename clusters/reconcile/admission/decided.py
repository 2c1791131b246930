"""Decisions of the engine that wait to be written, are under way, or were refused.

The engine has assumed them. One is kept until its write is known to be done, or is taken back when
the cluster refuses it or the workload has changed meanwhile. Owned by the deciding thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document
from clusters.errors import Terminal
from clusters.kueue.cycle.decisions import Admit, Decision, Evict, Pending, Preempt
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.reports import resource_requests
from clusters.kueue.lifecycle import steps
from clusters.reconcile import workload_status as status
from clusters.reconcile.admission.pods_ready import first_condition
from clusters.reconcile.admission.steps import status_write
from clusters.reconcile.runtime.writer import Write

_STEPS: Mapping[type, str] = {
    Admit: "reserve",
    Preempt: "preempt",
    Evict: "evict",
    Pending: "explain",
}


@dataclass(frozen=True, slots=True)
class _Kept:
    """A decision, and which state of the workload's spec it was made about."""

    decision: Decision
    uid: str
    generation: int | None


class Decided:
    """Between the engine's decisions and the cluster.

    Args:
        engine: That decides; another one may take its place, see :meth:`move_to`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: dict[str, _Kept] = {}
        # What the write under way carries out; the engine may have decided anew meanwhile.
        self._sent: dict[str, _Kept] = {}
        self._refused: set[str] = set()

    def take(self, decisions: Iterable[Decision], workloads: Mapping[str, Document]) -> None:
        """Keep a cycle's decisions."""
        for decision in decisions:
            workload = workloads.get(decision.key)
            if workload is not None:
                uid, generation = _state_of(workload)
                self._kept[decision.key] = _Kept(decision, uid, generation)

    def write_for(self, key: str, workload: Document | None, *, now: datetime) -> Write | None:
        """The write that a kept decision needs now; None when there is none (any more).

        A refused decision is taken back: its quota was kept out of reach until now.
        """
        kept = self._kept.get(key)
        if kept is None:
            return None
        is_refused = key in self._refused
        if is_refused or workload is None or not self._still_holds(key, kept, workload):
            self.drop(key)
            if is_refused or not isinstance(kept.decision, Pending):
                self._engine.forget(key, now=now)
            return None
        patch = self._patch(kept.decision, workload, now=now)
        if patch is None:
            self.drop(key)
            return None
        self._sent[key] = kept
        return status_write(_STEPS[type(kept.decision)], workload, patch, decided=True)

    def written(self, key: str, write: Write) -> None:
        """A write was answered well; a decision made since it was sent stays."""
        if write.decided and self._is_newest(key):
            self.drop(key)

    def failed(self, key: str, write: Write, error: Exception) -> None:
        """A write failed: a refusal is remembered, anything else may have been done."""
        if write.decided and self._is_newest(key) and isinstance(error, Terminal):
            self._refused.add(key)

    def drop(self, key: str) -> None:
        """Nothing is decided about a workload any more; the engine is told by the caller."""
        self._kept.pop(key, None)
        self._refused.discard(key)

    def move_to(self, engine: Engine) -> None:
        """Let a fresh engine assume what is kept, as the one that it replaces did."""
        assumed = [
            key for key, kept in self._kept.items() if not isinstance(kept.decision, Pending)
        ]
        engine.assume_again(self._engine, assumed)
        self._engine = engine

    def _is_newest(self, key: str) -> bool:
        sent = self._sent.pop(key, None)
        return sent is not None and self._kept.get(key) is sent

    def _still_holds(self, key: str, kept: _Kept, workload: Document) -> bool:
        if _state_of(workload) != (kept.uid, kept.generation):
            return False
        state = self._engine.state
        if isinstance(kept.decision, Admit):
            return key in state.assumed
        if isinstance(kept.decision, Preempt | Evict):
            # A victim whose own reservation was never written has nothing to be evicted from.
            return key in state.assumed_evicted and is_true(workload, "QuotaReserved")
        known = state.workloads.get(key)
        return known is not None and known.reservation is None

    def _patch(
        self, decision: Decision, workload: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        if isinstance(decision, Preempt):
            return status.preempt_patch(workload, decision, now=now)
        if isinstance(decision, Evict):
            step = steps.Evict(decision.reason, decision.message)
            return status.evict_patch(workload, step, now=now)
        first = first_condition(workload, self._engine.configuration)
        is_fine = self._engine.configuration.gates.unadmitted_workloads_observability
        if isinstance(decision, Admit):
            return status.admit_patch(workload, decision, now=now, more=first, is_fine=is_fine)
        known = self._engine.state.workloads.get(decision.key)
        requests = resource_requests(known) if known is not None else []
        return status.pending_patch(
            workload, decision, now=now, more=first, requests=requests, is_fine=is_fine
        )


def _state_of(workload: Document) -> tuple[str, int | None]:
    metadata = workload["metadata"]
    return metadata["uid"], metadata.get("generation")
