"""Usage × rate card → charges: exact, rounded once per line, with a rounding line.

Pure: no Django, no clock, no I/O. Source: spec money, section 3.4.
"""

from __future__ import annotations

from budgets.charging.charge import charge
from budgets.charging.document import Document, Item, assemble, funding_item, items_of
from budgets.charging.hours import HourPricer
from budgets.charging.jobs import JobKey, JobPart, share_out
from budgets.charging.ledger_format import LedgerFaults, read_ledger
from budgets.charging.model import (
    Charges,
    FloorHours,
    LinePart,
    PreemptionTerms,
    Rate,
    Rates,
    Unpriced,
)
from budgets.charging.prices import Price, PriceList, SpotPoint, merged_rates
from budgets.charging.replay import LedgerDifference, differences, work_out
from budgets.charging.rows import HOURLY, ChargeRow, RowKind
from budgets.charging.tiers import Tier
