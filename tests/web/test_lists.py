"""Lists: columns that sort, and ranges that go along from page to page."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from budgets.models import MonthOutlook
from clusters.models import Cluster, WorkloadState
from tests.web.conftest import HTMX, Visitors
from tests.web.test_query_counts import add_job, busy  # noqa: F401  a fixture


def names(text: str, address: str = "/workspaces/") -> list[str]:
    return re.findall(rf'<th scope="row"><a href="{address}([a-z-]+)/"', text)


@pytest.fixture
def three(visitors: Visitors) -> Visitors:
    """speech has one job that waits, vision two that run; search cost most, speech nothing yet."""
    now, fleet = timezone.now(), visitors.fleet
    manager = Cluster.objects.create(
        slug="manager", name="m", role="manager", mode="kueue", server="https://x", context="x",
        user_kind="token", kubeconfig_sealed=b"x",
    )  # fmt: skip
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


def test_jobs_sort_by_their_columns(busy: Visitors):  # noqa: F811
    text = busy.text("owner", "/jobs/?sort=-gpus&phase=running")
    assert 'aria-sort="descending"><a href="?sort=gpus&amp;phase=running">GPUs' in text
    assert "aria-sort" in busy.text("owner", "/jobs/")
    assert "aria-sort" not in busy.text("owner", "/workspaces/acme-vision/")


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
