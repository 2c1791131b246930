"""First pages, the search, lists, and what a job cost: found in a glance or two clicks."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from budgets import services
from clusters.models import ClusterHealth
from tests.billing.conftest import active_card
from tests.browser.test_journeys import busy
from tests.builders import SmallFleet, line

__all__ = ["busy"]  # a fixture


def test_admin_sees_at_one_glance_what_needs_somebody(visit, busy: SmallFleet):
    busy.revise(busy.vision, line("h100", 40), actor=busy.owner, reason="the big run")
    for cluster in ("gpu-east", "gpu-west"):
        services.set_capacity(None, cluster=cluster, flavor=busy.flavors["h100"], gpus=4)
    # Asked lately, for as long as this takes.
    ClusterHealth.objects.update(checked_at=datetime.now(UTC) + timedelta(minutes=10))
    watched = visit()
    page = watched.sign_in("ada")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    glance = page.get_by_role("region", name="At a glance")
    expect(glance.get_by_role("listitem").filter(has_text="clusters answer")).to_contain_text(
        "2 of 2"
    )
    expect(glance.get_by_role("listitem").filter(has_text="waiting")).to_contain_text("3")
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.get_by_role("listitem").first).to_contain_text("trouble")
    expect(needs.get_by_text("promised beyond what there is")).to_be_visible()
    watched.check()
    watched.keep("admin-overview")
    needs.get_by_role("listitem").filter(has_text="promised beyond").get_by_role("link").click()
    expect(page.get_by_text("1 flavor is short")).to_be_visible()
    expect(page.get_by_text("too many").first).to_be_visible()
    page.go_back()
    needs.get_by_role("listitem").filter(has_text="1 request").get_by_role("link").click()
    expect(page.get_by_role("row", name=re.compile("the big run"))).to_be_visible()


def test_slash_leads_to_the_search_and_the_search_to_the_job(visit, busy: SmallFleet):
    watched = visit()
    page = watched.sign_in("olga")
    page.keyboard.press("/")
    box = page.get_by_role("searchbox", name=re.compile("^Search"))
    expect(box).to_be_focused()
    page.keyboard.type("train-1")
    page.keyboard.press("Enter")
    expect(page.get_by_text("This matches")).to_be_visible()
    watched.check()
    watched.keep("owner-search")
    page.get_by_role("link", name="train-1").click()
    expect(page.get_by_role("heading", name="train-1")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing that you may see matches")).to_be_visible()


def test_a_list_is_filtered_sorted_and_sent_by_its_address(visit, busy: SmallFleet):
    watched = visit()
    watched.sign_in("olga")
    page = watched.open("/jobs/")
    page.get_by_label("State").select_option("pending")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#list tbody tr")).to_have_count(3)
    page.get_by_role("columnheader", name="GPUs").get_by_role("link").click()
    page.wait_for_url(re.compile("phase=pending.*sort=|sort=.*phase=pending"))
    expect(page.locator("#list tbody tr")).to_have_count(3)
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of these jobs").click()
    assert len(download.value.path().read_text().splitlines()) == 4
    sent = visit()
    sent.sign_in("ada")
    sent.page.goto(page.url)
    expect(sent.page.locator("#list tbody tr")).to_have_count(3)
    expect(sent.page.get_by_label("State")).to_have_value("pending")


def test_owner_learns_in_two_clicks_what_a_run_cost(visit, thawed, busy: SmallFleet):
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=8)
    active_card(busy, start=start)
    watched = visit()
    page = watched.sign_in("olga")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("link", name="train-0").click()
    expect(page.locator(".headline")).to_contain_text(re.compile(r"cost\s+\d+\.\d\d EUR"))
    expect(page.locator("#cost tfoot")).to_be_visible()
    watched.check()
    watched.keep("owner-job-cost")


@pytest.mark.parametrize(("address", "is_drawn"), [("/jobs/", False), ("/usage/?days=7", True)])
def test_charts_cost_only_where_one_is(visit, busy: SmallFleet, address: str, is_drawn: bool):
    watched = visit()
    asked: list[str] = []
    watched.page.on("request", lambda request: asked.append(request.url))
    watched.sign_in("olga")
    page = watched.open(address)
    expect(page.locator("[data-chart]:not([data-drawn])")).to_have_count(0)
    assert any("plotly" in url for url in asked) == is_drawn
