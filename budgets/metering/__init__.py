"""Intervals → usage per UTC hour, workspace, flavor and class: committed first, then burst.

Pure: no Django, no clock, no I/O, no prices. Source: spec money, sections 1.4 and 3.
"""

from __future__ import annotations

from budgets.metering.advice import FloorAdvice, advise_floor
from budgets.metering.checks import Placed, Span, held_by, identity_faults, seconds_by_hour
from budgets.metering.meter import MeteringError, meter
from budgets.metering.model import (
    AccountFact,
    AccountPool,
    Floor,
    Held,
    HourFact,
    PlatformPool,
    PoolChange,
    Pools,
    Revision,
    Usage,
    WorkloadFact,
)
from budgets.metering.waterfall import POLICY

__all__ = [
    "POLICY",
    "AccountFact",
    "AccountPool",
    "Floor",
    "FloorAdvice",
    "Held",
    "HourFact",
    "MeteringError",
    "Placed",
    "PlatformPool",
    "PoolChange",
    "Pools",
    "Revision",
    "Span",
    "Usage",
    "WorkloadFact",
    "advise_floor",
    "held_by",
    "identity_faults",
    "meter",
    "seconds_by_hour",
]
