"""Usage by time and key, down to the workloads; what was lent, what stood idle, the capacity."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.utils import timezone
from django.utils.text import capfirst

from budgets import selectors
from budgets.amounts import BY_NAME, COLUMNS, HELD, PARTS, Amount, AmountGroup
from budgets.models import User
from budgets.selectors.billing.job_costs import (
    JobCost,
    JobCosts,
    JobGroup,
    add_up_jobs,
    job_cost_csv,
    job_costs,
    job_group_csv,
    job_groups,
)
from budgets.selectors.fleet.places import job_names
from budgets.selectors.usage.labels import kept_labels, values_by
from clusters import selectors as seen
from portal.downloads import csv_answer
from portal.web import charts
from portal.web.forms import MANY, DayField, PortalForm, midnight, offer_names
from portal.web.htmx import render
from portal.web.numbers import hours_text
from portal.web.pages import in_order, page
from portal.web.tags import named

RANGE = "usage_range"
RANGE_KEYS = ("days", "start", "until")
MOST_DAYS = 370
MOST_DAYS_BY_HOUR = 62
HOURS_UP_TO = 8
TABLE_ROWS = 31
KEYS = 25
KEYS_DRAWN = 20
WORKLOADS = 25
LENDERS = 50
PAIRS = 100
HEAT_DAYS = 35
SPLITS = [
    ("none", "nothing"),
    ("account", "account"),
    ("workspace", "workspace"),
    ("flavor", "flavor"),
    ("cluster", "cluster"),
    ("class", "class"),
]
BY_LABEL = "label:"
"""Before the key of a label that is split by."""
JOB_SORTS: Mapping[str, Callable[[JobCost], Any]] = {
    "committed": lambda row: row.committed_used,
    "burst": lambda row: row.burst,
    "cost": lambda row: row.cost,
    "first": lambda row: row.first,
}
"""Column of the table of jobs → what it sorts by."""
# Header and amount; by themselves the held ones have to say what they are parts of.
_COLUMNS = [(amount.column, amount) for amount in COLUMNS]
_HELD_COLUMNS = [(capfirst(amount.words), amount) for amount in COLUMNS if amount.is_held]


class UsageForm(PortalForm):
    """What of the use is asked for; all of it is in the address."""

    start = DayField(label="From", required=False)
    until = DayField(label="Through", required=False)
    workspace = forms.MultipleChoiceField(label="Workspace", required=False)
    flavor = forms.MultipleChoiceField(label="Flavor", required=False)
    step = forms.ChoiceField(
        label="By", required=False, choices=[("", "best"), ("hour", "hour"), ("day", "day")]
    )
    split = forms.ChoiceField(label="Split by", required=False, choices=SPLITS)
    # Whose jobs are shown of those that the use is split by: a value of the label.
    value = forms.CharField(required=False, max_length=63, widget=forms.HiddenInput)
    # How the jobs stand.
    sort = forms.ChoiceField(
        required=False,
        choices=[(way + key, key) for key in JOB_SORTS for way in ("", "-")],
        widget=forms.HiddenInput,
    )

    def __init__(
        self,
        *args: Any,
        names: Mapping[str, str],
        flavors: list[Any],
        labels: Iterable[str] = (),
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.names = names
        self.labels = tuple(labels)
        self.part("split").choices = [
            *SPLITS,
            *((f"{BY_LABEL}{key}", f"label {key}") for key in self.labels),
        ]
        self.is_large = len(names) > MANY
        self.part("workspace").widget = forms.Select()
        offer_names(self.part("workspace"), names)
        self.part("flavor").choices = [(f.slug, f.name) for f in flavors]
        self.part("flavor").widget = forms.Select(
            choices=[("", "all"), *self.part("flavor").choices]
        )
        for name in ("workspace", "flavor"):
            self.part(name).widget.value_from_datadict = _as_list

    @property
    def label(self) -> str:
        """Key of the label that is split by; empty for none. Of a form without faults."""
        split: str = self.cleaned_data["split"]
        return split.removeprefix(BY_LABEL) if split.startswith(BY_LABEL) else ""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        start, until = cleaned.get("start"), cleaned.get("until")
        if start and until and until < start:
            self.add_error("until", "The last day is before the first.")
        elif start and until and (until - start).days >= MOST_DAYS:
            self.add_error("until", f"At most {MOST_DAYS} days at once.")
        elif start and until and cleaned.get("step") == "hour":
            days = (until - start).days + 1
            if days > MOST_DAYS_BY_HOUR:
                message = f"At most {MOST_DAYS_BY_HOUR} days by the hour; these are {days}."
                self.add_error("step", message)
        return cleaned


def _as_list(data: QueryDict, files: Any, name: str) -> list[str]:
    return [value for value in data.getlist(name) if value]


TABLES = "usage/usage.html"
JOB_COLUMNS = "Job|Workspace|Cluster|Flavor|#Committed|#Burst|#Cost|Between"
CAPACITY_PARTS = (
    *((name, capfirst(BY_NAME[name].words)) for name in HELD),
    ("race", "Race losers"),
    ("reserved", "Reserved"),
    ("undecided", "Undecided"),
    ("outside", "Outside"),
)


def usage_form(user: User, asked: QueryDict) -> UsageForm:
    """The filter as a query has it, over what this reader sees."""
    return UsageForm(
        asked,
        names=selectors.workspace_names(user),
        flavors=list(selectors.visible_flavors(user, include_archived=True)),
        labels=kept_labels(),
    )


Look = Callable[[User, UsageForm, selectors.UsageFilter], dict[str, Any]]
"""What a page about use shows of a filter, which is that of its form."""


def usage_page(template: str) -> Callable[[Look], Callable[..., HttpResponseBase]]:
    """Make a page about use of what it shows of a filter: the form and its faults are the same.

    The address asks for days of the reader, workspace, flavor, step and split.
    """

    def decorate(look: Look) -> Callable[..., HttpResponseBase]:
        @page()
        @functools.wraps(look)
        def wrapped(request: HttpRequest, user: User) -> HttpResponseBase:
            asked = _with_days(request.GET, request.session.get(RANGE, {}))
            form = usage_form(user, asked)
            context = {
                "form": form,
                "ranges": _ranges(request, asked),
                "workspace_names": form.names,
            }
            if not form.is_valid():
                return render(request, template, context, partial="result", status=422)
            _remember(request)
            chosen = _filter(form.cleaned_data)
            if template == TABLES and request.GET.get("format") == "csv":
                return csv_answer("usage.csv", selectors.usage_csv(user, chosen))
            if template == TABLES and request.GET.get("format") == "jobs":
                return csv_answer("jobs.csv", job_cost_csv(user, chosen))
            label = form.label
            if label and request.GET.get("format") == "groups":
                return csv_answer("groups.csv", job_group_csv(user, chosen, label))
            context |= {"chosen": chosen, **look(user, form, chosen)}
            return render(request, template, context, partial="result")

        return wrapped

    return decorate


@usage_page(TABLES)
def usage(user: User, form: UsageForm, chosen: selectors.UsageFilter) -> dict[str, Any]:
    """The chart, the tables beside it, the workloads behind it; CSV of the same."""
    table = selectors.usage_table(user, replace(chosen, split_by="none"))
    # Over the whole of a large platform the largest jobs say little and cost much.
    shows_workloads = bool(chosen.workspaces) or not form.is_large
    label = form.label
    value = form.cleaned_data["value"] if label else ""
    sort = form.cleaned_data["sort"] or "-cost"
    costs = job_costs(user, chosen) if shows_workloads or label else None
    groups = job_groups(costs, label) if costs is not None and label else ()
    of_value = (group.rows for group in groups if group.value == value)
    named_ones = next(of_value, ()) if value else None
    return {
        "table": table,
        "columns": _COLUMNS,
        **_newest(table, chosen.step),
        **_split(user, form, chosen, table),
        **_heat(user, chosen, table),
        "figure": charts.usage_figure(table, step=chosen.step),
        "shows_workloads": shows_workloads,
        "groups": _groups(groups, costs, label) if costs is not None and label else None,
        "jobs": _jobs(costs, named_ones, form.labels, sort)
        if costs is not None and shows_workloads
        else None,
        "sort": sort,
        "value": value,
    }


@usage_page("usage/lending.html")
def lending(user: User, form: UsageForm, chosen: selectors.UsageFilter) -> dict[str, Any]:
    """Who lent to whom, and what covered the burst of an account."""
    moved = selectors.lending(user, chosen, limit=LENDERS)
    drawn = moved.rows[:KEYS_DRAWN]
    pairs = moved.pairs or ()
    return {
        "moved": moved,
        "pairs": pairs[:PAIRS],
        "pairs_hidden": len(pairs[PAIRS:]),
        "pairs_rest": sum(pair.lent for pair in pairs[PAIRS:]),
        "is_too_long": moved.pairs is None,
        "figure": charts.lending_figure(drawn, form.names) if drawn else None,
    }


@usage_page("usage/idle.html")
def idle(user: User, form: UsageForm, chosen: selectors.UsageFilter) -> dict[str, Any]:
    """Floors that stood idle, and the floor that would have been enough."""
    return {"floors": selectors.idle_floors(user, chosen)}


@usage_page("usage/capacity.html")
def capacity(user: User, form: UsageForm, chosen: selectors.UsageFilter) -> dict[str, Any]:
    """Where the capacity went, flavor by cluster; for people who see the whole platform."""
    use = selectors.capacity_use(user, replace(chosen, workspaces=()), now=selectors.utc_now())
    if use is None:
        return {"use": None}
    # Columns of what never happened in the range would only be zeros.
    parts = [
        (name, words) for name, words in CAPACITY_PARTS if name in HELD or getattr(use.total, name)
    ]
    return {
        "use": use,
        "parts": [words for _, words in parts],
        "rows": [
            (row, [getattr(row, name) for name, _ in parts]) for row in (*use.rows, use.total)
        ],
    }


def _groups(groups: Sequence[JobGroup], costs: JobCosts, label: str) -> dict[str, Any]:
    """The dearest groups of jobs by a label, the others as one row, and what no job used."""
    shown, others = groups[:KEYS], groups[KEYS:]
    total = add_up_jobs(costs.jobs)
    return {
        "label": label,
        "rows": [(group, group.sums) for group in shown],
        "others": add_up_jobs(row for group in others for row in group.rows),
        "others_count": len(others),
        "total": total,
        "committed": total.committed_used + costs.unused_seconds,
        "costs": costs,
    }


def _jobs(
    costs: JobCosts, named: Sequence[JobCost] | None, labels: Sequence[str], sort: str
) -> dict[str, Any]:
    """The first jobs, the others as one row, and what no job used; together they add up.

    Args:
        costs: Of the range.
        named: The rows of the one group that is asked for; None for all of them.
        labels: Keys of those that are kept; each has a column.
        sort: Which are the first, as of :func:`in_order`; equals by what they cost.
    """
    chosen = in_order(costs.jobs if named is None else named, sort, JOB_SORTS)
    shown = chosen[:WORKLOADS]
    drawn = {id(row) for row in shown}
    others = [row for row in costs.jobs if id(row) not in drawn]
    total = add_up_jobs(costs.jobs)
    places = [(row.cluster, row.uid) for row in shown]
    names, said = job_names(places), values_by(labels, places)
    rows = []
    for place, row in zip(places, shown, strict=True):
        told = said.get(place, {})
        name = names.get(place, ("", "", row.uid))
        rows.append(((*name, [told.get(key, "") for key in labels]), row))
    return {
        "costs": costs,
        "labels": labels,
        "columns": "|".join((JOB_COLUMNS, *labels)),
        "rows": rows,
        "others": add_up_jobs(others) if others else None,
        "others_count": len(others),
        "total": total,
        "committed": total.committed_used + costs.unused_seconds,
    }


def _newest(table: selectors.UsageTable, step: str) -> dict[str, Any]:
    """The newest steps, and everything before them as one row, so that the column adds up."""
    earlier = table.rows[:-TABLE_ROWS]
    words = f"{len(earlier)} earlier {step}{'s' if len(earlier) > 1 else ''}"
    return {
        "by_time": table.rows[-TABLE_ROWS:][::-1],
        "earlier": selectors.add_up(earlier, name=words) if earlier else None,
    }


def _split(
    user: User, form: UsageForm, chosen: selectors.UsageFilter, table: selectors.UsageTable
) -> dict[str, Any]:
    """The table by key and its figure; by class the sums that are there already."""
    split = form.cleaned_data["split"]
    if split == "class":
        return {"split": split, "classes": _classes(table.totals)}
    if chosen.split_by == "none":
        return {"split": ""}
    keys = selectors.usage_by_key(user, chosen, limit=KEYS)
    if chosen.split_by in ("workspace", "cluster"):
        names = form.names if chosen.split_by == "workspace" else seen.cluster_names()
        keys = replace(
            keys, rows=tuple(replace(row, name=named(row.key, names)) for row in keys.rows)
        )
    has_floors = chosen.split_by != "cluster"
    return {
        "split": split,
        "keys": keys,
        "has_floors": has_floors,
        "keys_columns": _COLUMNS if has_floors else _HELD_COLUMNS,
        "keys_figure": charts.keys_figure(keys.rows[:KEYS_DRAWN], floors=has_floors),
        "keys_drawn": KEYS_DRAWN,
    }


def _classes(totals: selectors.UsageRow) -> dict[str, Any]:
    """Each class with its part of committed and burst; waiting is no use and stands apart."""
    rows = [(_class(part), totals.amounts[part.name] or 0) for part in PARTS]
    whole = sum(seconds for _, seconds in rows)
    return {
        "rows": [
            {"name": words, "seconds": seconds, "percent": _percent(seconds, whole)}
            for words, seconds in rows
        ],
        "total": whole,
    }


def _class(part: Amount) -> str:
    return f"committed, {part.column}" if part.group is AmountGroup.FLOOR else part.words


def _percent(part: int, whole: int) -> str:
    """A share with one decimal, in whole numbers; empty of nothing."""
    if not whole:
        return ""
    tenths = (part * 2000 + whole) // (2 * whole)
    return f"{tenths // 10}.{tenths % 10} %"


def _heat(user: User, chosen: selectors.UsageFilter, table: selectors.UsageTable) -> dict[str, Any]:
    """Day × hour of the newest days of the range; nothing for a single day.

    Args:
        user: Who looks.
        chosen: The filter of the page.
        table: Of the whole range, by the filter's step; its hours need not be asked for again.
    """
    days = min(chosen.end - chosen.start, timedelta(days=HEAT_DAYS))
    newest = replace(chosen, start=chosen.end - days)
    if newest.end - newest.start <= timedelta(hours=25):
        return {}
    heat = selectors.usage_heat(user, newest, table.rows if chosen.step == "hour" else None)
    if not heat.days:
        return {}
    rows = [
        {
            "day": day,
            "cells": ["" if cell is None else hours_text(cell.used) for cell in cells],
            "total": total,
        }
        for day, cells, total in zip(heat.days, heat.cells, heat.day_sums, strict=True)
    ]
    return {
        "heat": heat,
        "heat_rows": rows,
        "heat_hours": [f"{hour:02d}" for hour in range(24)],
        "heat_sums": [hours_text(seconds) for seconds in heat.hour_sums],
        "heat_figure": charts.heat_figure(heat),
        "heat_darkest": f"{charts.darkest(heat):,.1f}",
        "heat_is_part": newest.start > chosen.start,
    }


def _with_days(query: QueryDict, remembered: Mapping[str, str]) -> QueryDict:
    """``days=7`` means the last seven days, and is what a bare address means too.

    Args:
        query: Of the address.
        remembered: The range that the reader chose last, for an address that names none.
    """
    full = query.copy()
    if not any(query.get(name) for name in RANGE_KEYS):
        full.update(remembered)
    if full.get("start") or full.get("until"):
        return full
    days = full.get("days", "7")
    is_number = days.isdecimal() and len(days) < 6 and int(days) > 0
    count = min(int(days), MOST_DAYS) if is_number else 7
    today = timezone.localdate()
    full["days"] = str(count)
    full["start"] = str(today - timedelta(days=count - 1))
    full["until"] = str(today)
    return full


def _remember(request: HttpRequest) -> None:
    """A range that was chosen holds on the other looks at the use, until another is chosen."""
    chosen = {name: request.GET[name] for name in RANGE_KEYS if request.GET.get(name)}
    if chosen and request.session.get(RANGE) != chosen:
        request.session[RANGE] = chosen


def _filter(typed: dict[str, Any]) -> selectors.UsageFilter:
    until = typed["until"] or timezone.localdate()
    start = typed["start"] or until - timedelta(days=6)
    days = (until - start).days + 1
    # Classes are the columns of every row, and labels are of jobs, so they split nothing here.
    is_none = typed["split"] in ("", "class") or typed["split"].startswith(BY_LABEL)
    return selectors.UsageFilter(
        start=midnight(start),
        end=midnight(until + timedelta(days=1)),
        workspaces=tuple(typed["workspace"]),
        flavors=tuple(typed["flavor"]),
        step=typed["step"] or ("hour" if days <= HOURS_UP_TO else "day"),
        split_by="none" if is_none else typed["split"],
        zone=timezone.get_current_timezone(),
    )


def last_days(count: int) -> tuple[datetime, datetime]:
    """Begin and end of the last days of the reader's clock, today among them: ``days=7``."""
    today = timezone.localdate()
    return midnight(today - timedelta(days=count - 1)), midnight(today + timedelta(days=1))


def _ranges(request: HttpRequest, asked: QueryDict) -> list[tuple[str, str, bool]]:
    """Links to the usual ranges of this page, everything else kept.

    Args:
        request: Of the page.
        asked: The query as it was read; it has ``days`` where the range is one of these.
    """
    found = []
    for days, words in (("1", "Today"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days")):
        kept = [(k, v) for k, v in request.GET.lists() if k not in {*RANGE_KEYS, "step"}]
        address = urlencode([*((k, v) for k, vs in kept for v in vs), ("days", days)])
        found.append((words, f"{request.path}?{address}", asked.get("days") == days))
    return found
