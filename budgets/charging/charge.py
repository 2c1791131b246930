"""Usage × rate card → lines, one rounding line per workspace, the exact totals.

Amounts are exact fractions until a line is rounded, once, half to even. What the rounded lines
miss of the exact total stands on a rounding line of its own.

Source: spec money, sections 1.7 and 3.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from budgets.charging.model import ChargeLine, Charges, LinePart, Rate, Rates, Total, Unpriced
from budgets.charging.rows import HOURLY, RowKind
from budgets.metering import HourFact, Usage
from budgets.units import HOUR_S, FlavorName, GpuSeconds, Money, WorkspaceName

_Place = tuple[WorkspaceName, FlavorName, RowKind]
_Parts = dict[datetime | None, tuple[Rate | None, int]]


def charge(usage: Usage, rate_card: Rates, *, workspaces: Iterable[WorkspaceName]) -> Charges:
    """Charge the committed floor, the burst and the lending credits of a period.

    Args:
        usage: The hour facts of the whole period; of one account where prices have steps.
        rate_card: Prices; each hour is charged at the rate that holds in it. Volume steps count
            what is in ``usage``, unless the card was averaged over a larger volume before.
        workspaces: Every workspace that gets a total, used or not.

    Returns:
        Lines and totals. GPU-seconds before a flavor's first rate cost nothing here and are
        named in ``unpriced``. O(hour facts).
    """
    rate_card = rate_card.averaged(
        (fact.flavor, fact.hour, fact.committed, fact.burst) for fact in usage.hours
    )
    places = _by_place(usage.hours, rate_card)
    lines = tuple(_line(place, parts, rate_card, usage) for place, parts in sorted(places.items()))
    by_workspace: dict[WorkspaceName, list[ChargeLine]] = {name: [] for name in workspaces}
    for line in lines:
        by_workspace.setdefault(line.workspace, []).append(line)
    credits = [line for line in lines if line.kind is RowKind.LENDING_CREDIT]
    currency = rate_card.currency
    funding = Money.rounded(_sum_exact(credits) * -1, currency=currency)
    return Charges(
        lines=lines,
        totals=tuple(_total(name, rows, currency) for name, rows in sorted(by_workspace.items())),
        platform_funding=funding,
        platform_rounding=funding + _sum_rounded(credits, currency),
        unpriced=tuple(
            Unpriced(line.workspace, line.flavor, line.kind, part.gpu_seconds)
            for line in lines
            for part in line.parts
            if part.rate is None
        ),
    )


def _by_place(hours: Sequence[HourFact], rate_card: Rates) -> Mapping[_Place, _Parts]:
    """Sum GPU-seconds by workspace, flavor and kind, split where the rate changes."""
    places: dict[_Place, _Parts] = {}
    for fact in hours:
        rate = rate_card.rate_at(fact.flavor, fact.hour)
        begun = None if rate is None else rate.start
        for kind, seconds in zip(HOURLY, (fact.committed, fact.burst, fact.lent), strict=True):
            if seconds:
                parts = places.setdefault((fact.workspace, fact.flavor, kind), {})
                parts[begun] = (rate, parts.get(begun, (rate, 0))[1] + seconds)
    return places


def _line(place: _Place, parts: _Parts, rate_card: Rates, usage: Usage) -> ChargeLine:
    workspace, flavor, kind = place
    exact = Fraction(0)
    for rate, seconds in parts.values():
        if rate is not None:
            exact += rate.of(kind) * seconds / HOUR_S
    exact *= rate_card.factor(kind, usage.window)
    return ChargeLine(
        workspace=workspace,
        flavor=flavor,
        kind=kind,
        gpu_seconds=GpuSeconds(sum(seconds for _, seconds in parts.values())),
        exact=exact,
        amount=Money.rounded(exact, currency=rate_card.currency),
        parts=tuple(
            LinePart(rate, GpuSeconds(seconds))
            for _, (rate, seconds) in sorted(parts.items(), key=_by_start)
        ),
    )


def _by_start(part: tuple[datetime | None, tuple[Rate | None, int]]) -> str:
    return "" if part[0] is None else part[0].isoformat()


def _total(workspace: WorkspaceName, lines: Sequence[ChargeLine], currency: str) -> Total:
    exact = _sum_exact(lines)
    payable = Money.rounded(exact, currency=currency)
    return Total(workspace, exact, payable - _sum_rounded(lines, currency), payable)


def _sum_exact(lines: Sequence[ChargeLine]) -> Fraction:
    return sum((line.exact for line in lines), Fraction(0))


def _sum_rounded(lines: Sequence[ChargeLine], currency: str) -> Money:
    return sum((line.amount for line in lines), Money.zero(currency))
