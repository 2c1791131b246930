"""Windows of maintenance: planned and ended by admins, begun and ended by the clock, measured.

Enforcement is the quota sync's and the dispatcher's, see ``clusters.selectors.cordons``. Draining
a whole worker is Kueue's own HoldAndDrain there; Kueue has none for one flavor, so the jobs that
hold it are stopped and queued again one by one (``workload_actions``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Sum

from budgets.announcements import Work, announce
from budgets.errors import Fault, Rejected, reject_any
from budgets.models import Flavor, UsageRecord, User
from budgets.selectors import utc_now
from budgets.selectors.fleet.places import at_keys
from budgets.services.audit import audit, state_of
from budgets.services.guards import by_admin, require_reason, save_checked
from budgets.units import apportion
from clusters.models import Cluster, MaintenanceFloor, MaintenanceWindow, WorkloadAction
from clusters.models import WorkloadState as Seen
from clusters.selectors.bars import HOLDING
from clusters.selectors.maintenance import (
    WindowPreview,
    covered_workers,
    floors_at_stake,
    preview_window,
)

State = MaintenanceWindow.State
LONGEST = timedelta(days=366)
# Hours are metered late, and corrected; what was not given is added up anew for so long.
SETTLES_FOR = timedelta(hours=48)
HOUR = timedelta(hours=1)


@by_admin
def preview_maintenance(
    actor: User | None,
    *,
    cluster: Cluster | None,
    flavor: Flavor | None,
    starts_at: datetime | None,
    ends_at: datetime,
) -> WindowPreview:
    """Whom a window would affect, and how; nothing is saved.

    Raises:
        Rejected: Everything that :func:`plan_maintenance` would refuse, but the reason.
    """
    now = utc_now()
    reject_any(_faults(cluster, flavor, starts_at, ends_at, now=now))
    return preview_window(
        cluster=cluster, flavor=flavor, starts_at=starts_at or now, ends_at=ends_at
    )


@by_admin
def plan_maintenance(
    actor: User | None,
    *,
    cluster: Cluster | None,
    flavor: Flavor | None,
    starts_at: datetime | None,
    ends_at: datetime,
    drains: bool,
    reason: str,
) -> MaintenanceWindow:
    """Cordon a worker, or a flavor on one worker or on all, for a while.

    Args:
        actor: Admin, or the portal.
        cluster: The worker; None for all, which needs a flavor.
        flavor: None for the whole worker.
        starts_at: UTC, whole seconds, not in the past; None for now.
        ends_at: UTC, whole seconds, exclusive.
        drains: What runs there is stopped and queued again; else only new work is kept off.
        reason: Shown to the owners whose floors stand there.

    Raises:
        Rejected: Every fault of place and time, or no reason.
    """
    now = utc_now()
    faults = _faults(cluster, flavor, starts_at, ends_at, now=now)
    if not reason.strip():
        faults.append(Fault("reason", "reason_required", "Say why; owners read it."))
    window = MaintenanceWindow(
        cluster=cluster,
        flavor=flavor,
        starts_at=starts_at or now,
        ends_at=ends_at,
        drains=drains,
        reason=reason.strip()[:300],
        author=actor,
    )
    reject_any(faults)
    save_checked(window)
    after = state_of(window, "place", "starts_at", "ends_at", "drains")
    _tell(actor, "maintenance.plan", window, reason, after=after)
    if window.starts_at <= now:
        _begin(window, now)
    else:
        _write_floors(window)
    return window


@by_admin
def end_maintenance(
    actor: User | None, *, window: MaintenanceWindow, reason: str
) -> MaintenanceWindow:
    """End a window before its time, or call off one that has not begun.

    Raises:
        Rejected: It is over already, or no reason is given.
    """
    require_reason(reason)
    row = MaintenanceWindow.objects.select_for_update().get(pk=window.pk)
    before = row.state
    if before not in (State.SCHEDULED, State.ACTIVE):
        raise Rejected.because("", "window_over", "This window is already over.")
    now = utc_now()
    row.state = State.OVER if before == State.ACTIVE else State.CANCELLED
    row.ended_at, row.ended_by, row.end_reason = now, actor, reason.strip()[:300]
    _save_raised(row)
    after = state_of(row, "state")
    _tell(actor, "maintenance.end", row, reason, before={"state": before}, after=after)
    return row


def advance_maintenance(*, now: datetime | None = None) -> dict[str, int]:
    """Begin and end windows whose time has come, and stop what a drained flavor still runs.

    Returns:
        How many began, ended, and how many jobs were told to stop.
    """
    instant = now or utc_now()
    begun = _advance(State.SCHEDULED, instant, starts_at__lte=instant)
    ended = _advance(State.ACTIVE, instant, ends_at__lte=instant)
    draining = MaintenanceWindow.objects.filter(
        state=State.ACTIVE, drains=True, flavor__isnull=False
    ).select_related("cluster", "flavor")
    restarted = sum(_drain_flavor(window, instant) for window in draining)
    return {"begun": begun, "ended": ended, "restarted": restarted}


def measure_maintenance(*, now: datetime | None = None) -> int:
    """Add up what was promised, asked for and not given under windows; returns how many.

    Of every hour a floor's shortfall counts as far as the workspace had jobs waiting, and at most
    the part of the floor that stands under the window. Under overlapping windows the same hour
    shows in each.
    """
    instant = now or utc_now()
    recent = MaintenanceWindow.objects.filter(
        state__in=(State.ACTIVE, State.OVER),
        starts_at__lt=instant,
        ends_at__gt=instant - SETTLES_FOR,
    )
    for window in recent:
        _measure(window, min(window.until, instant))
    return len(recent)


def _advance(state: str, now: datetime, **due: datetime) -> int:
    keys = MaintenanceWindow.objects.filter(state=state, **due).values_list("pk", flat=True)
    return sum(_advance_one(key, state, now) for key in keys)


@transaction.atomic
def _advance_one(key: int, before: str, now: datetime) -> int:
    """One window that is still in the state in which it was found."""
    row = MaintenanceWindow.objects.select_for_update().filter(pk=key, state=before).first()
    if row is None:
        return 0
    if before == State.SCHEDULED and row.ends_at > now:
        _begin(row, now)
    else:
        # One that nobody saw begin, because the portal was down all the time, is over too.
        row.state = State.OVER
        _save_raised(row)
        _tell_turn("maintenance.over", row)
    return 1


def _begin(window: MaintenanceWindow, now: datetime) -> None:
    window.state = State.ACTIVE
    _save_raised(window)
    _write_floors(window)
    _drain_flavor(window, now)
    _tell_turn("maintenance.begin", window)


def _save_raised(window: MaintenanceWindow) -> None:
    window.generation += 1
    window.save()
    announce(Work.SYNC)


def _tell_turn(action: str, window: MaintenanceWindow) -> None:
    _tell(None, action, window, window.reason, after=state_of(window, "place", "state"))


def _tell(
    actor: User | None, action: str, window: MaintenanceWindow, reason: str, **states: Any
) -> None:
    slug = window.cluster.slug if window.cluster is not None else ""
    audit(actor, action, f"maintenance:{window.pk}", cluster=slug, reason=reason, **states)


def _write_floors(window: MaintenanceWindow) -> None:
    """Remember whose floors stand under the window, as they are now."""
    window.floors.all().delete()
    seconds = int((window.ends_at - window.starts_at).total_seconds())
    MaintenanceFloor.objects.bulk_create(
        MaintenanceFloor(
            window=window,
            workspace=row.workspace,
            flavor=row.flavor,
            gpus=row.gpus,
            committed=row.committed,
        )
        for row in floors_at_stake(covered_workers(window.cluster), window.flavor, seconds=seconds)
    )


def _drain_flavor(window: MaintenanceWindow, now: datetime) -> int:
    """Have every job that holds a drained flavor there stop and queue again, once per window."""
    if not window.drains or window.flavor is None:
        return 0
    holding = Seen.objects.filter(
        cluster__slug__in=covered_workers(window.cluster),
        phase__in=HOLDING,
        gpus__has_key=window.flavor.slug,
    ).values_list("namespace", "name", "cluster", "uid", "is_remote_copy")
    own = {(cluster, uid) for _, _, cluster, uid, is_copy in holding if not is_copy}
    copied = {(namespace, name) for namespace, name, _, _, is_copy in holding if is_copy}
    if copied:
        submitted = Seen.objects.filter(
            at_keys(copied),
            cluster__role=Cluster.Role.MANAGER,
            is_remote_copy=False,
            phase__in=HOLDING,
        )
        own |= {
            (row.cluster_id, row.uid) for row in submitted if (row.namespace, row.name) in copied
        }
    return _restart(window, own, now)


def _restart(window: MaintenanceWindow, jobs: Iterable[tuple[int, str]], now: datetime) -> int:
    wanted = set(jobs)
    told = WorkloadAction.objects.filter(uid__in={uid for _, uid in wanted})
    known = {
        (row.cluster_id, row.uid)
        for row in told
        if row.window_id == window.pk or row.state == WorkloadAction.State.WAITING
    }
    rows = Seen.objects.filter(uid__in={uid for _, uid in wanted - known})
    made = WorkloadAction.objects.bulk_create(
        [
            WorkloadAction(
                cluster_id=row.cluster_id,
                uid=row.uid,
                namespace=row.namespace,
                name=row.name,
                verb=WorkloadAction.Verb.RESTART,
                reason=f"Maintenance of {window.place}: {window.reason}"[:300],
                window=window,
                next_attempt_at=now,
            )
            for row in rows
            if (row.cluster_id, row.uid) in wanted - known
        ],
        ignore_conflicts=True,
    )
    announce(Work.ACTIONS)
    return len(made)


def _faults(
    cluster: Cluster | None,
    flavor: Flavor | None,
    starts_at: datetime | None,
    ends_at: datetime,
    *,
    now: datetime,
) -> list[Fault]:
    """Everything that is wrong with place and time."""
    faults = []
    if cluster is None and flavor is None:
        words = (
            "Choose a worker, a flavor, or both. Maintenance of the whole fleet at once is not "
            "possible."
        )
        faults.append(Fault("cluster", "nothing_covered", words))
    if cluster is not None and not cluster.runs_jobs:
        words = "Jobs run on workers; the manager only takes them in. Hold the budgets instead."
        faults.append(Fault("cluster", "not_a_worker", words))
    elif cluster is not None and cluster.state != Cluster.State.ACTIVE:
        faults.append(Fault("cluster", "not_active", f"{cluster.name} is being removed."))
    if flavor is not None and flavor.archived_at is not None:
        faults.append(Fault("flavor", "archived", f"{flavor.name} is archived."))
    faults += [
        Fault(name, "not_whole_seconds", "Give a time with its time zone, in whole seconds.")
        for name, instant in (("starts_at", starts_at), ("ends_at", ends_at))
        if instant is not None and (instant.tzinfo is None or instant.microsecond)
    ]
    if any(fault.code == "not_whole_seconds" for fault in faults):
        return faults
    begin = starts_at or now
    if begin < now:
        words = "The start is in the past; leave it empty to start now."
        faults.append(Fault("starts_at", "starts_at_past", words))
    if ends_at <= begin:
        faults.append(Fault("ends_at", "empty_window", "The end has to be after the start."))
    elif ends_at - begin > LONGEST:
        words = (
            f"A window can last at most {LONGEST.days} days. For longer, de-register the worker."
        )
        faults.append(Fault("ends_at", "window_too_long", words))
    return faults


def _measure(window: MaintenanceWindow, until: datetime) -> None:
    floors = list(window.floors.all())
    first = window.starts_at.replace(minute=0, second=0, microsecond=0)
    hours = UsageRecord.objects.filter(
        workspace__in={row.workspace_id for row in floors}, hour__gte=first, hour__lt=until
    )
    facts: dict[tuple[int, datetime], dict[int, tuple[int, int]]] = {}
    for workspace, hour, flavor, short, pending in (
        hours.order_by()
        .values_list("workspace", "hour", "flavor")
        .annotate(short=Sum(F("committed") - F("committed_used")), waited=Sum("pending"))
    ):
        facts.setdefault((workspace, hour), {})[flavor] = (short, pending)
    unmet = dict.fromkeys((row.pk for row in floors), 0)
    for (workspace, hour), flavors in facts.items():
        covered = min(until, hour + HOUR) - max(window.starts_at, hour)
        seconds = max(0, int(covered.total_seconds()))
        own = [row for row in floors if row.workspace_id == workspace]
        short = [max(0, min(flavors.get(r.flavor_id, (0, 0))[0], r.gpus * seconds)) for r in own]
        asked = sum(waited for _, waited in flavors.values())
        missing = min(sum(short), asked)
        for row, part in zip(own, apportion(missing, weights=short), strict=True):
            unmet[row.pk] += part
    changed = [row for row in floors if row.unmet != unmet[row.pk]]
    for row in changed:
        row.unmet = unmet[row.pk]
    MaintenanceFloor.objects.bulk_update(changed, ["unmet"], batch_size=500)
