"""The state of spend rules: what was spent so far, to the second, and when a cap will be reached.

Whole hours that the meter has written count as they stand; from the last of them to now, and in
the parts of hours at the edges of a window, intervals are metered here by the same pure core, so
that a job that runs counts while it runs. Nothing of it is stored or billed.

Source: spec money 3.2 and 3.4; spec dispatch 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo

from django.db.models import Max, Min, Q, QuerySet

from budgets import metering
from budgets.charging import Rates
from budgets.metering import HourFact, Pools
from budgets.models import BreakGlass, Budget, MeterState, SpendEffect, SpendRule, Workspace
from budgets.models.reading import Written, ask, written
from budgets.selectors.billing.costs import fact_sums, tiered
from budgets.selectors.billing.months import zones_of
from budgets.selectors.billing.prices import PriceBook, price_book
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import RoleSet, workspaces_of
from budgets.selectors.usage.metered import held_intervals, metered_revisions
from budgets.spending import (
    CapMemory,
    CapVerdict,
    Spent,
    Window,
    amount_of,
    exhausted_at,
    judge,
    spent_of,
    window_at,
)
from budgets.units import BOOKS_BEGIN, HOUR, HOUR_S, AccountName, Period, WorkspaceName, utc_hour

SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CapState:
    """One rule at an instant.

    Attributes:
        rule: With budget and workspace joined.
        window: UTC.
        spent: Exact, in the unit of the rule.
        per_hour: How fast it is spent now.
        exhausted_at: When it is reached as things run now; None when not in this window.
        verdict: What the rule does.
        glass: Broken now; None when it is whole.
        unpriced: Flavors that counted nothing for want of a price; only of money.
    """

    rule: SpendRule
    window: Period
    spent: Fraction
    per_hour: Fraction
    exhausted_at: datetime | None
    verdict: CapVerdict
    glass: BreakGlass | None = None
    unpriced: tuple[str, ...] = ()

    @property
    def percent(self) -> int:
        """Of the amount, rounded down: 100 only when it is reached."""
        return int(self.spent * 100 / Fraction(self.rule.amount))


def rules_of(workspace: Workspace) -> QuerySet[SpendRule]:
    """Rules in force of one workspace; the caller has asked whether it may be seen."""
    return active_rules().filter(budget__workspace=workspace)


def rule_for(roles: RoleSet, namespace: str, key: int) -> SpendRule:
    """One visible rule in force.

    Raises:
        SpendRule.DoesNotExist: It is not there, or not for these roles.
    """
    visible = workspaces_of(roles).filter(namespace=namespace).order_by()
    return active_rules().get(pk=key, budget__workspace__in=visible)


def active_rules() -> QuerySet[SpendRule]:
    """Rules in force of workspaces that are not archived, with everything joined."""
    return SpendRule.objects.filter(
        removed_at=None, budget__workspace__archived_at=None
    ).select_related("budget__workspace__account", "created_by")


def namespaces_with_rules() -> frozenset[str]:
    """Namespaces whose queue a rule may concern: with a rule in force, or still under an effect."""
    return frozenset(namespace for (namespace,) in ask(_with_rules()))


@cache
def _with_rules() -> Written:
    """The query for them: every cluster's shift asks every two seconds."""
    named = "budget__workspace__namespace"
    rules = SpendRule.objects.filter(removed_at=None).order_by().values_list(named)
    return written(rules.union(SpendEffect.objects.order_by().values_list(named)))


def effect_of(workspace: Workspace) -> SpendEffect | None:
    """What the rules of a workspace do to its queue now, as it was last settled.

    No query for a workspace of :func:`~budgets.selectors.roles.visible_workspaces`.
    """
    return getattr(workspace.budget, "spend_effect", None)


def running_jobs_stop_at(workspace: Workspace) -> datetime | None:
    """When rules that hold new jobs by now will stop the running ones too; None when never.

    No query but where new jobs are held.
    """
    effect = effect_of(workspace)
    if effect is None or effect.stop_policy != Budget.StopPolicy.HOLD:
        return None
    return earliest_drain(cap_states(rules_of(workspace)))


