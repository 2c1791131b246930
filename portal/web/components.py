"""Shapes that the pages share, as tags with parameters.

``{% card %}`` and ``{% table %}`` stand around what they hold, ``{% chart %}`` around its words;
``{% fact %}`` is an entry of a list, ``{% sample %}`` one of a legend, ``{% numbers %}`` are
cells of a row. What a page has of its own stays written out in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from functools import lru_cache
from itertools import zip_longest

from django import template
from django.template.context import Context
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join, json_script
from django.utils.safestring import SafeString, mark_safe

from portal.web.tags import sort_head

register = template.Library()
_NOTHING = mark_safe("")


@register.simple_block_tag
def card(content: str, title: str, *, id: str = "", aside: str = "", text: str = "") -> SafeString:
    """``{% card "Drift" id="drift" %} … {% endcard %}``: a surface with a title above its content.

    Args:
        content: What stands below the title.
        title: Its heading.
        id: Of the section, for links to it.
        aside: A small text beside the title.
        text: A small text below the title.
    """
    small = format_html('<p class="muted small">{}</p>', aside or text) if aside or text else ""
    heading = format_html("<h2>{}</h2>{}", title, small)
    if text:
        heading = format_html('<div class="tight">{}</div>', heading)
    return format_html(
        '<section class="card flush"{}><header>{}</header>{}</section>',
        format_html(' id="{}"', id) if id else _NOTHING,
        heading,
        content,
    )


@register.simple_block_tag(takes_context=True)
def table(
    context: Context,
    content: str,
    columns: str,
    style: str = "cards",
    *,
    sorts: str = "",
    at: str = "",
) -> SafeString:
    """``{% table "Job|State|#GPUs" %}<tbody> … </tbody>{% endtable %}``: it scrolls by itself.

    Args:
        context: Of the page; says how sorted rows stand, as of ``sort_head``.
        content: Its body, and its foot where it has one.
        columns: The headings, divided by ``|``; ``#`` is before one whose column has numbers.
        style: ``cards`` has a card for each row on a phone, ``dense`` less room; empty is neither.
        sorts: Keys of columns that sort, divided by ``|``; empty for one that does not.
        at: Id of what is looked at once it was sorted anew.
    """
    head = _head(columns) if not sorts else _sorted_head(context, columns, sorts, at)
    return format_html(
        '<div class="scroll"><table{}>{}{}</table></div>',
        format_html(' class="{}"', style) if style else _NOTHING,
        head,
        content,
    )


@lru_cache(maxsize=256)
def _head(columns: str) -> SafeString:
    return _row_of(_heading(name) for name in columns.split("|"))


def _sorted_head(context: Context, columns: str, sorts: str, at: str) -> SafeString:
    found = zip_longest(columns.split("|"), sorts.split("|"), fillvalue="")
    return _row_of(
        sort_head(context, name.lstrip("#"), key, number=name.startswith("#"), at=at)
        if key
        else _heading(name)
        for name, key in found
    )


def _heading(name: str) -> SafeString:
    kind = mark_safe(' class="num"') if name.startswith("#") else _NOTHING
    return format_html('<th scope="col"{}>{}</th>', kind, name.lstrip("#"))


def _row_of(cells: Iterable[SafeString]) -> SafeString:
    return format_html(
        "<thead><tr>{}</tr></thead>", format_html_join("", "{}", ((cell,) for cell in cells))
    )


@register.simple_tag
def numbers(cells: Iterable[object]) -> SafeString:
    """``{% numbers row.cells %}``: cells of numbers in a row of a table, drawn in one piece."""
    return format_html_join("", '<td class="num">{}</td>', ((cell,) for cell in cells))


@register.simple_tag
def fact(name: str, value: object) -> SafeString:
    """``{% fact "Priority" row.priority %}``: a name and a value in a list of facts."""
    return format_html("<div><dt>{}</dt><dd>{}</dd></div>", name, value)


@register.simple_block_tag
def chart(
    content: str,
    name: str,
    figure: object,
    *,
    size: str = "",
    id: str = "",
    instead: str = "the table below has the same numbers",
) -> SafeString:
    """``{% chart "usage" figure %}what it shows, in words{% endchart %}``: drawn where scripts run.

    Args:
        content: The words for who cannot see it.
        name: Of the figure on its page.
        figure: What :mod:`portal.web.charts` made.
        size: ``short`` or ``tall``; empty is between them.
        id: Of the chart, where a link or a test leads to it.
        instead: Where the numbers stand for who has no scripts.
    """
    return format_html(
        '{}<div class="{}"{} data-chart="{}-figure" data-plotly="{}" role="img" aria-label="{}">'
        '<p class="loading"><span class="needs-script">Drawing the chart …</span>'
        "<noscript>The chart needs scripts; {}.</noscript></p></div>",
        json_script(figure, f"{name}-figure"),
        f"chart {size}".rstrip(),
        format_html(' id="{}"', id) if id else _NOTHING,
        name,
        static("plotly/plotly.min.js"),
        SafeString(content.strip()),  # escaped where it was rendered
        instead,
    )


@register.filter
def chart_size(rows: Sized, most: int) -> str:
    """``tall`` for more rows than fit a short chart."""
    return "tall" if len(rows) > most else "short"


_SAMPLES = {
    "area": '<rect class="v-{}" width="18" height="11"/>',
    "smaller": '<rect class="v-{}" x="1" y="1" width="16" height="9"/>',
    "line": '<line class="v-{}" x1="0" x2="18" y1="6" y2="6"/>',
    "tick": '<line class="v-{}" x1="9" x2="9" y1="0" y2="11"/>',
}


@register.simple_tag
def sample(meaning: str, words: str, shape: str = "area") -> SafeString:
    """``{% sample "lent" "lent" %}``: an entry of a legend; area, smaller, line or tick."""
    drawn = format_html(_SAMPLES[shape], meaning)
    return format_html('<li><svg aria-hidden="true">{}</svg>{}</li>', drawn, words)
