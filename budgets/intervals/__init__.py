"""Observed Workload states → intervals: who held how many GPUs of which flavor from when to when.

Pure: no Django, no Kubernetes client, no clock, no I/O. Source: spec money, sections 1.2 to 1.5.
"""

from __future__ import annotations

from budgets.intervals.build import changes, intervals
from budgets.intervals.documents import (
    AFTER_GAP,
    COMPLETED_AT,
    BadDocument,
    Read,
    digest_of,
    needed_fields,
    read_payload,
)
from budgets.intervals.epochs import lives
from budgets.intervals.model import (
    Assignment,
    ClockSettings,
    ClockStart,
    Condition,
    EventType,
    History,
    Interval,
    IntervalKind,
    IntervalState,
    PendingSpan,
    PodSet,
    Problem,
    ProblemCode,
    WorkloadEvent,
    WorkloadFacts,
)
