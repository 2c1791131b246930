"""First pages and the workspace page: what needs somebody, the bars now, what waits and runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from budgets import selectors
from budgets.models import BudgetRevision, MonthOutlook, User, Workspace
from budgets.selectors import attention
from budgets.selectors.spending import effect_of, running_jobs_stop_at
from clusters import selectors as seen
from portal.web import charts
from portal.web.fleet import grid_rows, keeps_promises
from portal.web.htmx import is_partial, polled, render, target
from portal.web.needs import Need, cap_need, needs_of
from portal.web.pages import page
from portal.web.usage import last_days

PER_PAGE = 50
JOBS_SHOWN = 10
REVISIONS_SHOWN = 5
WEEK_DAYS = 7


@page()
def home(request: HttpRequest, user: User) -> HttpResponseBase:
    """The first page: an admin's overview of the platform; for others what is theirs."""
    if selectors.roles_of(user).is_admin:
        return _overview(request, user)
    return _listed(request, user, needs=needs_of(user))


@page()
def workspaces(request: HttpRequest, user: User) -> HttpResponseBase:
    """The visible workspaces, one row each."""
    return _listed(request, user)


def _overview(request: HttpRequest, user: User) -> HttpResponseBase:
    """Clusters and shifts, promises against capacity, and what needs an admin, in one glance."""
    midnight, _ = last_days(1)
    today = seen.clusters_today(user, since=midnight)
    grid = selectors.fleet_grid(user)
    lost = [each for each in today if not each.row.is_reachable]
    waiting, running = seen.job_counts(user)
    counted = {
        "requests": selectors.visible_requests(user).count(),
        "undelivered": attention.failed_deliveries(user),
    }
    context = {
        **counted,
        "needs": needs_of(user, today=today, grid=grid, **counted),
        "today": today,
        "lost": lost,
        "answering": sum(each.row.is_reachable for each in today),
        "shifts": sum(len(each.shifts) for each in today),
        "at_work": sum(len(each.shifts) - len(each.idle) for each in today),
        "fleet": grid_rows(grid),
        "keeps_promises": keeps_promises(grid, lost=lost),
        "running": running,
        "waiting": waiting,
        "parked": sum(each.parked for each in today),
        "drift": sum(each.drift_today for each in today),
        "incidents": sum(each.incidents for each in today),
    }
    return polled(request, "workspaces/overview.html", context, partial="now")


def _listed(request: HttpRequest, user: User, *, needs: Sequence[Need] = ()) -> HttpResponseBase:
    sort = request.GET.get("sort", "")
    ordered = seen.sorted_workspaces(selectors.visible_workspaces(user), sort)
    shown = Paginator(ordered, PER_PAGE).get_page(request.GET.get("page"))
    found = list(shown.object_list)
    bars = seen.bars_now(found)
    counts = seen.workload_counts(found)
    outlooks = _outlooks(found)
    rows = []
    for row in found:
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
    context = {
        "rows": rows,
        "shown": shown,
        "sort": sort,
        "waiting": sum(waiting for waiting, _ in counts.values()),
        "running": sum(running for _, running in counts.values()),
        "has_costs": bool(outlooks),
        "costs_as_of": min((row.worked_out_at for row in outlooks.values()), default=None),
        "roles": selectors.roles_of(user),
        "needs": needs,
    }
    return polled(request, "workspaces/home.html", context, partial="rows")


def _outlooks(workspaces: list[Workspace]) -> dict[int, MonthOutlook]:
    """Those of the months that run now; one of last month's waits for the next look."""
    now = timezone.now()
    rows = MonthOutlook.objects.filter(
        workspace__in=[row.pk for row in workspaces], month_start__lte=now, month_end__gt=now
    )
    return {row.workspace_id: row for row in rows}


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
        "undoable": selectors.undoable(user, history),
        "ending": selectors.ending_revision(found),
        "requested": [row for row in history if row.state == BudgetRevision.State.REQUESTED],
        "revision": found.budget.in_force,
        "figure": charts.usage_figure(
            week, step="hour", ceiling=sum(bar.ceiling for bar in context["bars"])
        ),
        "week": week,
        "outlook": _outlooks([found]).get(found.pk),
        "usage_url": f"{reverse('usage')}?workspace={namespace}&days={WEEK_DAYS}",
        "job_yaml": _job_to_copy(found),
        "submitted_on": seen.submitted_on(bar.flavor for bar in context["bars"]),
        "cordoned": seen.windows_of(found),
        "held": selectors.last_hold(found),
        "spend_effect": effect_of(found),
        "spend_stops_at": running_jobs_stop_at(found),
        "standings": [each.of(namespace) for each in seen.contest_of(found)],
        "caps": [cap_need(state) for state in attention.caps_that_tell(user, workspace=found)],
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
