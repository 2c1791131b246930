"""Rows of use → Plotly figures as JSON. The only importer of Plotly; writes nothing.

Traces carry their meaning (``meta.meaning``), and the browser takes the color of that meaning
from the stylesheet, light or dark. The colors written here are those of the light scheme, so
that a figure is right on its own too. Every series has a pattern or a dash of its own besides.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import plotly.graph_objects as go
from django.utils import timezone

from budgets import selectors
from portal.web.numbers import hours_text

# meaning → (fill, line, pattern)
MEANINGS = {
    "committed": ("#0067a8", "#0067a8", ""),
    "idle": ("#d4dae0", "#5f6b78", "."),
    "lent": ("#bfe5d9", "#00795c", "\\"),
    "burst": ("#f6dfbd", "#b36200", "/"),
    "pending": ("#eddcef", "#8a3f8f", ""),
}
STEP_SECONDS = {"hour": 3600, "day": 86_400}


def usage_figure(
    table: selectors.UsageTable, *, step: str, ceiling: int | None = None
) -> dict[str, Any]:
    """Stacked committed used, lent, idle and burst in mean GPUs, waiting demand as a line.

    Args:
        table: Rows by time; rows of one time are added up.
        step: ``hour`` or ``day``, the width of a bar.
        ceiling: GPUs of the ceiling now; with it the floor and the ceiling are lines over the bars.
    """
    times, sums = _by_time(table)
    seconds = STEP_SECONDS[step]
    traces = [
        _bars("Committed, used", "committed", times, sums["committed_used"], seconds),
        _bars("Lent", "lent", times, sums["lent"], seconds),
        _bars("Idle", "idle", times, sums["idle"], seconds),
        _bars("Burst", "burst", times, sums["burst"], seconds),
        _line("Waiting", "pending", times, sums["pending"], seconds, dash="dot"),
    ]
    if ceiling is not None:
        flat = [ceiling * seconds] * len(times)
        traces += [
            _line("Committed", "committed", times, sums["committed"], seconds, dash="solid"),
            _line("Ceiling now", "burst", times, flat, seconds, dash="dash"),
        ]
    figure = go.Figure(data=traces, layout=_layout(step))
    drawn: dict[str, Any] = json.loads(figure.to_json())
    return drawn


def _by_time(table: selectors.UsageTable) -> tuple[list[datetime], dict[str, list[int]]]:
    names = ("committed", "committed_used", "burst", "lent", "idle", "pending")
    found: dict[datetime, dict[str, int]] = {}
    for row in table.rows:
        if row.start is None:
            continue
        at = found.setdefault(row.start, dict.fromkeys(names, 0))
        for name in names:
            at[name] += getattr(row, name) or 0
    times = sorted(found)
    return times, {name: [found[at][name] for at in times] for name in names}


def _bars(name: str, meaning: str, times: list[datetime], seconds: list[int], width: int) -> go.Bar:
    fill, line, pattern = MEANINGS[meaning]
    return go.Bar(
        name=name,
        x=[_local(at) for at in times],
        y=[_mean(value, width) for value in seconds],
        # Bars stand on the time that they cover, not around its beginning.
        offset=0,
        width=width * 1000,
        marker={
            "color": fill,
            "line": {"color": line, "width": 0},
            "pattern": {
                "shape": pattern,
                "fgcolor": line,
                "fillmode": "overlay",
                "size": 6,
            },
        },
        meta={"meaning": meaning},
        customdata=[hours_text(value) for value in seconds],
        hovertemplate="%{y:.1f} GPUs, %{customdata} GPU-hours<extra>" + name + "</extra>",
    )


def _line(
    name: str, meaning: str, times: list[datetime], seconds: list[int], width: int, *, dash: str
) -> go.Scatter:
    _, line, _ = MEANINGS[meaning]
    ends = [*times, *([times[-1] + timedelta(seconds=width)] if times else [])]
    values = [_mean(value, width) for value in seconds]
    return go.Scatter(
        name=name,
        x=[_local(at) for at in ends],
        y=[*values, *values[-1:]],
        mode="lines",
        line={"color": line, "width": 1.5, "dash": dash, "shape": "hv"},
        meta={"meaning": meaning},
        hovertemplate="%{y:.1f} GPUs<extra>" + name + "</extra>",
    )


def _layout(step: str) -> dict[str, Any]:
    return {
        "barmode": "stack",
        "bargap": 0,
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 12, "t": 8, "b": 36},
        # The page draws the legend with the swatches of the bars.
        "showlegend": False,
        "hovermode": "x unified",
        "xaxis": {"type": "date", "title": {"text": ""}},
        "yaxis": {
            "title": {"text": f"GPUs (mean per {step})"},
            "rangemode": "tozero",
            "tickformat": "~s",
        },
    }


def _local(at: datetime) -> str:
    """Plotly knows no zones: the reader's wall time, without one."""
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M")


def _mean(gpu_seconds: int, width: int) -> float:
    """GPU-seconds over a step → mean GPUs. For drawing only; the table has the exact numbers."""
    return round(gpu_seconds / width, 2)
