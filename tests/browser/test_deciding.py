"""Caps, answers to requests, what is taken back, and what a button does, where it is pressed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from budgets.models import BudgetRevision, SpendRule
from clusters.models import Cluster, Drift, MaintenanceWindow, ObjectState
from tests.browser.test_journeys import busy
from tests.builders import SmallFleet, line

__all__ = ["busy"]  # a fixture


def test_a_spend_cap_is_a_sentence(visit, busy: SmallFleet):
    watched = visit()
    page = watched.sign_in("olga")
    page.get_by_role("link", name="Vision").click()
    page.get_by_role("link", name="Spend caps").first.click()
    form = page.locator("#add")
    grace = form.get_by_label("Grace period, minutes")
    expect(grace).to_be_hidden()
    form.get_by_label("What happens").select_option("hold_and_drain")
    expect(grace).to_be_visible()
    grace.fill("15")
    form.get_by_label("What happens").select_option("drop_to_floor")
    expect(grace).to_be_hidden()
    expect(form.get_by_label("Grant begins")).to_be_hidden()
    form.get_by_label("Cap", exact=True).fill("2000")
    form.get_by_label("Unit").select_option("gpu_hours")
    watched.check()
    watched.keep("owner-cap-sentence")
    form.get_by_label("Reason").fill("agreed with the lead")
    form.get_by_role("button", name="Add cap").click()

    expect(page.get_by_text("The cap is in force")).to_be_visible()
    expect(page.locator("#caps tbody tr")).to_contain_text("2,000")
    rule = SpendRule.objects.get()
    assert (rule.action, rule.grace_minutes, rule.window) == ("drop_to_floor", 0, "month")
    watched.check()


def test_who_asked_reads_the_answer_on_the_first_page(visit, busy: SmallFleet):
    busy.revise(busy.vision, line("h100", 40), actor=busy.owner, reason="the big run")
    admin = visit()
    admin.sign_in("ada")
    page = admin.open("/requests/")
    page.get_by_role("link", name="Decide").click()
    page.get_by_label("Comment", exact=True).fill("not before the new racks")
    page.get_by_role("button", name="Decline").click()
    expect(page.get_by_role("status").first).to_contain_text("declined")

    owner = visit(phone=True)
    page = owner.sign_in("olga")
    needs = page.get_by_role("region", name="Needs you")
    answered = needs.get_by_role("listitem").filter(has_text="declined")
    expect(answered).to_contain_text("not before the new racks")
    owner.check()
    owner.keep("phone-owner-answered")
    answered.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("declined")


def test_an_older_budget_comes_back(visit, busy: SmallFleet):
    busy.revise(busy.vision, line("h100", 24))
    watched = visit()
    watched.sign_in("olga")
    page = watched.open("/workspaces/acme-vision/history/1/")
    page.get_by_label("Reason").fill("that was too much")
    page.get_by_role("button", name=re.compile("restore|back", re.IGNORECASE)).click()
    expect(page.get_by_text("Revision 1 is back as revision 3")).to_be_visible()
    expect(page.get_by_text("of 16 committed").first).to_be_visible()
    assert BudgetRevision.objects.get(number=3).restored_from == 1


def test_a_budget_is_undone_by_who_saved_it(visit, busy: SmallFleet):
    watched = visit()
    watched.sign_in("olga")
    page = watched.open("/workspaces/acme-vision/budget/")
    page.get_by_label("Committed", exact=True).fill("20")
    page.get_by_label("Reason", exact=True).fill("a slip of the hand")
    page.get_by_role("button", name="Save budget").click()
    undo = page.get_by_role("button", name="Undo revision 2")
    expect(undo).to_be_visible()
    watched.check()
    watched.keep("owner-undo")
    undo.click()
    expect(page.get_by_text("Revision 2 is undone")).to_be_visible()
    expect(page.get_by_text("of 16 committed").first).to_be_visible()
    watched.check()


def test_a_button_says_what_becomes_of_jobs(visit, busy: SmallFleet):
    watched = visit()
    watched.sign_in("ada")
    page = watched.open("/fleet/maintenance/plan/")
    page.get_by_label("Worker").select_option("gpu-east")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    page.get_by_label("To", exact=True).fill(f"{tomorrow:%Y-%m-%dT%H:%M}")
    page.get_by_label("running jobs are stopped and queued again").check()
    page.get_by_label("Reason").fill("new cooling")
    page.get_by_role("button", name="See what it means").click()
    button = page.get_by_role("button", name="Drain and stop 3 jobs")
    expect(button).to_have_class(re.compile("danger"))
    watched.check()
    watched.keep("admin-drain-preview")
    button.click()
    expect(page.get_by_role("heading", name="Maintenance of gpu-east")).to_be_visible()
    assert MaintenanceWindow.objects.get().drains


def test_a_cluster_shows_what_differs_who_did_it_and_which_rights_it_needs(visit, busy: SmallFleet):
    worker, now = Cluster.objects.get(slug="gpu-east"), datetime.now(UTC)
    ObjectState.objects.create(
        cluster=worker, kind="ClusterQueue", name="acme-vision", subject="budget:acme-vision",
        state="drifted", changed_at=now,
    )  # fmt: skip
    Drift.objects.create(
        cluster=worker, kind="ClusterQueue", name="acme-vision", field="spec.stopPolicy",
        wanted="None", found="Hold", manager="kubectl-edit", noticed_at=now,
    )  # fmt: skip
    watched = visit()
    watched.sign_in("ada")
    page = watched.open("/clusters/gpu-east/")
    row = page.locator("#drift tbody tr")
    for words in ("spec.stopPolicy", "None", "Hold", "kubectl-edit"):
        expect(row).to_contain_text(words)
    expect(page.locator("#objects .tree")).to_contain_text("acme-vision")
    watched.check()
    watched.keep("admin-cluster-drift")
    with page.expect_download() as download:
        page.locator("#rights").get_by_role("link", name="Download").click()
    assert "ClusterRole" in download.value.path().read_text()
