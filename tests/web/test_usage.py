from __future__ import annotations

from datetime import UTC, datetime, timedelta

import plotly.graph_objects as go
import pytest

from budgets.amounts import AMOUNTS
from budgets.exports import defused
from budgets.models import MeterState, UsageRecord
from portal.web import charts
from portal.web.numbers import hours_text
from tests.builders import line
from tests.factories import MeterStateFactory, UsageRecordFactory, WorkloadUsageFactory
from tests.web.conftest import HTMX, Visitors

MEANINGS = {amount.color.meaning for amount in AMOUNTS}
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
    assert used_bars["customdata"][0] == ["20.0", "20.0"]
    patterns = {trace["marker"]["pattern"]["shape"] for trace in figure["data"][:4]}
    assert len(patterns) == 4


def test_figure_divides_the_running_hour_by_what_of_it_was_metered(used: Visitors):
    """Twenty GPUs all the time are twenty in the running hour, too; its bar is as long as that."""
    MeterState.objects.update(complete_until=DAY + timedelta(minutes=15))
    UsageRecord.objects.all().delete()
    UsageRecordFactory(
        workspace=used.fleet.vision,
        flavor=used.fleet.flavors["h100"],
        hour=DAY,
        committed=20 * 900,
        committed_used=20 * 900,
        lent=0,
        idle=0,
        burst=0,
        borrowed=0,
    )
    table = used["finance"].get(f"/usage/?{RANGE}").context["table"]
    bars = charts.usage_figure(table, step="hour")["data"][0]
    at = bars["x"].index("2026-03-02 00:00")
    assert (bars["y"][at], bars["customdata"][at]) == (20.0, ["20.0", "5.0"])
    assert bars["width"][at] == 900_000


def test_a_tooltip_rounds_gpus_and_gpu_hours_of_one_hour_alike(used: Visitors):
    UsageRecord.objects.all().delete()
    UsageRecordFactory(
        workspace=used.fleet.vision,
        flavor=used.fleet.flavors["h100"],
        hour=DAY,
        committed=27_180,  # 7.55 GPUs for an hour
        committed_used=27_180,
        lent=0,
        idle=0,
        burst=0,
        borrowed=0,
    )
    table = used["finance"].get(f"/usage/?{RANGE}").context["table"]
    bars = charts.usage_figure(table, step="hour")["data"][0]
    assert bars["customdata"][bars["x"].index("2026-03-02 00:00")] == ["7.6", "7.6"]


def sums_of(table, *names: str) -> dict[str, int]:
    """Totals of what stands in the rows of a table on a page, by amount."""
    return {name: sum(getattr(row, name) for row in table) for name in names}


@pytest.mark.parametrize("query", ["step=hour", "step=day"])
def test_rows_and_the_earlier_ones_add_up_to_the_total(used: Visitors, query: str):
    for day in range(40):
        UsageRecordFactory(
            workspace=used.fleet.vision,
            flavor=used.fleet.flavors["l4"],
            hour=DAY - timedelta(days=day, hours=1),
        )
    context = used["finance"].get(f"/usage/?start=2026-01-15&until=2026-03-02&{query}").context
    names = ("committed", "committed_used", "lent", "idle", "burst", "borrowed", "pending")
    rows = [*context["by_time"], *([context["earlier"]] if context["earlier"] else [])]

    assert context["earlier"] is not None
    assert sums_of(rows, *names) == sums_of([context["table"].totals], *names)


@pytest.mark.parametrize("split", ["account", "workspace", "flavor", "cluster"])
def test_split_has_a_chart_and_a_table_that_adds_up(used: Visitors, split: str):
    page = used["finance"].get(f"/usage/?{RANGE}&split={split}")
    keys = page.context["keys"]

    rows = [*keys.rows, *([keys.others] if keys.others else [])]
    assert sums_of(rows, "committed_used", "burst") == sums_of(
        [keys.totals], "committed_used", "burst"
    )
    assert 'id="keys-figure"' in page.content.decode()
    drawn = page.context["keys_figure"]["data"]
    assert len(drawn) == (2 if split == "cluster" else 4)
    assert list(drawn[0]["y"]) == [row.name or row.key for row in keys.rows]


def test_split_by_class_adds_up_to_committed_and_burst(used: Visitors):
    page = used["finance"].get(f"/usage/?{RANGE}&split=class")

    totals, classes = page.context["table"].totals, page.context["classes"]
    assert sum(row["seconds"] for row in classes["rows"]) == classes["total"]
    assert classes["total"] == totals.committed + totals.burst
    assert "Committed, idle" in page.content.decode()


def test_heat_map_has_a_table_that_adds_up(used: Visitors):
    page = used["finance"].get("/usage/?start=2026-03-01&until=2026-03-02")

    heat, totals = page.context["heat"], page.context["table"].totals
    assert heat.total == totals.committed_used + totals.burst
    assert sum(row["total"] for row in page.context["heat_rows"]) == heat.total
    assert page.context["heat_rows"][0]["cells"][0] == "21.0"
    assert 'id="heat-figure"' in page.content.decode()
    assert "heat" not in used["finance"].get(f"/usage/?{RANGE}").context


def test_days_by_the_hour_are_bounded(used: Visitors):
    page = used["finance"].get("/usage/?start=2026-01-01&until=2026-03-04&step=hour")

    assert page.status_code == 422
    assert page.context["form"].errors["step"] == [
        "At most 62 days by the hour; these are 63."
    ]  # fmt: skip


