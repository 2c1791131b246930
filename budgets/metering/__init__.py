"""Intervals → usage per UTC hour, workspace, flavor and class: committed first, then burst.

Pure: no Django, no clock, no I/O, no prices. Source: spec money, sections 1.4 and 3.
"""

from __future__ import annotations

from budgets.metering.advice import FloorAdvice, advise_floor
from budgets.metering.capacity import CapacityFact, CapacitySample, capacity_parts
from budgets.metering.checks import (
    KeyedSpan,
    QueueSample,
    identity_faults,
    lasting_mismatch,
    seconds_by_hour,
)
from budgets.metering.meter import MeteringError, meter
from budgets.metering.model import (
    AccountPool,
    Floor,
    Held,
    HourFact,
    PoolChange,
    Pools,
    Revision,
    SharedPool,
    Usage,
)
