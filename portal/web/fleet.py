"""The fleet: what there is, what is promised of it, what is used."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase

from budgets import selectors
from budgets.models import User
from clusters import selectors as seen
from portal.web.bars import percent
from portal.web.htmx import polled
from portal.web.maintenance import summaries
from portal.web.pages import page


@page()
def fleet(request: HttpRequest, user: User) -> HttpResponseBase:
    """Flavor × cluster; red where promises exceed capacity."""
    grid = selectors.fleet_grid(user)
    rows: list[dict[str, Any]] = [
        {
            "flavor": flavor,
            "total": grid.totals[flavor.slug],
            "cells": [grid.cells.get((flavor.slug, cluster)) for cluster in grid.clusters],
            "sold": _share(grid.totals[flavor.slug]),
        }
        for flavor in grid.flavors
    ]
    context = {
        "grid": grid,
        "rows": rows,
        "short": [row for row in rows if row["total"].excess > 0 or row["total"].unmet > 0],
        "capacity": sum(row["total"].capacity for row in rows),
        "in_use": sum(row["total"].in_use for row in rows),
        "promised": sum(row["total"].promised for row in rows),
        "is_admin": selectors.roles_of(user).is_admin,
        "windows": summaries(seen.visible_windows(user)),
    }
    return polled(request, "fleet/fleet.html", context, partial="grid")


def _share(total: selectors.FleetTotal) -> dict[str, str]:
    """Widths of the small bar of one flavor, percent of the larger of limit and promises."""
    scale = max(total.limit, total.promised, 1)
    return {
        "committed": percent(total.committed, scale),
        "pools": percent(total.account_pools + total.platform_pools, scale),
        "in_use": percent(min(total.in_use, scale), scale),
        "limit": percent(total.limit, scale),
    }
