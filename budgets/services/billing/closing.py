"""Closing a month: everything has to hold, then nothing of it changes any more.

Source: spec money, sections 1.4 and 1.5; spec features, section 5.
"""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import BillingPeriod, BillingTerms, MeterState, User
from budgets.selectors.alerts import finance_addresses
from budgets.selectors.billing.documents import accounts_of, draw
from budgets.selectors.billing.periods import check_list
from budgets.selectors.clock import utc_now
from budgets.services.alerts.webhooks import put_into_outbox
from budgets.services.audit import audit
from budgets.services.billing.chain import verify_chain, write_chain
from budgets.services.billing.drawing import write_drafts
from budgets.services.billing.guards import lock_billing, stored_month
from budgets.services.billing.seals import BrokenSeal, make_seal
from budgets.services.billing.signing import UNSIGNED, sign, told_of_month
from budgets.services.guards import by_finance


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
    number = BillingPeriod.objects.filter(close_number__isnull=False).count() + 1
    if number != newest + 1:
        message = "Another month was closed in this moment; close this one again."
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
    try:
        seal = make_seal(period)
    except BrokenSeal as broken:
        raise _not_whole(" ".join(broken.args)) from None
    period.head = write_chain(period)
    # 6. From here the triggers refuse every change.
    _close_accounts(period)
    period.closed_at, period.closed_by, period.close_number = instant, actor, number
    period.signature = sign(told_of_month(period))
    period.save()
    audit(
        actor,
        "period.close",
        f"period:{period}",
        after={
            "number": number,
            "head": period.head,
            "signature": period.signature,
            "statements": len(drawing.drawn),
            "seal": seal.number if seal else None,
        },
    )
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
