"""Whom a change touches, in names that the viewer may read; and what a fresh split would move."""

from __future__ import annotations

from datetime import datetime

from budgets.models import User, Workspace
from budgets.plan import ImpactRow
from budgets.selectors.budget.future import split_for
from budgets.selectors.budget.promises import promises_in_force
from budgets.selectors.budget.timeline import flavor_terms, free_rooms
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of, visible_workspaces


def anonymized_impact(
    user: User, workspace: Workspace, rows: tuple[ImpactRow, ...]
) -> tuple[ImpactRow, ...]:
    """Replace the names that a viewer may not see and add up what stands behind one such name."""
    roles = roles_of(user)
    seen = set(visible_workspaces(user).values_list("namespace", flat=True))
    if roles.sees_everything:
        return rows
    merged: dict[tuple[str, str, str, str], tuple[int, int]] = {}
    for row in rows:
        is_own = row.account == workspace.account.slug
        name = row.namespace if row.namespace in seen else "another workspace of this account"
        account = row.account if is_own else "another account"
        if not is_own and row.namespace not in seen:
            name = "another account"
        key = (name, account, row.flavor, row.cluster)
        before, after = merged.get(key, (0, 0))
        merged[key] = (before + row.before, after + row.after)
    return tuple(
        ImpactRow(*key, before=before, after=after)
        for key, (before, after) in merged.items()
        if before != after
    )


def preview_reallocation(
    user: User, workspace: Workspace, now: datetime | None = None
) -> dict[str, dict[str, tuple[int, int]]]:
    """Show an admin where a fresh split would put a workspace's floor.

    Returns:
        flavor -> worker -> (GPUs now, GPUs then); workers without a part in either are left out.

    Raises:
        Workspace.DoesNotExist: Anybody else asks.
    """
    roles = roles_of(user)
    if not roles.is_admin:
        raise Workspace.DoesNotExist
    instant = now or utc_now()
    promises = promises_in_force(accounts=[workspace.account.slug])
    promise = next(item for item in promises.workspaces if item.namespace == workspace.namespace)
    splits = split_for(
        promise,
        promise.lines,
        rooms=free_rooms(instant, flavors=[line.flavor for line in promise.lines]),
        terms=flavor_terms(),
        afresh=True,
    )
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for flavor, split in splits.items():
        workers = {worker for name, worker in promise.split if name == flavor} | set(split.parts)
        found[flavor] = {
            worker: (
                promise.split.get((flavor, worker), (0, 0))[0],
                split.parts.get(worker, (0, 0))[0],
            )
            for worker in sorted(workers)
        }
    return found
