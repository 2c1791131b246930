"""Statements as their readers see them, down to the hours and workloads of a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from django.db.models import Count, F, QuerySet, Sum

from budgets.charging import ChargeRow, Rates, RowKind
from budgets.models import (
    Adjustment,
    BillingPeriod,
    Statement,
    StatementLine,
    User,
    WorkloadUsage,
)
from budgets.selectors.approvals import installation
from budgets.selectors.billing.jobs import CLASS_OF
from budgets.selectors.billing.rows import booked, line_hours
from budgets.selectors.clock import utc_now
from budgets.selectors.fleet.places import workload_names
from budgets.selectors.roles import roles_of

PUBLIC = (Statement.State.ISSUED, Statement.State.VOID)
MOST_WORKLOADS = 100


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of one workspace (None: the account's own) and what they add up to."""

    namespace: str
    name: str
    lines: tuple[StatementLine, ...]
    total: Decimal


@dataclass(frozen=True, slots=True)
class StatementSheet:
    """A statement as far as one reader sees it; parts add up to ``total``.

    ``is_whole``: every line is there, and ``total`` is the payable. ``is_one_person``: at some time
    since the month began one person ran everything alone.
    """

    statement: Statement
    parts: tuple[Part, ...]
    total: Decimal
    is_whole: bool
    is_one_person: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """One UTC day of a line; days add up to the line."""

    day: date
    gpu_seconds: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class WorkloadPart:
    """One workload's part of a line on one day."""

    cluster: str
    uid: str
    workload: str
    gpu_seconds: int


@dataclass(frozen=True, slots=True)
class LineTrace:
    """Where a line comes from.

    Attributes:
        days: Every day with something on it.
        hours: Of the chosen day, or all of a correction's.
        workloads: Of the chosen day, the largest first; none for what nobody used.
    """

    days: tuple[Day, ...]
    hours: tuple[ChargeRow, ...]
    workloads: tuple[WorkloadPart, ...]


def visible_statements(user: User) -> QuerySet[Statement]:
    """Documents that a user may read, newest period first.

    Platform roles read all; people of an account or of one of its workspaces what was issued.
    """
    seen = _seen_by(user).select_related("credits", "credit_note")
    return seen.defer("credits__billed_to", "credit_note__billed_to")


def statement_rows(user: User) -> QuerySet[Statement]:
    """The same, as rows of a list: without what the document alone shows."""
    return _seen_by(user).defer("billed_to")


def _seen_by(user: User) -> QuerySet[Statement]:
    roles, found = roles_of(user), Statement.objects.select_related("account", "period")
    if roles.sees_everything:
        return found
    if roles.user_id is None:
        return found.none()
    seen = roles.within("account", "account__workspaces")
    return found.filter(seen, state__in=PUBLIC).distinct()


@dataclass(frozen=True, slots=True)
class MonthTotal:
    """What the documents of a month add up to in one currency."""

    currency: str
    payable: Decimal
    count: int


def month_totals(user: User, months: Iterable[BillingPeriod]) -> dict[int, list[MonthTotal]]:
    """Period key -> totals by currency, of the documents that a user may read. One query."""
    keys = [row.pk for row in months if row.pk]
    found: dict[int, list[MonthTotal]] = {}
    if keys:
        seen = visible_statements(user).filter(period__in=keys).order_by().values("pk")
        sums = Statement.objects.filter(pk__in=seen).order_by("period", "currency")
        for period, currency, payable, count in sums.values_list("period", "currency").annotate(
            Sum("payable"), Count("pk")
        ):
            found.setdefault(period, []).append(MonthTotal(currency, payable, count))
    return found


def statement_for(user: User, key: int) -> Statement:
    """One visible document.

    Raises:
        Statement.DoesNotExist: It is not there, or not for this user.
    """
    return visible_statements(user).get(pk=key)


def statement_sheet(user: User, statement: Statement) -> StatementSheet:
    """The lines that a user may see. Three queries."""
    is_whole, lines = _visible_lines(user, statement)
    groups: dict[int | None, list[StatementLine]] = {}
    for line in lines.order_by("position"):
        groups.setdefault(line.workspace_id, []).append(line)
    parts = tuple(_part(rows) for rows in groups.values())
    total = sum((part.total for part in parts), Decimal(0))
    is_one_person = installation().was_one_person(
        statement.period.start, statement.issued_at or utc_now()
    )
    return StatementSheet(statement, parts, total, is_whole, is_one_person)


