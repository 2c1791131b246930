"""Intervals as the meter takes them, without a database in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from budgets.intervals import Interval, IntervalKind, IntervalState
from budgets.metering import Held
from budgets.units import WorkspaceName


@dataclass(frozen=True, slots=True)
class Placed:
    """Intervals that count, as the meter takes them, and those whose queue is no workspace's."""

    held: tuple[Held, ...]
    outside: tuple[Interval, ...]


def held_by(intervals: Iterable[Interval], *, workspaces: Mapping[str, WorkspaceName]) -> Placed:
    """Pick what is billed: BILLABLE, and not superseded.

    Args:
        intervals: Of any role and state.
        workspaces: ClusterQueue name → workspace.
    """
    held: list[Held] = []
    outside: list[Interval] = []
    for row in intervals:
        if row.role is not IntervalKind.BILLABLE or row.state is IntervalState.SUPERSEDED:
            continue
        workspace = workspaces.get(row.cluster_queue)
        if workspace is None:
            outside.append(row)
            continue
        held.append(
            Held(
                uid=row.uid,
                workspace=workspace,
                flavor=row.flavor,
                gpus=row.gpus,
                admitted=row.admitted_at,
                start=row.start,
                end=row.end,
                cluster=row.cluster,
            )
        )
    return Placed(tuple(held), tuple(outside))