def earliest_drain(states: Iterable[CapState]) -> datetime | None:
    """When the first of these rules stops (or stopped) running jobs; None when none does."""
    times = (state.verdict.drains_at for state in states)
    return min((at for at in times if at is not None), default=None)


def cap_states(rules: Iterable[SpendRule], now: datetime | None = None) -> list[CapState]:
    """The state of rules, in their order.

    Args:
        rules: Of :func:`active_rules`.
        now: UTC; None for the present.

    Returns:
        One each. Queries: about ten for each different start of a window, however many rules.
    """
    rows = list(rules)
    if not rows:
        return []
    instant = (now or utc_now()).replace(microsecond=0)
    windows = cap_windows(rows, instant)
    glasses = latest_glasses(rows, windows)
    ledger = _Ledger(rows, windows, instant)
    found = []
    for row in rows:
        window, cap = windows[row.pk], row.as_cap
        spent, rate = ledger.of(row, window)
        amount, per_hour = amount_of(spent, cap), amount_of(rate, cap)
        glass = glasses.get(row.pk)
        verdict = verdict_of(row, amount, window, glass, instant)
        found.append(
            CapState(
                rule=row,
                window=window,
                spent=amount,
                per_hour=per_hour,
                exhausted_at=exhausted_at(
                    cap, spent=amount, per_hour=per_hour, window=window, now=instant
                ),
                verdict=verdict,
                glass=glass if glass and instant < glass.until else None,
                unpriced=spent.unpriced if row.unit == SpendRule.Unit.MONEY else (),
            )
        )
    return found


def verdict_of(
    rule: SpendRule, spent: Fraction, window: Period, glass: BreakGlass | None, now: datetime
) -> CapVerdict:
    """What a rule does at an instant, by what is remembered of it and its latest break-glass."""
    return judge(
        rule.as_cap,
        spent=spent,
        window=window,
        standing=CapMemory(rule.reached_window, rule.reached_at),
        suspended_until=glass.until if glass else None,
        now=now,
    )


def cap_window(rule: SpendRule, now: datetime) -> Period:
    """The window of one rule that holds an instant, in its account's billing zone."""
    return cap_windows([rule], now)[rule.pk]


def cap_windows(rules: Sequence[SpendRule], now: datetime) -> dict[int, Period]:
    """Rule → its window that holds an instant. One query."""
    zones = zones_of({row.budget.workspace.account_id for row in rules})
    found = {}
    for row in rules:
        zone = ZoneInfo(zones[row.budget.workspace.account_id])
        grant = (row.grant_start, row.grant_end) if row.grant_start is not None else None
        found[row.pk] = window_at(Window(row.window), now, zone=zone, grant=grant)
    return found


def latest_glasses(
    rules: Sequence[SpendRule], windows: Mapping[int, Period]
) -> dict[int, BreakGlass]:
    """Rule → the break-glass that ends last, unless that was before its window. One query."""
    rows = BreakGlass.objects.filter(rule__in=[row.pk for row in rules]).select_related("person")
    latest = {row.rule_id: row for row in rows.order_by("until", "pk")}
    return {rule: row for rule, row in latest.items() if row.until > windows[rule].start}


