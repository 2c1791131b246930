"""Numbers as words; shared by templates, charts and CSV."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from budgets.units import currency_digits, gpu_hours


# A page of use says some two thousand amounts, many of them several times.
@lru_cache(maxsize=8192)
def hours_text(seconds: int) -> str:
    """GPU-seconds as GPU-hours with one decimal: 5400 → ``1.5``.

    Rounded half up in whole numbers, so that no float stands between ledger and reader.
    """
    return gpu_hours(seconds, places=1, mark=",").replace("-", "−")


def money_text(amount: Decimal, currency: str) -> str:
    """An amount with the currency's digits: ``1,234.50 EUR``.

    Amounts are rounded long before they are shown; digits are added here, never taken away.
    """
    digits = currency_digits(currency)
    sign = "−" if amount < 0 else ""
    return f"{sign}{abs(amount):,.{digits}f} {currency}"


def price_text(price: Decimal) -> str:
    """A price with as many places as it needs, two at least: ``2.00``, ``1.23456789``."""
    whole, _, places = f"{price:f}".partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"
