"""The fleet: what there is, promised and used; windows of maintenance, planned with a preview."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from budgets import selectors
from budgets.models import Flavor, User
from budgets.selectors.fleet.grid import FleetGrid
from clusters import selectors as seen
from clusters import services as enforcement
from clusters.documents.labels import HOSTNAME
from portal.web.bars import percent
from portal.web.forms import (
    ChoosingForm,
    OfferedField,
    ReasonField,
    ReasonForm,
    TimeField,
    radio,
)
from portal.web.htmx import polled, render
from portal.web.needs import over_use_words
from portal.web.pages import form_page, page, require_admin, typed

DOMAINS_SHOWN = 150
ADMINS = "Only a platform admin can plan and end maintenance."


class WindowForm(ChoosingForm):
    """Where, from when to when, and what becomes of jobs."""

    cluster = OfferedField(label="Worker", empty_label="every worker")
    flavor = forms.ModelChoiceField(
        Flavor.objects.none(), required=False, empty_label="the whole worker"
    )
    starts_at = TimeField(label="From", help_text="Leave empty to begin now.")
    ends_at = TimeField(label="To", required=True)
    effect = radio(
        "Jobs",
        cordon="No new job starts there, and running jobs go on",
        drain="No new job starts there, and running jobs are stopped and queued again",
    )
    reason = ReasonField(max_length=300, help_text="Owners with committed GPUs there read it.")
    fault_fields = {"drains": "effect"}

    def clean_starts_at(self) -> datetime | None:
        """What was typed to the minute; a minute that runs already means now."""
        typed: datetime | None = self.cleaned_data["starts_at"]
        runs = typed is not None and timedelta() <= timezone.now() - typed < timedelta(minutes=1)
        return None if runs else typed


@page()
def fleet(request: HttpRequest, user: User) -> HttpResponseBase:
    """Flavor × cluster; red where promises exceed capacity."""
    grid = selectors.fleet_grid(user)
    rows = grid_rows(grid)
    names = seen.cluster_names() if grid.over_use else {}
    lost = seen.lost_clusters(user)
    context = {
        "grid": grid,
        "rows": rows,
        "lost": lost,
        "keeps_promises": keeps_promises(grid, lost=lost),
        "over_use": [over_use_words(place, names) for place in grid.over_use],
        "capacity": sum(row["total"].capacity for row in rows),
        "in_use": sum(row["total"].in_use for row in rows),
        "promised": sum(row["total"].promised for row in rows),
        "is_admin": selectors.roles_of(user).is_admin,
        "windows": summaries(seen.visible_windows(user)),
    }
    return polled(request, "fleet/fleet.html", context, partial="grid")


@page()
def racks(request: HttpRequest, user: User) -> HttpResponseBase:
    """Blocks, then racks, then nodes of flavors with a topology: what each has and what is free."""
    if not selectors.roles_of(user).sees_everything:
        raise PermissionDenied("Only people who see the whole platform can see where nodes are.")
    flavors = list(
        selectors.visible_flavors(user).filter(topology__isnull=False).select_related("topology")
    )
    path = tuple(filter(None, request.GET.getlist("in")))
    wanted, place = request.GET.get("flavor", ""), request.GET.get("cluster", "")
    shown = [row for row in flavors if wanted in ("", row.slug)]
    is_admin = selectors.roles_of(user).is_admin
    asked = {row.slug for row in seen.askable_about_nodes(user)} if is_admin else set()
    nodes = seen.nodes_of(row.slug for row in shown)
    tables = []
    for flavor in shown:
        levels = flavor.topology.levels if flavor.topology is not None else ()
        for each in seen.standings(levels, nodes.get(flavor.slug, ())):
            if place not in ("", each.cluster):
                continue
            found = each.below(path)
            ground = f"{each.cluster}/{flavor.slug}" if each.cluster in asked else ""
            tables.append(
                {
                    "flavor": flavor,
                    "standing": each,
                    "level": seen.level_word(each.levels[min(len(path), len(each.levels) - 1)]),
                    "rows": [
                        (row, _below(flavor, each, row), _drained(ground, each, row))
                        for row in found[:DOMAINS_SHOWN]
                    ],
                    "added": _question(ground, path, change="rack", field="place"),
                    "more": max(0, len(found) - DOMAINS_SHOWN),
                    "gpus": sum(row.gpus for row in found),
                    "free": sum(row.free for row in found),
                    "largest": found[0].free if found else 0,
                }
            )
    return render(request, "fleet/racks.html", {"tables": tables, "path": path})


def _below(flavor: Flavor, standing: Any, domain: Any) -> str:
    """Address of what is in a domain; empty for the smallest."""
    if len(domain.path) == len(standing.levels):
        return ""
    asked = {"flavor": flavor.slug, "cluster": standing.cluster, "in": domain.path}
    return f"{reverse('racks')}?{urlencode(asked, doseq=True)}"


def _drained(ground: str, standing: Any, domain: Any) -> str:
    """Address of what would happen without a domain; empty for a node."""
    if not ground or standing.levels[len(domain.path) - 1] == HOSTNAME:
        return ""
    return _question(ground, domain.path, change="taint", field="grounds", effect="drain")


def _question(ground: str, path: tuple[str, ...], *, change: str, field: str, **typed: str) -> str:
    """Address of a what-if about a domain; empty where the reader cannot ask about nodes.

    Args:
        ground: Cluster and flavor of the domain, ``east/h100``, or nothing.
        path: Of the domain.
        change: The question.
        field: Of the question, which takes the domain.
        typed: In other fields.
    """
    if not ground:
        return ""
    asked = {"change": change, field: "/".join((ground, *path)), **typed}
    return f"{reverse('what_if')}?{urlencode(asked)}"


def keeps_promises(grid: FleetGrid, *, lost: Sequence[Any]) -> bool:
    """Whether a headline may say so: nothing is short, figures agree, every cluster answers."""
    return bool(grid.flavors) and not (grid.short or grid.over_use or lost)


def grid_rows(grid: FleetGrid) -> list[dict[str, Any]]:
    """One row for each flavor, with the widths of its bar."""
    return [
        {
            "flavor": flavor,
            "total": grid.totals[flavor.slug],
            "cells": [grid.cells.get((flavor.slug, cluster)) for cluster in grid.clusters],
            "sold": _share(grid.totals[flavor.slug]),
        }
        for flavor in grid.flavors
    ]


def _share(total: selectors.FleetTotal) -> dict[str, str]:
    """Widths of the small bar of one flavor, percent of the larger of limit and promises."""
    scale = max(total.limit, total.promised, 1)
    return {
        "committed": percent(total.committed, scale),
        "pools": percent(total.account_pools + total.platform_pools, scale),
        "in_use": percent(min(total.in_use, scale), scale),
        "limit": percent(total.limit, scale),
    }


@page()
def windows(request: HttpRequest, user: User) -> HttpResponseBase:
    """Windows that are open or were lately; owners see those that touch a floor of theirs."""
    context = {
        "windows": summaries(seen.visible_windows(user)),
        "is_admin": selectors.roles_of(user).is_admin,
    }
    return render(request, "maintenance/windows.html", context)


@page("GET", "POST", only_admins=ADMINS)
def plan(request: HttpRequest, user: User) -> HttpResponseBase:
    """Plan a window: first what it means to whom, then it is saved."""
    workers = seen.visible_clusters(user).running_jobs()
    chosen = {name: request.GET.get(name, "") for name in ("cluster", "flavor")}
    form = WindowForm(
        typed(request),
        user=user,
        offered={"cluster": {row.slug: (row.name, row) for row in workers}},
        initial=chosen | {"effect": "cordon"},
    )
    preview = None
    if request.method == "POST" and form.is_valid():
        wanted = form.cleaned_data.copy()
        effects = {"drains": wanted.pop("effect") == "drain", "reason": wanted.pop("reason")}
        preview = form.carry_out(lambda: enforcement.preview_maintenance(user, **wanted))
        if preview is not None and request.POST.get("step") == "save":
            done = form.carry_out(lambda: enforcement.plan_maintenance(user, **wanted, **effects))
            if done is not None:
                begun = f"The maintenance of {done.place} has begun."
                planned = f"The maintenance of {done.place} is planned."
                messages.success(request, begun if done.state == "active" else planned)
                return redirect("maintenance_window", key=done.pk)
    context = {"form": form, "preview": preview}
    return render(request, "maintenance/plan.html", context, status=form.status)


@page("GET", "POST")
def window(request: HttpRequest, user: User, key: int) -> HttpResponseBase:
    """One window: whose floors stand there, what was not given, and its end."""
    found = seen.window_for(user, key)
    may_end = selectors.roles_of(user).is_admin and found.state in ("scheduled", "active")
    if request.method == "POST":
        require_admin(user, ADMINS)
    return form_page(
        request,
        "maintenance/window.html",
        ReasonForm(typed(request)),
        lambda given: enforcement.end_maintenance(user, window=found, **given),
        said="The window is closed. Jobs start there again.",
        to=request.path,
        context=lambda: {
            "summary": summaries([found])[0],
            "window": found,
            "rows": [
                {"floor": floor, "promised": _promised(found, floor)}
                for floor in found.floors.all()
            ],
            "may_end": may_end,
        },
    )


def summaries(found: list[Any]) -> list[dict[str, Any]]:
    """Windows with the sums of the floors that their reader sees."""
    rows = []
    for item in found:
        floors = list(item.floors.all())
        rows.append(
            {
                "window": item,
                "gpus": sum(floor.gpus for floor in floors),
                "workspaces": len({floor.workspace_id for floor in floors}),
                "promised": sum(_promised(item, floor) for floor in floors),
                "unmet": sum(floor.unmet for floor in floors),
            }
        )
    return rows


def _promised(found: Any, floor: Any) -> int:
    """GPU-seconds of the floor that stands there, for as long as the window lasts or lasted."""
    return int(floor.gpus * max(0.0, (found.until - found.starts_at).total_seconds()))
