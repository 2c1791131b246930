"""Where the shadow engine of a cluster decided otherwise than Kueue did; for the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from budgets.models import User
from budgets.records import record_of
from clusters.models import ShadowDifference, ShadowTally
from clusters.selectors.fleet import cluster_for

SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the two said.

    Attributes:
        decision: In a word or two.
        flavors: Pod set and its flavors, ``main: h100``.
    """

    decision: str
    cluster_queue: str = ""
    flavors: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One workload about which the two do not agree, and how often."""

    namespace: str
    name: str
    uid: str
    kind: str
    portal: Side
    kueue: Side
    count: int
    first_seen_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """How well the shadow does on one cluster.

    Attributes:
        compared: Decisions of Kueue that were compared; None when nothing ever was.
        different: Of these.
        passed_over: Not compared, because the cluster did not come to rest around them.
        rows: The newest, at most 100.
    """

    compared: int | None
    different: int = 0
    passed_over: int = 0
    since: datetime | None = None
    rows: tuple[DifferenceRow, ...] = ()


def shadow_report(user: User, slug: str) -> ShadowReport:
    """Decisions on one cluster, compared. Four queries.

    Raises:
        Cluster.DoesNotExist: It is not there, or not for this user.
    """
    cluster_for(user, slug)
    tally = ShadowTally.objects.filter(cluster=slug).first()
    if tally is None:
        return ShadowReport(None)
    rows = ShadowDifference.objects.filter(cluster=slug)[:SHOWN]
    return record_of(
        ShadowReport,
        tally,
        rows=tuple(
            record_of(
                DifferenceRow,
                row,
                kind=row.get_kind_display(),
                portal=_side(row.portal_says),
                kueue=_side(row.kueue_did),
            )
            for row in rows
        ),
    )


def _side(document: Mapping[str, Any]) -> Side:
    flavors = document.get("flavors") or {}
    return Side(
        decision=str(document.get("decision") or ""),
        cluster_queue=str(document.get("clusterQueue") or ""),
        flavors=tuple(
            # In the order of names: a database keeps a document's keys in an order of its own.
            f"{pod_set}: {', '.join(sorted(set(map(str, chosen.values()))))}"
            for pod_set, chosen in sorted(flavors.items())
            if isinstance(chosen, Mapping)
        ),
        reason=str(document.get("reason") or ""),
        message=str(document.get("message") or ""),
    )
