"""What every write about money does first: the lock, the month, the closed edge."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from budgets.errors import Fault
from budgets.models import Account, BillingPeriod, NumberSeries
from budgets.selectors.billing.months import closed_edges, month_of
from budgets.selectors.billing.prices import portal_currency
from budgets.units import UnitsError, currency_digits, time_text, utc_hour

LOCK = "lock"
PRICE_DIGITS = 8
LARGEST_PRICE = Decimal(10) ** 9
LARGEST_OFF = Decimal(99_999_999)


def lock_billing() -> None:
    """Hold the one lock of everything that asks whether a period is open, until the end.

    Taken before any other lock; a close and a price that reaches into the month cannot cross.
    """
    NumberSeries.objects.get_or_create(prefix=LOCK)
    NumberSeries.objects.select_for_update().get(prefix=LOCK)


def closed_edge(account: Account | None) -> datetime | None:
    """Before it nothing changes: of one account, or (None) of any account."""
    edges = closed_edges()
    return max(edges.values(), default=None) if account is None else edges.get(account.pk)


def stored_month(name: str, zone: str) -> BillingPeriod:
    """The row of a month, made when it is missing.

    Raises:
        BillingPeriod.DoesNotExist: There is no such month or zone.
    """
    wanted = month_of(name, zone)
    if wanted.pk is not None:
        return wanted
    # The meter makes months too, and does not wait for the lock of billing.
    stored, _ = BillingPeriod.objects.get_or_create(
        name=name, zone=zone, defaults={"start": wanted.start, "end": wanted.end}
    )
    return stored


def currency_faults(field: str, code: str) -> list[Fault]:
    """One fault when a currency code is none."""
    try:
        currency_digits(code)
    except UnitsError as error:
        return [Fault(field, "unknown_currency", f"{error}.")]
    return []


def price_of(
    field: str, value: Any, faults: list[Fault], *, most: Decimal | None = None
) -> Decimal:
    """Read a price or share: at least 0, at most eight places.

    Args:
        field: Where it stands, for the fault.
        value: A Decimal, or text as it was typed; never a float.
        faults: Gets what is wrong.
        most: Upper bound, inclusive.
    """
    try:
        price = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation:
        faults.append(Fault(field, "not_a_number", f"{value!r} is not a number, such as 2.50."))
        return Decimal(0)
    bound = LARGEST_PRICE if most is None else most
    if not price.is_finite() or price < 0 or price > bound:
        faults.append(Fault(field, "out_of_range", f"{price} is not between 0 and {bound}."))
    elif price != round(price, PRICE_DIGITS):
        message = f"{price} has more than {PRICE_DIGITS} decimals; round it."
        faults.append(Fault(field, "too_fine", message))
    elif price:
        return price
    return Decimal(0)


def percent_off(price: Decimal, agreed: Decimal | None) -> Decimal | None:
    """How far a price is off one that two people agreed on, four places; None: not comparable."""
    if not agreed:
        return Decimal(0) if agreed == price else None
    return min(round(abs(price / agreed - 1) * 100, 4), LARGEST_OFF)


def percent_text(percent: Decimal | None) -> str:
    """As people read it."""
    return "not to be compared" if percent is None else f"{percent.normalize():f} %"


def foreign_currency(currency: str) -> list[Fault]:
    """All cards are in one currency, or no sum over accounts would mean anything."""
    used = portal_currency()
    if not used or used == currency:
        return []
    message = (
        f"The rate cards are in {used}, not {currency}; an account is billed in another currency "
        "through its billing terms and dated exchange rates."
    )
    return [Fault("currency", "other_currency", message)]


def hour_faults(field: str, hour: datetime, edge: datetime | None) -> list[Fault]:
    """What is wrong with the hour from which a price holds: it is whole, and not before an edge."""
    try:
        is_whole = utc_hour(hour) == hour
    except UnitsError as error:
        return [Fault(field, "not_utc", f"{error}.")]
    if not is_whole:
        message = f"{time_text(hour)} is not a whole UTC hour; a price begins on one."
        return [Fault(field, "not_a_whole_hour", message)]
    if edge is not None and hour < edge:
        message = (
            f"{hour:%Y-%m-%d %H:%M} UTC is in a closed period; the earliest is "
            f"{edge:%Y-%m-%d %H:%M} UTC."
        )
        return [Fault(field, "closed_period", message)]
    return []
