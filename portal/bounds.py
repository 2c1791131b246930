"""Bounds of what people give, said once for fields of the API and of the pages' forms."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

# As keywords of a field: Any, because each of them types its own.
MONEY: Final[Any] = {"max_digits": 18, "decimal_places": 2, "min_value": Decimal("0.01")}
NAME: Final[Any] = {"max_length": 120}
REASON: Final[Any] = {"max_length": 500}
PERSON_NAME: Final[Any] = {"max_length": 150}
WARN_AT_PERCENT: Final[Any] = {"min_value": 1, "max_value": 100}
TELL_AT_PERCENT: Final[Any] = {"min_value": 1, "max_value": 1000}
WEIGHT: Final[Any] = {"min_value": Decimal(0), "max_digits": 9, "decimal_places": 3}
OVERSUBSCRIPTION: Final[Any] = {"min_value": Decimal(1), "max_digits": 5, "decimal_places": 2}