def line_for(user: User, statement: Statement, position: int) -> StatementLine:
    """One visible line.

    Raises:
        StatementLine.DoesNotExist: It is not there, or not for this user.
    """
    return _visible_lines(user, statement)[1].get(position=position)


def line_trace(
    statement: Statement, line: StatementLine, *, day: date | None = None, card: Rates | None = None
) -> LineTrace:
    """The hours of a line, added up by day, and the workloads of one day.

    Args:
        statement: The line's document.
        line: From :func:`line_for`.
        day: UTC day to look into.
        card: The document's, as of :func:`card_of`, where it is known.
    """
    if line.workspace is None or not line.flavor:
        return LineTrace((), (), ())
    hours = line_hours(
        statement,
        workspace_id=line.workspace.pk,
        flavor=line.flavor,
        kind=RowKind(line.class_of or line.kind),
        card=card,
    )
    rows = [row for row in hours if _is_of(row, line)]
    days: dict[date, list[ChargeRow]] = {}
    for row in rows:
        days.setdefault(row.start.date(), []).append(row)
    chosen = days.get(day, []) if day else []
    return LineTrace(
        days=tuple(
            Day(at, sum(r.gpu_seconds for r in found), sum((r.amount for r in found), Decimal(0)))
            for at, found in sorted(days.items())
        ),
        hours=tuple(chosen),
        workloads=tuple(_workloads(line, chosen)),
    )


def visible_adjustments(user: User) -> QuerySet[Adjustment]:
    """Adjustments that a user may read; others than platform roles see approved ones only."""
    roles = roles_of(user)
    found = Adjustment.objects.select_related(
        "account", "workspace", "period", "proposed_by", "decided_by"
    )
    if roles.sees_everything:
        return found
    return found.filter(roles.within(), state=Adjustment.State.APPROVED)


def corrections_in(period: BillingPeriod) -> int:
    """How many corrections of closed months are billed in a period."""
    return booked(period).count()


def _visible_lines(user: User, statement: Statement) -> tuple[bool, QuerySet[StatementLine]]:
    """Whether somebody sees the whole of a statement, and the lines that they see."""
    roles, account = roles_of(user), statement.account_id
    lines = statement.lines.select_related("workspace")
    if roles.sees_everything or (account is not None and roles.sees_account(account)):
        return True, lines
    return False, lines.filter(workspace__in=roles.workspaces)


def _part(lines: Sequence[StatementLine]) -> Part:
    workspace = lines[0].workspace
    return Part(
        workspace.namespace if workspace else "",
        workspace.name if workspace else "",
        tuple(lines),
        sum((line.amount for line in lines), Decimal(0)),
    )


def _is_of(row: ChargeRow, line: StatementLine) -> bool:
    return (
        line.workspace is not None
        and (row.workspace, row.flavor) == (line.workspace.namespace, line.flavor)
        and row.kind == line.kind
        and (row.class_of or "") == line.class_of
    )


def _workloads(line: StatementLine, hours: Iterable[ChargeRow]) -> Iterable[WorkloadPart]:
    rows = list(hours)
    name = CLASS_OF.get(RowKind(line.class_of or line.kind))
    if not rows or name is None:
        return
    facts = WorkloadUsage.objects.filter(
        workspace=line.workspace_id,
        flavor=line.flavor,
        start__gte=rows[0].start,
        start__lt=rows[-1].end,
        hour__gt=rows[0].start - timedelta(hours=1),
    )
    found = list(
        facts.order_by()
        .values("cluster", "uid")
        .annotate(seconds=Sum(F(name)))
        .filter(seconds__gt=0)
        .order_by("-seconds", "cluster", "uid")[:MOST_WORKLOADS]
    )
    names = workload_names((row["cluster"], row["uid"]) for row in found)
    for row in found:
        workload = names.get(row["uid"], row["uid"])
        yield WorkloadPart(row["cluster"], row["uid"], workload, row["seconds"])
