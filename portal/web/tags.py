"""Template tags and filters of the pages: bars, and numbers and times in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.forms import BoundField
from django.template.context import Context
from django.utils import timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from budgets.amounts import Amount
from budgets.selectors import UsageRow
from budgets.selectors.saved_views import saved_views as own_views
from budgets.units import HOUR_S
from clusters.selectors import BudgetBar
from clusters.selectors.cluster_detail import TreeGroup
from portal.web.bars import draw
from portal.web.numbers import hours_text, money_text

register = template.Library()

# The color of a state's tag; "" is any other state of the subject.
TONES: Mapping[str, Mapping[str, str]] = {
    "action": {"done": "good", "failed": "trouble", "waiting": "busy"},
    "cluster": {"failed": "trouble", "lost": "trouble", "": "busy"},
    "discrepancy": {
        "open": "trouble",
        "proposed": "pending",
        "accepted": "good",
        "cleared": "good",
    },
    "incident": {"open": "trouble", "cured": "good", "": "plain"},
    "job": {
        "running": "good",
        "pending": "pending",
        "reserved": "busy",
        "failed": "trouble",
        "evicted": "warn",
    },
    "maintenance": {"active": "warn", "scheduled": "busy"},
    "object": {"synced": "good", "failed": "trouble", "pending": "busy", "": "warn"},
    "offer": {"won": "good", "asked": "busy", "": "plain"},
    "paper": {"draft": "pending", "reviewed": "busy", "issued": "good", "void": "trouble"},
    "proposal": {
        "waiting": "pending",
        "approved": "good",
        "declined": "trouble",
        "withdrawn": "plain",
        "expired": "plain",
    },
    "revision": {"in force": "good", "requested": "warn", "scheduled": "busy", "": "plain"},
}


@register.inclusion_tag("partials/bars.html")
def budget_bars(
    bars: Iterable[BudgetBar] | None, compact: bool = False, empty: str = ""
) -> dict[str, Any]:
    """Draw the bars of one budget, one per flavor."""
    return {"bars": [draw(numbers) for numbers in bars or ()], "compact": compact, "empty": empty}


@register.inclusion_tag("partials/field.html")
def field(bound: BoundField, unit: str = "") -> dict[str, Any]:
    """One field: label, input, hint and the place for its fault."""
    return {"field": bound, "unit": unit}


@register.filter
def tone(state: str, subject: str) -> str:
    """The class that colors the tag of a state; the subjects are those of :data:`TONES`."""
    tones = TONES[subject]
    return tones.get(state, tones.get("", ""))


@register.filter
def named(slug: str, names: Mapping[str, str]) -> str:
    """The name of a flavor, cluster or workspace; its slug where the reader may see no name."""
    return names.get(slug, slug)


_NAMES_OF = {
    "account": "account_names",
    "budget": "workspace_names",
    "cluster": "cluster_names",
    "flavor": "flavor_names",
}


@register.simple_tag(takes_context=True)
def titled(context: Context, group: TreeGroup) -> str:
    """The title of what objects of a cluster stand for, with its name instead of its slug."""
    kind, _, slug = group.subject.partition(":")
    name = context[_NAMES_OF[kind]].get(slug, slug) if kind in _NAMES_OF else slug
    return group.title.removesuffix(slug) + name


@register.filter
def all_named(slugs: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """The same of several."""
    return [named(slug, names) for slug in slugs]


@register.filter
def gpus(count: int | None) -> str:
    """16 → ``16 GPUs``; nothing known → a dash."""
    if count is None:
        return "–"
    return f"{count:,} GPU{'' if count == 1 else 's'}"


@register.filter
def gpu_hours(seconds: int | None) -> SafeString | str:
    """GPU-seconds → GPU-hours with one decimal, the exact GPU-seconds on hover.

    Rounded half up in whole numbers, so that no float stands between ledger and reader.
    """
    if seconds is None:
        return "–"
    return format_html(
        '<span title="{} GPU-seconds">{}</span>', f"{seconds:,}", hours_text(seconds)
    )


@register.filter
def amounts(row: UsageRow, columns: Iterable[tuple[str, Amount]]) -> list[SafeString | str]:
    """The GPU-hours of a row of use, column by column."""
    return [gpu_hours(row.amounts[amount.name]) for _, amount in columns]


@register.filter
def money(amount: Decimal | None, currency: str) -> str:
    """An amount with the currency's digits; nothing known → a dash."""
    return "–" if amount is None else money_text(amount, currency)


