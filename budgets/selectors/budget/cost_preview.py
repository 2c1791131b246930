"""What a budget would cost, before it is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from budgets.amounts import HELD
from budgets.charging import Rate
from budgets.models import UsageRecord, Workspace
from budgets.plan import Line
from budgets.selectors.alerts import month_window
from budgets.selectors.billing import month_at, portal_currency, rates_now
from budgets.units import HOUR, HOUR_S, FlavorName, Money, utc_hour

LOOK_BACK = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class LineCost:
    """What one line costs in a month, each rounded once to the currency's digits.

    Attributes:
        flavor: Slug.
        floor: Of the committed GPUs, used or not; None without a price, as are the others.
        ceiling: If the ceiling were used in every hour.
        expected: With the use of the last 30 days: the floor, and what went beyond it as burst.
    """

    flavor: str
    floor: Money | None
    ceiling: Money | None
    expected: Money | None


@dataclass(frozen=True, slots=True)
class CostPreview:
    """A draft's cost in the month that runs now.

    Attributes:
        currency: Of every amount.
        lines: In the draft's order.
        hours: Hours of the month.
        floor, ceiling, expected: Sums of the lines that have a price.
        unpriced: Flavors without one.
    """

    currency: str
    lines: tuple[LineCost, ...]
    hours: int
    floor: Money
    ceiling: Money
    expected: Money
    unpriced: tuple[str, ...]


def preview_cost(workspace: Workspace, lines: Iterable[Line], now: datetime) -> CostPreview | None:
    """Cost of a draft at the prices in force; None while there are no prices.

    Actual hours of the month; a rate card that bills 730 fixed hours differs by that much. The
    caller has asked whether the workspace may be seen.
    """
    found = preview_costs(workspace, [lines], now)
    return found[0] if found else None


def preview_costs(
    workspace: Workspace, drafts: Sequence[Iterable[Line]], now: datetime
) -> list[CostPreview]:
    """:func:`preview_cost` of several drafts, by one look at prices and use; empty without prices.

    The number of queries does not depend on the number of drafts.
    """
    currency = portal_currency()
    if not currency:
        return []
    rates = rates_now(workspace.account_id, now)
    window = month_window(workspace.account_id, now)
    hours = int((window.end - window.start) / HOUR)
    used = _use_by_hour(workspace, now)
    return [
        _cost_of(
            [
                _line_cost(line, rates.get(FlavorName(line.flavor)), used, hours, currency)
                for line in lines
            ],
            currency=currency,
            hours=hours,
        )
        for lines in drafts
    ]


def burst_in_full(account_id: int | None, flavor: str, gpus: int, now: datetime) -> Money | None:
    """What GPUs cost in the month that runs if jobs use all of them as burst, in every hour.

    Args:
        account_id: Whose prices and month; None for the prices of all, and a month of UTC.
        flavor: Slug.
        gpus: Whole GPUs.
        now: An instant of the month.

    Returns:
        None without a price.
    """
    rate = rates_now(account_id, now).get(FlavorName(flavor))
    if rate is None:
        return None
    month = month_at(now) if account_id is None else month_window(account_id, now)
    hours = int((month.end - month.start) / HOUR)
    return Money.rounded(gpus * hours * Fraction(rate.burst), currency=portal_currency())


def _line_cost(
    line: Line, rate: Rate | None, used: Mapping[str, list[int]], hours: int, currency: str
) -> LineCost:
    if rate is None:
        return LineCost(line.flavor, None, None, None)
    burst = Fraction(rate.burst)
    floor = line.committed * hours * Fraction(rate.committed)
    above = line.ceiling - line.committed
    beyond = [
        min(max(Fraction(seconds, HOUR_S) - line.committed, Fraction(0)), Fraction(above))
        for seconds in used.get(line.flavor, ())
    ]
    share = Fraction(hours, LOOK_BACK // HOUR)
    exact = (
        floor,
        floor + above * hours * burst,
        floor + sum(beyond, Fraction(0)) * share * burst,
    )
    return LineCost(line.flavor, *(Money.rounded(e, currency=currency) for e in exact))


def _cost_of(lines: list[LineCost], *, currency: str, hours: int) -> CostPreview:
    return CostPreview(
        currency=currency,
        lines=tuple(lines),
        hours=hours,
        floor=_sum((row.floor for row in lines), currency),
        ceiling=_sum((row.ceiling for row in lines), currency),
        expected=_sum((row.expected for row in lines), currency),
        unpriced=tuple(row.flavor for row in lines if row.floor is None),
    )


def _use_by_hour(workspace: Workspace, now: datetime) -> dict[str, list[int]]:
    """Flavor -> GPU-seconds of each hour with use in the last 30 days."""
    rows = UsageRecord.objects.filter(
        workspace=workspace, hour__gte=utc_hour(now) - LOOK_BACK, hour__lt=now
    )
    found: dict[str, list[int]] = {}
    for slug, *held in rows.values_list("flavor__slug", *HELD):
        if any(held):
            found.setdefault(slug, []).append(sum(held))
    return found


def _sum(amounts: Iterable[Money | None], currency: str) -> Money:
    return sum((amount for amount in amounts if amount is not None), Money.zero(currency))
