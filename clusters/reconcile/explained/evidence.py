"""An explanation as the JSON that ``PendingReason.evidence`` stores. Pure."""

from __future__ import annotations

from typing import Any

from clusters.documents.keys import Document
from clusters.explaining.evidence import (
    Attempt,
    CheckEvidence,
    Evidence,
    HolderEvidence,
    evidence_document,
)
from clusters.kueue.explanation.why import Explanation
from clusters.kueue.quota.specifications import StopPolicy
from clusters.manifests.names import SPEND_CHECK
from clusters.reconcile.reactivation import was_rejected


def evidence_of(explanation: Explanation, workload: Document) -> dict[str, Any]:
    """The stored evidence of one pending workload, see :class:`Evidence`.

    Args:
        explanation: The engine's; the longest-running holders come first.
        workload: Its document, for the states of its AdmissionChecks and what they did.
    """
    states = (workload.get("status") or {}).get("admissionChecks") or ()
    return evidence_document(
        Evidence(
            reason=explanation.reason,
            message=explanation.message,
            cluster_queue=explanation.cluster_queue,
            position=explanation.position,
            waiting=explanation.waiting,
            is_parked=explanation.is_parked,
            hold="" if explanation.hold is StopPolicy.NONE else explanation.hold.value,
            hold_kind=explanation.hold_kind,
            requests=explanation.requests,
            attempts=tuple(
                Attempt(item.pod_set, item.flavor, item.mode.name, item.missing, item.reasons)
                for item in explanation.attempts
            ),
            holders=tuple(
                HolderEvidence(
                    item.key, item.cluster_queue, item.amounts, item.protection.name, item.since
                )
                for item in explanation.holders
            ),
            holder_count=explanation.holder_count,
            borrowers=explanation.borrowers,
            lacking=explanation.lacking,
            quota=explanation.quota,
            checks=tuple(
                CheckEvidence(*(str(item.get(key) or "") for key in ("name", "state", "message")))
                for item in states
            ),
            requeue_at=explanation.requeue_at,
            is_turned_back=was_rejected(workload, SPEND_CHECK),
        )
    )