@register.filter
def cost(amount: Decimal | None, currency: str) -> str:
    """The same, where there may be no prices, and then no currency: a dash."""
    return money(amount, currency) if currency else "–"


@register.filter
def when(instant: datetime | None) -> SafeString | str:
    """A time in the reader's zone, its UTC on hover."""
    return "–" if instant is None else _time(instant, "%Y-%m-%d %H:%M")


@register.filter
def when_exactly(instant: datetime) -> SafeString:
    """The same to the second, for what follows closely."""
    return _time(instant, "%Y-%m-%d %H:%M:%S")


def _time(instant: datetime, form: str) -> SafeString:
    try:
        local = timezone.localtime(instant)
    except OverflowError:  # a stranger's time at an end of the calendar
        local = instant
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        instant.isoformat(),
        instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        local.strftime(form),
    )


_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@register.filter
def with_times(words: object) -> SafeString:
    """A sentence whose times, as the log and the API have them, stand in the reader's zone."""

    def shown(found: re.Match[str]) -> str:
        try:
            return when(datetime.fromisoformat(found[0]))
        except ValueError:  # somebody typed it, and no calendar has it
            return found[0]

    # escaped before, and a time has nothing to escape
    return mark_safe(_STAMP.sub(shown, escape(words)))  # noqa: S308


@register.filter
def age(instant: datetime | None) -> SafeString | str:
    """A time in the reader's zone with its age beside it."""
    if instant is None:
        return "never"
    return format_html('{} <span class="muted">({})</span>', when(instant), ago(instant))


@register.filter
def ago(instant: datetime | None) -> str:
    """How long since, or until: ``3 min ago``, ``in 2 h``."""
    if instant is None:
        return "never"
    seconds = int((timezone.now() - instant).total_seconds())
    words = duration(abs(seconds))
    if abs(seconds) < 5:
        return "now"
    return f"{words} ago" if seconds > 0 else f"in {words}"


@register.filter
def duration(given: float | None) -> str:
    """Whole seconds in the two largest useful units: ``2 d 3 h``, ``3 h 10 min``, ``42 s``."""
    if given is None:
        return "–"
    seconds = int(given)
    minutes, hours, days = seconds // 60, seconds // HOUR_S, seconds // 86_400
    if days:
        return f"{days} d {hours % 24} h" if days < 14 and hours % 24 else f"{days} d"
    if hours:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{minutes} min" if minutes else f"{seconds} s"


@register.filter
def in_json(value: Any) -> str:
    """A value of an object as its document has it; text as it is, nothing as a word."""
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@register.filter
def percent(share: float) -> str:
    """0.8 → ``80 %``."""
    return f"{round(share * 100)} %"


@register.simple_tag(takes_context=True)
def sort_head(
    context: Context, title: str, key: str, *, number: bool = False, at: str = ""
) -> SafeString:
    """``{% sort_head "GPUs" "gpus" number=True %}``: a column's heading that sorts by it.

    The page's context says by ``sort`` how its rows stand, ``key`` or ``-key``. Numbers begin with
    the largest; the same heading again turns the order round, on the first page. ``at`` is the id
    of what is looked at then, on a page with more than this table.
    """
    now = str(context.get("sort", ""))
    ways = (f"-{key}", key) if number else (key, f"-{key}")
    then = ways[1] if now == ways[0] else ways[0]
    order = {key: "ascending", f"-{key}": "descending"}.get(now, "")
    return format_html(
        '<th scope="col"{}{}><a href="?{}{}">{}</a></th>',
        SafeString(' class="num"') if number else "",
        format_html(' aria-sort="{}"', order) if order else "",
        querystring_of(context, sort=then, cursor="", page=""),
        f"#{at}" if at else "",
        title,
    )


@register.simple_tag(takes_context=True)
def querystring_of(context: Context, **changes: Any) -> str:
    """The query of this address with some keys changed; an empty value takes the key away.

    Django's own ``querystring`` gives nothing for no key: a link to that keeps every key.
    """
    query = context["request"].GET.copy()
    for key, value in changes.items():
        if value in (None, ""):
            query.pop(key, None)
        else:
            query[key] = value
    return str(query.urlencode())


@register.inclusion_tag("partials/saved_views.html", takes_context=True)
def saved_views(context: Context, page: str) -> dict[str, Any]:
    """``{% saved_views "jobs" %}``: the reader's views of this page, and a way to save this one.

    One query. The page's ``form`` was given what is seen.
    """
    views = own_views(context["request"].user).filter(page=page)
    return {"views": views, "page": page, "query": context["form"].data.urlencode()}
