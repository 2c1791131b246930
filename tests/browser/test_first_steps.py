"""From an empty portal to the first budget, and a cluster that is there already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from budgets import services
from budgets.models import Budget
from budgets.selectors.billing import month_at
from budgets.services import utc_now
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.models import Cluster
from tests.browser.conftest import Watched, visiting
from tests.builders import PASSWORD
from tests.factories import FlavorFactory, UsageRecordFactory, WorkspaceFactory

# Two minutes for a person who fills one of them in five seconds.
MOST_FIELDS = 24


@pytest.fixture
def cluster() -> Iterator[DevServer]:
    with DevServer(DevCluster(ClusterOptions(name="gpu-east"))) as server:
        yield server


@pytest.fixture
def empty(chromium: Browser, server: str, transactional_db) -> Iterator[Callable[..., Watched]]:
    """A portal with its first admin and nothing else."""
    services.create_first_admin(username="ada", email="ada@example.org", password=PASSWORD)
    with visiting(chromium, server) as visit:
        yield visit


def fill(page: Page, **typed: str) -> int:
    """Type into fields by the end of their names; how many."""
    for name, value in typed.items():
        field = page.locator(f"main form [name='{name}']:visible").first
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    return len(typed)


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def register(page: Page, kubeconfig: str, **place: str) -> int:
    """Through the form, up to its last button."""
    page.get_by_label("Paste a kubeconfig").fill(kubeconfig)
    press(page, "Read it")
    page.get_by_label("The portal: only Kueue's CRDs are there").check()
    count = fill(page, **place)
    press(page, "Register and check")
    return count + 2


def test_set_up_leads_from_nothing_to_the_first_budget(empty, cluster: DevServer):
    watched = empty()
    page = watched.sign_in("ada")
    expect(page.get_by_text("Nothing is set up yet")).to_be_visible()
    watched.check()
    watched.keep("first-empty")
    page.get_by_role("link", name="Set up the portal").click()
    set_up = page.get_by_role("link", name="Set-up", exact=True).first
    do_this = page.get_by_role("link", name="Do this now")
    step = page.locator(".guide [aria-current=step]")

    do_this.click()
    typed = fill(page, slug="h100", name="H100", node_labels="gpu=h100")
    press(page, "Add flavor")
    expect(page.get_by_text("Flavor h100 is added")).to_be_visible()

    watched.choose("Platform", "Clusters")
    page.get_by_role("link", name="Register the first cluster").click()
    typed += register(page, cluster.kubeconfig, slug="gpu-east", name="GPU east")
    expect(page.get_by_text("GPU east is registered")).to_be_visible()
    expect(page.locator("#preflight")).to_contain_text("Checked")
    watched.check()
    watched.keep("first-registered")

    watched.choose("Platform", "Set-up")
    page.get_by_role("link", name="Capacity", exact=True).click()
    typed += fill(page, cluster="gpu-east", flavor="h100", gpus="16")
    press(page, "Set capacity")
    expect(page.get_by_role("row", name="GPU east")).to_be_visible()

    set_up.click()
    do_this.click()
    typed += fill(page, slug="acme", name="Acme")
    press(page, "Add account")
    expect(step).to_have_text("Envelope")
    typed += fill(page, flavor="h100", committed="16", ceiling="16")
    press(page, "Set envelope")
    expect(step).to_have_text("Workspace")
    typed += fill(page, slug="vision", name="Vision", home_flavor="h100")
    press(page, "Add workspace")
    expect(step).to_have_text("Owner")
    watched.check()
    watched.keep("first-owner")
    typed += fill(page, user="ada")
    press(page, "Make owner")
    expect(page.get_by_role("heading", name="Change the budget")).to_be_visible()
    typed += fill(page, committed="8", ceiling="16", reason="the first one")
    press(page, "Save budget")
    expect(page.get_by_text("Revision 1 is saved")).to_be_visible()
    watched.check()

    assert Budget.objects.get().in_force is not None
    assert typed <= MOST_FIELDS


def test_one_person_goes_on_to_the_first_statement(empty, thawed):
    """Two people set prices, of whom a new one approves only a day later; or one, who says so."""
    hour = utc_now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    month = month_at(hour)
    space, h100 = WorkspaceFactory(name="Vision"), FlavorFactory(slug="h100", name="H100")
    UsageRecordFactory(workspace=space, flavor=h100, hour=hour, burst=7200)
    watched = empty()
    page = watched.sign_in("ada")
    alone = "Let one person run everything alone"
    watched.open("/billing/rates/")
    expect(page.locator("main")).to_contain_text("Somebody in finance proposes the first one")

    watched.choose("Platform", "Set-up")
    page.get_by_role("link", name="Installation", exact=True).click()
    page.locator("summary", has_text=alone).click()
    form = page.locator("form", has=page.get_by_role("button", name=alone))
    form.get_by_label("Reason").fill("Only ada is here")
    press(page, alone)
    expect(page.get_by_text("approves their own proposals")).to_be_visible()
    watched.check()
    watched.choose("Platform", "Set-up")
    page.get_by_role("link", name="People and roles", exact=True).click()
    page.get_by_role("link", name="ada", exact=True).click()
    page.locator("summary", has_text="Give role").click()
    page.locator("[name=role]").select_option("Finance")
    press(page, "Give role")
    expect(page.get_by_role("row", name="Finance")).to_be_visible()

    page.get_by_role("link", name="Billing", exact=True).click()
    page.get_by_role("link", name="Rate cards", exact=True).click()
    page.get_by_role("link", name="Propose a card").click()
    prices = {"h100.committed": "2.00", "h100.burst": "3.00"}
    fill(page, name="First card", reason="the first prices", **prices)
    press(page, "Propose it")
    expect(page.get_by_text("you approve it yourself")).to_be_visible()
    fill(page, valid_from=f"{hour:%Y-%m-%dT%H:%M}", reason="the first prices")
    press(page, "Propose to activate it")
    expect(page.get_by_text("It waits for approval")).to_be_visible()
    sections = page.get_by_role("navigation", name="Sections")
    sections.get_by_role("link", name="Approvals").click()
    page.locator("section", has_text="Waiting").locator("tbody th a").click()
    press(page, "Approve it")
    expect(page.get_by_text("Approved").first).to_be_visible()

    watched.open(f"/billing/months/{month.name}/")
    press(page, "Draw up the statements")
    statements = page.locator("section", has=page.get_by_role("heading", name="Statements"))
    expect(statements.locator("tbody tr", has_text="Draft").first).to_be_visible()
    statements.get_by_role("link", name=space.account.name).click()
    expect(page.get_by_text("One person ran this installation alone")).to_be_visible()
    watched.check()
    watched.keep("first-statement")


def test_the_same_cluster_is_refused_under_another_name(empty, cluster: DevServer):
    watched = empty()
    watched.expected.append("422")
    watched.sign_in("ada")
    page = watched.open("/clusters/register/")
    register(page, cluster.kubeconfig, slug="gpu-east", name="GPU east")
    expect(page.get_by_text("GPU east is registered")).to_be_visible()

    watched.open("/clusters/register/")
    register(page, cluster.kubeconfig, slug="another", name="Another")

    expect(page.get_by_role("alert")).to_contain_text("GPU east (gpu-east)")
    watched.check()
    watched.keep("first-registered-twice")
    assert [row.slug for row in Cluster.objects.all()] == ["gpu-east"]
