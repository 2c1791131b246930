"""Bounds of what people give, said once for fields of the API and of the pages' forms."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, Final

from django.core.exceptions import ValidationError

from budgets.units import year_fault

# As keywords of a field: Any, because each of them types its own.
MONEY: Final[Any] = {
    "max_digits": 18,
    "decimal_places": 2,
    "min_value": Decimal("0.01"),
    "max_value": Decimal(10) ** 13,
}
"""SQLite keeps an amount as a float, to which a cent is known up to 2^53 cents, nine times that."""
NAME: Final[Any] = {"max_length": 120}
REASON: Final[Any] = {"max_length": 500}
PERSON_NAME: Final[Any] = {"max_length": 150}
WARN_AT_PERCENT: Final[Any] = {"min_value": 1, "max_value": 100}
TELL_AT_PERCENT: Final[Any] = {"min_value": 1, "max_value": 1000}
WEIGHT: Final[Any] = {"min_value": Decimal(0), "max_digits": 9, "decimal_places": 3}
OVERSUBSCRIPTION: Final[Any] = {"min_value": Decimal(1), "max_digits": 5, "decimal_places": 2}


def check_year(moment: date) -> None:
    """Refuse a year out of :data:`budgets.units.YEARS`; for a field of a day or a time."""
    if words := year_fault(moment):
        raise ValidationError(words, code="year")
