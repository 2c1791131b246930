"""The row of a shift: who holds one (cluster, role), is it alive, and how old is its lease.

All ages are taken by the database's own clock. The row is no lock: it keeps two workers from
trying the same thing, and it remembers when the holder's Lease was last renewed, so that a
successor need not begin to watch an abandoned Lease from zero. The Lease on the cluster decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from clusters.kube.client import KubeClient
from clusters.kube.lease import ClusterLease, LeaseName, LeaseSettings
from clusters.kube.resources import Document
from clusters.models import Cluster, ShiftRun
from clusters.reconcile.runtime.faults import ALL_WELL, Parked
from clusters.selectors.places import nominates_beside

HEARTBEAT_S = 3.0
"""While the Lease is not renewed, with which a heartbeat goes along."""
FAILURE_PAUSE_S = 5.0
"""A role that failed is not offered again at once: it would most likely fail the same way."""
_AGE = ExpressionWrapper(Now() - F("lease_renewed_at"), output_field=DurationField())


@dataclass(frozen=True, slots=True)
class LeaseEvidence:
    """A predecessor's Lease: its version, and since when (this process's monotonic clock)."""

    version: str
    since: float

    def shows_end(self, version: str, *, duration_s: float, now: float) -> bool:
        """Whether that very version is older than the lease lasts."""
        return bool(version) and version == self.version and now - self.since > duration_s


class ShiftLease(ClusterLease):
    """A Lease that a successor may also take on the evidence of the predecessor's row."""

    def __init__(
        self,
        client: KubeClient,
        name: LeaseName,
        *,
        holder: str,
        settings: LeaseSettings,
        evidence: LeaseEvidence | None = None,
    ) -> None:
        super().__init__(client, name, holder=holder, settings=settings)
        self._evidence = evidence

    @property
    def version(self) -> str:
        """The held Lease's resourceVersion; empty when it is not held."""
        held = self._held
        return str(held["metadata"]["resourceVersion"]) if held else ""

    def _may_take(self, lease: Document) -> bool:
        if super()._may_take(lease):
            return True
        if self._evidence is None:
            return False
        asked = (lease.get("spec") or {}).get("leaseDurationSeconds") or 0
        return self._evidence.shows_end(
            str(lease["metadata"]["resourceVersion"]),
            duration_s=max(asked, self._settings.duration_s),
            now=self._settings.monotonic(),
        )


@dataclass(slots=True)
class Claim:
    """This process's hold on the row; lost as soon as somebody else takes it.

    Attributes:
        told: Version of the Lease that the row has from it.
    """

    row: int
    holder: str
    evidence: LeaseEvidence | None
    told: str = ""

    def beat(
        self, *, lease_version: str, watch_age_s: float | None, standing: Parked = ALL_WELL
    ) -> bool:
        """Say that the shift is alive; False when the row is somebody else's by now.

        Args:
            lease_version: Of the Lease as it is held; empty while it is not.
            watch_age_s: Of its oldest watch.
            standing: What it has set aside.
        """
        changes: dict[str, object] = {
            "heartbeat_at": Now(),
            "parked": standing.parked,
            "parked_says": standing.says,
            "watch_age_s": None if watch_age_s is None else round(watch_age_s),
        }
        if lease_version not in ("", self.told):
            # A heartbeat alone renews no Lease, and is to put no successor off.
            changes |= {"lease_version": lease_version, "lease_renewed_at": Now()}
        is_ours = bool(self._own().update(**changes))
        if is_ours:
            self.told = lease_version or self.told
        return is_ours

    def end(self, outcome: str) -> None:
        """Give the row back, with a word for the people who look at it."""
        self._own().update(ended_at=Now(), outcome=outcome[:300])

    def _own(self) -> QuerySet[ShiftRun]:
        return ShiftRun.objects.filter(pk=self.row, holder=self.holder, ended_at__isnull=True)


