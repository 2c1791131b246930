"""Charge rows: every statement of a period taken apart into hours, streamed.

One account at a time is read from the database in order, so a million rows need the memory of
one. What the rows of a line add up to is the line, to the cent.

Source: spec money, sections 2.3 and 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import Any

from django.db.models import Q, QuerySet

from budgets.charging import HOURLY, ChargeRow, HourPricer, Rates, RowKind
from budgets.models import (
    Account,
    BillingPeriod,
    Correction,
    Statement,
    StatementLine,
    UsageRecord,
    User,
    Workspace,
)
from budgets.records import record_of
from budgets.selectors.billing.costs import by_month, correction_card, tiered
from budgets.selectors.billing.documents import draw
from budgets.selectors.billing.prices import price_book
from budgets.selectors.fleet.places import facts_in
from budgets.selectors.roles import RoleSet, roles_of
from budgets.units import HOUR, FlavorName, Period

CHUNK = 5000
OF_HOURS = (*HOURLY, RowKind.CORRECTION)
CHARGED = ("committed", "burst", "lent")
"""What of an hour fact each kind of :data:`budgets.charging.HOURLY` charges for."""


@dataclass(frozen=True, slots=True)
class PlainLine:
    """A line of a statement, stored or drawn up; see :class:`budgets.models.StatementLine`."""

    workspace_id: int | None
    workspace: str
    kind: RowKind
    exact: Fraction
    amount: Decimal
    flavor: str = ""
    class_of: RowKind | None = None
    gpu_seconds: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Paper:
    """One statement, stored or drawn up now, with what its rows need."""

    account_id: int | None
    account: str
    currency: str
    rate: Decimal | None
    number: str
    period: BillingPeriod
    lines: tuple[PlainLine, ...]

    @property
    def window(self) -> Period:
        """The whole month."""
        return Period(self.period.start, self.period.end)

    def card(self) -> Rates:
        """The prices of its month, with the averages of volume steps."""
        accounts: Sequence[int] = () if self.account_id is None else (self.account_id,)
        book = price_book(self.window, accounts=accounts)
        if self.account_id is None:
            return book.shared or Rates((), currency=self.currency)
        card = book.of(self.account_id) or Rates((), currency=self.currency)
        return tiered(card, self.account_id, self.window)

    def shows(self, line: PlainLine, roles: RoleSet) -> bool:
        """Whether a reader sees a line."""
        if self.account_id is None:
            return roles.sees_everything
        return roles.sees_account(self.account_id) or line.workspace_id in roles.workspaces

    def seen_by(self, roles: RoleSet) -> Q:
        """Of facts: those that are of the account and that a reader sees."""
        found = Q(workspace__account=self.account_id)
        if self.account_id is not None and roles.sees_account(self.account_id):
            return found
        return found & Q(workspace__in=roles.workspaces)

    @property
    def common(self) -> dict[str, Any]:
        """What all of its rows say of it."""
        return {
            "account": self.account,
            "currency": self.currency,
            "period": self.period.name,
            "statement": self.number,
        }

    def pricer(self, card: Rates, window: Period, place: tuple[str, str]) -> HourPricer:
        """What prices the hours of one workspace and flavor."""
        workspace, flavor = place
        return HourPricer(
            card,
            flavor=FlavorName(flavor),
            window=window,
            exchange=self.rate,
            workspace=workspace,
            **self.common,
        )


PaperRows = Callable[[Paper, RoleSet], Iterator[ChargeRow]]
"""The rows of one statement as far as somebody sees them."""


def charge_lines(
    user: User, *, period: BillingPeriod, rows_of: PaperRows | None = None
) -> Iterator[ChargeRow]:
    """The rows of all statements and credit notes of a period.

    Args:
        user: Gets what they see: platform roles all, an account's people its statement, a
            workspace's people its rows.
        period: A month, closed or open; the statements of an open one are drawn up in memory.
        rows_of: What the lines of a statement are taken apart into; None: into hours.

    Yields:
        By account; in it hours by workspace, flavor and time, then corrections, then lines
        without hours; the platform's own statement and credit notes last.
    """
    roles = roles_of(user)
    rows_of = rows_of or _paper_rows
    for paper in _papers(period):
        yield from rows_of(paper, roles)
    if period.pk is None:
        return
    notes = Statement.objects.filter(kind=Statement.Kind.CREDIT_NOTE, period=period)
    for note in notes.select_related("credits__period", "credits__account", "period"):
        assert note.credits is not None
        for row in rows_of(_stored(note.credits), roles):
            yield _turned(row, note)


def card_of(statement: Statement) -> Rates:
    """The prices of a document's month, as :meth:`Paper.card` has them."""
    return paper_of(statement.credits or statement, ()).card()


def line_hours(
    statement: Statement, *, workspace_id: int, flavor: str, kind: RowKind, card: Rates | None
) -> Iterator[ChargeRow]:
    """The hours of one workspace, flavor and kind of a document, corrections of any kind too.

    Args:
        statement: The document; the caller has asked who may see it.
        workspace_id: Key of the workspace.
        flavor: Slug.
        kind: Of :data:`budgets.charging.HOURLY`; what was booked later is a correction.
        card: As of :func:`card_of`, where it is known; None: read.
    """
    source = statement.credits or statement
    paper = paper_of(source, ())
    facts = UsageRecord.objects.filter(workspace=workspace_id, flavor__slug=flavor)
    late = booked(source.period).filter(workspace=workspace_id, flavor=flavor)
    hours = _fact_rows(paper, facts, card=card or paper.card(), kinds={kind})
    for row in (*hours, *_correction_rows(paper, late)):
        yield row if source is statement else _turned(row, statement)


