"""What waits for a person: caps that fill, requests that were answered, word that did not get out.

Each of them is limited to what the person may see, and bounded: a first page shows the beginning.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from budgets.models import Alert, BudgetRevision, Delivery, Discrepancy, User, Workspace
from budgets.models.reconciliation import UNSETTLED
from budgets.selectors.alerts import visible_alerts, visible_deliveries
from budgets.selectors.billing.reconciliation import visible_discrepancies
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import visible_workspaces
from budgets.selectors.spending import CapState, active_rules, cap_states

MOST = 8
RAISED_FOR = timedelta(days=1)
ANSWERED_FOR = timedelta(days=3)
UNSENT_FOR = timedelta(days=14)
State = BudgetRevision.State


def caps_that_tell(user: User, *, workspace: Workspace | None = None) -> list[CapState]:
    """Caps that are reached, or past the share at which they tell, the fullest first.

    Which they are was seen by the last look at all rules; how full, is worked out now. One query
    where there is none.

    Args:
        user: Who asks.
        workspace: Of this one alone; found through a selector that checks who may see it.
    """
    now = utc_now()
    warned = Alert.objects.filter(rule__spend_rule=OuterRef("pk"), window_end__gt=now)
    rules = active_rules().filter(Q(reached_window__isnull=False) | Exists(warned))
    if workspace is not None:
        rules = rules.filter(budget__workspace=workspace)
    else:
        spaces = visible_workspaces(user).order_by().values("pk")
        rules = rules.filter(budget__workspace__in=spaces)
    candidates = list(rules.order_by("-reached_at", "pk")[: 2 * MOST])
    if not candidates:
        return []
    states = [
        state
        for state in cap_states(candidates, now)
        if state.percent >= min(100, state.rule.warn_at_percent)
    ]
    return sorted(states, key=lambda state: (-state.percent, state.rule.pk))[:MOST]


def alerts_of_today(user: User) -> QuerySet[Alert]:
    """Alerts of the last 24 hours, the newest first; those of caps have their own place."""
    found = visible_alerts(user).filter(raised_at__gt=utc_now() - RAISED_FOR)
    return found.filter(rule__spend_rule=None)


def answered_requests(user: User) -> QuerySet[BudgetRevision]:
    """Own requests that an admin decided of late, the newest first."""
    decided = BudgetRevision.objects.filter(
        author=user,
        decided_at__gt=utc_now() - ANSWERED_FOR,
        state__in=(State.LIVE, State.IN_PART, State.DECLINED),
        budget__workspace__in=visible_workspaces(user).order_by().values("pk"),
    ).exclude(decided_by=user)
    return decided.select_related("budget__workspace", "decided_by").order_by("-decided_at")[:MOST]


def failed_deliveries(user: User) -> int:
    """Messages of late that were given up, of those that the person may see."""
    found = visible_deliveries(user).filter(state=Delivery.State.GIVEN_UP)
    return found.filter(next_at__gt=utc_now() - UNSENT_FOR).count()


def open_discrepancies(user: User) -> QuerySet[Discrepancy]:
    """Figures that contradict each other and still do, the oldest first."""
    return visible_discrepancies(user).filter(end=None, state__in=UNSETTLED).order_by("start")
