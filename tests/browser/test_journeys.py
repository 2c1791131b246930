"""What the three users come for, in a real browser."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import expect

from budgets import services
from budgets.models import BudgetRevision, UsageRecord, WorkloadUsage
from budgets.units import Period
from clusters.models import Cluster, ClusterHealth, WorkloadState
from tests.builders import PASSWORD, SmallFleet, line
from tests.factories import (
    MeterStateFactory,
    UsageRecordFactory,
    WorkloadUsageFactory,
    WorkspaceFactory,
)


@pytest.fixture
def busy(fleet: SmallFleet) -> SmallFleet:
    """A week of use, jobs that run and wait, one manager and one worker."""
    fleet.revise(
        fleet.vision, line("h100", 16), line("h100-spot", 0, 16), preference=("h100-spot",)
    )
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for slug, role in (("manager", "manager"), ("gpu-east", "worker")):
        row = Cluster.objects.create(
            slug=slug,
            name=slug.title(),
            role=role,
            mode="kueue",
            server="https://cluster.invalid",
            context="x",
            user_kind="bearer token",
            kubeconfig_sealed=b"x",
        )
        ClusterHealth.objects.create(cluster=row, reachable=True, last_contact_at=now)
    manager = Cluster.objects.get(slug="manager")
    for number in range(6):
        is_running = number % 2 == 0
        WorkloadState.objects.create(
            cluster=manager,
            uid=f"uid-{number}",
            namespace="acme-vision",
            name=f"job-train-{number}",
            job_name=f"train-{number}",
            job_kind="Job",
            phase="running" if is_running else "pending",
            message="" if is_running else "8 GPUs of H100 are asked for and 0 are free.",
            gpus={"h100": 4} if is_running else {"": 8},
            gpu_total=4 if is_running else 8,
            worker="gpu-east" if is_running else "",
            created_at=now,
            resource_version="1",
        )
        if is_running:
            copy_on_worker(number, now)
    use_of_a_week(fleet, now)
    MeterStateFactory(cluster="gpu-east", complete_until=datetime.now(UTC))
    return fleet


def use_of_a_week(fleet: SmallFleet, now: datetime) -> None:
    """Hour facts as the meter would have written them, speech lending to vision."""
    hours = [now - timedelta(hours=hour) for hour in range(7 * 24)]
    h100 = fleet.flavors["h100"]
    facts = [
        UsageRecordFactory.build(
            workspace=fleet.vision,
            flavor=h100,
            hour=at,
            lent=0,
            idle=21_600,
            burst=(1 + hour % 5) * 3600,
            borrowed=3600,
        )
        for hour, at in enumerate(hours)
    ]
    facts += [
        UsageRecordFactory.build(
            workspace=fleet.speech, flavor=h100, hour=at, committed_used=0, lent=3600, idle=54_000
        )
        for at in hours
    ]
    UsageRecord.objects.bulk_create(facts)
    WorkloadUsage.objects.bulk_create(
        WorkloadUsageFactory.build(
            workspace=fleet.vision,
            cluster="manager",
            uid=f"uid-{hour % 6}",
            hour=at,
            committed_used=3600,
        )
        for hour, at in enumerate(hours)
    )
    services.rewrite_totals(Period(hours[-1], now + timedelta(hours=1)))


def copy_on_worker(number: int, now: datetime) -> None:
    """The worker's copy of a running job: it says which GPUs are held."""
    WorkloadState.objects.create(
        cluster=Cluster.objects.get(slug="gpu-east"),
        uid=f"copy-{number}",
        namespace="acme-vision",
        name=f"job-train-{number}",
        is_remote_copy=True,
        phase="running",
        gpus={"h100": 4},
        gpu_total=4,
        worker="gpu-east",
        created_at=now,
        admitted_at=now,
        resource_version="1",
    )


