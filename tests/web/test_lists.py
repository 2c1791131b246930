"""Lists: columns that sort, and ranges that go along from page to page."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from decimal import Decimal
from importlib import import_module

import pytest
from django.utils import timezone

from budgets.models import MonthOutlook
from clusters.models import Cluster, WorkloadState
from tests.web.conftest import HTMX, Visitors
from tests.web.test_query_counts import add_job, busy  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("at_one_moment")
# The package gives its function by the same name.
LISTING = import_module("clusters.selectors.workloads")


def names(text: str, address: str = "/workspaces/") -> list[str]:
    return re.findall(rf'<th scope="row"><a href="{address}([a-z-]+)/"', text)


def a_manager() -> Cluster:
    return Cluster.objects.create(
        slug="manager", name="m", role="manager", mode="kueue", server="https://x", context="x",
        user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip


@pytest.fixture
def three(visitors: Visitors) -> Visitors:
    """speech has one job that waits, vision two that run; search cost most, speech nothing yet."""
    now, fleet = timezone.now(), visitors.fleet
    manager = a_manager()
    for number in range(3):
        add_job(manager, number, now)
    WorkloadState.objects.filter(uid="uid-0").update(namespace="acme-speech")
    WorkloadState.objects.filter(uid="uid-2").update(phase="running")
    for space, spent in ((fleet.vision, 5), (fleet.search, 70)):
        MonthOutlook.objects.create(
            workspace=space, month_start=now - timedelta(days=1), currency="EUR",
            month_end=now + timedelta(days=1), spent=Decimal(spent), expected=Decimal(spent),
            low=Decimal(0), high=Decimal(spent), days_known=9, worked_out_at=now,
        )  # fmt: skip
    return visitors


@pytest.mark.parametrize(
    ("sort", "want"),
    [
        ("name", ["globex-search", "acme-speech", "acme-vision"]),
        ("-name", ["acme-vision", "acme-speech", "globex-search"]),
        ("-spent", ["globex-search", "acme-vision", "acme-speech"]),
        ("spent", ["acme-speech", "acme-vision", "globex-search"]),
        ("-running", ["acme-vision", "acme-speech", "globex-search"]),
        ("-waiting", ["acme-speech", "acme-vision", "globex-search"]),
        ("nonsense", ["acme-speech", "acme-vision", "globex-search"]),
    ],
)
def test_workspaces_sort_by_their_columns(three: Visitors, sort: str, want: list[str]):
    text = three.text("admin", f"/workspaces/?sort={sort}")
    assert names(text) == want


def test_a_heading_turns_the_order_round_and_says_how_rows_stand(three: Visitors):
    text = three.text("admin", "/workspaces/?sort=-waiting&page=1")
    assert '<th scope="col" class="num" aria-sort="descending"><a href="?sort=waiting">' in text
    assert text.count("aria-sort") == 1
    assert 'hx-get="/workspaces/?sort=-waiting&amp;page=1"' in text
    poll = three.text("admin", "/workspaces/?sort=-waiting", **HTMX)
    assert names(poll)[0] == "acme-speech"


@pytest.mark.parametrize("role", ["owner", "finance"])
def test_costs_on_the_first_page_say_as_of_when(three: Visitors, role: str):
    earlier = timezone.now() - timedelta(minutes=25)
    MonthOutlook.objects.filter(workspace=three.fleet.vision).update(worked_out_at=earlier)
    text = three.text(role, "/")
    assert re.search(rf"an estimate as of <time[^>]*>{earlier:%Y-%m-%d %H:%M}</time>;", text)


def test_jobs_sort_by_their_columns(busy: Visitors):  # noqa: F811
    text = busy.text("owner", "/jobs/?sort=-gpus&phase=running")
    assert 'aria-sort="descending"><a href="?sort=gpus&amp;phase=running">GPUs' in text
    assert "aria-sort" in busy.text("owner", "/jobs/")
    assert "aria-sort" not in busy.text("owner", "/workspaces/acme-vision/")


def rows_of(visitors: Visitors, role: str, query: str = "") -> list[dict[str, str]]:
    answer = visitors[role].get(f"/jobs/?format=csv&{query}")
    assert answer.status_code == 200 and answer["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(b"".join(answer).decode())))


@pytest.fixture
def seven(visitors: Visitors) -> Visitors:
    """Seven jobs, the fourth of another workspace, the odd ones running; one is a formula."""
    now, manager = timezone.now(), a_manager()
    for number in range(7):
        add_job(manager, number, now - timedelta(hours=number))
    WorkloadState.objects.filter(uid="uid-3").update(namespace="acme-speech")
    WorkloadState.objects.filter(uid="uid-4").update(job_name='=HYPERLINK("http://x")')
    WorkloadState.objects.filter(uid="uid-5").update(gpu_total=16)
    return visitors


def test_jobs_as_csv_are_those_of_the_page_in_its_order(
    seven: Visitors, monkeypatch: pytest.MonkeyPatch
):
    # Pages of two, so that several are read.
    monkeypatch.setattr(LISTING, "LIMIT_MOST", 2)
    for query in ("", "sort=created", "sort=-gpus", "phase=running", "text=train-6", "text=none"):
        for role in ("admin", "owner", "nobody"):
            page = seven[role].get(f"/jobs/?{query}")
            told = rows_of(seven, role, query)
            # The page is of two jobs here, and the file goes on where it ends.
            shown = [row.uid for row in page.context["rows"]]
            assert [row["uid"] for row in told][:2] == shown, (query, role)
    assert {row["uid"] for row in rows_of(seven, "admin")} == {f"uid-{n}" for n in range(7)}
    assert [row["uid"] for row in rows_of(seven, "admin", "phase=running&sort=created")] == [
        *("uid-5", "uid-3", "uid-1"),
    ]
    assert {row["workspace"] for row in rows_of(seven, "owner")} == {"acme-vision"}
    assert rows_of(seven, "stranger") == rows_of(seven, "nobody") == []
    (formula,) = [row for row in rows_of(seven, "admin") if row["uid"] == "uid-4"]
    assert formula["job"].startswith("'=") and formula["gpus"] == "8"
    assert formula["created_at"].endswith("Z") and formula["finished_at"] == ""


def test_more_jobs_than_a_file_holds_are_refused_before_the_first_row(
    seven: Visitors, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LISTING, "LIMIT_MOST", 2)
    monkeypatch.setattr(LISTING, "CSV_MOST", 5)
    answer = seven["admin"].get("/jobs/?format=csv")
    assert answer.status_code == 400 and b"More than 5 jobs match" in answer.content
    assert len(rows_of(seven, "admin", "phase=running")) == 3
    monkeypatch.setattr(LISTING, "CSV_MOST", 7)
    assert len(rows_of(seven, "admin")) == 7


def test_the_page_of_jobs_links_to_its_file(seven: Visitors):
    text = seven.text("owner", "/jobs/?phase=running&sort=gpus&select=on")
    assert 'href="?phase=running&amp;sort=gpus&amp;format=csv"' in text


def test_a_range_goes_along_to_the_other_looks_at_the_use(visitors: Visitors):
    today = timezone.localdate()
    visitors.text("owner", "/usage/?days=30")
    for address in ("/usage/lending/", "/usage/idle/", "/usage/"):
        text = visitors.text("owner", address)
        assert f'value="{today - timedelta(days=29)}"' in text, address
        assert re.search(r'aria-current="true" class="strong">30 days', text), address

    visitors.text("owner", "/usage/idle/?start=2026-01-05&until=2026-01-09")
    text = visitors.text("owner", "/usage/")
    assert 'value="2026-01-05"' in text and 'value="2026-01-09"' in text
    assert 'aria-current="true"' not in text
    assert 'value="2026-01-05"' not in visitors.text("viewer", "/usage/")


def test_a_range_that_is_none_is_not_remembered(visitors: Visitors):
    answer = visitors["owner"].get("/usage/?start=2026-01-09&until=2026-01-05")
    assert answer.status_code == 422
    assert 'value="2026-01-09"' not in visitors.text("owner", "/usage/")
