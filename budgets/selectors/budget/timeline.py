"""The fleet's timeline out of the database: capacities, pools, live revisions, envelopes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from django.db.models import F, Q, QuerySet, Sum

from budgets.models import (
    Allocation,
    BudgetLine,
    BudgetRevision,
    Capacity,
    Envelope,
    Flavor,
    MeasuredCapacity,
    PoolAllocation,
    PoolAmount,
)
from budgets.plan import (
    DatedGpus,
    EnvelopeLimits,
    FlavorTerms,
    FleetTimeline,
    Line,
    RevisionSpan,
    Spill,
    amounts_at,
)


def flavor_terms() -> dict[str, FlavorTerms]:
    """All flavors by slug, archived ones too."""
    return {
        row.slug: FlavorTerms(
            slug=row.slug,
            node_gpus=row.gpus_per_node,
            factor=Fraction(row.oversubscription_factor),
            is_archived=row.archived_at is not None,
            name=row.name,
        )
        for row in Flavor.objects.only(
            "slug", "name", "gpus_per_node", "oversubscription_factor", "archived_at", "position"
        )
    }


def flavor_names() -> dict[str, str]:
    """Slug → name, archived ones too. One query."""
    return dict(Flavor.objects.order_by().values_list("slug", "name"))


def fleet_timeline(start: datetime, *, flavors: Iterable[str] | None = None) -> FleetTimeline:
    """Load everything that can be in force at or after an instant.

    Args:
        start: Rows that ended before it, or that are superseded for ever by it, are left out.
        flavors: Flavor slugs of interest; None for all.

    Returns:
        A timeline; seven queries, whatever the size of the fleet.
    """
    chosen = Q() if flavors is None else Q(flavor__slug__in=list(flavors))
    open_rows = Q(valid_until__isnull=True) | Q(valid_until__gt=start)
    amounts = PoolAmount.objects.filter(chosen, open_rows, pool__archived_at__isnull=True)
    amount_rows = list(
        amounts.order_by("pk").values_list(
            "pool__slug",
            "flavor__slug",
            "gpus",
            "valid_from",
            "valid_until",
            "pk",
            "pool__account__slug",
        )
    )
    return FleetTimeline(
        flavors={
            slug: terms
            for slug, terms in flavor_terms().items()
            if flavors is None or slug in set(flavors)
        },
        capacities=stated_capacities(chosen, open_rows),
        measured=_measured(chosen),
        pool_amounts=tuple(DatedGpus(*row[:6]) for row in amount_rows),
        pool_accounts={row[0]: row[6] for row in amount_rows},
        revisions=live_revisions(start, flavors=flavors),
        envelopes={
            (account, flavor): EnvelopeLimits(committed, ceiling, pool)
            for account, flavor, committed, ceiling, pool in Envelope.objects.filter(
                chosen
            ).values_list("account__slug", "flavor__slug", "committed", "ceiling", "pool")
        },
    )


def live_revisions(
    start: datetime,
    *,
    flavors: Iterable[str] | None = None,
    namespaces: Iterable[str] | None = None,
) -> tuple[RevisionSpan, ...]:
    """Live revisions that can be in force at or after ``start``. Two queries.

    Args:
        start: UTC.
        flavors: Only lines of these.
        namespaces: Only of these workspaces; None for all.
    """
    some = Q() if namespaces is None else Q(budget__workspace__namespace__in=list(namespaces))
    revisions = list(
        BudgetRevision.objects.filter(
            Q(valid_until__isnull=True) | Q(valid_until__gt=start),
            _not_superseded(start),
            some,
            state=BudgetRevision.State.LIVE,
        )
        .order_by("budget_id", "number")
        .values_list(
            "pk",
            "budget__workspace__namespace",
            "budget__workspace__account__slug",
            "number",
            "valid_from",
            "valid_until",
            "preference",
            "spill",
        )
    )
    lines = lines_by_revision(_lines_after(start, flavors))
    return tuple(
        RevisionSpan(*row[1:6], tuple(lines[row[0]]), tuple(row[6]), Spill(row[7]))
        for row in revisions
    )


def _not_superseded(start: datetime) -> Q:
    """What an open-ended revision in force has superseded never comes back.

    The row in force is only a short cut here: a stale one leaves more rows, never fewer than are
    needed.
    """
    return (
        Q(budget__in_force__isnull=True)
        | Q(budget__in_force__valid_until__isnull=False)
        | Q(budget__in_force__valid_from__gt=start)
        | Q(valid_from__gt=F("budget__in_force__valid_from"))
        | Q(
            valid_from=F("budget__in_force__valid_from"),
            number__gte=F("budget__in_force__number"),
        )
    )


def _lines_after(start: datetime, flavors: Iterable[str] | None) -> QuerySet[BudgetLine]:
    """Chosen by window, for a list of a thousand keys of revisions is slower."""
    lines = BudgetLine.objects.filter(
        Q(revision__valid_until__isnull=True) | Q(revision__valid_until__gt=start),
        revision__state=BudgetRevision.State.LIVE,
    )
    return lines if flavors is None else lines.filter(flavor__slug__in=list(flavors))


def lines_by_revision(lines: QuerySet[BudgetLine]) -> Mapping[int, list[Line]]:
    """Key of a revision -> its lines, none of one that is not there. One query."""
    found: dict[int, list[Line]] = defaultdict(list)
    rows = lines.order_by("revision_id", "position")
    for row in rows.values_list("revision_id", "flavor__slug", "committed", "ceiling", "lendable"):
        found[row[0]].append(Line(*row[1:]))
    return found


def stated_capacities(*which: Q, **fields: object) -> tuple[DatedGpus, ...]:
    """What admins state, of these rows, in the order in which it was stated."""
    rows = Capacity.objects.filter(*which, **fields).order_by("pk")
    dated = rows.values_list("cluster", "flavor__slug", "gpus", "valid_from", "valid_until", "pk")
    return tuple(DatedGpus(*row) for row in dated)


def _measured(chosen: Q) -> dict[tuple[str, str], int]:
    rows = MeasuredCapacity.objects.filter(chosen)
    return {
        (cluster, flavor): gpus
        for cluster, flavor, gpus in rows.values_list("cluster", "flavor__slug", "ready_gpus")
    }


def capacity_at(
    instant: datetime, *, flavors: Iterable[str] | None = None
) -> dict[tuple[str, str], int]:
    """(cluster, flavor) -> GPUs: what an admin states for that instant, else what is measured."""
    chosen = Q() if flavors is None else Q(flavor__slug__in=list(flavors))
    ended = Q(valid_until__isnull=True) | Q(valid_until__gt=instant)
    stated = stated_capacities(chosen, ended, valid_from__lte=instant)
    return {**_measured(chosen), **amounts_at(stated, instant)}


def pool_amounts_at(instant: datetime) -> dict[tuple[str, str], int]:
    """(pool, flavor) -> GPUs in force at an instant, of pools that are not archived."""
    rows = PoolAmount.objects.filter(
        Q(valid_until__isnull=True) | Q(valid_until__gt=instant),
        pool__archived_at__isnull=True,
        valid_from__lte=instant,
    ).values_list("pool__slug", "flavor__slug", "gpus", "valid_from", "valid_until", "pk")
    return amounts_at([DatedGpus(*row) for row in rows], instant)


def free_rooms(instant: datetime, *, flavors: Iterable[str]) -> dict[str, dict[str, int]]:
    """Flavor -> worker -> GPUs that may still be promised there.

    Capacity times the flavor's factor, less what budgets and pools in force stand on; below 0
    where a worker became short. Workers are in the order of their slugs. Five queries.
    """
    wanted = sorted(set(flavors))
    terms = flavor_terms()
    rooms: dict[str, dict[str, int]] = {flavor: {} for flavor in wanted}
    for (cluster, flavor), gpus in sorted(capacity_at(instant, flavors=wanted).items()):
        rooms[flavor][cluster] = int(gpus * terms[flavor].factor)
    held = committed_at_places(line__flavor__slug__in=wanted)
    pools = gpus_at_places(
        PoolAllocation.objects.filter(flavor__slug__in=wanted, pool__archived_at__isnull=True),
        "flavor__slug",
    )
    for (cluster, flavor), gpus in [*held.items(), *pools.items()]:
        rooms[flavor][cluster] = rooms[flavor].get(cluster, 0) - gpus
    return rooms


def committed_at_places(**which: object) -> dict[tuple[str, str], int]:
    """(cluster, flavor) -> committed GPUs of budgets in force that stand there."""
    in_force = Allocation.objects.filter(
        line__revision=F("line__revision__budget__in_force"), **which
    )
    return gpus_at_places(in_force, "line__flavor__slug", "committed")


def gpus_at_places(
    rows: QuerySet[Any], flavor: str, gpus: str = "gpus"
) -> dict[tuple[str, str], int]:
    """(cluster, flavor) -> sum of the GPUs of rows, by the names of their columns."""
    sums = rows.order_by().values_list("cluster", flavor).annotate(total=Sum(gpus))
    return {(cluster, slug): total for cluster, slug, total in sums}


def own_rooms(rooms: Mapping[str, int], previous: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Rooms as one line sees them: what it stands on itself is free to it."""
    return {worker: room + previous.get(worker, (0, 0))[0] for worker, room in rooms.items()}
