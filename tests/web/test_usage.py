from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from portal.web import charts
from portal.web.numbers import hours_text
from portal.web.tables import defused
from tests.factories import MeterStateFactory, UsageRecordFactory, WorkloadUsageFactory
from tests.web.conftest import HTMX, Visitors

DAY = datetime(2026, 3, 2, tzinfo=UTC)
RANGE = "start=2026-03-02&until=2026-03-02"


@pytest.fixture
def used(visitors: Visitors) -> Visitors:
    fleet = visitors.fleet
    for hour in range(3):
        for workspace in (fleet.vision, fleet.search):
            UsageRecordFactory(
                workspace=workspace,
                flavor=fleet.flavors["h100"],
                hour=DAY + timedelta(hours=hour),
                burst=1_800,
            )
    WorkloadUsageFactory(workspace=fleet.vision, uid="uid-a", hour=DAY, committed_used=36_000)
    MeterStateFactory(cluster="gpu-east", complete_until=DAY + timedelta(hours=4))
    return visitors


def test_usage_page_shows_totals_table_chart_and_freshness(used: Visitors):
    text = used.text("finance", f"/usage/?{RANGE}")

    assert 'id="usage-figure"' in text
    assert 'title="216,000 GPU-seconds">60.0<' in text
    assert "late: gpu-east" in text
    assert "/jobs/gpu-east/uid-a/" in text


def test_usage_of_an_owner_is_only_what_is_visible(used: Visitors):
    page = used["owner"].get(f"/usage/?{RANGE}")

    assert page.context["table"].totals.committed_used == 3 * 36_000
    assert "globex" not in page.content.decode()


@pytest.mark.parametrize("query", ["split=workspace", "split=flavor", "step=day", "flavor=h100"])
def test_usage_filters_keep_the_sum(used: Visitors, query: str):
    page = used["finance"].get(f"/usage/?{RANGE}&{query}")

    table = page.context["table"]
    assert table.totals.burst == 6 * 1_800
    assert sum(row.burst for row in table.rows) == table.totals.burst


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("start=2026-03-02&until=2026-03-01", "until"),
        ("start=2020-01-01&until=2026-03-01", "until"),
        ("start=yesterday", "start"),
        ("workspace=globex-nothing", "workspace"),
        ("step=minute", "step"),
    ],
)
def test_usage_of_an_unreadable_range_says_what_is_wrong(used: Visitors, query: str, field: str):
    page = used["finance"].get(f"/usage/?{query}")

    assert page.status_code == 422
    assert field in page.context["form"].errors


def test_usage_days_are_days_of_the_reader(used: Visitors):
    finance = used.fleet.finance
    finance.time_zone = "America/New_York"
    finance.save()

    chosen = used["finance"].get(f"/usage/?{RANGE}").context["chosen"]

    assert chosen.start == datetime(2026, 3, 2, 5, tzinfo=UTC)
    assert chosen.end == datetime(2026, 3, 3, 5, tzinfo=UTC)


def test_usage_csv_is_what_is_on_the_screen(used: Visitors):
    answer = used["owner"].get(f"/usage/?{RANGE}&split=workspace&format=csv")

    lines = b"".join(answer).decode().splitlines()
    assert answer["Content-Disposition"] == 'attachment; filename="usage.csv"'
    assert len(lines) == 1 + 3
    assert all(line.split(",")[1] == "acme-vision" for line in lines[1:])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("\tx", "'\tx"),
        ("-12.5", "-12.5"),
        ("acme", "acme"),
        ("", ""),
    ],
)
def test_csv_cell_is_no_formula(text: str, want: str):
    assert defused(text) == want


def test_usage_part_has_no_frame(used: Visitors):
    text = used.text("finance", f"/usage/?{RANGE}", **HTMX)

    assert "<html" not in text and "GPU-hours" in text


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0.0"),
        (179, "0.0"),
        (180, "0.1"),
        (5400, "1.5"),
        (3_600_000_000, "1,000,000.0"),
        (-5400, "−1.5"),
    ],
)
def test_hours_are_rounded_in_whole_numbers(seconds: int, want: str):
    assert hours_text(seconds) == want


def test_figure_has_units_one_meaning_per_series_and_exact_hours(used: Visitors):
    table = used["finance"].get(f"/usage/?{RANGE}").context["table"]

    figure = charts.usage_figure(table, step="hour", ceiling=32)

    assert figure["layout"]["yaxis"]["title"]["text"] == "GPUs (mean per hour)"
    meanings = [trace["meta"]["meaning"] for trace in figure["data"]]
    assert meanings == ["committed", "lent", "idle", "burst", "pending", "committed", "burst"]
    used_bars = figure["data"][0]
    assert used_bars["x"][0] == "2026-03-02 00:00"
    assert used_bars["customdata"][0] == "20.0"
    patterns = {trace["marker"]["pattern"]["shape"] for trace in figure["data"][:4]}
    assert len(patterns) == 4
