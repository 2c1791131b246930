"""Usage × rate card → charges: exact, rounded once per line, with a rounding line.

Pure: no Django, no clock, no I/O. Source: spec money, section 3.4.
"""

from __future__ import annotations

from budgets.charging.charge import charge
from budgets.charging.ledger_format import Ledger, LedgerFaults, is_comparable, read_ledger
from budgets.charging.model import (
    Charges,
    FloorHours,
    Line,
    LineKind,
    LinePart,
    Rate,
    RateCard,
    Total,
    Unpriced,
)
from budgets.charging.replay import Difference, IdentityError, differences, work_out

__all__ = [
    "Charges",
    "Difference",
    "FloorHours",
    "IdentityError",
    "Ledger",
    "LedgerFaults",
    "Line",
    "LineKind",
    "LinePart",
    "Rate",
    "RateCard",
    "Total",
    "Unpriced",
    "charge",
    "differences",
    "is_comparable",
    "read_ledger",
    "work_out",
]
