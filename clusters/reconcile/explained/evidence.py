"""An explanation as the JSON that ``PendingReason.evidence`` stores. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from clusters.documents.keys import Document
from clusters.documents.times import stamp
from clusters.kueue.explanation.asking import amounts_document
from clusters.kueue.explanation.why import Explanation
from clusters.kueue.quota.specifications import StopPolicy
from clusters.manifests.names import SPEND_CHECK
from clusters.reconcile.budget_check.answer import was_rejected


def evidence_of(explanation: Explanation, workload: Document) -> dict[str, Any]:
    """The stored evidence of one pending workload.

    Args:
        explanation: The engine's.
        workload: Its document, for the states of its AdmissionChecks and what they did.

    Returns:
        ``{"reason", "message", "clusterQueue": str, "position", "waiting": int, "isParked": bool,
        "hold": "" | "Hold" | "HoldAndDrain", "holdKind": "" | "LocalQueue" | "ClusterQueue",
        "requests": {resource: int}, "attempts": [{"podSet", "flavor", "mode": str,
        "missing": {resource: int}, "reasons": [str]}], "lacking": amounts,
        "holders": [{"key", "clusterQueue": str, "amounts", "protection": name of a Protection,
        "since": RFC 3339}], "holderCount": int, "borrowers": [{"clusterQueue", "amounts"}],
        "quota": {"flavor/resource": {"nominal", "used", "available", "potential", "lent": int}},
        "checks": [{"name", "state", "message"}], "requeueAt": RFC 3339 or "", "isTurnedBack":
        bool}``; amounts are ``{"flavor/resource": int}``. The longest-running holders come first.
    """
    return {
        "reason": explanation.reason,
        "message": explanation.message,
        "clusterQueue": explanation.cluster_queue,
        "position": explanation.position,
        "waiting": explanation.waiting,
        "isParked": explanation.is_parked,
        "hold": "" if explanation.hold is StopPolicy.NONE else explanation.hold.value,
        "holdKind": explanation.hold_kind,
        "requests": dict(explanation.requests),
        "attempts": _attempts(explanation),
        "lacking": amounts_document(explanation.lacking),
        "holders": _holders(explanation),
        "holderCount": explanation.holder_count,
        "borrowers": [
            {"clusterQueue": item.cluster_queue, "amounts": amounts_document(item.amounts)}
            for item in explanation.borrowers
        ],
        "quota": _quota(explanation),
        "checks": _checks(workload),
        "requeueAt": _time(explanation.requeue_at),
        "isTurnedBack": was_rejected(workload, SPEND_CHECK),
    }


def _attempts(explanation: Explanation) -> list[Document]:
    return [
        {
            "podSet": item.pod_set,
            "flavor": item.flavor,
            "mode": item.mode.name,
            "missing": dict(item.missing),
            "reasons": list(item.reasons),
        }
        for item in explanation.attempts
    ]


def _holders(explanation: Explanation) -> list[Document]:
    return [
        {
            "key": item.key,
            "clusterQueue": item.cluster_queue,
            "amounts": amounts_document(item.amounts),
            "protection": item.protection.name,
            "since": _time(item.since),
        }
        for item in explanation.holders
    ]


def _quota(explanation: Explanation) -> Document:
    return {
        f"{pair.flavor}/{pair.resource}": {
            "nominal": item.nominal,
            "used": item.used,
            "available": item.available,
            "potential": item.potential,
            "lent": item.lent,
        }
        for pair, item in sorted(explanation.quota.items())
    }


def _checks(workload: Document) -> list[dict[str, str]]:
    states = (workload.get("status") or {}).get("admissionChecks") or ()
    return [
        {name: str(item.get(name) or "") for name in ("name", "state", "message")}
        for item in states
    ]


def _time(moment: datetime | None) -> str:
    return "" if moment is None else stamp(moment)
