"""Floors that stand idle, and how much smaller they could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Sum

from budgets.amounts import FLOOR
from budgets.metering import FloorAdvice, advise_floor
from budgets.models import BudgetLine, Flavor, UsageRecord, User, Workspace
from budgets.selectors.usage.keys import sums_by_workspace
from budgets.selectors.usage.scope import USED, UsageFilter, UsageScope
from budgets.selectors.usage.table import freshness

MOST_DAYS = 14


@dataclass(frozen=True, slots=True)
class IdleRow:
    """One workspace and flavor, GPU-seconds of the range.

    Attributes:
        committed_now: GPUs of the floor in force; None when no budget in force names the flavor.
        advice: None when the floor is no larger than it should be.
    """

    namespace: str
    flavor: str
    committed: int
    committed_used: int
    lent: int
    idle: int
    committed_now: int | None
    advice: FloorAdvice | None


@dataclass(frozen=True, slots=True)
class IdleTable:
    """The idlest floors, the rest as one sum, and the total of both, in GPU-seconds.

    Attributes:
        rows: By idle GPU-seconds, the largest first.
        others: ``committed``, ``committed_used``, ``lent`` and ``idle`` of what has no row.
        hidden: Floors in ``others``.
        totals: The same four of everything.
        saved_hours: GPU-hours a month that the advice of the rows comes to.
        judged_from: First hour that the advice looked at.
    """

    rows: tuple[IdleRow, ...]
    others: Mapping[str, int]
    hidden: int
    totals: Mapping[str, int]
    saved_hours: int
    judged_from: datetime


Place = tuple[int, ...]


def idle_floors(user: User, chosen: UsageFilter, *, limit: int = 25) -> IdleTable:
    """Committed GPU-seconds by workspace and flavor, with advice for floors in force.

    The advice looks at the newest 14 days of the range at most, and only at hours that are
    complete on every cluster.
    """
    scope = UsageScope(user, chosen)
    found = sums_by_workspace(scope, "workspace_id", "flavor_id")
    order = sorted(
        (place for place, amounts in found.items() if amounts["committed"]),
        key=lambda place: (-found[place]["idle"], place),
    )
    shown, rest = order[:limit], order[limit:]
    judged_from = max(chosen.start, chosen.end - timedelta(days=MOST_DAYS))
    floors = _floors_now(shown)
    used = _used_by_hour(shown, judged_from, chosen.end)
    workspaces = Workspace.objects.filter(pk__in={workspace for workspace, _ in shown})
    names = dict(workspaces.values_list("pk", "namespace"))
    flavors = Flavor.objects.filter(pk__in={flavor for _, flavor in shown})
    slugs = dict(flavors.values_list("pk", "slug"))
    rows = tuple(
        IdleRow(
            namespace=names[place[0]],
            flavor=slugs[place[1]],
            **{name: found[place][name] for name in FLOOR},
            committed_now=floors.get(place),
            advice=advise_floor(used.get(place, ()), committed=floors.get(place, 0)),
        )
        for place in shown
    )
    return IdleTable(
        rows=rows,
        others={name: sum(found[place][name] for place in rest) for name in FLOOR},
        hidden=len(rest),
        totals={name: sum(found[place][name] for place in order) for name in FLOOR},
        saved_hours=sum(row.advice.saved_hours for row in rows if row.advice is not None),
        judged_from=judged_from,
    )


def _floors_now(places: Sequence[Place]) -> dict[Place, int]:
    """GPUs committed by the revision in force."""
    lines = BudgetLine.objects.filter(
        revision__budget__workspace__in={workspace for workspace, _ in places},
        revision=F("revision__budget__in_force"),
    )
    return {
        (workspace, flavor): committed
        for workspace, flavor, committed in lines.values_list(
            "revision__budget__workspace_id", "flavor_id", "committed"
        )
    }


def _used_by_hour(
    places: Sequence[Place], start: datetime, end: datetime
) -> dict[Place, Sequence[int]]:
    """GPU-seconds used in every complete hour that has facts."""
    wanted = set(places)
    facts = UsageRecord.objects.order_by().filter(
        workspace__in={workspace for workspace, _ in places}, hour__gte=start, hour__lt=end
    )
    complete = freshness().complete_until
    if complete is not None:
        facts = facts.filter(hour__lte=complete - timedelta(hours=1))
    # Added up by hour, which need not be read: times are the costly part of such a row.
    sums = facts.values("workspace_id", "flavor_id", "hour").annotate(used=Sum(USED))
    found: dict[Place, list[int]] = {}
    for workspace, flavor, used in sums.values_list("workspace_id", "flavor_id", "used"):
        if (workspace, flavor) in wanted:
            found.setdefault((workspace, flavor), []).append(used)
    return dict(found)
