"""Who goes first where fair sharing is on: what each borrows, against its weight.

Numbers come from the engine of a cluster, and its shift keeps them up to date. Order is that of
shares alone: jobs of the same share go by priority and age.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from typing import Final

from django.utils import timezone

from budgets.models import Account, User, Workspace
from budgets.plan import POOL_PREFIX
from clusters.kueue.amounts import UNLIMITED, whole
from clusters.kueue.configuration import Configuration
from clusters.models import Cluster, QueueShare
from clusters.selectors.explained import ENGINE_ROLES
from clusters.selectors.fleet import visible_clusters

MOST_ROWS: Final = 150
"""Of one page: those that go last are left out and counted."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One workspace or account among those beside it.

    Attributes:
        weight: As the cluster has it.
        borrowed, lendable: Of the resource that decides: what it borrows, what could be lent.
        share: Kueue's weighted share, in thousandths; None without a bound, of weight 0.
        place: 1 goes first; the same for equal shares.
    """

    name: str
    is_account: bool
    weight: str
    resource: str
    borrowed: int
    lendable: int
    share: int | None
    place: int = 0

    @property
    def words(self) -> str:
        """Why it stands where it does."""
        if not self.borrowed:
            return "It borrows nothing, so its jobs go before those of everybody who does."
        if self.share is None:
            return (
                "Its weight is 0 and it borrows, so its jobs go last and are the first to be "
                "stopped for others."
            )
        return f"It borrows {self.borrowed:,} of {self.lendable:,} that can be lent."


@dataclass(frozen=True, slots=True)
class Contest:
    """Those that share one Cohort on one cluster, in the order in which they go.

    Attributes:
        cohort: Account, or platform pool.
        is_stale: The shift that keeps the numbers up to date is not at work.
    """

    cluster: str
    cohort: str
    is_pool: bool
    rows: tuple[Standing, ...]
    is_stale: bool

    def of(self, name: str) -> Standing | None:
        """Where one of them stands."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A contest as it is and as it would be with another weight, side by side."""

    cluster: str
    rows: tuple[tuple[Standing, Standing], ...]
    is_stale: bool


def contests(user: User) -> tuple[list[Contest], int]:
    """Every contest where jobs are submitted, and how many rows were left out. Three queries."""
    return _contests(visible_clusters(user).taking_jobs().values_list("slug", flat=True))


def contest_of(place: Workspace | Account) -> list[Contest]:
    """The contests in which one stands, cluster by cluster; the caller may see it.

    One query where it stands in none, else four.
    """
    is_account = isinstance(place, Account)
    name = place.slug if isinstance(place, Account) else place.namespace
    slugs = Cluster.objects.active().taking_jobs().values_list("slug", flat=True)
    beside = QueueShare.objects.filter(cluster__in=slugs, is_cohort=is_account, name=name)
    parents = set(beside.values_list("parent", flat=True))
    found, _ = _contests(slugs, parents=parents) if parents else ([], 0)
    return [each for each in found if each.of(name)]


def fair_clusters() -> list[str]:
    """Names of the clusters where jobs are submitted and fair sharing is on. One query."""
    rows = Cluster.objects.active().taking_jobs().only("name", "kueue_configuration")
    return [row.name for row in rows if _is_fair(row)]


def with_weight(contest: Contest, name: str, weight: Decimal) -> Outlook:
    """What a weight would change, if everybody borrows what they borrow now."""
    after = [
        replace(row, weight=f"{weight.normalize():f}", share=_share(row, weight))
        if row.name == name
        else row
        for row in contest.rows
    ]
    then = {row.name: row for row in _placed(after)}
    rows = tuple((row, then[row.name]) for row in contest.rows)
    return Outlook(contest.cluster, rows, contest.is_stale)


def _is_fair(cluster: Cluster) -> bool:
    try:
        return Configuration.from_document(cluster.kueue_configuration or None).has_fair_sharing
    except ValueError:
        return False  # told on its page


def _contests(
    slugs: Iterable[str], *, parents: Iterable[str] | None = None
) -> tuple[list[Contest], int]:
    clusters = {
        row.slug: row
        for row in Cluster.objects.filter(slug__in=list(slugs)).prefetch_related("shifts")
    }
    rows = QueueShare.objects.filter(cluster__in=clusters)
    if parents is not None:
        rows = rows.filter(parent__in=list(parents))
    ordered = rows.order_by("cluster", "parent", "share", "name")
    found = list(ordered[: MOST_ROWS + 1]) if parents is None else list(ordered)
    left_out = ordered.count() - MOST_ROWS if parents is None and len(found) > MOST_ROWS else 0
    kept = found[: len(found) - bool(left_out)]
    contests, now = [], timezone.now()
    for (slug, parent), group in groupby(kept, key=lambda row: (row.cluster, row.parent)):
        shifts = [row for row in clusters[slug].shifts.all() if row.role in ENGINE_ROLES]
        contests.append(
            Contest(
                cluster=slug,
                cohort=parent.removeprefix(POOL_PREFIX),
                is_pool=parent.startswith(POOL_PREFIX),
                rows=tuple(_placed([_standing(row) for row in group])),
                is_stale=not any(row.is_alive(now=now) for row in shifts),
            )
        )
    return contests, left_out


def _standing(row: QueueShare) -> Standing:
    return Standing(
        name=row.name,
        is_account=row.is_cohort,
        weight=row.weight,
        resource=row.resource,
        borrowed=row.borrowed if row.resource else 0,
        lendable=row.lendable,
        share=None if row.share >= whole(UNLIMITED) else row.share,
    )


def _placed(rows: Iterable[Standing]) -> Iterable[Standing]:
    """In the order of shares, those without a bound last; equal shares have the same place."""
    ordered = sorted(rows, key=lambda row: (row.share is None, row.share or 0, row.name))
    place, before = 0, None
    for number, row in enumerate(ordered, start=1):
        if number == 1 or row.share != before:
            place, before = number, row.share
        yield replace(row, place=place)


def _share(row: Standing, weight: Decimal) -> int | None:
    """As Kueue rounds it: up, in thousandths of what can be lent, by the weight."""
    if not row.borrowed or not row.lendable:
        return 0
    if not weight:
        return None
    over, under = weight.as_integer_ratio()
    return -(-row.borrowed * 1000 * under // (row.lendable * over))
