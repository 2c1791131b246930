"""A board for Grafana drawn without Grafana, from its JSON and from what a Prometheus answers.

Each panel is in its place, with its title and a line for each series, or one number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

Read = Callable[[str], list[dict[str, Any]]]
"""Labels and values of each series of an expression."""
Lines = list[tuple[str, list[tuple[float, float]]]]
"""Legend, and (time, value), of each series of a panel."""
LABEL = re.compile(r"{{(\w+)}}")


def lines_of(panel: dict[str, Any], read: Read) -> Lines:
    """What a panel shows."""
    return [
        (
            LABEL.sub(lambda m, of=row["metric"]: of.get(m[1], ""), query["legendFormat"]),
            [(float(at), float(value)) for at, value in row["values"]],
        )
        for query in panel["targets"]
        for row in read(query["expr"])
    ]


def sheet(board: dict[str, Any], lines: Mapping[str, Lines]) -> str:
    """A page with the panels of a board in their places, and of each, by its title, its lines."""
    panels = "".join(_panel(panel, lines[panel["title"]]) for panel in board["panels"])
    return f"""<!doctype html><html lang="en"><title>{escape(board["title"])}</title>
<script>{get_plotlyjs()}</script>
<style>
body {{ font-family: sans-serif; margin: 1rem }}
main {{ display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: 32px; gap: 6px }}
.panel {{ border: 1px solid #ccc; padding: 8px; overflow: hidden }}
.panel h2 {{ font-size: 14px; margin: 0 }}
.number {{ font-size: 64px; text-align: center; margin: 48px 0 }}
</style><h1>{escape(board["title"])}</h1><main>{panels}</main></html>"""


def _panel(panel: dict[str, Any], lines: Lines) -> str:
    place = panel["gridPos"]
    if not lines:
        drawn = "<p>No data</p>"
    elif panel["type"] == "stat":
        drawn = "".join(f'<p class="number">{values[-1][1]:g}</p>' for _, values in lines)
    else:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        figure = go.Figure([_line(legend, values) for legend, values in lines])
        figure.update_layout(height=250, margin={"l": 40, "r": 8, "t": 8, "b": 24}, showlegend=True)
        figure.update_xaxes(type="date").update_yaxes(rangemode="tozero", title=unit)
        drawn = figure.to_html(full_html=False, include_plotlyjs=False)
    style = (
        f"grid-column: {place['x'] + 1} / span {place['w']}; "
        f"grid-row: {place['y'] + 1} / span {place['h']}"
    )
    return (
        f'<section class="panel" style="{style}"><h2>{escape(panel["title"])}</h2>{drawn}</section>'
    )


def _line(legend: str, values: list[tuple[float, float]]) -> go.Scatter:
    at, value = zip(*values, strict=True)
    return go.Scatter(x=[1000 * each for each in at], y=value, name=legend)
