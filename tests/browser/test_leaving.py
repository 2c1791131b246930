"""A cluster that was registered by mistake: drained, forgotten, and taken back out of the books."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from budgets.models import Interval
from clusters.devcluster.server import DevServer
from clusters.models import Cluster, WorkloadState
from clusters.services import check_health
from clusters.vault import seal
from tests.browser.conftest import Watched
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import Hand, dev_server, quota_hand
from tests.reconcile.test_taking_back import WHY, east, hub, registered_again

__all__ = ["east", "hub"]  # fixtures


NAMES = {"hub": "Hub", "gpu-east": "GPU east", "gpu-twin": "GPU twin"}


@pytest.fixture
def servers(fleet: SmallFleet, east: Cluster) -> Iterator[dict[str, DevServer]]:
    """A manager, its worker, and what was registered as a second one: two jobs run there."""
    fleet.revise(fleet.vision, line("h100", 16))
    registered_again()
    with ExitStack() as stack:
        found = {slug: stack.enter_context(dev_server(slug)) for slug in NAMES}
        for slug, server in found.items():
            Cluster.objects.filter(slug=slug).update(
                name=NAMES[slug], server=server.url, kubeconfig_sealed=seal(server.kubeconfig)
            )
        yield found


@pytest.fixture
def hand(servers: dict[str, DevServer]) -> Iterator[Hand]:
    """Quota sync on GPU twin, where the portal's objects are."""
    with quota_hand("gpu-twin") as hand:
        hand.settle()
        yield hand


def turn(hand: Hand) -> None:
    """Quota sync hears of a change of its cluster, and looks at everything."""
    hand.context.refresh()
    hand.sweep()
    hand.settle()


def looked_at(watched: Watched, phone: Watched, name: str) -> None:
    """The page at a desk, and the same on a phone, after a look at the clusters' health."""
    check_health()
    watched.page.reload()
    phone.open(watched.page.url.removeprefix(watched.base))
    for each, size in ((watched, ""), (phone, "phone-")):
        each.check()
        each.keep(f"{size}admin-leaving-{name}")


def test_a_cluster_is_drained_forgotten_and_taken_back(
    visit, thawed, servers: dict[str, DevServer], hand: Hand
):
    admin, phone = visit(), visit(phone=True)
    page = admin.sign_in("ada")
    phone.sign_in("ada")
    admin.choose("Platform", "Clusters")
    page.get_by_role("region", name="Clusters").get_by_role("link", name="GPU twin").click()
    page.locator("main summary", has_text="More").click()
    page.get_by_role("link", name="De-register …").click()
    expect(page.get_by_role("heading", name="De-register this cluster")).to_be_visible()
    looked_at(admin, phone, "asked")
    page.get_by_label("Type gpu-twin to confirm").fill("gpu-twin")
    page.get_by_label("Reason").fill(WHY)
    page.get_by_role("button", name="De-register").click()
    expect(page.get_by_role("status").first).to_contain_text("The cluster is being drained")
    looked_at(admin, phone, "list")

    turn(hand)
    row = page.get_by_role("region", name="Clusters").get_by_role("row", name="GPU twin")
    expect(row).to_contain_text("draining")
    row.get_by_role("link", name="GPU twin").click()
    told = page.locator("#state .note").first
    expect(told).to_contain_text(re.compile("[1-9] objects of the portal are left there"))
    expect(told).to_contain_text("Queues stay until 2 jobs have finished")
    looked_at(admin, phone, "draining")

    WorkloadState.objects.filter(cluster__slug="gpu-twin").update(phase="finished")
    servers["gpu-twin"].stop()
    assert check_health()["gpu-twin"] is False
    expect(told).to_contain_text("Last error:")
    looked_at(admin, phone, "error")

    page.get_by_role("link", name="Forget it now …").click()
    expect(page.get_by_role("heading", name="Forget this cluster now")).to_be_visible()
    looked_at(admin, phone, "forget")
    page.get_by_label("Type gpu-twin to confirm").fill("gpu-twin")
    page.get_by_label("Reason").fill(WHY)
    page.get_by_role("button", name="Forget it").click()
    expect(page.get_by_role("status").first).to_contain_text("The cluster has been forgotten")
    removed = page.locator("#removed")
    expect(removed).to_contain_text("GPU twin")
    looked_at(admin, phone, "removed")

    removed.get_by_role("link", name="Take back what it left …").click()
    expect(page.get_by_role("heading", name="Take back what GPU twin left")).to_be_visible()
    looked_at(admin, phone, "take-back")
    page.get_by_label("Type gpu-twin to confirm").fill("gpu-twin")
    page.get_by_label("Reason").fill(WHY)
    page.get_by_role("button", name="Take it back").click()
    expect(page.get_by_role("status").first).to_contain_text("until one of finance approves")
    expect(removed).to_contain_text("waits for one of finance")
    looked_at(admin, phone, "proposed")

    finance, phone = visit(), visit(phone=True)
    page = finance.sign_in("fin")
    phone.sign_in("fin")
    page.get_by_role("region", name="Needs you").get_by_role("link", name="Look at it").click()
    page.get_by_role("link", name="Take back what a removed cluster left").click()
    pairs = page.locator("dl.pairs")
    expect(pairs).to_contain_text("GPU twin (gpu-twin)")
    expect(pairs).to_contain_text("80.0000")
    looked_at(finance, phone, "approves")
    page.get_by_role("button", name="Approve it").click()
    expect(page.get_by_role("status").first).to_contain_text("left the books")
    looked_at(finance, phone, "approved")

    left = Interval.objects.filter(cluster="gpu-twin")
    assert set(left.values_list("state", flat=True)) == {"superseded"}
    page = admin.open("/clusters/")
    expect(page.get_by_role("heading", name="Clusters", exact=True)).to_be_visible()
    expect(page.locator("#removed")).to_have_count(0)
    page = admin.open("/audit/")
    taken = page.get_by_role("row").filter(has_text="cluster.take_back cluster:gpu-twin")
    expect(taken).to_contain_text(WHY)
    looked_at(admin, phone, "audit")
