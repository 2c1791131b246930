"""Writes down what the last contact with a cluster showed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Value
from django.db.models.functions import Coalesce

from clusters.errors import ClusterError
from clusters.kube.client import Probe
from clusters.models import ClusterHealth

YEAR_S: Final = 365 * 86_400


@dataclass(frozen=True, slots=True)
class Contact:
    """One finding: `error` None means the cluster answered as it should.

    `kueue_version` is empty where it cannot be seen, None where nobody asked for it.
    """

    at: datetime
    error: ClusterError | None = None
    probe: Probe | None = None
    kueue_version: str | None = None

    @property
    def key(self) -> tuple[bool, str]:
        """What makes two findings different enough to be written at once."""
        return self.error is None, "" if self.error is None else self.error.reason


def record_contact(cluster_id: int, contact: Contact) -> None:
    """Store a finding; the time since when a cluster is lost stays until it answers."""
    changes: dict[str, object] = {"checked_at": contact.at}
    if contact.error is None:
        changes |= {
            "reachable": True,
            "reason": "",
            "message": "",
            "last_contact_at": contact.at,
            "lost_since": None,
        }
    else:
        changes |= {
            "reachable": False,
            "reason": contact.error.reason[:60],
            "message": contact.error.message[:500],
            "lost_since": Coalesce("lost_since", Value(contact.at)),
        }
    if contact.probe is not None:
        changes |= _of_probe(contact.probe, contact.at)
    if contact.kueue_version is not None:
        changes["kueue_version"] = contact.kueue_version[:40]
    rows = ClusterHealth.objects.filter(cluster_id=cluster_id)
    if not rows.update(**changes):
        ClusterHealth.objects.get_or_create(cluster_id=cluster_id)
        rows.update(**changes)


def _of_probe(probe: Probe, at: datetime) -> dict[str, object]:
    found: dict[str, object] = {
        "latency_ms": max(0, round(probe.latency_s * 1000)),
        "kubernetes_version": probe.version[:40],
    }
    if probe.server_time is not None:
        # A Date header has whole seconds: under one second nothing can be said.
        skew = (probe.server_time - at).total_seconds()
        # One that is years wrong is no worse than one that is a year wrong, and fits the column.
        found["clock_skew_s"] = 0 if abs(skew) < 1 else round(max(-YEAR_S, min(skew, YEAR_S)))
    return found