def test_owner_sees_the_bars_and_changes_the_budget(visit, busy: SmallFleet):
    watched = visit()
    page = watched.sign_in("olga")
    expect(page.get_by_role("img", name=re.compile("H100: 12 GPUs in use"))).to_be_visible()
    watched.check()
    watched.keep("owner-home")

    page.get_by_role("link", name="Vision").click()
    expect(page.get_by_role("heading", name="Vision", exact=True)).to_be_visible()
    expect(page.get_by_text("8 GPUs of H100 are asked for").first).to_be_visible()
    expect(page.locator("[data-drawn]")).to_be_visible()
    watched.check()
    watched.keep("owner-workspace")

    page.get_by_role("link", name="Change budget").first.click()
    page.get_by_label("Committed", exact=True).fill("24")
    page.get_by_label("Burst limit", exact=True).fill("12")
    panel = page.locator("#consequences")
    expect(panel.get_by_text("cannot be saved")).to_be_visible()
    expect(page.locator("#id_ceiling_error")).to_contain_text("below the 24 committed")
    page.get_by_label("Burst limit", exact=True).fill("40")
    expect(panel.get_by_text("starts at once")).to_be_visible()
    expect(page.locator("#id_ceiling_error")).to_be_hidden()
    expect(panel.get_by_text("The largest single job can have")).to_be_visible()
    expect(panel.get_by_text("24 here, 16 now")).to_be_visible()
    room = panel.locator("#envelope-h100-committed-used")
    narrow = room.get_attribute("width")
    page.get_by_label("Committed", exact=True).fill("30")
    expect(panel.get_by_text("30 here, 16 now")).to_be_visible()
    assert room.get_attribute("width") != narrow, "the bar moves while somebody types"
    watched.check()
    watched.keep("owner-budget-form")

    page.get_by_label("Reason", exact=True).fill("bigger model")
    page.get_by_role("button", name="Save budget").click()
    expect(page.get_by_text("Revision 2 is saved")).to_be_visible()
    page.get_by_role("link", name="All revisions").click()
    page.get_by_role("link", name="2", exact=True).click()
    expect(page.locator("del", has_text="16").first).to_be_visible()
    watched.check()
    watched.keep("owner-revision")


def test_owner_who_saves_second_loses_nothing(visit, busy: SmallFleet):
    watched = visit()
    watched.expected.append("409")
    watched.sign_in("olga")
    page = watched.open("/workspaces/acme-vision/budget/")
    page.get_by_label("Committed", exact=True).fill("20")
    busy.revise(busy.vision, line("h100", 8))

    page.get_by_role("button", name="Save budget").click()

    expect(page.get_by_role("alert")).to_contain_text("ada saved a change before you")
    expect(page.get_by_label("Committed", exact=True)).to_have_value("20")
    watched.keep("owner-conflict")
    watched.check()


def test_session_that_ends_in_a_form_is_begun_again_in_place(visit, busy: SmallFleet):
    watched = visit()
    watched.expected += ["401", "422"]
    watched.sign_in("olga")
    page = watched.open("/workspaces/acme-vision/budget/")
    page.get_by_label("Committed", exact=True).fill("20")
    page.get_by_label("Reason", exact=True).fill("typed before the session ended")
    Session.objects.all().delete()

    # The check of what was typed may have asked already.
    page.get_by_role("button", name="Save budget").dispatch_event("click")

    asked = page.get_by_role("dialog", name="Your session has ended")
    expect(asked).to_be_visible()
    watched.keep("owner-signs-in-in-place")
    watched.check()
    asked.get_by_label("Username").fill("olga")
    asked.get_by_label("Password").fill("not this one")
    asked.get_by_role("button", name="Sign in").click()
    expect(asked.get_by_role("alert")).to_contain_text("do not match")
    asked.get_by_label("Username").fill("olga")
    asked.get_by_label("Password").fill(PASSWORD)
    asked.get_by_role("button", name="Sign in").click()
    expect(asked).to_be_hidden()
    expect(page.get_by_text("You are signed in again")).to_be_visible()
    expect(page.get_by_label("Reason", exact=True)).to_have_value("typed before the session ended")
    page.get_by_role("button", name="Save budget").click()
    expect(page.get_by_text("Revision 2 is saved")).to_be_visible()


def test_owner_changes_a_budget_without_scripts(visit, busy: SmallFleet):
    watched = visit(scripts=False)
    page = watched.sign_in("olga")
    page.get_by_role("link", name="Vision").click()
    page.get_by_role("link", name="Change budget").first.click()
    page.get_by_label("Committed", exact=True).fill("8")
    page.get_by_label("Burst limit", exact=True).fill("16")
    page.get_by_role("button", name="Look at the consequences").click()
    expect(page.locator("#consequences").get_by_text("starts at once")).to_be_visible()
    assert BudgetRevision.objects.count() == 1

    page.get_by_role("button", name="Save budget").click()

    expect(page.get_by_text("Revision 2 is saved")).to_be_visible()


