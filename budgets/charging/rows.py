"""Charge rows: what every export of money is made of, one row per hour or per line.

Pure: no Django, no clock, no I/O. A row is exact and rounded at once: ``exact`` is GPU-seconds ×
price / 3600 as a fraction, ``amount`` has the currency's own digits. The amounts of the hour rows
of one statement line add up to the line's amount, because each is the step of the rounded running
sum; so a file's cents add up to the payable without a row of their own.

Source: spec money, sections 1.7, 2.3 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction


class RowKind(StrEnum):
    """What a row or line charges for."""

    FLOOR = "floor"
    BURST = "burst"
    LENDING_CREDIT = "lending_credit"
    LENDING_FUNDING = "lending_funding"
    PREEMPTION_CREDIT = "preempted"
    PREEMPTION_FUNDING = "preempt_funding"
    ADJUSTMENT = "adjustment"
    ROUNDING = "rounding"
    CORRECTION = "correction"


HOURLY = (RowKind.FLOOR, RowKind.BURST, RowKind.LENDING_CREDIT)
"""What hours are charged for, by a rate; all else stands on a line of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRow:
    """One priced row.

    Attributes:
        account: Account slug; empty on the platform's own statement.
        workspace: Namespace; empty where the row is the whole account's.
        flavor: Flavor slug; empty for adjustment, rounding and funding.
        kind: What it charges for.
        start: UTC, inclusive: that of the hour, or of the part of it in the period; of a row
            without an hour that of the period. Of a correction the original hour.
        end: UTC, exclusive.
        gpu_seconds: Quantity, whole; negative in a correction; 0 without a quantity.
        unit_price: Per GPU-hour in ``currency``, negative for a credit; 0 without a quantity.
        exact: Exact amount; negative for a credit.
        amount: Rounded to the currency's digits; see the module for how hours add up.
        currency: ISO 4217 code of prices and amounts.
        rate_card: Version id of the rate card; 0 where no price applies.
        period: Name of the billing period, such as ``2026-10``.
        statement: Number of the issued statement; empty before.
        cluster: Cluster slug where the row belongs to one.
        uid: Of a job's row, that of its Workload there; empty otherwise.
        region: Its region where that is known.
        used_gpu_seconds: Of a floor row, how much of it was used; the rest was lent or idle.
        list_unit_price: On-demand price of the flavor in that hour; None without a quantity.
        class_of: Of a correction, the kind that it corrects; None otherwise.
    """

    account: str
    workspace: str = ""
    flavor: str = ""
    kind: RowKind
    start: datetime
    end: datetime
    gpu_seconds: int = 0
    unit_price: Decimal = Decimal(0)
    exact: Fraction
    amount: Decimal
    currency: str
    rate_card: int = 0
    period: str
    statement: str = ""
    cluster: str = ""
    uid: str = ""
    region: str = ""
    used_gpu_seconds: int = 0
    list_unit_price: Decimal | None = None
    class_of: RowKind | None = None
