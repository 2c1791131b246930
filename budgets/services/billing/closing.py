"""Closing a month: everything has to hold, then nothing of it changes any more.

Until then drafts of statements follow the facts, until somebody has reviewed them.

Source: spec money, sections 1.4 and 1.5; spec features, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from budgets.charging import Item, LinePart
from budgets.errors import Fault, Rejected, reject_any
from budgets.models import (
    BillingPeriod,
    BillingTerms,
    MeterState,
    Seal,
    Statement,
    StatementLine,
    User,
    Workspace,
)
from budgets.selectors.alerts import finance_addresses
from budgets.selectors.billing.documents import Drawing, Drawn, accounts_of, draw
from budgets.selectors.billing.periods import check_list
from budgets.selectors.clock import utc_now
from budgets.services.alerts.webhooks import put_into_outbox
from budgets.services.audit import audit, state_of
from budgets.services.billing.chain import verify_chain, write_chain
from budgets.services.billing.guards import lock_billing, stored_month
from budgets.services.billing.seals import UNSIGNED, BrokenSeal, make_seal, sign, told_of_month
from budgets.services.guards import by_finance
from budgets.units import Money


@by_finance
def close_period(
    actor: User | None, *, month: str, zone: str = "UTC", now: datetime | None = None
) -> BillingPeriod:
    """Close a month of a zone for good.

    Args:
        actor: Who closes it.
        month: Such as ``2026-10``.
        zone: Of the month.
        now: UTC; None for the present.

    Raises:
        Rejected: It is closed already, or the check list is not met: every entry, at once.
    """
    instant = now or utc_now()
    # 1. The chain so far holds. What is closed does not change, so nobody has to wait for this.
    newest = _require_whole_chain()
    # 2. Nobody changes a price, a draft or a fact until this is done: the meter waits here too.
    lock_billing()
    list(MeterState.objects.select_for_update().order_by("pk"))
    period = stored_month(month, zone)
    if period.closed_at is not None:
        raise Rejected.because("month", "closed_period", f"{period} is closed already.")
    if BillingPeriod.objects.filter(close_number__isnull=False).count() != newest:
        message = "Another month was closed at the same moment; close this one again."
        raise Rejected.because("month", "closed_meanwhile", message)
    # 3. Everything holds.
    drawing = draw(period)
    reject_any(
        Fault("", check.key, f"{check.title}: {detail}")
        for check in check_list(period, drawing=drawing, now=instant)
        for detail in check.details
    )
    # 4. Statements are what the facts say, reviewed or not.
    write_drafts(period, drawing)
    # 5. All of it is digested, in the chain after the month closed before; so is what is beside it.
    seal = _sealed(period)
    period.head = write_chain(period)
    # 6. From here the triggers refuse every change.
    _close_accounts(period)
    period.closed_at, period.closed_by, period.close_number = instant, actor, newest + 1
    period.signature = sign(told_of_month(period))
    period.save()
    told = {"number": newest + 1, **state_of(period, "head", "signature")}
    after = {**told, "statements": len(drawing.drawn), "seal": seal.number if seal else None}
    audit(actor, "period.close", f"period:{period}", after=after)
    # 7. Number and head leave the house: who keeps them misses the month when it is cut off.
    put_into_outbox(Q(account=None), finance_addresses(), period=period, next_at=utc_now())
    return period


def _require_whole_chain() -> int:
    """The month that was closed last is as it was closed, and none after it is missing.

    Returns:
        Its number, 0 for none.

    Raises:
        Rejected: It is not: nothing is closed on top of a chain that somebody has changed.
    """
    last = BillingPeriod.objects.filter(close_number__isnull=False).order_by("close_number").last()
    found = verify_chain(name=last.name if last else "none")
    if found.broken is not None:
        # The first key signs this month, and with its head all that were closed before.
        is_first_key = found.broken.problem == UNSIGNED
        if not is_first_key or BillingPeriod.objects.exclude(signature="").exists():
            raise _not_whole(str(found.broken))
    return (last.close_number or 0) if last else 0


def _sealed(period: BillingPeriod) -> Seal | None:
    try:
        return make_seal(period)
    except BrokenSeal as broken:
        raise _not_whole(" ".join(broken.args)) from None


def _not_whole(problem: str) -> Rejected:
    words = f"The ledger is not as it was closed: {problem}. manage.py verify_ledger says more."
    return Rejected.because("", "ledger_broken", words)


def _close_accounts(period: BillingPeriod) -> None:
    """Move the closed edge of every account of the zone."""
    accounts = list(accounts_of(period.zone).order_by("pk").values_list("pk", flat=True))
    BillingTerms.objects.bulk_create(
        [BillingTerms(account_id=key, zone=period.zone) for key in accounts],
        ignore_conflicts=True,
        batch_size=500,
    )
    BillingTerms.objects.filter(account__in=accounts).update(closed_until=period.end)


BATCH = 2000
PRICES = ("committed", "burst", "lending_credit")
HEAD = ("priced_in", "exchange_rate", "exchange_day", "billed_to")


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
        message = f"{period} is closed, so its statements cannot change."
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
        for name in HEAD:
            setattr(row, name, getattr(drawn, name))
        row.currency = drawn.document.currency
        row.payable = drawn.document.payable.amount
        row.drawn_at = now
        written.append((row, drawn))
    Statement.objects.bulk_create([row for row, _ in written if row.pk is None])
    Statement.objects.bulk_update(
        [row for row, _ in written if row.account_id in stored],
        [*HEAD, "currency", "payable", "drawn_at"],
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
