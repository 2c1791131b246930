"""Home and the workspace page: the bars now, what waits and why, what runs."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from budgets import selectors
from budgets.models import BudgetRevision, MonthOutlook, User, Workspace
from budgets.selectors import approvals
from budgets.selectors.spending import effect_of, running_jobs_stop_at
from clusters import selectors as seen
from portal.web import charts
from portal.web.htmx import is_partial, polled, render, target
from portal.web.pages import page
from portal.web.usage import last_days

PER_PAGE = 50
JOBS_SHOWN = 10
REVISIONS_SHOWN = 5
WEEK_DAYS = 7


@page()
def home(request: HttpRequest, user: User) -> HttpResponseBase:
    """My workspaces, one row each, and what needs me."""
    shown = Paginator(selectors.visible_workspaces(user), PER_PAGE).get_page(
        request.GET.get("page")
    )
    workspaces = list(shown.object_list)
    bars = seen.bars_now(workspaces)
    counts = seen.workload_counts(workspaces)
    outlooks = _outlooks(workspaces)
    rows = []
    for row in workspaces:
        waiting, running = counts.get(row.namespace, (0, 0))
        rows.append(
            {
                "workspace": row,
                "bars": bars.get(row.pk, []),
                "waiting": waiting,
                "running": running,
                "outlook": outlooks.get(row.pk),
            }
        )
    roles = selectors.roles_of(user)
    context = {
        "rows": rows,
        "shown": shown,
        "waiting": sum(waiting for waiting, _ in counts.values()),
        "running": sum(running for _, running in counts.values()),
        "has_costs": bool(outlooks),
        "requests": selectors.visible_requests(user).count(),
        "roles": roles,
        "steps": _open_steps(user, roles),
        "approvals": approvals.waiting_for(user),
        "told": list(approvals.told_to_finance(user)) if roles.is_finance else (),
        "installation": approvals.installation() if roles.is_admin else None,
    }
    return polled(request, "workspaces/home.html", context, partial="rows")


def _outlooks(workspaces: list[Workspace]) -> dict[int, MonthOutlook]:
    """Those of the months that run now; one of last month's waits for the next look."""
    now = timezone.now()
    rows = MonthOutlook.objects.filter(
        workspace__in=[row.pk for row in workspaces], month_start__lte=now, month_end__gt=now
    )
    return {row.workspace_id: row for row in rows}


def _open_steps(user: Any, roles: selectors.RoleSet) -> list[Any]:
    if not roles.is_admin:
        return []
    return [step for step in selectors.setup_steps(user) if not step.done]


@page()
def workspace(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """One workspace: its bars now, jobs that wait and run, a week of use, how to submit."""
    found = selectors.workspace_for(user, namespace)
    context = {"workspace": found, **_now(user, found)}
    if is_partial(request) and target(request) == "now":
        return polled(request, "workspaces/workspace.html", context, partial="now")
    week = _week(user, found)
    history = selectors.budget_news(found, most=REVISIONS_SHOWN)
    context |= {
        "may_edit": selectors.roles_of(user).may_edit(found),
        "history": history[:REVISIONS_SHOWN],
        "scheduled": [row for row in history if row.phase == "scheduled"],
        "requested": [row for row in history if row.state == BudgetRevision.State.REQUESTED],
        "revision": found.budget.in_force,
        "figure": charts.usage_figure(
            week, step="hour", ceiling=sum(bar.ceiling for bar in context["bars"])
        ),
        "week": week,
        "outlook": _outlooks([found]).get(found.pk),
        "usage_url": f"{reverse('usage')}?workspace={namespace}&days={WEEK_DAYS}",
        "job_yaml": _job_to_copy(found),
        "cordoned": seen.windows_of(found),
        "held": selectors.last_hold(found),
        "spend_effect": effect_of(found),
        "spend_stops_at": running_jobs_stop_at(found),
    }
    return render(request, "workspaces/workspace.html", context)


def _now(user: Any, found: Workspace) -> dict[str, Any]:
    """What is polled: bars, jobs, and whether the clusters carry the newest budget."""
    waiting, running = seen.jobs_now(user, found.namespace, most=JOBS_SHOWN)
    return {
        "bars": seen.bars_now([found]).get(found.pk, []),
        "waiting": waiting.rows,
        "waiting_more": bool(waiting.next_cursor),
        "running": running.rows,
        "running_more": bool(running.next_cursor),
        "sync": seen.sync_state(user, found, generation=found.budget.generation),
    }


def _week(user: Any, found: Workspace) -> selectors.UsageTable:
    # The same days as those of the page of use that stands beside them.
    start, end = last_days(WEEK_DAYS)
    wanted = selectors.UsageFilter(start=start, end=end, workspaces=(found.namespace,), step="hour")
    return selectors.usage_totals(user, wanted)


def _job_to_copy(found: Workspace) -> str:
    """A Job that runs under this budget; queue ``default`` needs no label, it is named to teach."""
    return f"""apiVersion: batch/v1
kind: Job
metadata:
  generateName: try-
  namespace: {found.namespace}
  labels:
    kueue.x-k8s.io/queue-name: default
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: YOUR-IMAGE
          command: ["nvidia-smi"]
          resources:
            requests:
              cpu: "4"
              memory: 16Gi
            limits:
              {found.home_flavor.resource_name}: "1"
"""
