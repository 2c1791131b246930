"""What disagrees with the ledger, and the capacity identity by hour, for people of finance.

Source: issue 6, section 1; spec money, sections 1.3 to 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Case, Q, QuerySet, When

from budgets.amounts import COVER, HELD, METERED
from budgets.errors import NotAllowed
from budgets.metering import CapacityFact
from budgets.models import (
    AccountUsage,
    BillingPeriod,
    CapacityWatch,
    Discrepancy,
    UsageRecord,
    User,
    WorkloadUsage,
)
from budgets.models.reconciliation import UNSETTLED
from budgets.selectors.billing.capacity import capacity_facts
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of
from budgets.selectors.usage.scope import amounts_of, sums_of
from budgets.units import Period, utc_hour


@dataclass(frozen=True, slots=True)
class LedgerIdentity:
    """Two sums of GPU-seconds that have to be equal."""

    left: str
    right: str
    left_seconds: int
    right_seconds: int

    @property
    def off(self) -> int:
        """By how much they are not."""
        return self.left_seconds - self.right_seconds


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One UTC day: the identities of the ledger, and of every flavor and hour of one cluster.

    Attributes:
        cluster: Slug; empty while no cluster is sampled.
        day: UTC.
        facts: By hour and flavor.
        clusters: Every cluster that is sampled.
        known_until: Hours up to here were compared.
        sums: What has to be equal, over all workspaces.
        gaps: Where a single hour does not add up, in words.
    """

    cluster: str
    day: date
    facts: tuple[CapacityFact, ...]
    clusters: tuple[str, ...]
    known_until: datetime | None
    sums: tuple[LedgerIdentity, ...]
    gaps: tuple[str, ...]


def unsettled_in(period: BillingPeriod, names: Mapping[str, str]) -> Iterator[str]:
    """Unsettled discrepancies that reach into a period, in words, with the names of clusters."""
    rows = Discrepancy.objects.filter(
        Q(end__isnull=True) | Q(end__gt=period.start),
        start__lt=period.end,
        state__in=UNSETTLED,
    )
    for row in rows.order_by("start", "pk"):
        what = row.subject or row.flavor
        name = names.get(row.cluster, row.cluster)
        place = f"{name}, {what}" if what else name
        waits = " (waits for approval)" if row.state == Discrepancy.State.PROPOSED else ""
        yield f"{place}, from {row.start:%Y-%m-%d %H:%M} UTC: {row.message}{waits}"


def visible_discrepancies(user: User) -> QuerySet[Discrepancy]:
    """Discrepancies for platform roles, the newest first; for others none."""
    found = Discrepancy.objects.select_related("proposed_by", "decided_by")
    return found if roles_of(user).sees_everything else found.none()


def discrepancies_to_settle(user: User) -> QuerySet[Discrepancy]:
    """The same, those first that stand in the way of a close."""
    is_settled = Case(When(state__in=UNSETTLED, then=0), default=1)
    return visible_discrepancies(user).order_by(is_settled, "-start", "cluster", "pk")


def reconciliation(user: User, *, cluster: str = "", day: date | None = None) -> Reconciliation:
    """The identities of one cluster and UTC day.

    Args:
        user: Admin, finance or auditor.
        cluster: Slug; empty or unknown for the first that is sampled.
        day: None for today.

    Raises:
        NotAllowed: The user does not see the whole platform.
    """
    if not roles_of(user).sees_everything:
        raise NotAllowed("Only admins, finance and auditors can see the use of the whole capacity.")
    watches = {row.cluster: row for row in CapacityWatch.objects.order_by("cluster")}
    chosen = cluster if cluster in watches else next(iter(watches), "")
    when = day or utc_now().date()
    start = datetime(when.year, when.month, when.day, tzinfo=UTC)
    window = Period(start, start + timedelta(days=1))
    until = min(window.end, utc_hour(utc_now()) + timedelta(hours=1))
    has_begun = chosen and start < until
    facts = capacity_facts(chosen, Period(start, until)) if has_begun else []
    return Reconciliation(
        cluster=chosen,
        day=when,
        facts=tuple(facts),
        clusters=tuple(watches),
        known_until=watches[chosen].checked_until if chosen else None,
        sums=_sums(window),
        gaps=tuple(identity_gaps(window)),
    )


