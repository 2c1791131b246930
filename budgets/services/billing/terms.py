"""In which month and currency an account is billed, and what currencies were worth."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from budgets.errors import Fault
from budgets.models import (
    Account,
    Adjustment,
    Approval,
    BillingPeriod,
    BillingTerms,
    ExchangeRate,
    Proposal,
    Statement,
    UsageRecord,
    User,
)
from budgets.models.billing import INVOICE_DETAILS
from budgets.selectors.approvals import installation
from budgets.selectors.billing.prices import portal_currency
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.billing.approvals import MoneyDeed, Seen, propose
from budgets.services.billing.guards import (
    currency_faults,
    lock_billing,
    percent_off,
    percent_text,
    price_of,
)
from budgets.services.guards import by_finance, save_checked

CHECKED_YEARS = (2000, 2040)
ADDRESS_LINES, ADDRESS_CHARACTERS = 8, 500


@by_finance
def set_billing_terms(
    actor: User | None, *, account: Account, zone: str = "UTC", currency: str = ""
) -> BillingTerms:
    """Say in which zone's months and in which currency an account is billed.

    Args:
        actor: Who says it.
        account: Whose statements.
        zone: IANA name whose months begin on whole UTC hours.
        currency: ISO 4217; empty for that of the rate cards.

    Raises:
        Rejected: The zone or currency is unknown; the zone would change after a period of the
            account was closed; money waits or is reviewed in the old currency.
    """
    lock_billing()
    row = BillingTerms.objects.filter(account=account).first() or BillingTerms(account=account)
    before = {"zone": row.zone, "currency": row.currency}
    faults = _zone_faults(zone)
    if row.closed_until is not None and zone != row.zone:
        message = f"A month of {account.name} is closed, so its time zone stays {row.zone}."
        faults.append(Fault("zone", "closed_period", message))
    if currency:
        faults += currency_faults("currency", currency)
    faults += _closed_zone_faults(account, row, zone)
    if (currency or portal_currency()) != (row.currency or portal_currency()):
        faults += _money_in_old_currency(account)
    row.zone, row.currency = zone, currency
    save_checked(row, also=faults)
    audit(
        actor,
        "billing_terms.set",
        account,
        before=before,
        after={"zone": zone, "currency": currency},
    )
    return row


@by_finance
def set_invoice_details(actor: User | None, /, *, account: Account, **details: str) -> BillingTerms:
    """Say what an account's accountants need on its statements; those drawn up from now on have it.

    Args:
        actor: Who says it.
        account: Whose statements.
        **details: Each of ``INVOICE_DETAILS``; an address has several lines.

    Raises:
        Rejected: One is too long, or has a control character.
        TypeError: One is none of them.
    """
    if unknown := set(details) - set(INVOICE_DETAILS):
        raise TypeError(f"no details of an invoice: {sorted(unknown)}")
    lock_billing()
    row = BillingTerms.objects.filter(account=account).first() or BillingTerms(account=account)
    before = row.billed_to
    for name, text in details.items():
        setattr(row, name, "\n".join(line.strip() for line in text.strip().splitlines()))
    save_checked(row, also=_address_faults(row.invoice_address))
    audit(actor, "invoice_details.set", account, before=before, after=row.billed_to)
    return row


def _address_faults(address: str) -> list[Fault]:
    lines = address.split("\n")
    if len(address) > ADDRESS_CHARACTERS:
        words = (
            f"An address can have at most {ADDRESS_CHARACTERS} characters; this one has "
            f"{len(address)}."
        )
        return [Fault("invoice_address", "too_long", words)]
    if len(lines) > ADDRESS_LINES:
        words = f"An address can have at most {ADDRESS_LINES} lines; this one has {len(lines)}."
        return [Fault("invoice_address", "too_long", words)]
    if not all(line.isprintable() for line in lines):
        words = "The address has a control character. Leave it out."
        return [Fault("invoice_address", "control_character", words)]
    return []


@by_finance
def record_exchange_rate(
    actor: User | None, *, base: str, quote: str, day: date, rate: Decimal | str, reason: str = ""
) -> ExchangeRate | Proposal:
    """Record what 1 ``base`` was worth in ``quote`` on a day; a further one supersedes it.

    Statements keep the rate that they were drawn up with.

    Returns:
        The rate; a proposal where it is off what two people agreed on last by more than the
        tolerance of the installation, where they agreed on none, or where it changes a past day.
    """
    lock_billing()
    faults = currency_faults("base", base) + currency_faults("quote", quote)
    if base == quote:
        faults.append(Fault("quote", "same", "Choose two different currencies."))
    read = price_of("rate", rate, faults)
    if not faults and not read:
        faults.append(Fault("rate", "out_of_range", "The rate has to be above 0."))
    tolerance = installation().price_tolerance
    agreed = None if faults else _agreed_rate(base, quote, day)
    off_by = percent_off(read, agreed.rate if agreed else None)
    row = ExchangeRate(
        base=base,
        quote=quote,
        day=day,
        rate=read or 1,
        recorded_by=actor,
        off_by=off_by,
        tolerance=tolerance,
    )
    told = ExchangeRate.objects.filter(base=base, quote=quote, day=day).order_by("-pk").first()
    is_changed = told is not None and told.rate != read and day < utc_now().date()
    if not faults and (off_by is None or off_by > tolerance or is_changed):
        return propose(
            actor,
            RECORD,
            subject=f"exchange_rate:{base}-{quote} {day}",
            reason=reason,
            base=base,
            quote=quote,
            day=day,
            rate=read,
        )
    save_checked(row, also=faults)
    _log_rate(actor, row, reason)
    return row


def _agreed_rate(base: str, quote: str, day: date) -> ExchangeRate | None:
    """What two people agreed on last: of the newest day up to one, else of the first after it."""
    rows = ExchangeRate.objects.filter(base=base, quote=quote, approval__isnull=False)
    before = rows.filter(day__lte=day).order_by("-day", "-pk").first()
    return before or rows.order_by("day", "-pk").first()


def _recording(base: str, quote: str, day: date, rate: Decimal, *, at: datetime) -> Seen:
    agreed = _agreed_rate(base, quote, day)
    told = ExchangeRate.objects.filter(base=base, quote=quote, day=day).order_by("-pk").first()
    return {
        "Day": day.isoformat(),
        "Rate": f"1 {base} = {rate.normalize():f} {quote}",
        "Two people agreed last on": (
            f"{agreed.rate.normalize():f} of {agreed.day}" if agreed else "nothing"
        ),
        "Off that by": percent_text(percent_off(rate, agreed.rate if agreed else None)),
        "Recorded of that day": f"{told.rate.normalize():f}" if told else "nothing",
    }


def _record(
    actor: User,
    approval: Approval,
    *,
    base: str,
    quote: str,
    day: date,
    rate: Decimal,
    reason: str,
) -> str:
    agreed = _agreed_rate(base, quote, day)
    row = ExchangeRate(
        base=base,
        quote=quote,
        day=day,
        rate=rate,
        recorded_by=approval.author,
        off_by=percent_off(rate, agreed.rate if agreed else None),
        tolerance=installation().price_tolerance,
        approval=approval,
    )
    save_checked(row)
    _log_rate(actor, row, reason)
    return f"1 {base} was worth {rate.normalize():f} {quote} on {day}."


def _log_rate(actor: User | None, row: ExchangeRate, reason: str) -> None:
    subject = f"exchange_rate:{row.base}-{row.quote}"
    after = {"day": row.day.isoformat(), "rate": str(row.rate), "off_by": str(row.off_by)}
    audit(actor, "exchange_rate.record", subject, reason=reason, after=after)


RECORD = MoneyDeed(
    name="exchange_rate.record",
    title="Record an exchange rate",
    takes={"base": str, "quote": str, "day": date.fromisoformat, "rate": Decimal},
    look=_recording,
    do=_record,
)


def _zone_faults(zone: str) -> list[Fault]:
    try:
        found = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"{zone!r} is not a time zone, such as Europe/Berlin or UTC."
        return [Fault("zone", "unknown", message)]
    for year in range(*CHECKED_YEARS):
        for month in range(1, 13):
            start = datetime(year, month, 1, tzinfo=found).astimezone(UTC)
            if (start.minute, start.second) != (0, 0):
                message = (
                    f"A month of {zone} begins at {start:%H:%M} UTC, within an hour that is "
                    "metered as a whole; choose a zone with whole hours, or UTC."
                )
                return [Fault("zone", "cuts_an_hour", message)]
    return []


def _closed_zone_faults(account: Account, terms: BillingTerms, zone: str) -> list[Fault]:
    """Use of a month that is closed in the new zone would be in no closed period's books."""
    if zone == terms.zone or terms.closed_until is not None:
        return []
    last = BillingPeriod.objects.filter(zone=zone, closed_at__isnull=False).order_by("-end").first()
    facts = UsageRecord.objects.filter(workspace__account=account)
    if last is None or not facts.filter(start__lt=last.end).exists():
        return []
    message = f"{last} is closed and {account.name} has use in it. Keep the time zone {terms.zone}."
    return [Fault("zone", "closed_period", message)]


def _money_in_old_currency(account: Account) -> list[Fault]:
    faults = []
    if (
        Adjustment.objects.filter(account=account, period__closed_at__isnull=True)
        .exclude(state=Adjustment.State.DECLINED)
        .exists()
    ):
        message = "Some adjustments of an open month are in the old currency. Decline them first."
        faults.append(Fault("currency", "has_adjustments", message))
    if Statement.objects.filter(
        account=account, period__closed_at__isnull=True, state=Statement.State.REVIEWED
    ).exists():
        message = "A reviewed statement is in the old currency. Send it back first."
        faults.append(Fault("currency", "has_reviewed", message))
    return faults
