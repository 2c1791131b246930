"""Usage: committed used, lent, idle, burst and waiting by time and key; down to the workloads."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.urls import reverse
from django.utils import timezone

from budgets import selectors
from portal.web import charts
from portal.web.forms import MANY, PortalForm, offer_names
from portal.web.htmx import is_partial, render
from portal.web.pages import page
from portal.web.tables import csv_answer

MOST_DAYS = 370
HOURS_UP_TO = 8
TABLE_ROWS = 48
WORKLOADS = 25


class UsageForm(PortalForm):
    """What of the use is asked for; all of it is in the address."""

    start = forms.DateField(
        label="From", required=False, widget=forms.DateInput(attrs={"type": "date"})
    )
    until = forms.DateField(
        label="Through", required=False, widget=forms.DateInput(attrs={"type": "date"})
    )
    workspace = forms.MultipleChoiceField(label="Workspace", required=False)
    flavor = forms.MultipleChoiceField(label="Flavor", required=False)
    step = forms.ChoiceField(
        label="By", required=False, choices=[("", "best"), ("hour", "hour"), ("day", "day")]
    )
    split = forms.ChoiceField(
        label="Split by",
        required=False,
        choices=[("none", "nothing"), ("workspace", "workspace"), ("flavor", "flavor")],
    )

    def __init__(self, *args: Any, names: list[str], flavors: list[Any], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.part("workspace").widget = forms.Select()
        offer_names(self.part("workspace"), names)
        self.part("flavor").choices = [(f.slug, f.name) for f in flavors]
        self.part("flavor").widget = forms.Select(
            choices=[("", "all"), *self.part("flavor").choices]
        )
        for name in ("workspace", "flavor"):
            self.part(name).widget.value_from_datadict = _as_list

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        start, until = cleaned.get("start"), cleaned.get("until")
        if start and until and until < start:
            self.add_error("until", "The last day is before the first.")
        elif start and until and (until - start).days >= MOST_DAYS:
            self.add_error("until", f"At most {MOST_DAYS} days at once.")
        return cleaned


def _as_list(data: QueryDict, files: Any, name: str) -> list[str]:
    return [value for value in data.getlist(name) if value]


@page()
def usage(request: HttpRequest) -> HttpResponseBase:
    """The chart, the table beside it, the workloads behind it; CSV of the same."""
    user: Any = request.user
    visible = selectors.visible_workspaces(user, include_archived=True)
    names = list(visible.values_list("namespace", flat=True))
    flavors = list(selectors.visible_flavors(user, include_archived=True))
    form = UsageForm(_with_days(request.GET), names=names, flavors=flavors)
    if not form.is_valid():
        return render(request, "usage/usage.html", {"form": form}, partial="result", status=422)
    chosen = _filter(form.cleaned_data)
    if request.GET.get("format") == "csv":
        return csv_answer("usage.csv", selectors.usage_csv(user, chosen))
    table = selectors.usage_table(user, chosen)
    # Over the whole of a large platform the largest jobs say little and cost much.
    shows_workloads = bool(chosen.workspaces) or len(names) <= MANY
    context = {
        "form": form,
        "chosen": chosen,
        "table": table,
        "by_time": list(reversed(table.rows))[:TABLE_ROWS],
        "by_key": _by_key(table) if chosen.split_by != "none" else (),
        "rows_hidden": max(0, len(table.rows) - TABLE_ROWS),
        "figure": charts.usage_figure(table, step=chosen.step),
        "shows_workloads": shows_workloads,
        "workloads": selectors.workload_usage(user, chosen, limit=WORKLOADS)
        if shows_workloads
        else [],
        "here": request.GET.urlencode(),
        "ranges": _ranges(request.GET),
    }
    if not is_partial(request):
        return render(request, "usage/usage.html", context)
    return render(request, "usage/usage.html", context, partial="result")


def _with_days(query: QueryDict) -> QueryDict:
    """``days=7`` means the last seven days, and is what a bare address means too."""
    if query.get("start") or query.get("until"):
        return query
    full = query.copy()
    days = query.get("days", "7")
    count = min(int(days), MOST_DAYS) if days.isdigit() and int(days) else 7
    today = timezone.localdate()
    full["start"] = str(today - timedelta(days=count - 1))
    full["until"] = str(today)
    return full


def _filter(typed: dict[str, Any]) -> selectors.UsageFilter:
    until = typed["until"] or timezone.localdate()
    start = typed["start"] or until - timedelta(days=6)
    days = (until - start).days + 1
    return selectors.UsageFilter(
        start=_midnight(start),
        end=_midnight(until + timedelta(days=1)),
        workspaces=tuple(typed["workspace"]),
        flavors=tuple(typed["flavor"]),
        step=typed["step"] or ("hour" if days <= HOURS_UP_TO else "day"),
        split_by=typed["split"] or "none",
    )


def _midnight(day: Any) -> datetime:
    local = datetime.combine(day, time.min, tzinfo=timezone.get_current_timezone())
    return local.astimezone(UTC)


def _by_key(table: selectors.UsageTable) -> list[dict[str, Any]]:
    """Sums by workspace or flavor, the largest use first."""
    sums: dict[str, dict[str, Any]] = {}
    for row in table.rows:
        found = sums.setdefault(row.key, {"key": row.key, "name": row.name})
        for name in ("committed", "committed_used", "lent", "idle", "burst", "borrowed", "pending"):
            found[name] = found.get(name, 0) + (getattr(row, name) or 0)
    return sorted(sums.values(), key=lambda found: -(found["committed_used"] + found["burst"]))


def _ranges(query: QueryDict) -> list[tuple[str, str, bool]]:
    """Links to the usual ranges, everything else kept."""
    found = []
    for days, words in (("1", "Today"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days")):
        kept = [(k, v) for k, v in query.lists() if k not in {"days", "start", "until", "step"}]
        address = urlencode([*((k, v) for k, vs in kept for v in vs), ("days", days)])
        is_current = not query.get("start") and query.get("days", "7") == days
        found.append((words, f"{reverse('usage')}?{address}", is_current))
    return found
