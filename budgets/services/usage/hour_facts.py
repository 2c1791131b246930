"""Hour facts of some windows: out of what they are worked out, and how they are stored.

Working out is pure and is done a window ahead in a thread beside, while the database is busy with
the rows of the window before; only the caller's thread speaks with the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from django.db.models import Q

from budgets import metering
from budgets.amounts import COVER, HELD, METERED, STORED
from budgets.errors import PortalError
from budgets.models import AccountUsage, Flavor, PendingSpan, UsageRecord, WorkloadUsage, Workspace
from budgets.models.reading import read_rows
from budgets.selectors.usage.metered import held_intervals, metered_pools, metered_revisions
from budgets.services.billing.corrections import FactWriter
from budgets.services.usage.totals import rewrite_totals
from budgets.units import Period

_PLACED = attrgetter("cluster", "uid", "flavor", "hour", "start")
_METERED = attrgetter(*METERED)
_COVERED = attrgetter(*COVER)
_USED = attrgetter(*HELD)

Rows = Mapping[tuple[Any, ...], tuple[int, ...]]


class MeterError(PortalError):
    """The facts of a window do not add up; nothing of it was written."""


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """What the tables of facts have to say of a window: natural key → amounts."""

    window: Period
    hours: Rows
    accounts: Rows
    workloads: Rows


class FactSource:
    """Everything that the facts of a span of time are worked out from, read once.

    Args:
        span: All windows that are asked for later lie in it.
    """

    def __init__(self, span: Period) -> None:
        workspaces = list(Workspace.objects.select_related("account"))
        self._keys = {row.namespace: row.pk for row in workspaces}
        self._homes = {row.pk: row.home_flavor_id for row in workspaces}
        self._accounts = {row.account.slug: row.account_id for row in workspaces}
        self._flavors = dict(Flavor.objects.values_list("slug", "pk"))
        self._pools = metered_pools(workspaces, span)
        self._revisions = metered_revisions(span)
        self._held = list(held_intervals(span))
        self._waiting = [
            metering.KeyedSpan(key=str(workspace), gpus=gpus, start=start, end=end)
            for workspace, gpus, start, end in read_rows(
                PendingSpan.objects.filter(
                    Q(end__isnull=True) | Q(end__gt=span.start),
                    start__lt=span.end,
                    workspace__isnull=False,
                ).values_list("workspace_id", "gpus", "start", "end")
            )
        ]

    def in_turn(self, windows: Sequence[Period]) -> Iterator[WindowFacts]:
        """Yield the facts of every window; the next one's are worked out meanwhile.

        Raises:
            MeterError: When it is the turn of a window for which the core's identities do not
                hold; MeteringError when its input contradicts itself.
        """
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="facts") as beside:
            coming = beside.submit(self.facts_of, windows[0])
            for following in windows[1:]:
                facts, coming = coming.result(), beside.submit(self.facts_of, following)
                yield facts
            yield coming.result()

    def facts_of(self, window: Period) -> WindowFacts:
        """Work out the facts of one window; asks the database nothing.

        Raises:
            MeterError: The core's identities do not hold.
            MeteringError: The input contradicts itself.
        """
        held = [row for row in self._held if _overlaps(row, window)]
        usage = metering.meter(held, self._revisions, self._pools, window)
        faults = metering.identity_faults(usage)
        if faults:
            raise MeterError(f"{window.start:%Y-%m-%dT%H}: " + "; ".join(faults))
        keys, flavors, accounts = self._keys, self._flavors, self._accounts
        return WindowFacts(
            window=window,
            hours=self._hour_rows(usage, window),
            accounts={
                (accounts[fact.account], flavors[fact.flavor], fact.hour, fact.start): (
                    _COVERED(fact)
                )
                for fact in usage.accounts
            },
            workloads={
                (keys[fact.workspace], *_PLACED(fact)): _USED(fact) for fact in usage.workloads
            },
        )

    def _hour_rows(self, usage: metering.Usage, window: Period) -> Rows:
        """Facts of workspaces with what waited; waiting counts on the home flavor, for a job that
        waits has none yet.
        """
        waiting = self._waiting_by_hour(window)
        keys, flavors = self._keys, self._flavors
        found: dict[tuple[Any, ...], tuple[int, ...]] = {}
        for fact in usage.hours:
            key = (keys[fact.workspace], flavors[fact.flavor], fact.hour, fact.start)
            found[key] = (*_METERED(fact), waiting.pop(key, 0))
        for key, seconds in waiting.items():
            found[key] = (*(0,) * len(METERED), seconds)
        return found

    def _waiting_by_hour(self, window: Period) -> dict[tuple[Any, ...], int]:
        spans = [span for span in self._waiting if _overlaps(span, window)]
        return {
            (int(key), self._homes[int(key)], hour, max(hour, window.start)): seconds
            for (hour, key), seconds in metering.seconds_by_hour(spans, window).items()
            if seconds
        }


def _overlaps(row: metering.Held | metering.KeyedSpan, window: Period) -> bool:
    return row.start < window.end and (row.end is None or row.end > window.start)


def write_facts(facts: WindowFacts, *, now: datetime | None = None) -> tuple[int, int]:
    """Write what differs from what stands, or of closed months corrections; totals with it.

    Returns:
        Rows of facts written, and deleted.
    """
    window = facts.window
    writer = FactWriter(window, now=now)
    tables: tuple[tuple[Any, tuple[str, ...], tuple[str, ...], Rows], ...] = (
        (UsageRecord, ("workspace_id", "flavor_id"), STORED, facts.hours),
        (AccountUsage, ("account_id", "flavor_id"), COVER, facts.accounts),
        (WorkloadUsage, ("workspace_id", "cluster", "uid", "flavor"), HELD, facts.workloads),
    )
    counts = [
        writer.rewrite(
            table.objects.filter(hour__gte=window.start, hour__lt=window.end),
            key=(*owner, "hour", "start"),
            amounts=amounts,
            wanted=wanted,
        )
        for table, owner, amounts, wanted in tables
    ]
    rewrite_totals(window)
    return sum(count[0] for count in counts), sum(count[1] for count in counts)
