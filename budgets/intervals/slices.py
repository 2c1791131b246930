"""Elastic slices: what a Job holds between the end of one and the clock of the next.

A slice is finished as soon as its successor has quota, while its pods run on; the successor's clock
may start later, with its admission or its pods. In between the older one is what is held.

Source: spec money, section 1.3; spec admission 3.4.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from budgets.intervals.epochs import Copy, Epoch
from budgets.intervals.model import ClockSettings
from budgets.intervals.pieces import first_start
from budgets.units import ClusterName

REPLACED: Final = "WorkloadSliceReplaced"
_NOTE: Final = "held on until its next slice's clock started"

ByName = Mapping[tuple[ClusterName, str], Sequence[Copy]]


def hold_until_taken_over(copies: Sequence[Copy], by_name: ByName, *, clock: ClockSettings) -> None:
    """Let replaced slices last until the next one's clock starts, or its admission ends.

    Args:
        copies: Of workers; their last admissions are changed where they were replaced.
        by_name: The same by (cluster, ``namespace/name``).
        clock: When each flavor's clock starts.
    """
    # The newest first: one that was replaced before its clock started lasts longer by then.
    for copy in sorted(copies, key=lambda row: (row.facts.created_at, row.uid), reverse=True):
        if not copy.facts.replaces or not copy.epochs:
            continue
        first = copy.epochs[0]
        until = first_start(first, clock=clock) or first.end
        for before in by_name.get((copy.cluster, copy.facts.replaces), ()):
            if before is not copy and before.facts.created_at <= copy.facts.created_at:
                _hold(before, first, until)


def _hold(before: Copy, first: Epoch, until: datetime | None) -> None:
    ended = before.facts.condition("Finished")
    if ended is None or ended.reason != REPLACED or not before.epochs:
        return
    last = before.epochs[-1]
    # Without quota at its end it held nothing that could be taken over.
    if last.end != ended.since or first.reserved_at > ended.since:
        return
    if until is None or until > last.end:
        last.end, last.note = until, _NOTE
