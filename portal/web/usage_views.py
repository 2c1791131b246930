"""Three more looks at the use: borrowed and lent, idle committed, and the whole capacity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.text import capfirst

from budgets import selectors
from budgets.amounts import BY_NAME, HELD
from budgets.models import User
from portal.web import charts
from portal.web.htmx import render
from portal.web.pages import page
from portal.web.usage import Asked, ranges, read_filter

SHOWN = 50
DRAWN = 20
PAIRS = 100
CAPACITY_PARTS = (
    *((name, capfirst(BY_NAME[name].words)) for name in HELD),
    ("race", "Race losers"),
    ("reserved", "Reserved"),
    ("undecided", "Undecided"),
    ("outside", "Outside"),
)


def _unreadable(request: HttpRequest, asked: Asked, name: str, template: str) -> HttpResponseBase:
    context = {"form": asked.form, "ranges": ranges(request, name)}
    return render(request, template, context, partial="result", status=422)


def _frame(request: HttpRequest, asked: Asked, name: str) -> dict[str, Any]:
    return {"form": asked.form, "chosen": asked.chosen, "ranges": ranges(request, name)}


@page()
def lending(request: HttpRequest, user: User) -> HttpResponseBase:
    """Who lent to whom, and what covered the burst of an account."""
    asked = read_filter(request)
    if asked.chosen is None:
        return _unreadable(request, asked, "usage_lending", "usage/lending.html")
    moved = selectors.lending(user, asked.chosen, limit=SHOWN)
    drawn = moved.rows[:DRAWN]
    pairs = moved.pairs or ()
    context = _frame(request, asked, "usage_lending") | {
        "moved": moved,
        "pairs": pairs[:PAIRS],
        "pairs_hidden": len(pairs[PAIRS:]),
        "pairs_rest": sum(pair.lent for pair in pairs[PAIRS:]),
        "is_too_long": moved.pairs is None,
        "figure": charts.lending_figure(drawn) if drawn else None,
    }
    return render(request, "usage/lending.html", context, partial="result")


@page()
def idle(request: HttpRequest, user: User) -> HttpResponseBase:
    """Floors that stood idle, and the floor that would have been enough."""
    asked = read_filter(request)
    if asked.chosen is None:
        return _unreadable(request, asked, "usage_idle", "usage/idle.html")
    floors = selectors.idle_floors(user, asked.chosen)
    context = _frame(request, asked, "usage_idle") | {"floors": floors}
    return render(request, "usage/idle.html", context, partial="result")


@page()
def capacity(request: HttpRequest, user: User) -> HttpResponseBase:
    """Where the capacity went, flavor by cluster; for people who see the whole platform."""
    asked = read_filter(request)
    if asked.chosen is None:
        return _unreadable(request, asked, "usage_capacity", "usage/capacity.html")
    chosen = replace(asked.chosen, workspaces=())
    use = selectors.capacity_use(user, chosen, now=selectors.utc_now())
    # Columns of what never happened in the range would only be zeros.
    parts = [
        (name, words)
        for name, words in CAPACITY_PARTS
        if name in HELD or (use is not None and getattr(use.total, name))
    ]
    context = _frame(request, asked, "usage_capacity") | {
        "use": use,
        "parts": [words for _, words in parts],
        "rows": []
        if use is None
        else [(row, [getattr(row, name) for name, _ in parts]) for row in (*use.rows, use.total)],
    }
    return render(request, "usage/capacity.html", context, partial="result")
