"""What one watched change of an object means: a fact of the world, or a decision of Kueue.

Source: Kueue apis/kueue/v1beta2 conditions; spec/admission.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from clusters.documents.conditions import condition, conditions_of, is_true
from clusters.documents.keys import Document
from clusters.kueue.explanation.asking import flavors_of

PREEMPTED = "Preempted"


class Fate(StrEnum):
    """What Kueue decided about a workload."""

    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Said:
    """One side of a comparison: what was decided about one workload, and how.

    Attributes:
        flavors: by pod set and resource, of an admission.
        reason, message: of a preemption or of waiting.
    """

    decision: Fate
    cluster_queue: str = ""
    flavors: Mapping[str, Mapping[str, str]] | None = None
    reason: str = ""
    message: str = ""

    def document(self) -> dict[str, Any]:
        """As it is stored; empty parts left out."""
        found: dict[str, Any] = {
            "decision": self.decision.value,
            "clusterQueue": self.cluster_queue,
            "flavors": {name: dict(item) for name, item in (self.flavors or {}).items()},
            "reason": self.reason,
            "message": self.message,
        }
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class WatchedEvent:
    """One change that was watched.

    Attributes:
        document: the object's new version; of a deleted one, its last.
        said: the decision of Kueue that the change shows, ``None`` for what the world did.
        is_fact: decisions may depend on it, and it is none itself.
    """

    kind: str
    key: str
    document: Document
    at: datetime
    is_gone: bool = False
    said: Said | None = None
    is_fact: bool = False


def holds_quota(workload: Document) -> bool:
    """Whether the document shows a reservation."""
    return bool((workload.get("status") or {}).get("admission")) and is_true(
        workload, "QuotaReserved"
    )


def was_preempted(workload: Document) -> bool:
    """Whether it is evicted for another workload, and not for any other cause."""
    evicted = condition(workload, "Evicted")
    return evicted.get("status") == "True" and evicted.get("reason") == PREEMPTED


def decision_in(before: Document | None, after: Document) -> Said | None:
    """What Kueue decided between two versions of a Workload; ``None`` for nothing.

    Args:
        before: the version known until now.
        after: the new one.
    """
    known = before or {}
    if is_true(after, "Finished"):
        return None
    if was_preempted(after) and not (before is not None and was_preempted(known)):
        cause = condition(after, PREEMPTED)
        return Said(
            Fate.PREEMPTED,
            cluster_queue=_queue(after) or _queue(known),
            reason=str(cause.get("reason") or ""),
            message=str(cause.get("message") or ""),
        )
    if holds_quota(after):
        return None if before is not None and holds_quota(known) else admission_of(after)
    waiting = waiting_of(after)
    if waiting is None or (before is not None and waiting == waiting_of(known)):
        return None
    return waiting


def admission_of(workload: Document) -> Said:
    """The admission that a document shows."""
    admission = workload["status"]["admission"]
    return Said(
        Fate.ADMITTED,
        cluster_queue=str(admission.get("clusterQueue") or ""),
        flavors=flavors_of(admission),
    )


def waiting_of(workload: Document) -> Said | None:
    """What its QuotaReserved=False condition says; ``None`` without one."""
    found = condition(workload, "QuotaReserved")
    if found.get("status") != "False":
        return None
    return Said(
        Fate.PENDING,
        reason=str(found.get("reason") or ""),
        message=str(found.get("message") or ""),
    )


def without_reservation(workload: Document) -> dict[str, Any]:
    """The same Workload as if no quota had been reserved for it."""
    status = {
        name: value
        for name, value in (workload.get("status") or {}).items()
        if name not in ("admission", "conditions")
    }
    status["conditions"] = [
        item
        for item in conditions_of(workload)
        if item.get("type") not in ("QuotaReserved", "Admitted")
    ]
    return {**workload, "status": status}


def _queue(workload: Document) -> str:
    return str(((workload.get("status") or {}).get("admission") or {}).get("clusterQueue") or "")
