"""Signing in and out with the company's account, in a browser and at a real provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from budgets import services
from budgets.models import Role
from tests.browser.conftest import Watched, serving
from tests.builders import SmallFleet
from tests.controlplane.processes import free_port
from tests.signin.company import CLIENT_ID, CLIENT_SECRET, PASSWORD, Company, running_or_skipped


@pytest.fixture
def company() -> Iterator[Company]:
    with running_or_skipped() as found:
        yield found


@pytest.fixture
def server(company: Company, django_db_setup: None, tmp_path: Path) -> Iterator[str]:
    """The portal as elsewhere, and the company's provider in its settings."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    company.serves(address)
    settings = {
        "PORTAL_PUBLIC_URL": address,
        "PORTAL_SIGNIN": "corp",
        "PORTAL_OIDC_CORP_LABEL": "Company",
        "PORTAL_OIDC_CORP_ISSUER": company.issuer,
        "PORTAL_OIDC_CORP_CLIENT_ID": CLIENT_ID,
        "PORTAL_OIDC_CORP_CLIENT_SECRET": CLIENT_SECRET,
    }
    with serving(tmp_path, port, **settings) as found:
        yield found


def test_somebody_signs_in_and_out_with_the_account_of_the_company(
    visit: Callable[..., Watched], company: Company, fleet: SmallFleet, settings
) -> None:
    settings.PORTAL_PROVIDERS = {"corp": company.as_setting()}
    services.add_group_rule(
        fleet.admin, provider="corp", group="leads", role=Role.OWNER, account=fleet.acme
    )
    company.knows(anna=["leads"])
    watched = visit()
    watched.expected += [f"left the server: {company.issuer}"]

    page = watched.open("/login/")
    watched.check()
    watched.keep("sign-in-company")
    page.get_by_role("link", name="Sign in with Company").click()
    page.get_by_label("Name").fill("anna")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{watched.base}/")
    watched.open("/profile/")
    expect(page.get_by_role("heading", name="Anna Of Company")).to_be_visible()
    expect(page.get_by_text("of account acme")).to_be_visible()

    page.locator("summary", has_text="anna").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign out here too").click()
    page.wait_for_url(f"{watched.base}/login/**")
    watched.open("/profile/")
    expect(page.get_by_role("link", name="Sign in with Company")).to_be_visible()
