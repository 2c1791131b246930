"""Rows of use → Plotly figures as JSON. The only importer of Plotly; writes nothing.

Traces carry their meaning (``meta.meaning``), and the browser takes the color of that meaning
from the stylesheet, light or dark. The colors written here are those of the light scheme, so
that a figure is right on its own too. Every series has a pattern or a dash of its own besides.

Styles and layouts go through Plotly's checks once per process; the numbers are put in as they
are, for checking them anew on every request took longer than everything else of a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from functools import cache
from math import ceil
from typing import Any

import plotly.graph_objects as go
from django.utils import timezone
from django.utils.text import capfirst

from budgets import selectors
from budgets.amounts import BURST, COMMITTED, LENT, NAMES, PARTS, PENDING, Color
from budgets.units import HOUR_S
from portal.web.numbers import hours_text

# Ticks as the tables write numbers: 0.5 and 20,000, never 500m or 20k.
PLAIN = ",.9~g"
SECOND = timedelta(seconds=1)
STEP_SECONDS = {"hour": HOUR_S, "day": 86_400}
Trace = dict[str, Any]
Steps = list[tuple[datetime, int]]


def usage_figure(
    table: selectors.UsageTable, *, step: str, ceiling: int | None = None
) -> dict[str, Any]:
    """Stacked committed used, lent, idle and burst in mean GPUs, waiting demand as a line.

    The step that runs is divided by what of it was metered, so that no chart ends in a cliff.

    Args:
        table: Rows by time; rows of one time are added up.
        step: ``hour`` or ``day``, the width of a bar.
        ceiling: GPUs of the ceiling now; with it the floor and the ceiling are lines over the bars.
    """
    times, sums = _by_time(table)
    steps = _steps(times, STEP_SECONDS[step], table.freshness)
    traces = [_bars(capfirst(part.words), part.color, steps, sums[part.name]) for part in PARTS]
    traces.append(_line("Waiting", PENDING, steps, sums["pending"], dash="dot"))
    if ceiling is not None:
        flat = [ceiling * seconds for _, seconds in steps]
        traces += [
            _line("Committed", COMMITTED, steps, sums["committed"], dash="solid"),
            _line("Burst limit now", BURST, steps, flat, dash="dash"),
        ]
    return {"data": traces, "layout": _time_layout(f"GPUs (mean per {step})")}


def keys_figure(rows: Sequence[selectors.UsageRow], *, floors: bool) -> dict[str, Any]:
    """Horizontal bars of GPU-hours by key, stacked by class, the largest on top.

    Args:
        rows: In the order of the table beside it.
        floors: Whether lent and idle have a meaning for these keys.
    """
    names = [row.name or row.key for row in rows]
    traces = [
        _key_bars(
            capfirst(part.words), part.color, names, [row.amounts[part.name] or 0 for row in rows]
        )
        for part in PARTS
        if floors or part.is_held
    ]
    return {"data": traces, "layout": _keys_layout()}


def lending_figure(
    rows: Sequence[selectors.LendingRow], known: Mapping[str, str]
) -> dict[str, Any]:
    """GPU-hours lent and borrowed by workspace, side by side, in the order of the table.

    Args:
        rows: Those of the table that are drawn.
        known: Namespace → name of the workspaces that the reader sees.
    """
    names = [known.get(row.namespace, row.namespace) for row in rows]
    traces = [
        _key_bars("Lent", LENT, names, [row.lent for row in rows]),
        _key_bars("Borrowed", BURST, names, [row.borrowed for row in rows]),
    ]
    return {"data": traces, "layout": _keys_layout() | {"barmode": "group"}}


def _key_bars(name: str, color: Color, keys: list[str], seconds: list[int]) -> Trace:
    trace = _bar_style(color)
    trace |= {
        "name": name,
        "orientation": "h",
        "y": keys,
        "x": [_in_hours(value) for value in seconds],
        "customdata": [hours_text(value) for value in seconds],
        "hovertemplate": "%{customdata} GPU-hours<extra>" + name + "</extra>",
    }
    return trace


def heat_figure(heat: selectors.HeatMap) -> dict[str, Any]:
    """Day × hour of the reader's wall clock → mean GPUs in use; an hour without facts is blank.

    The darkest color is :func:`darkest` GPUs.
    """
    trace = _heat_style()
    trace |= {
        "zmax": darkest(heat) or 1,
        "x": [f"{hour:02d}" for hour in range(24)],
        "y": [f"{day:%a %m-%d}" for day in heat.days],
        "z": [[None if cell is None else _mean(cell.used, cell.seconds) for cell in row]
              for row in heat.cells],
        "customdata": [["" if cell is None else hours_text(cell.used) for cell in row]
                       for row in heat.cells],
    }  # fmt: skip
    return {"data": [trace], "layout": _heat_layout()}


def darkest(heat: selectors.HeatMap) -> float:
    """Mean GPUs of the fullest cell; 0 of an empty map."""
    cells = [cell for row in heat.cells for cell in row if cell is not None]
    return max((_mean(cell.used, cell.seconds) for cell in cells), default=0)


def _by_time(table: selectors.UsageTable) -> tuple[list[datetime], dict[str, list[int]]]:
    found: dict[datetime, dict[str, int]] = {}
    for row in table.rows:
        if row.start is None:
            continue
        at = found.setdefault(row.start, dict.fromkeys(NAMES, 0))
        for name in NAMES:
            at[name] += row.amounts[name] or 0
    times = sorted(found)
    return times, {name: [found[at][name] for at in times] for name in NAMES}


def _steps(times: Iterable[datetime], width: int, fresh: selectors.Freshness) -> Steps:
    """Each step with the seconds of it that were metered: the running one is not whole yet."""
    until = max((at for at in fresh.clusters.values() if at is not None), default=None)
    return [
        (at, width if until is None or until <= at else min(width, ceil((until - at) / SECOND)))
        for at in times
    ]


def _bars(name: str, color: Color, steps: Steps, values: list[int]) -> Trace:
    trace = _bar_style(color)
    trace |= {
        "name": name,
        "x": _local(at for at, _ in steps),
        "y": [_mean(value, width) for value, (_, width) in zip(values, steps, strict=True)],
        # Bars stand on the time that they cover, not around its beginning.
        "offset": 0,
        "width": [width * 1000 for _, width in steps],
        "customdata": [
            [_mean_text(value, width), hours_text(value)]
            for value, (_, width) in zip(values, steps, strict=True)
        ],
        "hovertemplate": "%{customdata[0]} GPUs, %{customdata[1]} GPU-hours"
        f"<extra>{name}</extra>",
    }
    return trace


def _line(name: str, color: Color, steps: Steps, values: list[int], *, dash: str) -> Trace:
    ends = [at + timedelta(seconds=width) for at, width in steps[-1:]]
    texts = [_mean_text(value, width) for value, (_, width) in zip(values, steps, strict=True)]
    means = [_mean(value, width) for value, (_, width) in zip(values, steps, strict=True)]
    trace = _line_style(color, dash)
    trace |= {
        "name": name,
        "x": _local([*(at for at, _ in steps), *ends]),
        "y": [*means, *means[-1:]],
        "customdata": [*texts, *texts[-1:]],
        "hovertemplate": "%{customdata} GPUs<extra>" + name + "</extra>",
    }
    return trace


def _checked(part: Callable[..., Any]) -> Callable[..., Trace]:
    """A part of a figure that Plotly has checked once; each call gives a copy as JSON values."""

    @cache
    def document(*given: Any) -> Trace:
        checked: Trace = json.loads(json.dumps(part(*given).to_plotly_json()))
        return checked

    return lambda *given: deepcopy(document(*given))


@_checked
def _bar_style(color: Color) -> Any:
    return go.Bar(
        marker={
            "color": color.fill,
            "line": {"color": color.line, "width": 0},
            "pattern": {
                "shape": color.pattern,
                "fgcolor": color.line,
                "fillmode": "overlay",
                "size": 6,
            },
        },
        meta={"meaning": color.meaning},
    )


@_checked
def _line_style(color: Color, dash: str) -> Any:
    return go.Scatter(
        mode="lines",
        line={"color": color.line, "width": 1.5, "dash": dash, "shape": "hv"},
        meta={"meaning": color.meaning},
    )


@_checked
def _heat_style() -> Any:
    return go.Heatmap(
        colorscale=[[0, "#ffffff"], [1, COMMITTED.line]],
        zmin=0,
        xgap=1,
        ygap=1,
        # Plotly's own scale sets style attributes, which the page's policy forbids; the page says
        # what the darkest color means.
        showscale=False,
        meta={"meaning": COMMITTED.meaning},
        hovertemplate="%{y}, %{x}:00: %{z:.1f} GPUs, %{customdata} GPU-hours<extra></extra>",
    )


@_checked
def _layout() -> Any:
    return go.Layout(
        barmode="stack",
        bargap=0.2,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 52, "r": 12, "t": 8, "b": 36},
        # The page draws the legend with the swatches of the bars.
        showlegend=False,
    )


def _time_layout(unit: str) -> dict[str, Any]:
    return _layout() | {
        "bargap": 0,
        "hovermode": "x unified",
        "xaxis": {"type": "date", "title": {"text": ""}},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "tickformat": PLAIN},
    }


def _keys_layout() -> dict[str, Any]:
    return _layout() | {
        "margin": {"l": 160, "r": 12, "t": 8, "b": 44},
        "hovermode": "y unified",
        "xaxis": {"title": {"text": "GPU-hours"}, "rangemode": "tozero", "tickformat": PLAIN},
        "yaxis": {"type": "category", "autorange": "reversed", "title": {"text": ""}},
    }


def _heat_layout() -> dict[str, Any]:
    hours = {"type": "category", "title": {"text": "Hour of the day"}, "showgrid": False}
    return _layout() | {
        "margin": {"l": 76, "r": 12, "t": 8, "b": 44},
        "xaxis": hours,
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
    }


def _local(times: Iterable[datetime]) -> list[str]:
    """Plotly knows no zones: the reader's wall time, without one."""
    zone = timezone.get_current_timezone()
    return [at.astimezone(zone).strftime("%Y-%m-%d %H:%M") for at in times]


def _mean(gpu_seconds: int, width: int) -> float:
    """GPU-seconds over a step → mean GPUs. For drawing only; the table has the exact numbers."""
    return round(gpu_seconds / width, 2)


def _mean_text(gpu_seconds: int, width: int) -> str:
    """The same in words, rounded as GPU-hours are: of a whole hour both are one number."""
    return hours_text(gpu_seconds * HOUR_S // width)


def _in_hours(gpu_seconds: int) -> float:
    """GPU-seconds → GPU-hours. For drawing only."""
    return round(gpu_seconds / HOUR_S, 2)