def test_page_follows_a_change_by_itself(visit, busy: SmallFleet):
    watched = visit()
    watched.sign_in("olga")
    page = watched.open("/workspaces/acme-vision/")
    expect(page.get_by_text("12 of 16 committed")).to_be_visible()

    WorkloadState.objects.filter(name="job-train-0").update(phase="finished")

    expect(page.get_by_text("8 of 16 committed")).to_be_visible()


def test_a_server_that_is_gone_leaves_the_page_and_says_since_when(visit, busy: SmallFleet):
    watched = visit()
    watched.expected += ["ERR_FAILED", "Failed to load", "htmx:"]
    watched.sign_in("olga")
    page = watched.open("/workspaces/acme-vision/")
    page.route("**/workspaces/acme-vision/", lambda route: route.abort())

    expect(page.locator(".stale-line")).to_contain_text("Not refreshed since")
    expect(page.get_by_text("12 of 16 committed")).to_be_visible()


def test_admin_sets_up_decides_and_looks_after_clusters(visit, busy: SmallFleet):
    busy.revise(busy.vision, line("h100", 40), actor=busy.owner, reason="the big run")
    watched = visit()
    page = watched.sign_in("ada")
    page.get_by_role("link", name=re.compile("^Requests")).click()
    page.get_by_role("link", name="Decide").click()
    expect(page.get_by_text("the big run")).to_be_visible()
    watched.check()
    watched.keep("admin-decide")
    page.get_by_label("H100, committed").fill("24")
    page.get_by_label("H100, burst limit").fill("24")
    expect(page.locator("#consequences").get_by_text("24 here, 16 now").first).to_be_visible()
    page.get_by_label("Comment", exact=True).fill("there is room until summer")
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("Request 2 is accepted in part")).to_be_visible()

    watched.choose("Platform", "Fleet")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    watched.check()
    watched.keep("admin-fleet")

    watched.choose("Platform", "Clusters")
    expect(page.get_by_role("heading", name="Clusters")).to_be_visible()
    watched.check()
    watched.keep("admin-clusters")
    page.get_by_role("region", name="Clusters").get_by_role("link", name="Gpu-East").click()
    page.get_by_role("link", name="Stop writing").click()
    page.get_by_label("Reason").fill("upgrade")
    page.get_by_role("button", name="Stop writing").click()
    expect(page.get_by_role("heading", name="What would be written")).to_be_visible()
    watched.check()
    watched.keep("admin-cluster")

    watched.choose("Platform", "Set-up")
    expect(page.get_by_role("heading", name="Set-up")).to_be_visible()
    watched.check()
    page.get_by_role("link", name="Accounts and envelopes").click()
    page.get_by_label("Slug").fill("initech")
    page.get_by_label("Name").fill("Initech")
    page.get_by_role("button", name="Add account").click()
    expect(page.get_by_text("Account Initech is added")).to_be_visible()
    watched.check()
    watched.keep("admin-accounts")


def test_admin_registers_a_cluster_up_to_the_refusal(visit, fleet: SmallFleet):
    watched = visit()
    watched.expected.append("422")
    watched.sign_in("ada")
    page = watched.open("/clusters/")
    page.get_by_role("link", name="Register the first cluster").click()
    watched.check()
    watched.keep("admin-register")
    page.get_by_label("Paste a kubeconfig").fill("no: kubeconfig")
    page.get_by_role("button", name="Read it").click()

    expect(page.get_by_role("alert")).to_be_visible()
    watched.check()


