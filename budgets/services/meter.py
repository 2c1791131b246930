"""Hour facts out of intervals, revisions and pools; only the hours that may have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from django.db import transaction
from django.db.models import Min, Q

from budgets import metering
from budgets.errors import PortalError
from budgets.models import (
    AccountUsage,
    BudgetRevision,
    Flavor,
    Interval,
    MeterState,
    PendingSpan,
    UsageRecord,
    WorkloadUsage,
    Workspace,
)
from budgets.selectors.clock import utc_now
from budgets.selectors.metered import held_intervals, metered_pools, metered_revisions
from budgets.services.billing.corrections import FactWriter
from budgets.services.reconciliation import check_capacity
from budgets.services.totals import rewrite_totals
from budgets.units import Period

STEP = timedelta(hours=24)
HOUR_AMOUNTS = ("committed", "committed_used", "burst", "borrowed", "lent", "idle", "pending")
ACCOUNT_AMOUNTS = ("burst", "from_pool", "lent", "from_platform", "uncovered")
WORKLOAD_AMOUNTS = ("committed_used", "burst")
_HELD = attrgetter(*HOUR_AMOUNTS[:-1])
_COVERED = attrgetter(*ACCOUNT_AMOUNTS)


class MeterError(PortalError):
    """The facts of a window do not add up; nothing of it was written."""


@dataclass(frozen=True, slots=True)
class MeterSummary:
    """What one run of the meter did.

    Attributes:
        start: First instant that was metered; None when there was nothing to do.
        end: Facts stand up to it.
        written: Rows that were new or changed.
        removed: Rows that are no longer true.
    """

    start: datetime | None
    end: datetime | None
    written: int = 0
    removed: int = 0


def meter_usage(now: datetime | None = None) -> MeterSummary:
    """Bring the hour facts up to date, a day at a time, each day in a transaction of its own.

    The first hour to write is that of the earliest change since the last run, or where the last
    run ended; the last is the newest that any cluster is complete to, so that a lost cluster
    never stops the others. Facts that did not change are not written.

    Args:
        now: UTC; None for the present. Nothing is metered beyond it.

    Raises:
        MeterError: The core's identities do not hold for a day; days before it are written.
    """
    instant = now or utc_now()
    first: datetime | None = None
    end: datetime | None = None
    written = removed = 0
    while True:
        step = _meter_step(instant)
        if step is None:
            break
        first = first or step.start
        end = step.end
        written += step.written
        removed += step.removed
    check_capacity(since=first, now=instant)
    return MeterSummary(first, end, written, removed)


@transaction.atomic
def _meter_step(now: datetime) -> MeterSummary | None:
    """Meter at most a day; the lock on the meter's rows keeps a second meter out."""
    states = list(MeterState.objects.select_for_update().order_by("pk"))
    known = [row.complete_until for row in states if row.complete_until is not None]
    if not known:
        return None
    end = min(max(known), now)
    start = _first_hour(states)
    if start is None or start >= end or not _is_behind(states, end):
        return None
    stop = min(start + STEP, end)
    written, removed = _rewrite_window(Period(start, stop))
    is_last = stop == end
    for row in states:
        row.dirty_from = None if is_last else stop
        row.metered_until = stop if row.metered_until is None else max(row.metered_until, stop)
    MeterState.objects.bulk_update(states, ["dirty_from", "metered_until"])
    return MeterSummary(start, stop, written, removed)


def _is_behind(states: Sequence[MeterState], end: datetime) -> bool:
    return any(
        row.dirty_from is not None or row.metered_until is None or row.metered_until < end
        for row in states
    )


def _first_hour(states: Sequence[MeterState]) -> datetime | None:
    """The hour in which to begin; of a first run that of the first promise or use."""
    marks = [row.dirty_from for row in states if row.dirty_from is not None]
    metered = [row.metered_until for row in states if row.metered_until is not None]
    if metered:
        # A cluster that is new to the meter has its own mark; time passed for all of them.
        marks.append(max(metered))
    else:
        firsts = (
            Interval.objects.aggregate(first=Min("start"))["first"],
            BudgetRevision.objects.filter(state=BudgetRevision.State.LIVE).aggregate(
                first=Min("valid_from")
            )["first"],
        )
        marks += [first for first in firsts if first is not None]
    return min(marks).replace(minute=0, second=0, microsecond=0) if marks else None