@pytest.mark.parametrize("days", ["9" * 5000, "²", "0", "-3", "x"])
def test_days_that_are_no_number_mean_the_usual_week(used: Visitors, days: str):
    chosen = used["finance"].get(f"/usage/?days={days}").context["chosen"]

    assert chosen.end - chosen.start == timedelta(days=7)


def test_csv_has_the_days_of_the_screen(used: Visitors):
    used.fleet.finance.time_zone = "Asia/Kolkata"
    used.fleet.finance.save()
    query = "start=2026-03-01&until=2026-03-02&step=day"

    shown = used["finance"].get(f"/usage/?{query}").context["table"]
    lines = b"".join(used["finance"].get(f"/usage/?{query}&format=csv")).decode().splitlines()

    starts = [line.split(",")[0] for line in lines[1:]]
    assert starts == [f"{row.start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for row in shown.rows]
    assert starts == ["2026-03-01T18:30:00Z"]


def lend(visitors: Visitors) -> None:
    fleet = visitors.fleet
    terms = {"flavor": fleet.flavors["a100"], "hour": DAY}
    zero = {"committed_used": 0, "idle": 0}
    UsageRecordFactory(workspace=fleet.speech, committed=7_200, lent=7_200, **zero, **terms)
    UsageRecordFactory(
        workspace=fleet.vision, committed=0, lent=0, burst=7_200, borrowed=7_200, **zero, **terms
    )


def test_lending_page_says_who_lent_to_whom(used: Visitors):
    lend(used)
    page = used["finance"].get(f"/usage/lending/?{RANGE}&flavor=a100")
    text = page.content.decode()

    assert {row.namespace for row in page.context["moved"].rows} == {"acme-speech", "acme-vision"}
    assert 'id="lending-figure"' in text
    assert sum(row.lent for row in page.context["pairs"]) == 7_200
    assert page.context["moved"].pairs_total == page.context["moved"].total.lent


def test_owner_is_not_told_who_the_lender_is(used: Visitors):
    lend(used)
    text = used.text("owner", f"/usage/lending/?{RANGE}&flavor=a100")

    assert "another workspace" in text
    assert "acme-speech" not in text


def test_idle_page_adds_up_and_links_to_the_budget(used: Visitors):
    fleet = used.fleet
    fleet.revise(fleet.vision, line("h100", 16))
    for hour in range(30):
        UsageRecordFactory(
            workspace=fleet.vision,
            flavor=fleet.flavors["h100"],
            hour=DAY - timedelta(hours=hour + 1),
            committed=57_600,
            committed_used=7_200,
            lent=0,
            idle=50_400,
        )
    page = used["finance"].get("/usage/idle/?start=2026-02-20&until=2026-03-01")
    floors = page.context["floors"]

    names = ("committed", "committed_used", "lent", "idle")
    assert sums_of(floors.rows, *names) == dict(floors.totals)
    row = next(row for row in floors.rows if row.namespace == "acme-vision")
    assert row.advice is not None and row.advice.enough == 2
    assert 'href="/workspaces/acme-vision/budget/"' in page.content.decode()
    assert floors.saved_hours == 14 * 730


def test_capacity_page_adds_up_and_is_for_platform_roles(used: Visitors):
    page = used["finance"].get(f"/usage/capacity/?{RANGE}")

    rows = page.context["rows"]
    *parts, (total, amounts) = rows
    assert amounts == [sum(row[1][n] for row in parts) for n in range(len(amounts))]
    assert total.committed_used == 36_000
    assert used["owner"].get(f"/usage/capacity/?{RANGE}").status_code == 403
    assert "/usage/capacity/" not in used.text("owner", f"/usage/?{RANGE}")
    assert "/usage/capacity/" in used.text("finance", f"/usage/?{RANGE}")


@pytest.mark.parametrize("place", ["lending", "idle", "capacity"])
def test_looks_at_the_use_refuse_an_unreadable_range_and_can_be_empty(used: Visitors, place: str):
    bad = used["finance"].get(f"/usage/{place}/?start=2026-03-02&until=2026-03-01")
    assert bad.status_code == 422
    assert "until" in bad.context["form"].errors
    assert used["finance"].get(
        f"/usage/{place}/?start=2020-03-01&until=2020-03-02"
    ).status_code == (200)
    part = used.text("finance", f"/usage/{place}/?{RANGE}", **HTMX)
    assert "<html" not in part


def test_figures_pass_the_checks_of_plotly(used: Visitors):
    lend(used)
    finance = used["finance"]
    use = finance.get("/usage/?start=2026-03-01&until=2026-03-02&split=workspace").context
    moved = finance.get(f"/usage/lending/?{RANGE}").context
    week = charts.usage_figure(use["table"], step="hour", ceiling=32)

    for figure in (
        week,
        use["figure"],
        use["keys_figure"],
        use["heat_figure"],
        moved["figure"],
    ):
        assert len(figure["data"]) == len(go.Figure(figure).data) > 0
        assert all(trace["meta"]["meaning"] in MEANINGS for trace in figure["data"])


def test_styles_of_figures_are_not_shared(used: Visitors):
    table = used["finance"].get(f"/usage/?{RANGE}").context["table"]
    first = charts.usage_figure(table, step="hour")
    first["data"][0]["marker"]["color"] = "#000"
    first["layout"]["margin"]["l"] = 1

    second = charts.usage_figure(table, step="hour")

    assert second["data"][0]["marker"]["color"] == "#0067a8"
    assert second["layout"]["margin"]["l"] == 52
