"""Months of a zone, and up to when accounts are closed."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from budgets.models import Account, BillingPeriod, BillingTerms
from budgets.units import YEARS, UnitsError, month_period

UTC_ZONE = "UTC"
# In digits of ASCII alone: each month has one name.
_MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


def month_of(name: str, zone: str = UTC_ZONE) -> BillingPeriod:
    """The month ``2026-10`` of a zone, stored or new and not saved.

    Raises:
        BillingPeriod.DoesNotExist: There is no such month or zone.
    """
    stored = BillingPeriod.objects.filter(name=name, zone=zone).first()
    if stored is not None:
        return stored
    found = _MONTH.fullmatch(name)
    try:
        if found is None or int(found[1]) not in YEARS:
            raise UnitsError(name)
        window = month_period(int(found[1]), int(found[2]), zone=ZoneInfo(zone))
    except (UnitsError, ValueError, OverflowError, OSError, ZoneInfoNotFoundError) as error:
        raise BillingPeriod.DoesNotExist(f"{name} of {zone}") from error
    return BillingPeriod(name=name, zone=zone, start=window.start, end=window.end)


def month_at(instant: datetime, zone: str = UTC_ZONE) -> BillingPeriod:
    """The month of a zone that holds an instant, stored or new and not saved."""
    return month_of(f"{instant.astimezone(ZoneInfo(zone)):%Y-%m}", zone)


def closed_edges() -> dict[int, datetime]:
    """Account key -> the instant before which nothing of it changes any more. Three queries.

    An account without a closing of its own, such as one made later, has that of its zone: what
    turns up of the time before is billed as a correction.
    """
    ends: dict[str, datetime] = {}
    for zone, end in BillingPeriod.objects.filter(closed_at__isnull=False).values_list(
        "zone", "end"
    ):
        ends[zone] = max(end, ends.get(zone, end))
    if not ends:
        return {}
    terms = {row.account_id: row for row in BillingTerms.objects.all()}
    found: dict[int, datetime] = {}
    for key in Account.objects.order_by().values_list("pk", flat=True):
        own = terms.get(key)
        edge = (own.closed_until if own else None) or ends.get(own.zone if own else UTC_ZONE)
        if edge is not None:
            found[key] = edge
    return found


def zones_of(accounts: Collection[int]) -> dict[int, str]:
    """Account key → the zone in whose months it is billed; without terms that is UTC. One query."""
    terms = BillingTerms.objects.filter(account__in=accounts)
    return dict.fromkeys(accounts, UTC_ZONE) | dict(terms.values_list("account_id", "zone"))


def open_month(account_id: int, instant: datetime) -> BillingPeriod:
    """The month in which something about an account is billed that is known at an instant."""
    zone = zones_of([account_id])[account_id]
    edge = closed_edges().get(account_id)
    return month_at(max(instant, edge) if edge else instant, zone)


def unstored_month(instant: datetime, zone: str) -> BillingPeriod:
    """The month of a zone that holds an instant, whatever is stored of it. No query."""
    local = instant.astimezone(ZoneInfo(zone))
    window = month_period(local.year, local.month, zone=ZoneInfo(zone))
    return BillingPeriod(name=f"{local:%Y-%m}", zone=zone, start=window.start, end=window.end)
