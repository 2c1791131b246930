"""Shares and weights on pages: who sees them, what stands before saving, and who saves."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from budgets import services
from budgets.models import AuditEntry
from clusters.kueue.amounts import UNLIMITED
from clusters.models import Cluster, QueueShare, ShiftRun
from clusters.selectors.shares import MOST_ROWS, contest_of, with_weight
from tests.builders import SmallFleet
from tests.web.conftest import DRAWN_ANEW, Visitors

pytestmark = pytest.mark.django_db
PAGE = "/fleet/shares/"
WEIGHT = "/setup/workspaces/acme-vision/weight/"


def add_cluster(*, is_fair: bool = True) -> Cluster:
    strategies = {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}
    return Cluster.objects.create(
        slug="hub",
        name="Hub",
        role="manager",
        mode="kueue",
        server="https://x",
        context="x",
        user_kind="token",
        kubeconfig_sealed=b"x",
        kueue_configuration={"fairSharing": strategies} if is_fair else {},
    )


def add_share(name: str, borrowed: int, share: int, *, parent: str = "acme", **more) -> None:
    given = {"weight": "1", "resource": "nvidia.com/gpu" if borrowed else "", "lendable": 64}
    QueueShare.objects.create(
        cluster="hub",
        name=name,
        parent=parent,
        borrowed=borrowed,
        share=share,
        **{"is_cohort": False, "updated_at": timezone.now(), **given, **more},
    )


@pytest.fixture
def shared(visitors: Visitors) -> Visitors:
    add_cluster()
    add_share("acme-vision", 8, 125)
    add_share("acme-speech", 4, 63)
    return visitors


def test_page_says_who_goes_first_and_why(shared: Visitors):
    for role in ("admin", "auditor", "finance"):
        contest = shared[role].get(PAGE).context["contests"][0]
        assert [(row.place, row.name) for row in contest.rows] == [
            (1, "acme-speech"),
            (2, "acme-vision"),
        ]
    text = shared.text("admin", PAGE)
    assert "It borrows 8 of 64 that can be lent." in text
    assert f'href="{WEIGHT}"' in text
    assert f'href="{WEIGHT}"' not in shared.text("auditor", PAGE)
    for role in ("owner", "viewer", "nobody"):
        assert shared[role].get(PAGE).status_code == 403


def test_nobody_keeps_the_numbers_up_to_date_without_a_shift(shared: Visitors):
    stale = "These numbers are not up to date"
    assert stale in shared.text("admin", PAGE)
    now = timezone.now()
    run = {"role": "shadow", "holder": "x", "started_at": now}
    ahead = now + timedelta(minutes=5)
    ShiftRun.objects.create(cluster=Cluster.objects.get(), heartbeat_at=ahead, **run)
    assert stale not in shared.text("admin", PAGE)


def test_names_of_strangers_do_not_break_the_page(shared: Visitors):
    add_share("not.ours", 1, UNLIMITED, weight="0")
    add_share("pool.account", 0, 0, parent="pool-spot", is_cohort=True)
    text = shared.text("admin", PAGE)
    assert "not.ours" in text
    assert "no bound" in text
    assert "Platform pool spot" in text


def test_page_of_many_queues_is_bounded(shared: Visitors):
    for number in range(MOST_ROWS):
        add_share(f"q-{number:03}", 1, 16, parent="other")
    answer = shared["admin"].get(PAGE)
    assert sum(len(each.rows) for each in answer.context["contests"]) == MOST_ROWS
    assert "2 more are not shown here." in answer.content.decode()
    assert len(answer.content) < 100_000


def test_owner_reads_the_own_weight_and_no_figure_of_others(shared: Visitors):
    text = shared.text("owner", "/workspaces/acme-vision/")
    assert "Fair sharing, weight 1:" in text
    assert "this workspace borrows 8 GPUs; jobs of the account that borrow less" in text
    QueueShare.objects.filter(name="acme-speech").update(borrowed=5, share=79)
    again = shared.text("owner", "/workspaces/acme-vision/")
    assert DRAWN_ANEW.sub("", text) == DRAWN_ANEW.sub("", again)
    QueueShare.objects.all().delete()
    assert "Fair sharing" not in shared.text("owner", "/workspaces/acme-vision/")


def test_what_a_weight_changes_is_seen_before_it_is_saved(shared: Visitors):
    client = shared["admin"]
    answer = client.post(WEIGHT, {"weight": "4", "step": "preview"})
    rows = {now.name: (now, then) for now, then in answer.context["outlooks"][0].rows}
    now, then = rows["acme-vision"]
    assert (now.share, now.place, then.share, then.place) == (125, 2, 32, 1)
    assert rows["acme-speech"][1].place == 2
    shared.fleet.vision.refresh_from_db()
    assert shared.fleet.vision.fair_weight == 1
    assert not AuditEntry.objects.filter(action="workspace.weigh").exists()

    saved = client.post(WEIGHT, {"weight": "4", "reason": "They wait.", "step": "save"})
    assert saved.status_code == 302
    shared.fleet.vision.refresh_from_db()
    assert shared.fleet.vision.fair_weight == 4
    assert AuditEntry.objects.get(action="workspace.weigh").reason == "They wait."
    assert '<th scope="row">' in shared.text("admin", "/setup/workspaces/acme-vision/")


@pytest.mark.parametrize("weight", ["-1", "0.0001", "many", ""])
def test_weight_that_is_none_is_told_beside_its_field(shared: Visitors, weight: str):
    answer = shared["admin"].post(WEIGHT, {"weight": weight, "step": "save"})
    assert answer.status_code == 422
    assert set(answer.context["form"].errors) == {"weight"}


def test_only_admins_weigh(shared: Visitors):
    account = "/setup/accounts/acme/weight/"
    for role in ("owner", "viewer", "finance", "auditor", "nobody"):
        for address in (WEIGHT, account):
            assert shared[role].get(address).status_code == 403
            assert shared[role].post(address, {"weight": "2", "step": "save"}).status_code == 403
    assert shared["admin"].post(account, {"weight": "2", "step": "save"}).status_code == 302
    shared.fleet.acme.refresh_from_db()
    assert shared.fleet.acme.fair_weight == 2


def test_pages_say_where_fair_sharing_is_off(visitors: Visitors):
    add_cluster(is_fair=False)
    assert "Fair sharing is off wherever jobs are submitted" in visitors.text("admin", PAGE)
    assert "Fair sharing is off wherever jobs are submitted" in visitors.text("admin", WEIGHT)


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        pytest.param("3", 42, id="rounded up"),
        pytest.param("0.5", 250, id="less than the usual"),
        pytest.param("0", None, id="no bound"),
    ],
)
def test_share_by_another_weight_is_rounded_as_kueue_does(
    fleet: SmallFleet, weight: str, want: int | None
):
    add_cluster()
    add_share("acme-vision", 8, 125)
    (contest,) = contest_of(fleet.vision)
    ((_, then),) = with_weight(contest, "acme-vision", Decimal(weight)).rows
    assert then.share == want


def test_api_weighs_and_tells_the_weight(shared: Visitors):
    until = timezone.now() + timedelta(days=1)
    admin = shared.fleet.admin
    _, token = services.create_api_token(
        admin, user=admin, name="x", scope="write", expires_at=until
    )
    head = {"HTTP_AUTHORIZATION": f"Token {token}"}
    client = shared["anonymous"]
    address = "/api/v1/workspaces/acme-vision/weigh"
    body = {"weight": "2.5", "reason": "They wait."}
    answer = client.post(address, body, content_type="application/json", **head)
    assert answer.status_code == 200, answer.content
    assert answer.json()["fair_weight"] == "2.500"
    refused = client.post(address, {"weight": "-1"}, content_type="application/json", **head)
    assert refused.status_code == 422
