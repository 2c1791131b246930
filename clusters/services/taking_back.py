"""Taking back what a cluster left behind that was registered by mistake.

A cluster that goes keeps its use in the books: jobs ran there. One that was a second name of
another, or nobody's at all, has nothing there to keep: the same GPUs would be counted twice, and
seconds of jobs would stay undecided between both. What was seen there stays as it was seen, in
events that nothing is worked out from any more; closed months are corrected like any other.

Use that leaves the books is money that nobody pays: an admin proposes it, and finance approves. An
admin alone takes back what has no use in the books.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Min, QuerySet

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import (
    Approval,
    CapacityHour,
    CapacityWatch,
    Discrepancy,
    Interval,
    MeterState,
    PendingSpan,
    Proposal,
    User,
)
from budgets.models.reconciliation import UNSETTLED
from budgets.services.billing.approvals import MoneyDeed, Seen, propose, row_of
from budgets.services.billing.discrepancies import clear_discrepancies
from budgets.services.billing.guards import lock_billing
from budgets.services.budget.versions import mark_dirty
from budgets.services.guards import require_admin, require_reason
from budgets.units import gpu_hours, time_text, to_seconds
from clusters.models import Cluster, WorkloadState
from clusters.selectors.fleet import TAKE_BACK
from clusters.services.generations import locked, record_change


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What was taken back, in rows: jobs seen there, intervals, sampled hours, discrepancies."""

    jobs: int
    intervals: int
    hours: int
    discrepancies: int


@transaction.atomic
def take_back_cluster(actor: User | None, *, cluster: Cluster, reason: str) -> TakenBack | Proposal:
    """Take what a removed cluster left out of the books, for good.

    Returns:
        What was taken back; or, where use or a discrepancy of it is in the books, the proposal
        that one of finance has to approve before anything is.

    Raises:
        NotAllowed: For everybody but an admin.
        Rejected: No reason, the cluster is still registered, it was a manager (which copy on a
            worker is billed stands in what the manager said), or the same waits already.
    """
    require_admin(actor)
    require_reason(reason)
    lock_billing()
    row = locked(cluster)
    _require_removed(row)
    if not _held(row).exists() and not _unsettled(row).exists():
        return _take_back(actor, row, reason=reason)
    return propose(actor, DEED, subject=f"cluster:{row.slug}", reason=reason, cluster=row)


def _require_removed(row: Cluster) -> None:
    if row.state != Cluster.State.REMOVED:
        words = "Forget the cluster first: until then its use is recorded again."
        raise Rejected.because("cluster", "registered", words)
    if row.is_manager or row.own_queue:
        words = "What a manager reported says how use on its workers is billed, so it stays."
        raise Rejected.because("cluster", "manager", words)


def _held(row: Cluster) -> QuerySet[Interval]:
    return Interval.objects.filter(cluster=row.slug).exclude(state=Interval.State.SUPERSEDED)


def _unsettled(row: Cluster) -> QuerySet[Discrepancy]:
    return Discrepancy.objects.filter(cluster=row.slug, state__in=UNSETTLED)


def _left(cluster: Cluster, *, at: datetime) -> Seen:
    """What is in the books of it; what still goes on counts as far as the cluster was watched."""
    _require_removed(cluster)
    watched = MeterState.objects.filter(cluster=cluster.slug).first()
    until = (watched and watched.complete_until) or at
    held = list(
        _held(cluster)
        .filter(kind=Interval.Kind.BILLABLE)
        .values_list("uid", "start", "end", "gpus")
    )
    seconds = sum(
        gpus * max(0, to_seconds(min(end or until, until)) - to_seconds(start))
        for _, start, end, gpus in held
    )
    return {
        "Cluster": f"{cluster.name} ({cluster.slug})",
        "GPU-hours that leave the books": gpu_hours(seconds),
        "Jobs that used them": str(len({uid for uid, *_ in held})),
        "The first job began": time_text(min(start for _, start, *_ in held)) if held else "never",
        "Discrepancies that are cleared": str(_unsettled(cluster).count()),
    }


def _approved(actor: User, approval: Approval, *, cluster: Cluster, reason: str) -> str:
    taken = _take_back(actor, locked(cluster), reason=reason)
    return f"The use of {taken.jobs} jobs on {cluster.name} left the books."


DEED = MoneyDeed(
    name=TAKE_BACK,
    title="Take back what a removed cluster left",
    takes={"cluster": row_of(Cluster)},
    look=_left,
    do=_approved,
)


def _take_back(actor: User | None, row: Cluster, *, reason: str) -> TakenBack:
    """Numbered, because each step stands on the one before:

    1. its intervals are superseded and the meter is told from when on;
    2. its states, sampled hours and its place in the meter go, its discrepancies are cleared.
    """
    held = _held(row)
    first = held.aggregate(first=Min("start"))["first"]
    uids = {
        *held.values_list("uid", flat=True),
        *PendingSpan.objects.filter(cluster=row.slug).values_list("uid", flat=True),
    }
    stored = promises.store_intervals([], workloads={(row.slug, uid) for uid in uids})
    jobs, _ = WorkloadState.objects.filter(cluster=row).delete()
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
    record_change(actor, TAKE_BACK, row, reason=reason, after=asdict(taken))
    return taken
