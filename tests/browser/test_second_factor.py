"""A second factor in a browser: set up, asked for at the sign-in and in place, required."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watched, serving
from tests.builders import PASSWORD
from tests.controlplane.processes import free_port
from tests.second_factors import App


def tied(page: Page) -> App:
    """Set it up on the page that is open, as far as the recovery codes."""
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("img", name="QR code for your app")).to_be_visible()
    return App(page.locator("pre").inner_text().replace(" ", ""))


def test_a_second_factor_is_set_up_and_asked_for(visit: Callable[..., Watched]) -> None:
    watched = visit()
    watched.expected += ["401", "422"]
    page = watched.sign_in("olga")
    watched.open("/profile/")
    page.get_by_role("link", name="Set it up").click()
    watched.check()
    app = tied(page)
    watched.check()
    watched.keep("second-factor")
    page.get_by_label("Code", exact=True).fill(app.code())
    page.get_by_role("button", name="Turn it on").click()
    expect(page.locator("pre")).to_have_text(re.compile(r"([a-z2-9]{4}-){3}[a-z2-9]{4}"))
    watched.check()
    watched.keep("second-factor-codes")
    recovery = page.locator("pre").inner_text().split()
    assert len(recovery) == 10
    page.get_by_role("link", name="I have kept them").click()
    page.wait_for_url(f"{watched.base}/")

    page.locator("summary", has_text="olga").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Username").fill("olga")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Now type the code that your app shows")).to_be_visible()
    watched.check()
    watched.keep("second-factor-sign-in")
    page.get_by_label("Code", exact=True).fill("000000")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("This code is wrong")
    page.get_by_label("Code", exact=True).fill(app.code(steps=1))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{watched.base}/")

    watched.open("/profile/")
    page.get_by_label("Time zone").select_option("Asia/Tokyo")
    Session.objects.all().delete()
    page.get_by_role("button", name="Save").dispatch_event("click")
    asked = page.get_by_role("dialog", name="Your session has ended")
    asked.get_by_label("Username").fill("olga")
    asked.get_by_label("Password").fill(PASSWORD)
    asked.get_by_role("button", name="Sign in").click()
    asked.get_by_label("Code", exact=True).fill("000000")
    asked.get_by_role("button", name="Sign in").click()
    expect(asked.get_by_role("alert")).to_contain_text("This code is wrong")
    watched.check()
    watched.keep("second-factor-in-place")
    asked.get_by_label("Code", exact=True).fill(recovery[0])
    asked.get_by_role("button", name="Sign in").click()
    expect(asked).to_be_hidden()
    expect(page.get_by_label("Time zone")).to_have_value("Asia/Tokyo")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Times are shown in Asia/Tokyo")).to_be_visible()

    watched.open("/second-factor/")
    expect(page.get_by_text("9 recovery codes unused")).to_be_visible()
    watched.check()
    watched.keep("second-factor-on")
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("Code", exact=True).fill(recovery[1])
    page.get_by_role("button", name="Remove the second factor").click()
    expect(page.get_by_text("It is removed")).to_be_visible()


class TestRequired:
    """On a server that asks admins and finance for one."""

    @pytest.fixture
    def server(self, django_db_setup: None, tmp_path: Path) -> Iterator[str]:
        with serving(tmp_path, free_port(), PORTAL_SECOND_FACTOR="required") as address:
            yield address

    def test_an_admin_sets_it_up_before_anything_else_on_a_phone(
        self, visit: Callable[..., Watched]
    ) -> None:
        watched = visit(phone=True)
        page = watched.open("/login/")
        page.get_by_label("Username").fill("ada")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{watched.base}/second-factor/")
        watched.open("/setup/people/")
        page.wait_for_url(f"{watched.base}/second-factor/")
        expect(page.get_by_text("Your role needs a second factor")).to_be_visible()
        watched.check()
        watched.keep("second-factor-required-phone")
        app = tied(page)
        watched.check()
        watched.keep("second-factor-phone")
        page.get_by_label("Code", exact=True).fill(app.code())
        page.get_by_role("button", name="Turn it on").click()
        expect(page.get_by_role("heading", name="Your recovery codes")).to_be_visible()
        watched.check()
        watched.keep("second-factor-codes-phone")
        page.get_by_role("link", name="I have kept them").click()
        page.wait_for_url(f"{watched.base}/")
