"""What of a statement changed since somebody looked at it last.

Source: issue 6, section 4; spec features, section 4 (restatement log).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from budgets.models import StatementLine, StatementLook, User
from budgets.selectors.billing.statements import StatementSheet

Place = tuple[str, str, str, str, str]
Content = list[list[object]]


@dataclass(frozen=True, slots=True)
class LineChange:
    """One line then and now; None: it was not there, or is not any more.

    ``line`` is the present one; of one that is gone None, and ``place`` says which it was:
    workspace, flavor, kind, class and text.
    """

    place: Place
    line: StatementLine | None
    before: Decimal | None
    after: Decimal | None
    gpu_seconds: int

    @property
    def difference(self) -> Decimal:
        """By how much the amount moved."""
        return (self.after or Decimal(0)) - (self.before or Decimal(0))


@dataclass(frozen=True, slots=True)
class StatementChanges:
    """Every line that moved; their differences add up to that of the totals.

    ``gpu_seconds`` of a change are those that it has more (or, below zero, fewer) now.
    """

    seen_at: datetime
    lines: tuple[LineChange, ...]
    difference: Decimal


def changes_since_look(user: User, sheet: StatementSheet) -> StatementChanges | None:
    """Compare a sheet with what its reader saw last. One query.

    Returns:
        None when they never looked at it; without lines when nothing changed.
    """
    look = StatementLook.objects.filter(user=user, statement=sheet.statement).first()
    if look is None:
        return None
    before: dict[Place, tuple[Decimal, int]] = {
        tuple(row[:5]): (Decimal(row[5]), int(row[6])) for row in look.content
    }
    now = {_place(line): line for part in sheet.parts for line in part.lines}
    lines = tuple(_changes(before, now))
    total = sum((row.difference for row in lines), Decimal(0))
    return StatementChanges(look.seen_at, lines, total)


def content_of(sheet: StatementSheet) -> Content:
    """What a look keeps: of each line its place, amount and GPU-seconds."""
    return [
        [*_place(line), f"{line.amount:f}", line.gpu_seconds]
        for part in sheet.parts
        for line in part.lines
    ]


def _changes(
    before: dict[Place, tuple[Decimal, int]], now: dict[Place, StatementLine]
) -> Iterator[LineChange]:
    for place, line in now.items():
        amount, seconds = before.get(place, (None, 0))
        if (amount, seconds) != (line.amount, line.gpu_seconds):
            yield LineChange(place, line, amount, line.amount, line.gpu_seconds - seconds)
    for place, (amount, seconds) in before.items():
        if place not in now:
            yield LineChange(place, None, amount, None, -seconds)


def _place(line: StatementLine) -> Place:
    namespace = line.workspace.namespace if line.workspace else ""
    return (
        namespace,
        line.flavor,
        line.kind,
        line.class_of,
        f"{line.text}#{line.adjustment_id or ''}",
    )
