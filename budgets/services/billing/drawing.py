"""Drafts of statements follow the facts until somebody has reviewed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from budgets.charging import Item, LinePart
from budgets.errors import Rejected
from budgets.models import BillingPeriod, Statement, StatementLine, User, Workspace
from budgets.selectors.billing.documents import Drawing, Drawn, draw
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.billing.guards import lock_billing, stored_month
from budgets.services.guards import by_finance
from budgets.units import Money

BATCH = 2000
PRICES = ("committed", "burst", "lending_credit")
PRICED = ("priced_in", "exchange_rate", "exchange_day")


@dataclass(frozen=True, slots=True)
class DrawSummary:
    """How many statements were written, left because they are reviewed, and taken away."""

    drawn: int
    kept: int
    removed: int


@by_finance
def draw_up_statements(actor: User | None, *, month: str, zone: str = "UTC") -> DrawSummary:
    """Write the drafts of a month anew, as its facts say now; reviewed ones stay.

    Raises:
        Rejected: The month is closed, or no rate card is active.
    """
    lock_billing()
    period = stored_month(month, zone)
    if period.closed_at is not None:
        message = f"{period} is closed; its statements are what they are."
        raise Rejected.because("month", "closed_period", message)
    drawing = draw(period)
    if not drawing.currency:
        message = "No rate card is active; propose and activate one first."
        raise Rejected.because("", "no_rate_card", message)
    summary = write_drafts(period, drawing)
    audit(actor, "statements.draw_up", f"period:{period}", after=asdict(summary))
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
        for name in PRICED:
            setattr(row, name, getattr(drawn, name))
        row.currency = drawn.document.currency
        row.payable = drawn.document.payable.amount
        row.drawn_at = now
        written.append((row, drawn))
    Statement.objects.bulk_create([row for row, _ in written if row.pk is None])
    Statement.objects.bulk_update(
        [row for row, _ in written if row.account_id in stored],
        [*PRICED, "currency", "payable", "drawn_at"],
        batch_size=BATCH,
    )
    keys = dict(Workspace.objects.values_list("namespace", "pk"))
    StatementLine.objects.bulk_create(
        [
            _line(row, position, item, amount, keys)
            for row, drawn in written
            for position, (item, amount) in enumerate(drawn.document.lines, start=1)
        ],
        batch_size=BATCH,
    )
    return DrawSummary(len(written), len(fixed), len(gone))


def _line(
    statement: Statement, position: int, item: Item, amount: Money, workspaces: Mapping[str, int]
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
        **{name: f"{getattr(rate, name):f}" if rate else "" for name in PRICES},
    }
    if rate is not None and rate.averages:
        found["averages"] = {kind.value: str(price) for kind, price in rate.averages.items()}
    return found
