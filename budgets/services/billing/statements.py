"""A statement's way: reviewed, issued with the next number, void by a credit note.

Source: spec money, section 2.1 (an issued invoice is frozen); spec features, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import F

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import (
    Approval,
    BillingPeriod,
    NumberSeries,
    Proposal,
    Statement,
    StatementLine,
    StatementLook,
    User,
)
from budgets.selectors.billing.documents import draw
from budgets.selectors.billing.looks import content_of
from budgets.selectors.billing.months import month_at, open_month
from budgets.selectors.billing.periods import drawn_content, statement_content
from budgets.selectors.billing.statements import StatementSheet
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.billing.approvals import MoneyDeed, Seen, propose, row_of
from budgets.services.billing.guards import lock_billing, stored_month
from budgets.services.guards import by_finance, require_reason
from budgets.services.usage.rows import upsert

INVOICE, CREDIT_NOTE = "ST", "CN"
# What a credit note has of its statement, and a turned line of its own.
OF_NOTE = ("account", "currency", "priced_in", "exchange_rate", "exchange_day", "billed_to")
OF_TURNED = ("position", "workspace_id", "flavor", "kind", "class_of", "text", "adjustment_id")


@by_finance
def review_statements(
    actor: User | None, *, month: str, zone: str = "UTC", only: Iterable[int] | None = None
) -> list[Statement]:
    """Mark drafts as reviewed; from then on their content stands.

    Args:
        actor: The reviewer.
        month: Such as ``2026-10``.
        zone: Of the month.
        only: Keys of some statements; None for every draft of the month.

    Raises:
        Rejected: Nothing is there to review, or facts changed since a draft was drawn up.
    """
    lock_billing()
    period = stored_month(month, zone)
    rows = _chosen(period, Statement.State.DRAFT, only, "review")
    if period.closed_at is None:
        wanted = drawn_content(draw(period))
        words = "Something has changed since the statement of {} was drawn up. Draw it up again."
        reject_any(
            Fault("", "outdated", words.format(row.account.slug if row.account else "the platform"))
            for row in rows
            if statement_content(row) != wanted.get(row.account_id)
        )
    now = utc_now()
    for row in rows:
        row.state, row.reviewed_by, row.reviewed_at = Statement.State.REVIEWED, actor, now
    return _written(rows, actor, "statement.review", "state", "reviewed_by", "reviewed_at")


@by_finance
def send_back_statement(actor: User | None, *, statement: Statement, reason: str) -> Statement:
    """Make a reviewed statement of an open month a draft again."""
    require_reason(reason)
    lock_billing()
    row = _locked(statement)
    faults = []
    if row.state != Statement.State.REVIEWED:
        faults.append(Fault("", "not_reviewed", f"The statement is {_state(row)}, not reviewed."))
    if row.period.closed_at is not None:
        message = f"{row.period} is closed; issue the statement and void it by a credit note."
        faults.append(Fault("", "closed_period", message))
    reject_any(faults)
    row.state, row.reviewed_by, row.reviewed_at = Statement.State.DRAFT, None, None
    row.save(update_fields=["state", "reviewed_by", "reviewed_at"])
    _log(actor, "statement.send_back", row, reason)
    return row


@by_finance
def issue_statements(
    actor: User | None, *, month: str, zone: str = "UTC", only: Iterable[int] | None = None
) -> list[Statement]:
    """Issue reviewed statements of a closed month, each with the next number of the series.

    Raises:
        Rejected: The month is not closed, or nothing is there to issue.
    """
    lock_billing()
    period = stored_month(month, zone)
    if period.closed_at is None:
        message = f"{period} is not closed; close it, so that what is issued cannot change."
        raise Rejected.because("month", "open_period", message)
    rows = _chosen(period, Statement.State.REVIEWED, only, "issue")
    now = utc_now()
    numbers = _numbers(INVOICE, now, len(rows))
    for row, number in zip(rows, numbers, strict=True):
        row.state, row.number = Statement.State.ISSUED, number
        row.issued_by, row.issued_at = actor, now
    return _written(rows, actor, "statement.issue", "state", "number", "issued_by", "issued_at")


@by_finance
def propose_void(actor: User | None, *, statement: Statement, reason: str) -> Proposal:
    """Propose to void an issued statement by a credit note in the account's open month.

    The statement stays as it is, but for its state; the note has its lines with the sign turned.
    What is owed instead is an adjustment of the open month: a closed one takes no new rows.

    Raises:
        Rejected: It is not issued, there is no reason, or it waits already.
    """
    require_reason(reason)
    subject = f"statement:{statement.pk}"
    return propose(actor, VOID, subject=subject, reason=reason, statement=statement)


def _voiding(statement: Statement, *, at: datetime) -> Seen:
    """What would be turned, and in which month."""
    row = Statement.objects.select_related("account", "period").get(pk=statement.pk)
    if row.state != Statement.State.ISSUED or row.kind != Statement.Kind.STATEMENT:
        message = f"The document is {_state(row)}; only an issued statement can be voided."
        raise Rejected.because("", "not_issued", message)
    return {
        "Statement": row.number,
        "Account": row.account.name if row.account else "the platform",
        "Of": str(row.period),
        "Lines": str(row.lines.count()),
        "Credit note comes to": f"{-row.payable:f} {row.currency}",
        "Credit note is in": str(_month_of_note(row)),
    }


def _month_of_note(row: Statement) -> BillingPeriod:
    """The month of now in which a credit note is billed; it need not be stored."""
    if row.account_id is not None:
        return open_month(row.account_id, utc_now())
    return month_at(max(utc_now(), row.period.end), row.period.zone)


def _void(actor: User, approval: Approval, *, statement: Statement, reason: str) -> str:
    row = _locked(statement)
    now = utc_now()
    unsaved = _month_of_note(row)
    period = stored_month(unsaved.name, unsaved.zone)
    note = Statement.objects.create(
        **{name: getattr(row, name) for name in OF_NOTE},
        period=period,
        kind=Statement.Kind.CREDIT_NOTE,
        payable=-row.payable,
        credits=row,
        reason=reason[:500],
        approval=approval,
    )
    StatementLine.objects.bulk_create([_turned(line, note) for line in row.lines.all()])
    note.state, note.number = Statement.State.ISSUED, _numbers(CREDIT_NOTE, now, 1)[0]
    note.reviewed_by = note.issued_by = actor
    note.reviewed_at = note.issued_at = now
    note.save()
    row.state, row.reason, row.approval = Statement.State.VOID, reason[:500], approval
    row.save(update_fields=["state", "reason", "approval"])
    _log(actor, "statement.void", row, reason)
    _log(actor, "credit_note.issue", note, reason)
    return f"Credit note {note.number} voids {row.number}."


VOID = MoneyDeed(
    name="statement.void",
    title="Void a statement",
    takes={"statement": row_of(Statement)},
    look=_voiding,
    do=_void,
)


def _chosen(
    period: BillingPeriod, state: str, only: Iterable[int] | None, verb: str
) -> list[Statement]:
    rows = Statement.objects.select_related("account", "period").filter(
        period=period, kind=Statement.Kind.STATEMENT, state=state
    )
    if only is not None:
        rows = rows.filter(pk__in=list(only))
    found = list(rows.order_by(F("account__slug").asc(nulls_last=True), "pk"))
    if not found:
        message = f"There is no statement of {period} to {verb}."
        raise Rejected.because("", "nothing_to_do", message)
    return found


def _written(
    rows: list[Statement], actor: User | None, action: str, *changed: str
) -> list[Statement]:
    Statement.objects.bulk_update(rows, changed, batch_size=500)
    for row in rows:
        _log(actor, action, row)
    return rows


def _locked(statement: Statement) -> Statement:
    return (
        Statement.objects.select_for_update(of=("self",))
        .select_related("account", "period")
        .get(pk=statement.pk)
    )


def _numbers(prefix: str, now: datetime, count: int) -> list[str]:
    """The next numbers of a year's series; a roll-back gives them back, so there is no hole."""
    name = f"{prefix}-{now:%Y}"
    NumberSeries.objects.get_or_create(prefix=name)
    series = NumberSeries.objects.select_for_update().get(prefix=name)
    first = series.last + 1
    series.last += count
    series.save(update_fields=["last"])
    return [f"{name}-{number:06d}" for number in range(first, first + count)]


def _turned(line: StatementLine, note: Statement) -> StatementLine:
    return StatementLine(
        **{name: getattr(line, name) for name in OF_TURNED},
        statement=note,
        gpu_seconds=-line.gpu_seconds,
        exact_text=str(-line.exact),
        amount=-line.amount,
        parts=[{**part, "gpu_seconds": -part["gpu_seconds"]} for part in line.parts],
    )


def _state(row: Statement) -> str:
    return str(row.get_state_display()).lower()


def _log(actor: User | None, action: str, row: Statement, reason: str = "") -> None:
    audit(
        actor,
        action,
        row,
        reason=reason,
        after=state_of(row, "number", "payable", "currency") | {"month": str(row.period)},
    )


def note_look(user: User, sheet: StatementSheet) -> None:
    """Keep what a reader saw, in the place of what they saw before.

    Args:
        user: The reader.
        sheet: As far as they see the statement.
    """
    row = StatementLook(
        user=user, statement=sheet.statement, seen_at=utc_now(), content=content_of(sheet)
    )
    upsert([row])
