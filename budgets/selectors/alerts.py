"""What alert rules look at, and what a user may see of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from django.db.models import Min, Q, QuerySet, Sum

from budgets.models import (
    Account,
    Alert,
    AlertRule,
    Budget,
    BudgetLine,
    Delivery,
    Export,
    MeterState,
    PendingSpan,
    Role,
    UsageRecord,
    User,
    Webhook,
    Workspace,
)
from budgets.outlook import HISTORY, Outlook, Series, project
from budgets.selectors.billing import costs, month_at, rates_now
from budgets.selectors.billing.months import zones_of
from budgets.selectors.budget.history import ending_revision
from budgets.selectors.exports.listing import still_sees
from budgets.selectors.fleet.places import facts_in
from budgets.selectors.roles import roles_of
from budgets.selectors.spending import cap_states, cap_window
from budgets.selectors.usage.scope import USED
from budgets.spending import Window, window_at
from budgets.units import HOUR_S, Period, utc_hour

Measure = AlertRule.Measure
MEASURES = [row for row in Measure.choices if row[0] != Measure.CAP]
"""What a person can watch; caps come with spend rules."""
WINDOWS = [row for row in AlertRule.Window.choices if row[0] != AlertRule.Window.GRANT]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a rule's value is in the window that an instant lies in.

    Attributes:
        window: UTC.
        value: In the unit of the measure.
        currency: Of money, else empty.
        exhausted_at: When the limit is reached as things go, of measures with a forecast.
    """

    window: Period
    value: float
    currency: str = ""
    exhausted_at: datetime | None = None


def visible_rules(user: User) -> QuerySet[AlertRule]:
    """Rules about what the user may see, removed ones left out."""
    found = AlertRule.objects.filter(removed_at=None).select_related(
        "workspace", "account", "spend_rule"
    )
    return found.filter(_scope(user, ""))


def visible_alerts(user: User) -> QuerySet[Alert]:
    """Alerts about what the user may see, newest first."""
    found = Alert.objects.select_related("rule__workspace", "rule__account")
    return found.filter(_scope(user, "rule__"))


def visible_webhooks(user: User) -> QuerySet[Webhook]:
    """For those who may change them, and auditors; nothing for others."""
    found = Webhook.objects.filter(removed_at=None).select_related("account", "stream")
    return found if roles_of(user).sees_everything else found.none()


def visible_deliveries(user: User) -> QuerySet[Delivery]:
    """The delivery log of visible alerts, for platform roles; addresses are people's."""
    found = Delivery.objects.select_related(
        "alert__rule__workspace", "alert__rule__account", "export", "period"
    )
    return found if roles_of(user).sees_everything else found.none()


def workspace_outlook(workspace: Workspace, now: datetime) -> tuple[Outlook, str]:
    """How this month's cost of a workspace is likely to end, and its currency.

    The caller has asked whether the workspace may be seen. Empty currency: no prices yet.
    """
    window = month_window(workspace.account_id, now)
    return _money([workspace], workspace.account_id, window, now, limit=None)


def read_rule(rule: AlertRule, now: datetime) -> Reading:
    """The value of one rule; its relations have to be joined. A bounded number of queries."""
    if rule.spend_rule is not None:
        state = cap_states([rule.spend_rule], now)[0]  # with what runs at this moment
        currency = rule.spend_rule.currency
        return Reading(state.window, float(state.spent), currency, state.exhausted_at)
    window = window_of(rule, now)
    spaces = watched(rule)
    known = _known_until(now)
    if rule.measure == Measure.BUDGET_END:
        return _budget_end(rule, window, now)
    if rule.measure == Measure.PENDING_AGE:
        return Reading(window, _longest_wait(spaces, now))
    if rule.measure in (Measure.BURST_SHARE, Measure.IDLE_SHARE):
        return Reading(window, _share(rule.measure, spaces, window))
    limit = float(rule.limit)
    if rule.measure in (Measure.SPEND, Measure.SPEND_FORECAST):
        outlook, currency = _money(spaces, rule.account_id, window, now, limit=limit)
    else:
        outlook, currency = _hours(spaces, window, known, limit=limit), ""
    is_forecast = rule.measure in (Measure.SPEND_FORECAST, Measure.HOURS_FORECAST)
    value = outlook.expected if is_forecast else outlook.spent
    return Reading(window, value, currency, outlook.exhausted_at)


