"""Taking back what a cluster left behind that was registered by mistake.

A cluster that goes keeps its use in the books: jobs ran there. One that was a second name of
another, or nobody's at all, has nothing there to keep: the same GPUs would be counted twice, and
seconds of jobs would stay undecided between both. What was seen there stays as it was seen, in
events that nothing is worked out from any more; closed months are corrected like any other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from django.db import transaction
from django.db.models import Min

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import (
    CapacityHour,
    CapacityWatch,
    Discrepancy,
    Interval,
    MeterState,
    PendingSpan,
    User,
)
from budgets.services.billing.discrepancies import clear_discrepancies
from budgets.services.budget.versions import mark_dirty
from budgets.services.guards import require_admin, require_reason
from clusters.models import Cluster, WorkloadState
from clusters.services.generations import locked, record_change


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What was taken back, in rows: jobs seen there, intervals, sampled hours, discrepancies."""

    jobs: int
    intervals: int
    hours: int
    discrepancies: int


@transaction.atomic
def take_back_cluster(actor: User | None, *, cluster: Cluster, reason: str) -> TakenBack:
    """Take what a removed cluster left out of the books, for good.

    Numbered, because each step stands on the one before:
        1. its intervals are superseded and the meter is told from when on;
        2. its states, sampled hours and its place in the meter go, its discrepancies are cleared.

    Raises:
        NotAllowed: For everybody but an admin.
        Rejected: No reason, the cluster is still registered, or it was a manager: which copy on a
            worker is billed stands in what the manager said.
    """
    require_admin(actor)
    require_reason(reason)
    row = locked(cluster)
    if row.state != Cluster.State.REMOVED:
        words = "Forget the cluster first: what it sees now would come back."
        raise Rejected.because("cluster", "registered", words)
    if row.is_manager:
        words = "Use on workers is billed by what their manager said, so that stays in the books."
        raise Rejected.because("cluster", "manager", words)
    states = WorkloadState.objects.filter(cluster=row)
    held = Interval.objects.filter(cluster=row.slug).exclude(state=Interval.State.SUPERSEDED)
    first = held.aggregate(first=Min("start"))["first"]
    uids = {
        *held.values_list("uid", flat=True),
        *PendingSpan.objects.filter(cluster=row.slug).values_list("uid", flat=True),
    }
    stored = promises.store_intervals([], workloads={(row.slug, uid) for uid in uids})
    jobs, _ = states.delete()
    for table in (row.object_states, row.drifts, row.applied, row.shifts):
        table.all().delete()
    hours, _ = CapacityHour.objects.filter(cluster=row.slug).delete()
    CapacityWatch.objects.filter(cluster=row.slug).delete()
    cleared = clear_discrepancies(Discrepancy.objects.filter(cluster=row.slug))
    own = MeterState.objects.filter(cluster=row.slug)
    if MeterState.objects.exclude(cluster=row.slug).exists():
        if first is not None:
            mark_dirty(first)
        own.delete()
    taken = TakenBack(jobs, stored.superseded, hours, cleared)
    record_change(actor, "cluster.take_back", row, reason=reason, after=asdict(taken))
    return taken