def _rewrite_window(window: Period) -> tuple[int, int]:
    """Meter a window and write what differs from what stands, or of closed months corrections."""
    workspaces = {row.namespace: row for row in Workspace.objects.select_related("account")}
    flavors = dict(Flavor.objects.values_list("slug", "pk"))
    pools = metered_pools(workspaces.values(), window)
    held = list(held_intervals(window))
    usage = metering.meter(held, metered_revisions(window), pools, window)
    faults = metering.identity_faults(usage)
    if faults:
        raise MeterError(f"{window.start:%Y-%m-%dT%H}: " + "; ".join(faults))
    accounts = {row.account.slug: row.account_id for row in workspaces.values()}
    keys = {namespace: row.pk for namespace, row in workspaces.items()}
    facts = FactWriter(window)
    counts = [
        facts.rewrite(
            UsageRecord.objects.filter(hour__gte=window.start, hour__lt=window.end),
            key=("workspace_id", "flavor_id", "hour", "start"),
            amounts=HOUR_AMOUNTS,
            wanted=_hour_rows(usage, window, workspaces, flavors),
        ),
        facts.rewrite(
            AccountUsage.objects.filter(hour__gte=window.start, hour__lt=window.end),
            key=("account_id", "flavor_id", "hour", "start"),
            amounts=ACCOUNT_AMOUNTS,
            wanted={
                (accounts[fact.account], flavors[fact.flavor], fact.hour, fact.start): (
                    _COVERED(fact)
                )
                for fact in usage.accounts
            },
        ),
        facts.rewrite(
            WorkloadUsage.objects.filter(hour__gte=window.start, hour__lt=window.end),
            key=("cluster", "uid", "flavor", "hour", "start", "workspace_id"),
            natural=("cluster", "uid", "flavor", "hour", "start"),
            amounts=WORKLOAD_AMOUNTS,
            wanted={
                (
                    fact.cluster,
                    fact.uid,
                    fact.flavor,
                    fact.hour,
                    fact.start,
                    keys[fact.workspace],
                ): (fact.committed_used, fact.burst)
                for fact in usage.workloads
            },
        ),
    ]
    rewrite_totals(window)
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def _hour_rows(
    usage: metering.Usage,
    window: Period,
    workspaces: Mapping[str, Workspace],
    flavors: Mapping[str, int],
) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Facts of workspaces with what waited; waiting counts on the home flavor, for a job that
    waits has none yet.
    """
    waiting = _pending_by_hour(window, workspaces)
    keys = {namespace: row.pk for namespace, row in workspaces.items()}
    found: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for fact in usage.hours:
        key = (keys[fact.workspace], flavors[fact.flavor], fact.hour, fact.start)
        found[key] = (*_HELD(fact), waiting.pop(key, 0))
    for key, seconds in waiting.items():
        found[key] = (0,) * (len(HOUR_AMOUNTS) - 1) + (seconds,)
    return found


def _pending_by_hour(
    window: Period, workspaces: Mapping[str, Workspace]
) -> dict[tuple[Any, ...], int]:
    homes = {row.pk: row.home_flavor_id for row in workspaces.values()}
    spans = [
        metering.Span(key=str(workspace), gpus=gpus, start=start, end=end)
        for workspace, gpus, start, end in PendingSpan.objects.filter(
            Q(end__isnull=True) | Q(end__gt=window.start),
            start__lt=window.end,
            workspace__isnull=False,
        ).values_list("workspace_id", "gpus", "start", "end")
    ]
    return {
        (int(key), homes[int(key)], hour, max(hour, window.start)): seconds
        for (hour, key), seconds in metering.seconds_by_hour(spans, window).items()
        if seconds
    }
