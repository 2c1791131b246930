"""What the guard of a manager found and did, for the pages of a cluster and of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import F, Q, QuerySet

from budgets.models import User
from budgets.records import record_of
from clusters.models import Cluster, GuardIncident, NominationWay
from clusters.selectors.names import reader_names
from clusters.selectors.places import nominates_beside
from clusters.selectors.workload_detail import WorkloadDetail
from clusters.selectors.workloads import visible_state

SHOWN = 50


@dataclass(frozen=True, slots=True)
class NominationRow:
    """How the portal nominates beside a Kueue, as last probed."""

    way: str
    label: str
    why: str
    checked_at: datetime


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident; times are None for what has not happened."""

    cluster: str
    defect: str
    label: str
    namespace: str
    name: str
    uid: str
    worker: str
    found: str
    done: str
    state: str
    state_label: str
    noticed_at: datetime
    acted_at: datetime | None
    ended_at: datetime | None


def nomination_of(cluster: Cluster) -> NominationRow | None:
    """Where the portal nominates; None elsewhere, and before it was probed. One query at most."""
    if not nominates_beside(cluster):
        return None
    found = NominationWay.objects.filter(cluster=cluster).first()
    if found is None:
        return None
    return record_of(NominationRow, found, label=found.get_way_display())


def incidents_on(cluster: Cluster) -> tuple[IncidentRow, ...]:
    """Incidents of a manager, or those whose trouble was on a worker; open ones first.

    For people who see the platform: names are theirs. One query, none for portal mode.
    """
    if cluster.mode != Cluster.Mode.KUEUE:
        return ()
    where = Q(cluster=cluster) if cluster.is_manager else Q(worker=cluster.slug)
    return tuple(_rows(GuardIncident.objects.filter(where)))


def incidents_of(user: User, detail: WorkloadDetail) -> tuple[IncidentRow, ...]:
    """Incidents of one job, in the reader's names; six queries at most.

    Raises:
        WorkloadState.DoesNotExist: The job is not for this user.
    """
    visible_state(user, detail.row.cluster, detail.row.uid)
    own = [row.uid for row in (detail.row, *detail.copies) if not row.is_remote_copy]
    rows = tuple(_rows(GuardIncident.objects.filter(workload_uid__in=own)))
    if not rows:
        return ()
    names = reader_names(user)
    return tuple(
        replace(row, found=names.message(row.found), done=names.message(row.done)) for row in rows
    )


def _rows(found: QuerySet[GuardIncident]) -> Iterable[IncidentRow]:
    ordered = found.select_related("cluster").order_by(
        F("ended_at").desc(nulls_first=True), "-noticed_at"
    )
    for row in ordered.defer("cluster__kubeconfig_sealed", "cluster__preflight")[:SHOWN]:
        yield record_of(
            IncidentRow,
            row,
            cluster=row.cluster.slug,
            label=row.get_defect_display(),
            uid=row.workload_uid,
            state_label=row.get_state_display(),
        )
