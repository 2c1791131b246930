"""What LocalQueues used lately: the ledger of admission fair sharing, and the usage it makes.

Amounts are whole billionths of a unit (core, byte, device), rounded down, so that sums are exact.
What they decay by, and the usage that orders workloads, are the float64 that Kueue computes.

Source: Kueue pkg/cache/queue/afs, pkg/util/admissionfairsharing, pkg/util/resource, KEP-4136,
v0.19.2. Deviations: a resource of which nothing is left is forgotten; what a status tells of
earlier counts before the first sampling too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final, TypeAlias

from clusters.kueue.amounts import DECIMAL_STEPS, Requests, parse_decimal, whole, with_suffix
from clusters.kueue.configuration import AdmissionFairSharing, parse_weight

Nanos: TypeAlias = Mapping[str, int]
"""Billionths of a unit by resource."""
_NANO: Final = 10**9
_SUFFIXES: Final = ("n", "u", "m", *DECIMAL_STEPS)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One LocalQueue's line.

    Attributes:
        consumed: decayed usage of the past.
        penalties: by workload key, what it was charged for its reservation and did not settle yet.
        updated_at: when ``consumed`` was brought up to date last.
        has_history: what the LocalQueue's status told of earlier is in ``consumed``.
    """

    updated_at: datetime
    consumed: Nanos = field(default_factory=dict)
    penalties: Mapping[str, Nanos] = field(default_factory=dict)
    has_history: bool = False

    @property
    def pending(self) -> Nanos:
        """Sum of what is not settled."""
        total: Nanos = {}
        for penalty in self.penalties.values():
            total = _sum(total, penalty)
        return total


@dataclass(frozen=True, slots=True)
class QueueShare:
    """What a LocalQueue document says about admission fair sharing.

    Attributes:
        weight: ``spec.fairSharing.weight``, 1 unless declared.
        consumed: of its status.
    """

    weight: float = 1.0
    consumed: Nanos = field(default_factory=dict)


_NO_SHARE: Final = QueueShare()


class UsageLedger:
    """Usage of all LocalQueues; without rules it stays empty and all are equal."""

    def __init__(self, rules: AdmissionFairSharing | None) -> None:
        self.rules = rules
        self._shares: dict[str, QueueShare] = {}
        self._entries: dict[str, LedgerEntry] = {}

    def adopt(self, other: UsageLedger) -> None:
        """Become a copy of another ledger."""
        self._shares = dict(other._shares)
        self._entries = dict(other._entries)

    def take_over(self, other: UsageLedger) -> None:
        """Go on from the lines of a ledger that this one replaces."""
        if self.rules is not None:
            self._entries |= other._entries

    def entry(self, local_queue: str) -> LedgerEntry | None:
        """The line of a LocalQueue."""
        return self._entries.get(local_queue)

    def set_share(self, local_queue: str, share: QueueShare) -> None:
        """Note what a LocalQueue's document says."""
        self._shares[local_queue] = share

    def forget(self, local_queue: str) -> None:
        """Forget a LocalQueue that is gone."""
        self._shares.pop(local_queue, None)
        self._entries.pop(local_queue, None)

    def usage_of(self, local_queue: str) -> float:
        """Weighted usage by the LocalQueue's weight: the least goes first. O(resources)."""
        share = self._shares.get(local_queue, _NO_SHARE)
        if share.weight <= 0:
            return math.inf
        if self.rules is None:
            return 0.0
        entry = self._entries.get(local_queue)
        amounts = _sum(entry.consumed, entry.pending) if entry is not None else {}
        if self.rules.half_life_s and (entry is None or not entry.has_history):
            amounts = _sum(amounts, share.consumed)
        usage = 0.0
        for resource in sorted(amounts):
            usage += self.rules.resource_weights.get(resource, 1.0) * (amounts[resource] * 1e-9)
        return usage / share.weight

    def charge(self, local_queue: str, workload: str, *, requests: Requests, now: datetime) -> None:
        """Charge a workload for its reservation, in place of what it was charged for before."""
        if self.rules is None:
            return
        factor = _shift(self.rules.sampling_interval_s, self.rules.half_life_s)
        penalty = _scaled(nanos_of(requests), factor)
        entry = self._entries.get(local_queue) or LedgerEntry(now)
        self._put(local_queue, entry, penalties={**entry.penalties, workload: penalty})

    def drop(self, local_queue: str, workload: str) -> None:
        """Take back what a workload was charged and did not settle."""
        entry = self._entries.get(local_queue)
        if entry is not None and workload in entry.penalties:
            self._put(local_queue, entry, penalties=_without(entry.penalties, workload))

    def settle(self, local_queue: str, workload: str, *, admitted: Requests, now: datetime) -> None:
        """Make a workload's charge part of what is consumed, when it has been admitted.

        ``admitted`` is what all admitted workloads of the LocalQueue hold, itself included.
        """
        if self.rules is None:
            return
        entry = self._entries.get(local_queue) or LedgerEntry(now)
        self._put(
            local_queue,
            entry,
            consumed=_sum(self._decayed(entry, admitted, now), entry.penalties.get(workload, {})),
            penalties=_without(entry.penalties, workload),
            updated_at=max(now, entry.updated_at),
        )

    def is_due(self, local_queue: str, *, now: datetime) -> bool:
        """Whether a LocalQueue is to be sampled, or its status was not taken over yet."""
        entry = self._entries.get(local_queue)
        if self.rules is None or entry is None or not entry.has_history:
            return self.rules is not None
        since = (now - entry.updated_at).total_seconds()
        return since >= self.rules.sampling_interval_s or any(entry.pending.values())

    def sample(self, local_queue: str, *, admitted: Requests, now: datetime) -> bool:
        """Bring a LocalQueue up to date where that is due; returns whether it was.

        The first time, what its status says is taken over. ``admitted`` is what all admitted
        workloads of the LocalQueue hold.
        """
        if self.rules is None:
            return False
        known = self._entries.get(local_queue)
        entry = known or LedgerEntry(now)
        if not entry.has_history:
            before = self._shares.get(local_queue, _NO_SHARE).consumed
            entry = self._put(
                local_queue, entry, consumed=_sum(entry.consumed, before), has_history=True
            )
        if known is not None and not self.is_due(local_queue, now=now):
            return False
        if self.rules.half_life_s == 0:
            self._put(local_queue, entry, consumed={}, updated_at=now)
        else:
            self._put(
                local_queue,
                entry,
                consumed=self._decayed(entry, admitted, now),
                updated_at=max(now, entry.updated_at),
            )
        return True

    def _decayed(self, entry: LedgerEntry, admitted: Requests, now: datetime) -> Nanos:
        """Consumed, moved towards what is admitted by how long ago it was looked at."""
        assert self.rules is not None
        elapsed = max(0.0, (now - entry.updated_at).total_seconds())
        factor = _shift(elapsed, self.rules.half_life_s)
        return _sum(_scaled(entry.consumed, 1.0 - factor), _scaled(nanos_of(admitted), factor))

    def _put(self, local_queue: str, entry: LedgerEntry, **changed: Any) -> LedgerEntry:
        made = replace(entry, **changed)
        self._entries[local_queue] = made
        return made