def watched(rule: AlertRule) -> list[Workspace]:
    """The workspaces of a rule, archived ones too: what they used is spent."""
    if rule.workspace is not None:
        return [rule.workspace]
    return list(Workspace.objects.filter(account=rule.account_id).order_by("pk"))


def window_of(rule: AlertRule, now: datetime) -> Period:
    """The day, ISO week or month of the account's billing zone that holds an instant, or the
    whole grant of a spend rule.
    """
    if rule.spend_rule is not None:
        return cap_window(rule.spend_rule, now)
    if rule.measure == Measure.BUDGET_END and rule.workspace is not None:
        ending = ending_revision(rule.workspace, now)
        if ending is not None and ending.valid_until is not None:
            # Told once for each revision that ends.
            return Period(ending.valid_from, ending.valid_until)
    if rule.window == AlertRule.Window.MONTH:
        return month_window(rule.account_id, now)
    zone = ZoneInfo(zones_of([rule.account_id])[rule.account_id])
    return window_at(Window(rule.window), now, zone=zone, grant=None)


def is_met(rule: AlertRule, reading: Reading) -> bool:
    """Whether the value has reached the limit; of a time that runs out, from above."""
    limit, value = rule.limit * rule.at_percent / 100, shown(reading.value)
    if rule.measure == Measure.BUDGET_END:
        return reading.exhausted_at is not None and value <= limit
    return limit <= value


def shown(value: float) -> Decimal:
    """A value as it is told and compared: two places."""
    return Decimal(value).quantize(Decimal("0.01"))


def _budget_end(rule: AlertRule, window: Period, now: datetime) -> Reading:
    """Days that are left of the budget in force; without an end, no such instant."""
    ending = ending_revision(rule.workspace, now) if rule.workspace is not None else None
    if ending is None:
        return Reading(window, 0.0)
    return Reading(window, (window.end - now) / timedelta(days=1), exhausted_at=window.end)


def _scope(user: User, prefix: str) -> Q:
    """Rules of a whole account are seen by those who see the account."""
    roles = roles_of(user)
    return Q() if roles.sees_everything else roles.within(f"{prefix}account", f"{prefix}workspace")


def month_window(account_id: int, now: datetime) -> Period:
    """The month of an account's billing zone that holds an instant."""
    found = month_at(now, zones_of([account_id])[account_id])
    return Period(found.start, found.end)


def _known_until(now: datetime) -> datetime:
    """Until when hour facts are known: the whole hour before the meter's last run."""
    marks = MeterState.objects.exclude(metered_until=None).values_list("metered_until", flat=True)
    return utc_hour(min([now, *(mark for mark in marks if mark is not None)]))


def _longest_wait(spaces: Iterable[Workspace], now: datetime) -> float:
    first = PendingSpan.objects.filter(
        workspace__in=[row.pk for row in spaces], end__isnull=True
    ).aggregate(first=Min("start"))["first"]
    return 0.0 if first is None else max(0.0, (now - first) / timedelta(hours=1))


def _share(measure: str, spaces: Iterable[Workspace], window: Period) -> float:
    sums = _facts(spaces, window.start, window.end).aggregate(
        committed=Sum("committed"), idle=Sum("idle"), used=Sum(USED), burst=Sum("burst")
    )
    amounts = {name: value or 0 for name, value in sums.items()}
    if measure == Measure.IDLE_SHARE:
        part, whole = amounts["idle"], amounts["committed"]
    else:
        part, whole = amounts["burst"], amounts["used"]
    return 100 * part / whole if whole else 0.0


def _hours(
    spaces: Iterable[Workspace], window: Period, known: datetime, *, limit: float | None
) -> Outlook:
    """GPU-hours: nothing of them is certain before it is used."""
    rows = _facts(spaces, known - HISTORY, window.end).values("hour").annotate(used=Sum(USED))
    amounts = {row["hour"]: row["used"] / HOUR_S for row in rows}
    if window.start < known - HISTORY:
        sums = _facts(spaces, window.start, window.end).aggregate(used=Sum(USED))
        spent = (sums["used"] or 0) / HOUR_S
    else:
        spent = sum(amount for hour, amount in amounts.items() if hour in window)
    return project(window, _series(amounts, known), spent=spent, fixed=0.0, limit=limit)


