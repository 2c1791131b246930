"""Drafts of statements follow the facts until somebody has reviewed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from budgets.charging import Item, LinePart
from budgets.errors import Fault, Rejected
from budgets.models import BillingPeriod, Statement, StatementLine, User, Workspace
from budgets.selectors.billing.documents import Drawing, Drawn, draw
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.billing.guards import lock_billing, require_finance, stored_month
from budgets.units import Money

BATCH = 2000


@dataclass(frozen=True, slots=True)
class DrawSummary:
    """How many statements were written, left because they are reviewed, and taken away."""

    drawn: int
    kept: int
    removed: int


@transaction.atomic
def draw_up_statements(actor: User | None, *, month: str, zone: str = "UTC") -> DrawSummary:
    """Write the drafts of a month anew, as its facts say now; reviewed ones stay.

    Raises:
        NotAllowed: For other roles than finance and admin.
        Rejected: The month is closed, or no rate card is active.
    """
    require_finance(actor)
    lock_billing()
    period = stored_month(month, zone)
    if period.closed_at is not None:
        message = f"{period} is closed; its statements are what they are."
        raise Rejected([Fault("month", "closed_period", message)])
    drawing = draw(period)
    if not drawing.currency:
        message = "No rate card is active; propose and activate one first."
        raise Rejected([Fault("", "no_rate_card", message)])
    summary = write_drafts(period, drawing)
    audit(
        actor,
        action="statements.draw_up",
        subject=f"period:{period}",
        after={"drawn": summary.drawn, "kept": summary.kept, "removed": summary.removed},
    )
    return summary


def write_drafts(period: BillingPeriod, drawing: Drawing) -> DrawSummary:
    """Make the drafts of an open period what was drawn; the caller holds the lock."""
    stored = {
        row.account_id: row
        for row in Statement.objects.filter(period=period, kind=Statement.Kind.STATEMENT)
    }
    fixed = {key for key, row in stored.items() if row.state != Statement.State.DRAFT}
    wanted = {row.account_id: row for row in drawing.drawn if row.account_id not in fixed}
    gone = [row.pk for key, row in stored.items() if key not in fixed and key not in wanted]
    drafts = [row.pk for key, row in stored.items() if key not in fixed]
    StatementLine.objects.filter(statement__in=drafts).delete()
    Statement.objects.filter(pk__in=gone).delete()
    written: list[tuple[Statement, Drawn]] = []
    now = utc_now()
    for key, drawn in wanted.items():
        row = stored.get(key) or Statement(account_id=key, period=period)
        row.currency = drawn.document.currency
        row.priced_in = drawn.priced_in
        row.exchange_rate = drawn.exchange_rate
        row.exchange_day = drawn.exchange_day
        row.payable = drawn.document.payable.amount
        row.drawn_at = now
        written.append((row, drawn))
    Statement.objects.bulk_create([row for row, _ in written if row.pk is None])
    Statement.objects.bulk_update(
        [row for row, _ in written if row.account_id in stored],
        ["currency", "priced_in", "exchange_rate", "exchange_day", "payable", "drawn_at"],
        batch_size=BATCH,
    )
    keys = dict(Workspace.objects.values_list("namespace", "pk"))
    StatementLine.objects.bulk_create(
        [line for row, drawn in written for line in _lines(row, drawn, keys)], batch_size=BATCH
    )
    return DrawSummary(len(written), len(fixed), len(gone))


def _lines(
    statement: Statement, drawn: Drawn, workspaces: Mapping[str, int]
) -> Iterator[StatementLine]:
    for position, (item, amount) in enumerate(drawn.document.lines, start=1):
        yield _line(statement, position, item, amount, workspaces)


def _line(
    statement: Statement,
    position: int,
    item: Item,
    amount: Money,
    workspaces: Mapping[str, int],
) -> StatementLine:
    return StatementLine(
        statement=statement,
        position=position,
        workspace_id=workspaces[item.workspace] if item.workspace else None,
        flavor=item.flavor,
        kind=item.kind.value,
        class_of=item.class_of.value if item.class_of else "",
        gpu_seconds=item.gpu_seconds,
        exact_text=str(item.exact),
        amount=amount.amount,
        text=item.text,
        adjustment_id=item.adjustment,
        parts=[_part(part) for part in item.parts],
    )


def _part(part: LinePart) -> dict[str, Any]:
    """A part as JSON: card 0 and no prices where there was no rate."""
    rate = part.rate
    found: dict[str, Any] = {
        "gpu_seconds": part.gpu_seconds,
        "card": rate.card if rate else 0,
        "from": rate.start.isoformat().replace("+00:00", "Z") if rate else "",
        "committed": f"{rate.committed:f}" if rate else "",
        "burst": f"{rate.burst:f}" if rate else "",
        "lending_credit": f"{rate.lending_credit:f}" if rate else "",
    }
    if rate is not None and rate.averages:
        found["averages"] = {kind.value: str(price) for kind, price in rate.averages.items()}
    return found