def end_lost(holder: str, outcome: str) -> None:
    """Give the row of a shift back whose process did not live to do it."""
    ShiftRun.objects.filter(holder=holder).update(ended_at=Now(), outcome=outcome[:300])


def take(cluster_id: int, role: str, *, holder: str) -> Claim | None:
    """Claim the row of a (cluster, role); None while somebody alive has it."""
    with transaction.atomic():
        now = timezone.now()
        fresh = {"holder": holder, "started_at": now, "heartbeat_at": now}
        row, is_new = ShiftRun.objects.get_or_create(
            cluster_id=cluster_id, role=role, defaults=fresh
        )
        evidence = None if is_new else _evidence(row.pk)
        is_free = Q(ended_at__isnull=False) | Q(heartbeat_at__lt=Now() - ShiftRun.STALE)
        taken = ShiftRun.objects.filter(is_free, pk=row.pk).update(
            holder=holder,
            started_at=Now(),
            heartbeat_at=Now(),
            ended_at=None,
            outcome="",
            parked=0,
            parked_says="",
        )
    if not taken and not is_new:
        return None
    return Claim(row.pk, holder, evidence)


def unfilled(wanted: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Those of the wanted (cluster id, role) that nobody alive works on."""
    just_failed = Q(
        ended_at__gt=Now() - timedelta(seconds=FAILURE_PAUSE_S), outcome__startswith="failed"
    )
    is_busy = Q(ended_at__isnull=True, heartbeat_at__gte=Now() - ShiftRun.STALE)
    busy = set(ShiftRun.objects.filter(is_busy | just_failed).values_list("cluster_id", "role"))
    return [pair for pair in wanted if pair not in busy]


def roles_for(cluster: Cluster) -> tuple[str, ...]:
    """Roles that a cluster needs while it is registered."""
    if cluster.state == Cluster.State.REMOVED:
        return ()
    roles = [ShiftRun.Role.QUOTA, ShiftRun.Role.USAGE]
    if cluster.mode == Cluster.Mode.PORTAL:
        roles.append(ShiftRun.Role.ADMISSION)
        if cluster.is_manager:
            roles.append(ShiftRun.Role.DISPATCH)
    else:
        roles.append(ShiftRun.Role.SHADOW)
        if cluster.is_manager and (cluster.guard != Cluster.Guard.OFF or nominates_beside(cluster)):
            roles.append(ShiftRun.Role.DISPATCH)
    if cluster.takes_jobs:
        roles.append(ShiftRun.Role.SPEND)
    return tuple(str(role.value) for role in roles)


def wanted_shifts() -> list[tuple[Cluster, str]]:
    """Every (cluster, role) that has to be filled. One query."""
    clusters = Cluster.objects.exclude(state=Cluster.State.REMOVED).defer(
        "kubeconfig_sealed", "multikueue_kubeconfig_sealed", "preflight"
    )
    return [(cluster, role) for cluster in clusters for role in roles_for(cluster)]


def slot_fault(*, slots: int) -> str:
    """Why a worker with so many slots is not enough; empty when it is.

    One shift worker has to hold every shift, so that it can carry on when the others die. Fleets
    too large for that say so with ``SHIFT_WORKERS``: as many workers share the shifts.
    """
    needed = len(wanted_shifts())
    workers = max(1, int(getattr(settings, "SHIFT_WORKERS", 1)))
    if slots * workers >= needed:
        return ""
    least = -(-needed // workers)
    return (
        f"{slots} slots for {needed} shifts: queue 'shift' needs one for each role of each "
        f"cluster. Start it with -c {least} or more, or spread the shifts over more workers with "
        "SHIFT_WORKERS."
    )


def _evidence(row_id: int) -> LeaseEvidence | None:
    row = ShiftRun.objects.filter(pk=row_id).annotate(lease_age=_AGE).first()
    if row is None or not row.lease_version or row.lease_age is None:
        return None
    age: timedelta = row.lease_age
    return LeaseEvidence(row.lease_version, time.monotonic() - age.total_seconds())