def _sums(window: Period) -> tuple[LedgerIdentity, ...]:
    """The identities of spec money 3.5, over every workspace and account. Three queries."""
    hours = {"hour__gte": window.start, "hour__lt": window.end}
    use = _added(UsageRecord.objects.filter(**hours), METERED)
    cover = _added(AccountUsage.objects.filter(**hours), COVER)
    work = _added(WorkloadUsage.objects.filter(**hours), HELD)
    covered = cover["from_pool"] + cover["lent"] + cover["from_platform"] + cover["uncovered"]
    return (
        LedgerIdentity(
            "committed",
            "used + lent + idle",
            use["committed"],
            use["committed_used"] + use["lent"] + use["idle"],
        ),
        LedgerIdentity("burst", "pool + lent + platform + uncovered", use["burst"], covered),
        LedgerIdentity("borrowed", "lent", use["borrowed"], use["lent"]),
        LedgerIdentity(
            "used + burst of workspaces",
            "used + burst of workloads",
            use["committed_used"] + use["burst"],
            work["committed_used"] + work["burst"],
        ),
    )


def _added(facts: QuerySet[Any], names: Sequence[str]) -> dict[str, int]:
    return amounts_of(facts.order_by().aggregate(**sums_of(names)), names)


MOST = 20

# Each workspace's hour against its workloads.
WORKLOADS = """
SELECT workspace.namespace, sums.flavor, sums.start, SUM(sums.used), SUM(sums.above)
FROM (
    SELECT workspace_id, flavor.slug AS flavor, hour, start, committed_used AS used, burst AS above
    FROM budgets_usagerecord usage JOIN budgets_flavor flavor ON flavor.id = usage.flavor_id
    WHERE usage.hour >= %s AND usage.hour < %s
    UNION ALL
    SELECT workspace_id, flavor, hour, start, -committed_used, -burst
    FROM budgets_workloadusage WHERE hour >= %s AND hour < %s
) sums JOIN budgets_workspace workspace ON workspace.id = sums.workspace_id
GROUP BY workspace.namespace, sums.flavor, sums.start
HAVING SUM(sums.used) <> 0 OR SUM(sums.above) <> 0
ORDER BY sums.start, workspace.namespace, sums.flavor LIMIT %s
"""

# Each account's hour against its workspaces: burst, lent, borrowed.
ACCOUNTS = """
SELECT account.slug, flavor.slug, sums.start, SUM(sums.above), SUM(sums.lent), SUM(sums.borrowed)
FROM (
    SELECT workspace.account_id, usage.flavor_id, usage.start,
        usage.burst AS above, usage.lent AS lent, usage.borrowed AS borrowed
    FROM budgets_usagerecord usage
    JOIN budgets_workspace workspace ON workspace.id = usage.workspace_id
    WHERE usage.hour >= %s AND usage.hour < %s
    UNION ALL
    SELECT account_id, flavor_id, start, -burst, -lent, -lent
    FROM budgets_accountusage WHERE hour >= %s AND hour < %s
) sums
JOIN budgets_account account ON account.id = sums.account_id
JOIN budgets_flavor flavor ON flavor.id = sums.flavor_id
GROUP BY account.slug, flavor.slug, sums.start
HAVING SUM(sums.above) <> 0 OR SUM(sums.lent) <> 0 OR SUM(sums.borrowed) <> 0
ORDER BY sums.start, account.slug, flavor.slug LIMIT %s
"""


def identity_gaps(period: BillingPeriod | Period) -> Iterator[str]:
    """Say where facts of a period do not add up; nothing when the books are right.

    The identities are those of :func:`budgets.metering.identity_faults`, which the meter asks of
    every window before it writes; here the database asks them, at the size of a month, of what
    stands in the tables, whoever wrote it. That committed = used + lent + idle and burst = what
    covered it is a constraint of each row.
    """
    bounds = (period.start, period.end, period.start, period.end, MOST)
    with connection.cursor() as cursor:
        cursor.execute(WORKLOADS, bounds)
        for namespace, flavor, start, used, over in cursor.fetchall():
            yield (
                f"{namespace}/{flavor} at {start}: the use of its workloads differs from the hour "
                f"by {used} committed and {over} burst GPU-seconds."
            )
        cursor.execute(ACCOUNTS, bounds)
        for account, flavor, start, over, lent, borrowed in cursor.fetchall():
            yield (
                f"account {account}/{flavor} at {start}: the account differs from its workspaces "
                f"by {over} burst, {lent} lent and {borrowed} borrowed GPU-seconds."
            )
