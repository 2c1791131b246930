"""Use over a whole range by account, workspace, flavor or cluster, the largest first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from budgets.amounts import STORED
from budgets.models import User, Workspace, WorkspaceDay
from budgets.selectors.usage.scope import SUMS, UsageFilter, UsageScope, amounts_of, cut_at_days
from budgets.selectors.usage.table import UsageRow, add_up, known_amounts, usage_row


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The largest users, the rest as one row, and the total of both.

    Attributes:
        rows: By GPU-seconds used, the largest first.
        others: What is in no row; None when every key has one.
        hidden: Keys in ``others``.
        totals: Sum of all of them.
    """

    rows: tuple[UsageRow, ...]
    others: UsageRow | None
    hidden: int
    totals: UsageRow


def usage_by_key(user: User, chosen: UsageFilter, *, limit: int = 50) -> KeyTable:
    """Sums over the range by what the filter splits by, at most so many rows; no steps.

    Raises:
        ValueError: ``split_by`` is ``none``.
    """
    scope = UsageScope(user, chosen)
    known = known_amounts(chosen)
    found = _sums(scope)
    found.sort(key=lambda row: (-row.held, row.key))
    shown, rest = found[:limit], found[limit:]
    others = add_up(rest, name=f"{len(rest)} more", known=known) if rest else None
    if chosen.split_by == "workspace":
        shown = _named(shown)
    return KeyTable(
        rows=tuple(shown),
        others=others,
        hidden=len(rest),
        totals=add_up(found, name="total", known=known),
    )


def _sums(scope: UsageScope) -> list[UsageRow]:
    """Of workspaces the key is the id; :func:`_named` puts the names in."""
    split_by = scope.chosen.split_by
    if split_by == "workspace":
        return [
            usage_row(None, str(workspace), "", amounts)
            for (workspace,), amounts in sums_by_workspace(scope, "workspace_id").items()
        ]
    rows, keys, sums = scope.split()
    if not keys:
        raise ValueError(f"nothing to split by: {split_by!r}")
    return [
        usage_row(None, row[keys[0]], row[keys[-1]], amounts_of(row))
        for row in rows.values(*keys).annotate(**sums)
    ]


def sums_by_workspace(scope: UsageScope, *keys: str) -> dict[tuple[int, ...], dict[str, int]]:
    """Sums over the range: whole UTC days from the totals of days, the hours around from facts.

    Args:
        scope: Whose, and of what range.
        keys: ``workspace_id``, and ``flavor_id`` where it is wanted.

    Returns:
        Values of the keys → amount → GPU-seconds.
    """
    days, edges = cut_at_days(scope.chosen.start, scope.chosen.end)
    queries: list[Any] = [_of_days(scope, *days)] if days else []
    if edges:
        around = (Q(hour__gte=start, hour__lt=end) for start, end in edges)
        queries.append(scope.facts().filter(reduce(or_, around)))
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for rows in queries:
        for row in rows.values(*keys).annotate(**SUMS):
            so_far = found.setdefault(tuple(row[key] for key in keys), dict.fromkeys(STORED, 0))
            for name, seconds in amounts_of(row).items():
                so_far[name] += seconds
    return found


def _of_days(scope: UsageScope, first: datetime, last: datetime) -> Any:
    rows = WorkspaceDay.objects.filter(day__gte=first.date(), day__lt=last.date())
    if not scope.is_platform:
        rows = rows.filter(workspace__in=scope.workspaces.values("pk"))
    flavors = scope.chosen.flavors
    return rows.filter(flavor__slug__in=flavors) if flavors else rows


def _named(rows: list[UsageRow]) -> list[UsageRow]:
    """Put namespaces and names in the place of ids; only of the rows that are shown."""
    names = {
        str(pk): (namespace, name)
        for pk, namespace, name in Workspace.objects.filter(
            pk__in={int(row.key) for row in rows}
        ).values_list("pk", "namespace", "name")
    }
    return [replace(row, key=names[row.key][0], name=names[row.key][1]) for row in rows]