def _papers(period: BillingPeriod) -> Iterable[Paper]:
    if period.closed_at is None:
        return _drawn(period)
    rows = Statement.objects.filter(period=period, kind=Statement.Kind.STATEMENT)
    ordered = sorted(
        rows.select_related("account", "period"),
        key=lambda row: (row.account is None, row.account.slug if row.account else ""),
    )
    return (_stored(row) for row in ordered)


def _stored(row: Statement) -> Paper:
    lines = row.lines.select_related("workspace")
    return paper_of(row, tuple(plain_line(line) for line in lines))


def plain_line(line: StatementLine, sign: int = 1) -> PlainLine:
    """A stored line; ``sign`` -1 turns what a credit note had turned."""
    return PlainLine(
        line.workspace_id,
        line.workspace.namespace if line.workspace else "",
        RowKind(line.kind),
        sign * line.exact,
        sign * line.amount,
        line.flavor,
        RowKind(line.class_of) if line.class_of else None,
        sign * line.gpu_seconds,
        line.text,
    )


def paper_of(row: Statement, lines: tuple[PlainLine, ...]) -> Paper:
    """A stored statement with its lines."""
    return Paper(
        row.account_id,
        row.account.slug if row.account else "",
        row.currency,
        row.exchange_rate,
        row.number,
        row.period,
        lines,
    )


def _drawn(period: BillingPeriod) -> list[Paper]:
    names = dict(Account.objects.values_list("pk", "slug"))
    keys = dict(Workspace.objects.values_list("namespace", "pk"))
    return [
        Paper(
            drawn.account_id,
            names[drawn.account_id] if drawn.account_id is not None else "",
            drawn.document.currency,
            drawn.exchange_rate,
            "",
            period,
            tuple(
                record_of(
                    PlainLine, item, workspace_id=keys.get(item.workspace), amount=amount.amount
                )
                for item, amount in drawn.document.lines
            ),
        )
        for drawn in draw(period).drawn
    ]


def _paper_rows(paper: Paper, roles: RoleSet) -> Iterator[ChargeRow]:
    if paper.account_id is not None:
        facts = UsageRecord.objects.filter(paper.seen_by(roles))
        yield from _fact_rows(paper, facts, card=paper.card())
        yield from _correction_rows(paper, booked(paper.period).filter(paper.seen_by(roles)))
    for line in paper.lines:
        if line.kind not in OF_HOURS and paper.shows(line, roles):
            yield ChargeRow(
                **paper.common,
                workspace=line.workspace,
                kind=line.kind,
                start=paper.period.start,
                end=paper.period.end,
                exact=line.exact,
                amount=line.amount,
            )


def _fact_rows(
    paper: Paper, facts: QuerySet[UsageRecord], *, card: Rates, kinds: Collection[RowKind] = HOURLY
) -> Iterator[ChargeRow]:
    window = paper.window
    ordered = facts_in(facts, window).order_by(
        "workspace__namespace", "flavor__slug", "hour", "start"
    )
    rows = ordered.values_list(
        "workspace__namespace",
        "flavor__slug",
        "hour",
        "start",
        *CHARGED,
        "committed_used",
    )
    for place, group in groupby(rows.iterator(chunk_size=CHUNK), key=lambda row: row[:2]):
        pricer = paper.pricer(card, window, place)
        for _, _, hour, start, *amounts, used in group:
            part = (start, min(hour + HOUR, window.end))
            for kind, seconds in zip(HOURLY, amounts, strict=True):
                if seconds and kind in kinds:
                    yield pricer.row(kind, hour, part, seconds, used)


def booked(period: BillingPeriod) -> QuerySet[Correction]:
    """Corrections of hour facts that are billed in a period."""
    if period.pk is None:
        return Correction.objects.none()
    return Correction.objects.filter(booked_in=period, table=Correction.Table.USAGE)


def _correction_rows(paper: Paper, found: QuerySet[Correction]) -> Iterator[ChargeRow]:
    rows = list(found.select_related("workspace").order_by("start", "pk"))
    for old, late in by_month(rows, paper.period.zone):
        assert paper.account_id is not None
        card = correction_card(paper.account_id, old, paper.period)
        late.sort(key=_place)
        for place, group in groupby(late, key=_place):
            pricer = paper.pricer(
                card or Rates((), currency=paper.currency), Period(old.start, old.end), place
            )
            for row in group:
                part = (row.start, min(row.hour + HOUR, old.end))
                for kind, name in zip(HOURLY, CHARGED, strict=True):
                    if seconds := getattr(row, name):
                        charged = pricer.row(kind, row.hour, part, seconds, row.committed_used)
                        yield replace(charged, kind=RowKind.CORRECTION, class_of=kind)


def _place(row: Correction) -> tuple[str, str]:
    return (row.workspace.namespace if row.workspace else "", row.flavor)


def _turned(row: ChargeRow, note: Statement) -> ChargeRow:
    return replace(
        row,
        gpu_seconds=-row.gpu_seconds,
        used_gpu_seconds=-row.used_gpu_seconds,
        exact=-row.exact,
        amount=-row.amount,
        period=note.period.name,
        statement=note.number,
    )
