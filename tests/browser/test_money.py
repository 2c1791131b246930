"""A month from its check list to issued statements, prices that two people agree on, a file."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from budgets.models import BillingPeriod, RateCard, Statement
from budgets.selectors.billing import month_at
from budgets.services import utc_now
from budgets.services.exports.runs import run_exports
from tests.billing.conftest import active_card, held, meter, promise, store
from tests.browser.test_journeys import use_of_a_week
from tests.builders import SmallFleet, line, second_of_finance
from tests.waiting import eventually


@pytest.fixture
def march(thawed: None, fleet: SmallFleet) -> SmallFleet:
    """A March long ago: vision runs 8 GPUs of floor and 8 borrowed from speech for ten hours."""
    promise(fleet)
    second_of_finance()
    active_card(fleet)
    store(held("a", 0, 10), held("b", 2, 12))
    meter()
    return fleet


def part(page: Page, title: str) -> Locator:
    """The part of a page under a heading."""
    return page.locator("section", has=page.get_by_role("heading", name=title))


def test_finance_closes_a_month_and_issues_its_statements(visit, march: SmallFleet):
    watched = visit()
    page = watched.sign_in("fin")
    page.get_by_role("link", name="Billing", exact=True).click()
    part(page, "Months").get_by_role("link", name="2026-03").click()
    checks = page.locator("#checks li")
    expect(checks.first).to_be_visible()
    expect(page.locator("#checks li > .tag:not(.good)")).to_have_count(0)
    expect(page.locator("#accounts")).to_contain_text("Nothing was billed in 2026-02")
    watched.check()
    watched.keep("finance-month-open")

    page.get_by_role("button", name="Draw up the statements").click()
    states = part(page, "Statements").locator("tbody .tag")
    expect(states.first).to_have_text("Draft")
    page.locator("summary", has_text="Close the month").click()
    expect(page.get_by_text("Closing cannot be undone")).to_be_visible()
    watched.check()
    page.get_by_role("button", name="Close 2026-03 for good").click()
    expect(page.locator(".headline")).to_contain_text("nothing in it changes any more")
    page.get_by_role("button", name="Mark all drafts as reviewed").click()
    expect(states.first).to_have_text("Reviewed")
    page.get_by_role("button", name="Issue all reviewed statements").click()
    expect(states.first).to_have_text("Issued")
    expect(page.get_by_role("button", name="Issue all reviewed statements")).to_have_count(0)
    watched.check()
    watched.keep("finance-month-issued")
    assert BillingPeriod.objects.get(name="2026-03").closed_at is not None
    assert {paper.state for paper in Statement.objects.all()} == {"issued"}

    part(page, "Statements").get_by_role("link", name="Acme").click()
    page.get_by_role("link", name="Burst", exact=True).first.click()
    part(page, "By day").get_by_role("link", name="2026-03-01").click()
    expect(part(page, "Hours of 2026-03-01").locator("tbody tr")).to_have_count(8)
    watched.check()
    page.get_by_role("navigation", name="Above this page").get_by_role("link").last.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Statement")
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Sections")).to_be_hidden()
    expect(page.get_by_role("link", name="PDF")).to_be_hidden()
    expect(page.locator(".big").last).to_be_visible()


def test_prices_hold_once_a_second_person_agrees(visit, thawed, fleet: SmallFleet):
    now = utc_now()
    last = month_at(month_at(now).start - timedelta(days=1))
    fleet.revise(fleet.vision, line("h100", 16))
    second_of_finance()
    active_card(fleet, start=last.start)
    use_of_a_week(fleet, last.end - timedelta(hours=1))
    fin = visit()
    fin.sign_in("fin")
    page = fin.open("/billing/rates/")
    page.get_by_role("link", name=re.compile("^Propose")).click()
    for name, value in {"name": "Dearer", "currency": "EUR", "reason": "Power costs more"}.items():
        page.locator(f"[name={name}]").fill(value)
    for name, value in {"committed": "2.20", "burst": "3.30"}.items():
        page.locator(f"[name='h100.{name}']").fill(value)
    fin.check()
    page.get_by_role("button", name="Propose it").click()
    tried = part(page, f"Tried on {last.name}")
    expect(tried.locator("tfoot")).to_contain_text("Total")
    fin.check()
    fin.keep("finance-card-tried")
    activate = page.locator("form", has=page.get_by_role("button", name="Propose to activate it"))
    activate.get_by_label("From", exact=True).fill(f"{month_at(now).end:%Y-%m-%dT%H:%M}")
    activate.get_by_label("Reason", exact=True).fill("Power costs more")
    activate.get_by_role("button").click()
    page.locator("main").get_by_role("link", name=re.compile("Dearer")).first.click()
    page.get_by_role("link", name="it waits for approval").click()
    expect(page.get_by_role("button", name="Take it back")).to_be_visible()
    expect(page.get_by_role("button", name="Approve it")).to_have_count(0)

    fay = visit()
    page = fay.sign_in("fay")
    page.get_by_role("region", name="Needs you").get_by_role("link", name="Look at it").click()
    part(page, "Waiting").locator("tbody th a").click()
    fay.check()
    fay.keep("finance-approves")
    page.get_by_role("button", name="Approve it").click()
    dearer = RateCard.objects.filter(name="Dearer")
    assert eventually(lambda: dearer.get().state == "active")
    assert dearer.get().valid_from == month_at(now).end
    expect(page.get_by_text("Approved").first).to_be_visible()


def test_a_file_is_previewed_written_and_fetched(visit, march: SmallFleet, settings, spool: Path):
    settings.PORTAL_SPOOL_FOLDER = str(spool)
    watched = visit()
    page = watched.sign_in("fin")
    watched.choose("More", "Exports")
    page.locator("[name=period]").fill("2026-03")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview tbody tr").first).to_be_visible()
    watched.check()
    watched.keep("finance-export-preview")
    page.get_by_role("button", name="Write the file").click()
    expect(page.get_by_text("Waits for a worker")).to_be_visible()
    assert run_exports()["written"] == 1
    ready = page.get_by_role("link", name="Download")
    expect(ready).to_be_visible()
    watched.check()
    digest = page.locator("code.path").inner_text()
    with page.expect_download() as download:
        ready.click()
    assert hashlib.sha256(download.value.path().read_bytes()).hexdigest() == digest
