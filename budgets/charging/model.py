"""Prices, charges and totals: plain values, no behaviour beyond looking a price up.

Source: spec money, section 3.4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from budgets.charging.rows import RowKind
from budgets.charging.tiers import Steps, Tier, averages
from budgets.units import (
    FIXED_MONTH_H,
    HOUR_S,
    FlavorName,
    GpuSeconds,
    Money,
    Period,
    UnitsError,
    WorkspaceName,
    currency_digits,
    utc_hour,
)


class FloorHours(StrEnum):
    """How many hours a month of floor has: those of the calendar, or always 730."""

    ACTUAL = "actual"
    FIXED_730 = "fixed_730"


@dataclass(frozen=True, slots=True)
class PreemptionTerms:
    """The share of the burst price that comes back for what was used up to a preemption.

    ``minutes``: after the beginning of the admission, at most; 0: there is no credit.
    """

    share: Decimal = Decimal(0)
    minutes: int = 0


NO_CREDIT = PreemptionTerms()


@dataclass(frozen=True, slots=True)
class Rate:
    """Prices of a flavor per GPU-hour from ``start`` on, a whole UTC hour.

    ``lending_credit`` is the share of the committed price that a lender gets back. ``card`` is
    the version id of the rate card that it stands on, 0 where there is none.

    ``tiers`` are volume steps by class (``FLOOR``, ``BURST``). Once the volume of a period is
    known, ``averages`` say what a GPU-hour of each class came to; until then the first step is
    taken for all of it.

    Raises:
        UnitsError: ``start`` is not a whole hour, or a price is negative.
    """

    flavor: FlavorName
    start: datetime
    committed: Decimal
    burst: Decimal
    lending_credit: Decimal
    card: int = 0
    tiers: Mapping[RowKind, tuple[Tier, ...]] = field(default_factory=dict)
    averages: Mapping[RowKind, Fraction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if utc_hour(self.start) != self.start:
            raise UnitsError(f"a rate begins on a whole UTC hour, not {self.start.isoformat()}")
        if min(self.committed, self.burst, self.lending_credit) < 0:
            raise UnitsError(f"the rate of {self.flavor} has a negative price")

    def of(self, kind: RowKind) -> Fraction:
        """Return the exact price of a GPU-hour; a credit is negative."""
        if kind is RowKind.LENDING_CREDIT:
            return -self.of(RowKind.FLOOR) * Fraction(self.lending_credit)
        if kind in self.averages:
            return self.averages[kind]
        return Fraction(self.burst if kind is RowKind.BURST else self.committed)

    def steps(self, kind: RowKind) -> Steps:
        """Return the volume steps of ``FLOOR`` or ``BURST``."""
        base = self.burst if kind is RowKind.BURST else self.committed
        return Steps(base, self.tiers.get(kind, ()))


class Rates:
    """Dated prices in one currency; the only place that knows which price is in force.

    Raises:
        UnitsError: The currency is unknown, or a flavor has two rates from the same hour.
    """

    def __init__(
        self,
        rates: Iterable[Rate],
        *,
        currency: str,
        floor_hours: FloorHours = FloorHours.ACTUAL,
        preemption: PreemptionTerms = NO_CREDIT,
    ) -> None:
        currency_digits(currency)
        self.currency = currency
        self.preemption = preemption
        self.floor_hours = floor_hours
        self._rates: dict[FlavorName, list[Rate]] = {}
        self._starts: dict[FlavorName, list[datetime]] = {}
        for rate in sorted(rates, key=lambda row: (row.flavor, row.start)):
            starts = self._starts.setdefault(rate.flavor, [])
            if starts and starts[-1] == rate.start:
                raise UnitsError(f"{rate.flavor} has two rates from {rate.start.isoformat()}")
            starts.append(rate.start)
            self._rates.setdefault(rate.flavor, []).append(rate)

    def rate_at(self, flavor: FlavorName, hour: datetime) -> Rate | None:
        """Return the rate in force in a whole UTC hour, or None before the first."""
        at = bisect_right(self._starts.get(flavor, []), hour)
        return self._rates[flavor][at - 1] if at else None

    def factor(self, kind: RowKind, window: Period) -> Fraction:
        """Return what an hour of a period counts for: a floor's may always have 730 hours."""
        if kind is RowKind.FLOOR and self.floor_hours is FloorHours.FIXED_730:
            return Fraction(FIXED_MONTH_H * HOUR_S, window.seconds)
        return Fraction(1)

    @property
    def has_tiers(self) -> bool:
        """Whether a volume has to be known before anything is charged."""
        return any(rate.tiers for found in self._rates.values() for rate in found)

    def averaged(self, volume: Iterable[tuple[FlavorName, datetime, int, int]]) -> Rates:
        """Return the card with the average prices that an account's volume comes to.

        Args:
            volume: Of one account and period: flavor, hour, and the GPU-seconds committed and of
                burst. Hours that lie in the same rate may stand as one.

        Returns:
            The same prices, hour by hour, for every workspace of the account; itself without
            steps.
        """
        if not self.has_tiers:
            return self
        sums: dict[tuple[FlavorName, int], list[int]] = {}
        for flavor, hour, committed, burst in volume:
            at = bisect_right(self._starts.get(flavor, []), hour)
            total = sums.setdefault((flavor, at - 1), [0, 0])
            total[0] += committed
            total[1] += burst
        rates: list[Rate] = []
        for flavor, found in self._rates.items():
            known = [sums.get((flavor, at), [0, 0]) for at in range(len(found))]
            if not any(rate.tiers for rate in found):
                rates += found
                continue
            prices = {
                kind: averages(
                    (rate.steps(kind), volumes[place])
                    for rate, volumes in zip(found, known, strict=True)
                )
                for place, kind in enumerate((RowKind.FLOOR, RowKind.BURST))
            }
            rates += [
                replace(rate, tiers={}, averages={kind: row[at] for kind, row in prices.items()})
                for at, rate in enumerate(found)
            ]
        return self._with(rates)

    def reaching_back(self, start: datetime) -> Rates:
        """Return the same card with every flavor's first rate holding from ``start`` on.

        Args:
            start: A whole UTC hour. For use that turned up when its time was closed already and
                had no price: it takes the first price that the flavor was given.
        """
        return self._with(
            replace(rate, start=min(rate.start, start)) if rate is found[0] else rate
            for found in self._rates.values()
            for rate in found
        )

    def _with(self, rates: Iterable[Rate]) -> Rates:
        """Other prices on the same terms."""
        return Rates(
            rates,
            currency=self.currency,
            floor_hours=self.floor_hours,
            preemption=self.preemption,
        )

    def edges(self, window: Period) -> Mapping[FlavorName, frozenset[datetime]]:
        """Return, by flavor, the hours inside the window in which another rate begins."""
        return {
            flavor: frozenset(start for start in starts if window.start < start < window.end)
            for flavor, starts in self._starts.items()
        }