def parse_share(document: Mapping[str, Any]) -> QueueShare:
    """What a LocalQueue document says about admission fair sharing.

    Raises:
        ValueError: a quantity is malformed.
    """
    status = ((document.get("status") or {}).get("fairSharing") or {}).get(
        "admissionFairSharingStatus"
    ) or {}
    return QueueShare(
        weight=parse_weight((document.get("spec") or {}).get("fairSharing")),
        consumed={
            name: int((parse_decimal(str(text)) * _NANO).to_integral_value(ROUND_DOWN))
            for name, text in (status.get("consumedResources") or {}).items()
        },
    )


def nanos_of(requests: Requests) -> Nanos:
    """Amounts, thousandths for ``cpu`` and units for others, as billionths of a unit."""
    return {
        name: whole(amount) * (_NANO // 1000 if name == "cpu" else _NANO)
        for name, amount in requests.items()
    }


def format_nanos(amount: int) -> str:
    """Canonical quantity of billionths of a unit, as ``"1500m"``."""
    return with_suffix(amount, 1000, _SUFFIXES) if amount else "0"


def _shift(elapsed_s: float, half_life_s: float) -> float:
    """The part of the way to new usage that a time means; none where there is no half-life."""
    if half_life_s == 0:
        return 0.0
    halvings = elapsed_s / half_life_s
    # Rounds as the power function of Kueue's language does, which splits off whole exponents.
    whole = math.floor(halvings)
    rest = halvings - whole
    if rest > 0.5:
        whole, rest = whole + 1, rest - 1
    return 1.0 - math.ldexp(math.exp(rest * math.log(0.5)), -whole)


def _scaled(amounts: Nanos, factor: float) -> Nanos:
    """Amounts times a factor in its shortest decimal form, rounded down."""
    numerator, denominator = Decimal(repr(factor)).as_integer_ratio()
    return {name: amount * numerator // denominator for name, amount in amounts.items()}


def _sum(amounts: Nanos, extra: Nanos) -> Nanos:
    total = dict(amounts)
    for name, amount in extra.items():
        total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in total.items() if amount}


def _without(penalties: Mapping[str, Nanos], workload: str) -> Mapping[str, Nanos]:
    return {key: penalty for key, penalty in penalties.items() if key != workload}