class _Ledger:
    """What workspaces spent since the starts of windows, reading each of these once."""

    def __init__(
        self, rules: Sequence[SpendRule], windows: Mapping[int, Period], now: datetime
    ) -> None:
        self._now = now
        spaces = {row.budget.workspace_id: row.budget.workspace for row in rules}
        self._spaces = list(spaces.values())
        self._known = _known_until(now)
        self._book = self._prices(windows, rules)
        self._spans: dict[Period, list[HourFact]] = {}
        self._spent: dict[tuple[int, Period], Spent] = {}
        self._cards: dict[tuple[int, Period], Rates] = {}
        self._rates = self._rates_now()

    def of(self, rule: SpendRule, window: Period) -> tuple[Spent, Spent]:
        """What the rule's workspace spent in a window so far, and what it spends in an hour."""
        space = rule.budget.workspace
        start, end = max(window.start, BOOKS_BEGIN), min(self._now, window.end)
        if end <= start:
            return Spent(), Spent()
        passed = Period(start, end)
        key = (space.pk, passed)
        if key not in self._spent:
            facts = [row for row in self._facts(passed) if row.workspace == space.namespace]
            self._spent[key] = spent_of(facts, self._card(space.account_id, passed))
        rate = self._rates.get(space.pk, Spent()) if self._now < window.end else Spent()
        return self._spent[key], rate

    def _card(self, account: int, passed: Period) -> Rates | None:
        """Prices of an account; where they have steps, at the average of its volume so far."""
        card = self._book.of(account)
        if card is None or not card.has_tiers:
            return card
        key = (account, passed)
        if key not in self._cards:
            self._cards[key] = tiered(card, account, passed)
        return self._cards[key]

    def _prices(self, windows: Mapping[int, Period], rules: Sequence[SpendRule]) -> PriceBook:
        starts = [windows[row.pk].start for row in rules if row.unit == SpendRule.Unit.MONEY] or [
            self._now
        ]
        first = min(utc_hour(max(min(starts), BOOKS_BEGIN)), utc_hour(self._now))
        accounts = {space.account_id for space in self._spaces}
        return price_book(Period(first, self._now + SECOND), accounts=accounts)

    def _rates_now(self) -> dict[int, Spent]:
        """Workspace -> what an hour like the last second costs."""
        facts = self._metered(Period(self._now - SECOND, self._now))
        return {
            space.pk: _times(
                spent_of(
                    [row for row in facts if row.workspace == space.namespace],
                    self._book.of(space.account_id),
                ),
                HOUR_S,
            )
            for space in self._spaces
        }

    def _facts(self, passed: Period) -> list[HourFact]:
        """Stored sums of whole hours, and what is metered now of the rest."""
        first = utc_hour(passed.start)
        first = first if first == passed.start else first + HOUR
        last = min(self._known, utc_hour(passed.end))
        if first >= last:
            return self._metered(passed)
        whole = Period(first, last)
        facts = [
            fact
            for _, fact in fact_sums(whole, edges=self._book.edges(whole), workspaces=self._spaces)
        ]
        if passed.start < first:
            facts += self._metered(Period(passed.start, first))
        if last < passed.end:
            facts += self._metered(Period(last, passed.end))
        return facts

    def _metered(self, span: Period) -> list[HourFact]:
        """Hour facts of these workspaces straight from intervals and revisions."""
        if span not in self._spans:
            names = {
                WorkspaceName(space.namespace): AccountName(space.account.slug)
                for space in self._spaces
            }
            usage = metering.meter(
                held_intervals(span, workspaces=[space.pk for space in self._spaces]),
                metered_revisions(span, namespaces=names),
                # Pools and other workspaces say who lent what, not what is burst.
                Pools(accounts=names),
                span,
            )
            self._spans[span] = list(usage.hours)
        return self._spans[span]


def _times(spent: Spent, factor: int) -> Spent:
    return Spent(
        burst_hours=spent.burst_hours * factor,
        floor_hours=spent.floor_hours * factor,
        burst_cost=spent.burst_cost * factor,
        floor_cost=spent.floor_cost * factor,
        unpriced=spent.unpriced,
    )


def _known_until(now: datetime) -> datetime:
    """Hour facts before it stand: the meter has run, and nothing has changed since."""
    marks = MeterState.objects.aggregate(
        until=Max("metered_until"), dirty=Min("dirty_from", filter=Q(dirty_from__isnull=False))
    )
    until, dirty = marks["until"], marks["dirty"]
    if until is None:
        return datetime.min.replace(tzinfo=now.tzinfo)
    return utc_hour(min(mark for mark in (until, dirty, now) if mark is not None))


def may_change(roles: RoleSet, rule: SpendRule) -> bool:
    """Whether these roles may change or remove a rule: owners their own, not the platform's."""
    if roles.is_admin or roles.is_finance:
        return True
    return not rule.is_platform and roles.may_edit(rule.budget.workspace)


def may_add(roles: RoleSet, workspace: Workspace) -> bool:
    """Whether these roles may add a rule to a workspace."""
    return roles.is_finance or roles.may_edit(workspace)
