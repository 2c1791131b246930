"""Boards for Grafana over the numbers of :mod:`portal.metrics`, one for each reader.

A panel is a line here; how Grafana writes it down is said once, in :func:`board_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SCHEMA: Final = 39
_WIDTH: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart.

    Attributes:
        title: What it answers.
        queries: Legend, in Grafana's form, → PromQL.
        unit: By Grafana's names of units.
        kind: Grafana's name of the kind of chart.
        width: Of 24 columns.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12


@dataclass(frozen=True, slots=True)
class Board:
    """One board: what it is called, whom it can be narrowed to, and its panels from the top."""

    title: str
    panels: tuple[Panel, ...]
    variables: Mapping[str, str]


def _stat(title: str, query: str, width: int, unit: str = "short") -> Panel:
    """One number, large."""
    return Panel(title, {"": query}, unit, "stat", width)


_SPACE: Final = 'workspace=~"$workspace"'
_OF: Final = "{{workspace}}: "
"""Of a board that may show all workspaces, each line says whose it is."""
BOARDS: Final[Mapping[str, Board]] = {
    "admin": Board(
        "GPU budgets: platform",
        (
            _stat(
                "Clusters that do not answer",
                "count(portal_cluster_reachable == 0) or vector(0)",
                6,
            ),
            _stat(
                "Shifts without a sign of life", "count(portal_shift_alive == 0) or vector(0)", 6
            ),
            _stat("Objects that are set aside", "sum(portal_shift_parked_keys)", 6),
            _stat("Budget requests that wait", "portal_budget_requests_waiting", 6),
            Panel(
                "GPUs promised and in use",
                {
                    "committed {{flavor}}": "sum by (flavor) (portal_budget_committed_gpus)",
                    "used {{flavor}}": "sum by (flavor) (portal_budget_used_gpus)",
                },
            ),
            Panel(
                "GPUs that waiting jobs ask for",
                {"{{flavor}}": "sum by (flavor) (portal_budget_pending_gpus)"},
            ),
            Panel(
                "Time for which an object has not been as wanted",
                {"{{cluster}}": "portal_cluster_sync_lag_seconds"},
                "s",
            ),
            Panel("Fields that somebody else changed", {"{{cluster}}": "portal_cluster_drift"}),
            Panel(
                "Jobs that no worker has taken yet",
                {"{{cluster}}": "portal_dispatch_rounds_open"},
            ),
            Panel(
                "Time to answer a web request, 95th percentile",
                {
                    "p95": "histogram_quantile(0.95, sum by (le) "
                    "(rate(portal_http_request_duration_seconds_bucket[5m])))"
                },
                "s",
            ),
            Panel(
                "Tasks that failed within an hour",
                {
                    "{{task}}": "sum by (task) "
                    '(increase(portal_task_duration_seconds_count{state="FAILURE"}[1h]))'
                },
            ),
            Panel(
                "How wrong the clocks of clusters are",
                {"{{cluster}}": "portal_cluster_clock_skew_seconds"},
                "s",
            ),
        ),
        {},
    ),
    "owner": Board(
        "GPU budgets: workspace",
        (
            Panel(
                "GPUs in use against the budget",
                {
                    _OF + "committed {{flavor}}": f"portal_budget_committed_gpus{{{_SPACE}}}",
                    _OF + "burst limit {{flavor}}": f"portal_budget_ceiling_gpus{{{_SPACE}}}",
                    _OF + "used {{flavor}}": f"portal_budget_used_gpus{{{_SPACE}}}",
                },
                width=24,
            ),
            Panel(
                "GPUs in burst",
                {_OF + "{{flavor}}": f"portal_budget_burst_used_gpus{{{_SPACE}}}"},
            ),
            Panel(
                "Committed GPUs that others use",
                {_OF + "{{flavor}}": f"portal_budget_lent_gpus{{{_SPACE}}}"},
            ),
            Panel(
                "GPUs that waiting jobs ask for",
                {_OF + "{{flavor}}": f"portal_budget_pending_gpus{{{_SPACE}}}"},
            ),
            Panel(
                "Jobs",
                {
                    _OF + "waiting": f"portal_jobs_waiting{{{_SPACE}}}",
                    _OF + "running": f"portal_jobs_running{{{_SPACE}}}",
                },
            ),
        ),
        {"workspace": "label_values(portal_budget_committed_gpus, workspace)"},
    ),
    "finance": Board(
        "GPU budgets: finance",
        (
            _stat("Months to close", "portal_months_to_close", 8),
            _stat(
                "Time since the oldest of them ended",
                "portal_oldest_month_to_close_age_seconds",
                8,
                "s",
            ),
            _stat(
                "Workspaces in which a spend cap acts",
                "count(portal_spend_cap_in_force) or vector(0)",
                8,
            ),
            Panel(
                "Discrepancies that block a close",
                {"{{cluster}} {{kind}}": "portal_discrepancies_open"},
            ),
            Panel(
                "GPUs for which billing is undecided",
                {"{{cluster}}": "portal_undecided_gpus"},
            ),
            Panel(
                "Time since use was last metered",
                {"{{cluster}}": "time() - portal_meter_metered_until_timestamp_seconds"},
                "s",
            ),
            Panel(
                "GPUs in use by account",
                {"{{account}}": "sum by (account) (portal_budget_used_gpus)"},
            ),
            Panel("Messages that wait or were given up", {"{{state}}": "portal_deliveries"}),
            Panel("Exports that are being written", {"": "portal_exports_running"}),
        ),
        {},
    ),
}


def board_of(name: str, board: Board) -> dict[str, Any]:
    """A board as Grafana imports it; the reader picks the Prometheus.

    Args:
        name: Its key in :data:`BOARDS`, part of its UID.
        board: What it shows.
    """
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    asked = [
        {
            "name": variable,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,
            "includeAll": True,
        }
        for variable, query in board.variables.items()
    ]
    return {
        "uid": f"gpu-budget-portal-{name}",
        "title": board.title,
        "tags": ["gpu-budget-portal"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [source, *asked]},
        "panels": _panels(board.panels),
    }


def _panels(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """From left to right; a row is as high as every panel."""
    found: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _WIDTH:
            x, y = 0, y + _HEIGHT
        found.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "datasource": _SOURCE,
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + place), "expr": query, "legendFormat": legend}
                    for place, (legend, query) in enumerate(panel.queries.items())
                ],
            }
        )
        x += panel.width
    return found
