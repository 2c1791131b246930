"""What operators do, in a real browser: hold a queue, cancel jobs, cordon a worker."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from playwright.sync_api import expect

from clusters import services
from clusters.models import MaintenanceWindow, WorkloadAction
from tests.browser.test_journeys import busy
from tests.builders import SmallFleet, line

__all__ = ["busy"]  # a fixture


def test_hold_cancel_and_cordon(visit, busy: SmallFleet):
    busy.revise(busy.vision, line("h100", 48))  # more than one worker has
    owner = visit()
    page = owner.sign_in("olga")
    page.get_by_role("link", name="Vision").click()
    page.get_by_role("link", name="Hold …").click()
    page.get_by_label("Held: running jobs finish").check()
    page.get_by_label("Reason").fill("the grant is used up")
    owner.check()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("the grant is used up")).to_be_visible()
    owner.check()
    owner.keep("owner-held")
    page.get_by_role("link", name="Release").click()
    page.get_by_label("Not held: new jobs start").check()
    page.get_by_label("Reason").fill("there is more")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("link", name="Hold …")).to_be_visible()

    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("link", name="Choose several").click()
    for name in ("train-1", "train-3"):
        page.get_by_label(f"Choose acme-vision/{name}").check()
    owner.check()
    page.get_by_role("button", name="Cancel the chosen").click()
    expect(page.get_by_role("heading", name="Cancel: 2 jobs")).to_be_visible()
    page.get_by_label("Reason").fill("wrong data")
    owner.check()
    owner.keep("owner-cancel")
    page.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_text("2 jobs: each is cancelled within seconds")).to_be_visible()
    page.get_by_role("link", name="train-1").click()
    expect(page.get_by_text("Not yet carried out")).to_be_visible()
    owner.check()
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_text("Nothing is done to the job")).to_be_visible()
    assert sorted(WorkloadAction.objects.values_list("state", flat=True)) == [
        *("waiting", "withdrawn"),
    ]

    admin = visit()
    page = admin.sign_in("ada")
    admin.choose("Platform", "Maintenance")
    page.get_by_role("link", name="Plan a window").click()
    page.get_by_label("Worker").select_option("gpu-east")
    page.get_by_label("To", exact=True).fill(
        f"{datetime.now() + timedelta(days=1):%Y-%m-%dT%H:%M}"  # noqa: DTZ005 - within a day of UTC
    )
    page.get_by_label("Reason").fill("new cooling")
    page.get_by_role("button", name="See what it means").click()
    expect(page.locator("#preview")).to_contain_text("Vision")
    admin.check()
    admin.keep("admin-maintenance-preview")
    page.get_by_role("button", name="Cordon").click()
    expect(page.get_by_role("heading", name="Maintenance of gpu-east")).to_be_visible()
    admin.check()
    admin.keep("admin-maintenance")

    page = owner.open("/workspaces/acme-vision/")
    note = page.locator(".note", has_text=re.compile("Maintenance of gpu-east", re.IGNORECASE))
    expect(note).to_contain_text("new cooling")
    owner.check()
    note.get_by_role("link", name="More").click()
    expect(page.get_by_role("heading", name="Who has committed GPUs there")).to_be_visible()
    owner.check()


def test_pages_of_operators_fit_a_phone(visit, busy: SmallFleet):
    hour = datetime.now().astimezone().replace(microsecond=0) + timedelta(hours=1)
    window = services.plan_maintenance(
        busy.admin,
        cluster=None,
        flavor=busy.flavors["h100"],
        starts_at=None,
        ends_at=hour,
        drains=False,
        reason="a reason that is quite long, so that it has to be broken somewhere on a phone",
    )
    assert MaintenanceWindow.objects.get() == window
    services.act_on_workloads(
        busy.owner, jobs=[("manager", "uid-1")], verb="deactivate", reason="wrong data"
    )
    watched = visit(phone=True)
    page = watched.sign_in("ada")
    for address in (
        "/jobs/?select=on",
        "/jobs/manager/uid-1/",
        "/jobs/act/?verb=delete_job&job=manager/uid-3",
        "/fleet/maintenance/",
        "/fleet/maintenance/plan/",
        f"/fleet/maintenance/{window.pk}/",
        "/workspaces/acme-vision/",
        "/clusters/gpu-east/",
    ):
        watched.open(address)
        watched.check()
    sections = page.get_by_role("navigation", name="Sections")
    for menu in ("Platform", "More"):
        sections.locator("summary", has_text=menu).click()
        watched.check()