@dataclass(frozen=True, slots=True)
class LinePart:
    """The GPU-seconds of a line while one rate held; ``rate`` None: there was no price."""

    rate: Rate | None
    gpu_seconds: GpuSeconds


@dataclass(frozen=True, slots=True)
class ChargeLine:
    """One charge of a workspace over the period.

    ``exact`` is Σ GPU-seconds × price / 3600 of its parts; ``amount`` that, rounded once.
    """

    workspace: WorkspaceName
    flavor: FlavorName
    kind: RowKind
    gpu_seconds: GpuSeconds
    exact: Fraction
    amount: Money
    parts: tuple[LinePart, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """What a workspace owes: payable = Σ line amounts + rounding."""

    workspace: WorkspaceName
    exact: Fraction
    rounding: Money
    payable: Money


@dataclass(frozen=True, slots=True)
class Unpriced:
    """GPU-seconds that no rate covers; a period with one is not ready to be closed."""

    workspace: WorkspaceName
    flavor: FlavorName
    kind: RowKind
    gpu_seconds: GpuSeconds


@dataclass(frozen=True, slots=True)
class Charges:
    """What a period costs.

    Attributes:
        lines: By workspace, flavor and kind; none without GPU-seconds.
        totals: One for every workspace, in order.
        platform_funding: What the platform pays for the credits, the exact sum rounded once.
        platform_rounding: platform_funding less the rounded credit lines; a line of its own on
            the platform's statement.
        unpriced: Empty when every used or committed flavor has a price.
    """

    lines: tuple[ChargeLine, ...]
    totals: tuple[Total, ...]
    platform_funding: Money
    platform_rounding: Money
    unpriced: tuple[Unpriced, ...]