def test_finance_reads_usage_and_takes_the_csv(visit, busy: SmallFleet):
    watched = visit()
    page = watched.sign_in("fin")
    page.get_by_role("link", name="Usage").click()
    expect(page.locator("#usage-chart[data-drawn]")).to_be_visible()
    expect(page.get_by_text("complete to")).to_be_visible()
    watched.check()
    watched.keep("finance-usage")

    page.get_by_role("link", name="30 days").click()
    expect(page.get_by_role("heading", name="GPUs by day")).to_be_visible()
    expect(page.locator("#usage-chart[data-drawn]")).to_be_visible()
    page.get_by_label("Split by").select_option("workspace")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="By workspace")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of this").click()
    assert download.value.path().read_text().startswith("start,key,name")

    page.get_by_role("link", name="job-train-0").or_(
        page.get_by_role("link", name="uid-0")
    ).first.click()
    expect(page.get_by_role("heading", name="train-0")).to_be_visible()
    watched.check()
    watched.keep("finance-job")
    watched.choose("More", "Audit log")
    watched.check()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_every_page_fits_and_can_be_read(visit, busy: SmallFleet, phone: bool, dark: bool):
    busy.revise(busy.vision, line("h100", 40), actor=busy.owner, reason="the big run")
    services.set_capacity(None, cluster="gpu-east", flavor=busy.flavors["h100"], gpus=8)
    watched = visit(phone=phone, dark=dark)
    watched.expected += ["404", "405"]
    watched.open("/login/")
    watched.check()
    watched.sign_in("ada")
    mode = f"{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}"
    for address in (
        "/",
        "/workspaces/acme-vision/",
        "/workspaces/acme-vision/budget/",
        "/workspaces/acme-vision/budget/stop/",
        "/workspaces/acme-vision/history/2/decide/",
        "/workspaces/acme-vision/spend/",
        "/jobs/",
        "/jobs/manager/uid-1/",
        "/what-if/",
        "/usage/?days=7&split=workspace",
        "/usage/lending/",
        "/usage/idle/",
        "/usage/capacity/",
        "/fleet/",
        "/fleet/kueue/",
        "/clusters/",
        "/clusters/gpu-east/",
        "/clusters/gpu-east/deregister/",
        "/clusters/gpu-east/shadow/",
        "/fleet/maintenance/plan/",
        "/billing/",
        "/billing/approvals/",
        "/billing/reconciliation/",
        "/exports/",
        "/alerts/",
        "/tokens/1/revoke/",
        "/audit/",
        "/setup/",
        "/setup/flavors/h100/",
        "/setup/people/",
        "/setup/installation/",
        "/tokens/",
        "/nothing/",
    ):
        page = watched.open(address)
        if page.locator("[data-chart]").count():
            not_drawn = page.locator("[data-chart]:not([data-drawn])")
            expect(not_drawn).to_have_count(0)
        watched.check()
        watched.keep(f"{mode}{address.split('?')[0].rstrip('/').replace('/', '-') or '-home'}")


def test_keyboard_reaches_the_content_and_the_menu(visit, busy: SmallFleet):
    watched = visit()
    page = watched.sign_in("olga")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")

    page.locator("details.menu > summary", has_text="olga").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="API tokens")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="API tokens")).to_be_hidden()


def test_charts_without_scripts_say_so_and_with_them_cut_long_names(visit, busy: SmallFleet):
    long = WorkspaceFactory(account=busy.vision.account, slug="x" * 50)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    UsageRecordFactory(workspace=long, flavor=busy.flavors["h100"], hour=now)
    plain = visit(scripts=False)
    plain.sign_in("fin")
    page = plain.open("/usage/?days=7")
    chart = page.locator("#usage-chart")
    words = chart.locator("noscript").evaluate(
        "element => [element.innerText, element.offsetHeight]"
    )
    assert words[0].startswith("The chart needs scripts; the table below") and words[1] > 0
    expect(chart.get_by_text("Drawing the chart")).to_be_hidden()

    phone = visit(phone=True)
    phone.sign_in("fin")
    page = phone.open("/usage/?days=7&split=workspace")
    names = page.locator("[data-chart=keys-figure][data-drawn] .ytick text")
    expect(names.first).to_be_visible(timeout=20_000)
    shown = names.all_text_contents()
    assert any(name.endswith("…") and len(name) < 20 for name in shown), shown
    phone.check()


def test_the_longest_name_stays_inside_of_a_phone(visit, busy: SmallFleet):
    row = WorkloadState.objects.get(uid="uid-0")
    row.name = row.job_name = "x" * 253
    row.save()
    phone = visit(phone=True)
    phone.sign_in("olga")
    for address in ("/workspaces/acme-vision/", "/jobs/", "/jobs/manager/uid-0/"):
        page = phone.open(address)
        expect(page.get_by_text("x" * 253).first).to_be_visible()
        phone.check()
    box = page.get_by_role("heading", level=1).bounding_box()
    assert box is not None and box["x"] + box["width"] <= 390