def _money(
    spaces: list[Workspace],
    account_id: int,
    window: Period,
    now: datetime,
    *,
    limit: float | None,
) -> tuple[Outlook, str]:
    """Money: the floor is certain at today's prices, burst is as in the weeks before."""
    known = _known_until(now)
    spent = costs(spaces, window.start, max(known, window.start + timedelta(hours=1)))
    currency = next((row.currency for row in spent.values() if row.currency), "")
    rates = {str(flavor): rate for flavor, rate in rates_now(account_id, now).items()}
    rows = (
        _facts(spaces, known - HISTORY, known)
        .values("hour", "flavor__slug")
        .annotate(b=Sum("burst"))
    )
    amounts: dict[datetime, float] = {}
    for row in rows:
        rate = rates.get(row["flavor__slug"])
        price = float(rate.burst) if rate else 0.0
        amounts[row["hour"]] = amounts.get(row["hour"], 0.0) + price * row["b"] / HOUR_S
    fixed = sum(
        gpus * float(rates[flavor].committed)
        for flavor, gpus in _committed_now(spaces).items()
        if flavor in rates
    )
    so_far = sum((float(row.exact) for row in spent.values()), 0.0)
    series = _series(amounts, known)
    return project(window, series, spent=so_far, fixed=fixed, limit=limit), currency


def _committed_now(spaces: Iterable[Workspace]) -> Mapping[str, int]:
    in_force = Budget.objects.filter(workspace__in=[row.pk for row in spaces]).values("in_force")
    lines = BudgetLine.objects.filter(revision__in=in_force)
    rows = lines.order_by().values_list("flavor__slug").annotate(gpus=Sum("committed"))
    return dict(rows)


def _series(amounts: Mapping[datetime, float], known: datetime) -> Series:
    first = min((hour for hour in amounts if hour < known), default=known)
    return Series(first, known, amounts)


def _facts(spaces: Iterable[Workspace], start: datetime, end: datetime) -> QuerySet[UsageRecord]:
    facts = UsageRecord.objects.filter(workspace__in=[row.pk for row in spaces])
    return facts_in(facts, Period(start, end))


def recipients_of(rule: AlertRule) -> list[str]:
    """Addresses of active owners of what a rule watches, and of its maker who still sees it."""
    account: Account = rule.account
    owners = User.objects.filter(
        Q(memberships__role="owner", memberships__account=account)
        | Q(memberships__role="owner", memberships__workspace=rule.workspace_id or -1),
        is_active=True,
    ).exclude(email="")
    found = set(owners.values_list("email", flat=True))
    maker = rule.created_by
    if maker is not None and maker.email and visible_rules(maker).filter(pk=rule.pk).exists():
        found.add(maker.email)
    return sorted(found)


def finance_addresses() -> list[str]:
    """Mail addresses of active finance people; of platform admins where there are none."""
    for role in (Role.FINANCE, Role.ADMIN):
        people = User.objects.filter(memberships__role=role, is_active=True).exclude(email="")
        if found := sorted(set(people.values_list("email", flat=True))):
            return found
    return []


def withheld(row: Delivery) -> str:
    """Why something is not sent any more, asked when it is about to be; empty when it is.

    Who had a right when it was put into the outbox, or when they added a webhook, may have lost it.
    """
    if row.export is not None and not _may_be_told(row.export):
        return "the person who asked for the file can no longer see everything in it"
    if row.channel == Delivery.Channel.MAIL:
        is_known = row.address in _addresses_of(row)
        return "" if is_known else "this address no longer belongs to anybody who may be told"
    if row.webhook is None:
        return "the webhook was removed"
    return withheld_from(row.webhook)


def withheld_from(webhook: Webhook) -> str:
    """Why a webhook is told nothing any more; empty when it is."""
    if webhook.removed_at is not None:
        return "the webhook was removed"
    maker = webhook.created_by
    roles = roles_of(maker) if maker is not None else None
    if roles is not None and not (roles.is_admin or roles.is_finance):
        return (
            f"{maker} answers for the webhook and no longer has the finance role; rotate its key "
            "to take over"
        )
    return ""


def _addresses_of(row: Delivery) -> list[str]:
    """Who may be told by mail now."""
    if row.alert is not None:
        return recipients_of(row.alert.rule)
    if row.entry is not None:
        # Of finance, and whom it is about.
        whom = User.objects.filter(username=row.entry.subject.removeprefix("user:"))
        return [*finance_addresses(), *whom.values_list("email", flat=True)]
    return [row.export.requested_by.email] if row.export is not None else finance_addresses()


def _may_be_told(export: Export) -> bool:
    """Whether who asked for a file still sees what is in it, or would be in it."""
    user = export.requested_by
    if not user.is_active or not export.finished_at:
        return user.is_active
    return still_sees(user, export)
