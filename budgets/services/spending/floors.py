"""A cap that includes the floor is never below what the floor alone comes to.

The floor is paid for, used or not: below it the cap would hold the queue by itself. Asked when a
cap is set or lowered, and when a revision raises the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from budgets.errors import Fault
from budgets.models import SpendRule, Workspace
from budgets.plan import Line
from budgets.selectors.billing import rates_now
from budgets.selectors.budget.timeline import live_revisions
from budgets.selectors.spending import rules_of
from budgets.spending import LONGEST, Window, floor_need
from budgets.units import HOUR_S


def floor_faults(rule: SpendRule, workspace: Workspace, now: datetime) -> list[Fault]:
    """Why a cap is too low for the highest floor that is in force or scheduled.

    Compared over the longest window of its kind, at the prices of this hour. A grant without an
    end has no such window.
    """
    if rule.counts != SpendRule.Counts.EVERYTHING:
        return []
    spans = live_revisions(now, namespaces=[workspace.namespace])
    least = _least(rule, workspace, [span.lines for span in spans], now)
    if rule.amount >= least:
        return []
    words = (
        f"{rule.amount} {rule.unit_words} is below what the committed GPUs alone come to in "
        f"the longest {rule.get_window_display()}, {least}: enter that or more, cap only the "
        "burst, or lower the committed GPUs first."
    )
    return [Fault("amount", "below_floor", words)]


def cap_faults(workspace: Workspace, lines: Sequence[Line], now: datetime) -> list[Fault]:
    """Why a floor is too high for a cap that is there already.

    Args:
        workspace: Whose budget.
        lines: Of the draft.
        now: UTC.
    """
    found = []
    for rule in rules_of(workspace).filter(counts=SpendRule.Counts.EVERYTHING):
        least = _least(rule, workspace, [lines], now)
        if rule.amount < least:
            words = (
                f"The committed GPUs alone would come to {least} {rule.unit_words} in the longest "
                f"{rule.get_window_display()}, beyond the cap of {rule}: raise that cap first, "
                "or commit fewer GPUs."
            )
            found.append(Fault("lines", "floor_above_cap", words))
    return found


def _least(
    rule: SpendRule, workspace: Workspace, floors: Iterable[Sequence[Line]], now: datetime
) -> Decimal:
    """What the highest of some floors comes to, rounded up to two places."""
    hours = _longest_hours(rule)
    if hours is None:
        return Decimal(0)
    prices: Mapping[str, Fraction] | None = None
    if rule.unit == SpendRule.Unit.MONEY:
        rates = rates_now(workspace.account_id, now)
        prices = {str(flavor): Fraction(rate.committed) for flavor, rate in rates.items()}
    needs = [
        floor_need({line.flavor: line.committed for line in lines}, prices, hours=hours)
        for lines in floors
    ]
    need = max(needs, default=Fraction(0))
    return Decimal(-(-need.numerator * 100 // need.denominator)) / 100


def _longest_hours(rule: SpendRule) -> Fraction | None:
    if rule.window != SpendRule.Window.GRANT:
        return Fraction(LONGEST[Window(rule.window)])
    if rule.grant_start is None or rule.grant_end is None:
        return None
    return Fraction((rule.grant_end - rule.grant_start) // timedelta(seconds=1), HOUR_S)
