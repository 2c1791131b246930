"""Adjustments: one proposes with a reason, another one approves.

Source: spec money, section 2.3; spec features, section 5.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import (
    Account,
    Adjustment,
    BillingPeriod,
    Statement,
    StatementLine,
    User,
    Workspace,
)
from budgets.selectors.billing.documents import accounts_of
from budgets.selectors.billing.prices import account_currency
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.billing.approvals import approve
from budgets.services.billing.guards import lock_billing, stored_month
from budgets.services.guards import by_finance, require_reason, save_checked
from budgets.units import Money, UnitsError, currency_digits

LARGEST = Decimal(10) ** 12
DIGITS = 4
"""No currency has more after the point."""


@by_finance
def propose_adjustment(
    actor: User | None,
    *,
    account: Account,
    month: str,
    zone: str = "UTC",
    amount: Decimal | str,
    reason: str,
    workspace: Workspace | None = None,
    corrects: StatementLine | None = None,
) -> Adjustment:
    """Propose an amount on the statement of an open month; negative gives money back.

    Args:
        actor: The proposer, who cannot approve it.
        account: Whose statement.
        month: Such as ``2026-10``.
        zone: That in which the account is billed.
        amount: In the currency of the account's statements, with its digits.
        reason: Kept, and printed on the statement.
        workspace: Whose cost it is; None for the account's.
        corrects: The line that it puts right, of any statement of the account.
    """
    lock_billing()
    period = stored_month(month, zone)
    currency = account_currency(account.pk)
    faults = _place_faults(account, period, workspace, corrects)
    faults += _period_faults(account, period)
    if not currency:
        faults.append(Fault("amount", "no_currency", "Activate a rate card first."))
    row = Adjustment(
        account=account,
        workspace=workspace,
        period=period,
        amount=_amount(amount, currency, faults),
        currency=currency or "XXX",
        reason=reason.strip()[:500],
        corrects=corrects,
        proposed_by=actor,
    )
    save_checked(row, also=faults)
    audit(actor, "adjustment.propose", row, reason=reason, after=_state(row))
    return row


@by_finance
def decide_adjustment(
    actor: User | None, *, adjustment: Adjustment, is_approved: bool, reason: str = ""
) -> Adjustment:
    """Approve or decline; who proposed it can decline it, never approve it.

    Raises:
        NotAllowed: For the proposer's own approval.
        Rejected: It is decided already, its month is closed, or a decline has no reason.
    """
    if not is_approved:
        require_reason(reason)
    lock_billing()
    row = (
        Adjustment.objects.select_for_update(of=("self",))
        .select_related("account", "period", "workspace")
        .get(pk=adjustment.pk)
    )
    if row.state != Adjustment.State.PROPOSED:
        message = f"It is already {row.get_state_display().lower()}."
        raise Rejected.because("", "decided", message)
    if is_approved:
        row.approval = approve(actor, author_id=row.proposed_by_id, deed="adjustment.approve")
        reject_any(_period_faults(row.account, row.period))
    row.state = Adjustment.State.APPROVED if is_approved else Adjustment.State.DECLINED
    row.decided_by = actor
    row.decided_at = utc_now()
    row.decision_reason = reason[:500]
    row.save(update_fields=["state", "decided_by", "decided_at", "decision_reason", "approval"])
    audit(
        actor,
        "adjustment.approve" if is_approved else "adjustment.decline",
        row,
        reason=reason,
        after=_state(row),
    )
    return row


def _amount(value: Decimal | str, currency: str, faults: list[Fault]) -> Decimal:
    try:
        amount = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation:
        faults.append(Fault("amount", "not_a_number", f"{value!r} is not a number."))
        return Decimal(1)
    # Compared alone: to count with a number of so many digits fails, or takes for ever.
    is_told = amount.is_finite() and -LARGEST <= amount <= LARGEST and amount.adjusted() >= -DIGITS
    if not is_told or not amount:
        words = f"{str(amount)[:40]} is 0, too small or too large. Give at most {LARGEST:,}."
        faults.append(Fault("amount", "out_of_range", words))
        return Decimal(1)
    try:
        if currency:
            Money(amount, currency)
    except UnitsError:
        digits = currency_digits(currency)
        message = f"{amount} has more than the {digits} digits of {currency}; round it."
        faults.append(Fault("amount", "too_fine", message))
    return amount


def _place_faults(
    account: Account,
    period: BillingPeriod,
    workspace: Workspace | None,
    corrects: StatementLine | None,
) -> list[Fault]:
    faults = []
    if workspace is not None and workspace.account_id != account.pk:
        message = f"{workspace.name} is not a workspace of {account.name}."
        faults.append(Fault("workspace", "other_account", message))
    if corrects is not None and corrects.statement.account_id != account.pk:
        message = f"That line is not on a statement of {account.name}."
        faults.append(Fault("corrects", "other_account", message))
    if not accounts_of(period.zone).filter(pk=account.pk).exists():
        message = f"{account.name} is not billed in months of {period.zone}."
        faults.append(Fault("zone", "other_zone", message))
    return faults


def _period_faults(account: Account, period: BillingPeriod) -> list[Fault]:
    if period.closed_at is not None:
        message = f"{period} is closed; choose an open month."
        return [Fault("month", "closed_period", message)]
    if Statement.objects.filter(
        account=account, period=period, state=Statement.State.REVIEWED
    ).exists():
        message = (
            f"The statement of {account.name} for {period} has been reviewed. Send it back first."
        )
        return [Fault("month", "reviewed", message)]
    return []


def _state(row: Adjustment) -> dict[str, Any]:
    facts = {"month": str(row.period), "corrects": row.corrects_id}
    return state_of(row, "amount", "currency", "state") | facts
