"""Pages of holding, cancelling and cordoning: what they show to whom, and what they refuse."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from budgets import services as promises
from budgets.selectors import utc_now
from clusters import services
from clusters.models import Cluster, MaintenanceWindow, WorkloadAction
from tests.acting.conftest import seen
from tests.builders import line
from tests.factories import WorkloadUsageFactory
from tests.reconcile.fleet_rows import register
from tests.web.conftest import Visitors

pytestmark = pytest.mark.django_db
ACT = "/jobs/act/"
PLAN = "/fleet/maintenance/plan/"


@pytest.fixture
def east(fleet) -> Cluster:
    return register("gpu-east", "kubeconfig")


def act(state, verb: str = "deactivate", **more) -> dict[str, str]:
    return {"verb": verb, "job": f"{state.cluster.slug}/{state.uid}", **more}


def test_cancelling_is_confirmed_with_what_it_touches(visitors: Visitors, east: Cluster) -> None:
    state = seen(east, "train")
    WorkloadUsageFactory(workspace=visitors.fleet.vision, uid=state.uid, committed_used=9000)
    page = visitors.text("owner", f"/jobs/gpu-east/{state.uid}/")
    assert f'/jobs/act/?verb=deactivate&amp;job=gpu-east/{state.uid}"' in page
    assert f'/jobs/act/?verb=delete_job&amp;job=gpu-east/{state.uid}"' in page
    confirm = visitors.text("owner", ACT, data=act(state))
    assert "train" in confirm and "8 GPUs" in confirm and ">2.5<" in confirm
    assert "leaves the queue" in confirm
    assert not WorkloadAction.objects.exists()
    answer = visitors["owner"].post(ACT, act(state, reason="wrong data"), follow=True)
    assert "once the cluster answers" in answer.content.decode()
    action = WorkloadAction.objects.get()
    assert (action.asked_by, action.reason) == (visitors.fleet.owner, "wrong data")
    page = visitors.text("owner", f"/jobs/gpu-east/{state.uid}/")
    assert "Not yet carried out" in page and "Take back" in page
    assert "Take back" not in visitors.text("viewer", f"/jobs/gpu-east/{state.uid}/")
    answer = visitors["owner"].post(reverse("job_act_withdraw", args=[action.pk]), follow=True)
    assert "Taken back" in answer.content.decode()
    action.refresh_from_db()
    assert action.state == "withdrawn"


@pytest.mark.parametrize(
    ("role", "status"), [("viewer", 403), ("finance", 403), ("stranger", 400), ("anonymous", 302)]
)
def test_who_may_not_cancel(visitors: Visitors, east: Cluster, role: str, status: int) -> None:
    state = seen(east, "train")
    assert visitors[role].get(ACT, act(state)).status_code == status
    answer = visitors[role].post(ACT, act(state, reason="x"))
    assert answer.status_code == status
    assert not WorkloadAction.objects.exists()
    if role in ("viewer", "finance"):
        assert ACT not in visitors.text(role, f"/jobs/gpu-east/{state.uid}/")


def test_posts_need_their_token(visitors: Visitors, east: Cluster) -> None:
    state = seen(east, "train")
    client = Client(enforce_csrf_checks=True)
    client.force_login(visitors.fleet.admin)
    assert client.post(ACT, act(state, reason="x")).status_code == 403
    assert client.post(PLAN, {"cluster": "gpu-east"}).status_code == 403
    assert not WorkloadAction.objects.exists()


def test_several_are_chosen_in_the_list(visitors: Visitors, east: Cluster) -> None:
    waiting = [seen(east, name, phase="pending", gpus={"": 8}) for name in ("one", "two")]
    over = seen(east, "over", phase="finished")
    plain = visitors.text("owner", "/jobs/")
    assert "checkbox" not in plain and "Choose several" in plain
    chosen = visitors.text("owner", "/jobs/?select=on")
    assert chosen.count('type="checkbox"') == 3
    assert "every 5s" not in chosen, "a list that renews itself would lose what is chosen"
    jobs = [f"gpu-east/{state.uid}" for state in (*waiting, over)]
    confirm = visitors.text("owner", ACT, data={"verb": "deactivate", "job": jobs})
    assert "Cancel 2 jobs" in confirm and "Not affected" in confirm
    answer = visitors["owner"].post(
        ACT, {"verb": "deactivate", "job": jobs, "reason": "x"}, follow=True
    )
    assert "2 jobs: each is cancelled" in answer.content.decode()
    assert WorkloadAction.objects.count() == 2


def test_a_reason_is_asked_for(visitors: Visitors, east: Cluster) -> None:
    answer = visitors["owner"].post(ACT, act(seen(east, "train"), reason=" "))
    assert answer.status_code == 422
    assert not WorkloadAction.objects.exists()


@pytest.mark.parametrize(
    "query", [{"verb": "shout"}, {"verb": "deactivate"}, {"job": "nonsense"}, {"job": "a/b"}]
)
def test_typed_nonsense_is_refused_in_words(visitors: Visitors, east: Cluster, query) -> None:
    answer = visitors["owner"].get(ACT, query)
    assert answer.status_code == 400


def typed(**changes) -> dict[str, str]:
    ends = utc_now() + timedelta(hours=4)
    return {
        "cluster": "gpu-east",
        "flavor": "",
        "starts_at": "",
        "ends_at": f"{ends:%Y-%m-%dT%H:%M}",
        "effect": "cordon",
        "reason": "new cooling",
        "step": "preview",
        **changes,
    }


@pytest.fixture
def floor(visitors: Visitors) -> int:
    """GPUs of acme-vision's floor on gpu-east."""
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 48))
    fleet.vision.budget.refresh_from_db()
    lines = fleet.vision.budget.in_force.lines.filter(allocations__cluster="gpu-east")
    return sum(lines.values_list("allocations__committed", flat=True))


@pytest.mark.parametrize(
    ("wish", "button"),
    [
        ({}, "Cordon"),
        ({"effect": "drain"}, "Drain and stop 1 job"),
        (
            {"effect": "drain", "starts_at": "2030-01-01T10:00", "ends_at": "2030-01-02T10:00"},
            "Plan to drain",
        ),
        ({"starts_at": "2030-01-01T10:00", "ends_at": "2030-01-02T10:00"}, "Plan to cordon"),
    ],
)
def test_button_says_what_it_does_to_jobs(
    visitors: Visitors, east: Cluster, wish: dict[str, str], button: str
) -> None:
    """Whether or not a floor stands there."""
    seen(east, "train")
    text = visitors["admin"].post(PLAN, typed(**wish)).content.decode()
    [found] = re.findall(r'value="save">([^<]*)</button>', text)
    assert " ".join(found.split()) == button


def test_a_window_is_previewed_then_planned_then_shown(
    visitors: Visitors, east: Cluster, floor: int
) -> None:
    seen(east, "train")
    preview = visitors["admin"].post(PLAN, typed()).content.decode()
    assert "acme-vision" in preview and f"{floor} of 48" in preview
    assert "1 job, 8 GPUs" in preview
    assert not MaintenanceWindow.objects.exists(), "a preview saves nothing"
    answer = visitors["admin"].post(PLAN, typed(step="save"), follow=True)
    assert "The maintenance of Gpu-East has begun" in answer.content.decode()
    window = MaintenanceWindow.objects.get()
    for role, address in (
        ("admin", "/fleet/"),
        ("auditor", "/fleet/maintenance/"),
        ("owner", "/fleet/maintenance/"),
        ("admin", "/clusters/gpu-east/"),
        ("viewer", "/workspaces/acme-vision/"),
    ):
        text = visitors.text(role, address)
        assert f"/fleet/maintenance/{window.pk}/" in text, (role, address)
    own = visitors.text("owner", "/workspaces/acme-vision/")
    assert f"{floor} of your 48 committed H100 are there" in own and "new cooling" in own
    page = visitors.text("owner", f"/fleet/maintenance/{window.pk}/")
    assert f"{floor} of 48" in page and "End it now" not in page
    assert visitors["stranger"].get(f"/fleet/maintenance/{window.pk}/").status_code == 404
    assert f"/{window.pk}/" not in visitors.text("stranger", "/fleet/maintenance/")
    answer = visitors["admin"].post(
        f"/fleet/maintenance/{window.pk}/", {"reason": "done"}, follow=True
    )
    assert "Closed" in answer.content.decode()
    assert "committed H100 are there" not in visitors.text("owner", "/workspaces/acme-vision/")


def test_only_admins_plan_and_end(visitors: Visitors, east: Cluster, floor: int) -> None:
    window = services.plan_maintenance(
        visitors.fleet.admin,
        cluster=east,
        flavor=None,
        starts_at=None,
        ends_at=utc_now() + timedelta(hours=1),
        drains=False,
        reason="x",
    )
    for role, status in (("owner", 403), ("finance", 403), ("anonymous", 302)):
        assert visitors[role].get(PLAN).status_code == status
        assert visitors[role].post(PLAN, typed(step="save")).status_code == status
    address = f"/fleet/maintenance/{window.pk}/"
    for role, status in (("owner", 403), ("finance", 403), ("stranger", 404)):
        assert visitors[role].post(address, {"reason": "x"}).status_code == status
    window.refresh_from_db()
    assert (window.state, MaintenanceWindow.objects.count()) == ("active", 1)


def test_a_bad_window_says_what_is_wrong_beside_the_fields(
    visitors: Visitors, east: Cluster
) -> None:
    answer = visitors["admin"].post(PLAN, typed(cluster="", ends_at="2020-01-01T00:00"))
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "Choose a worker, a flavor, or both" in text and "has to be after the start" in text


def test_a_hold_says_which_who_and_since_when(visitors: Visitors, east: Cluster) -> None:
    fleet = visitors.fleet
    stop = "/workspaces/acme-vision/budget/stop/"
    form = visitors.text("owner", stop)
    assert "running jobs finish, nothing new starts" in form
    assert "running jobs are stopped" in form
    fleet.vision.budget.refresh_from_db()
    version = fleet.vision.budget.version
    answer = visitors["owner"].post(
        stop, {"policy": "HoldAndDrain", "version": version, "reason": "over budget"}, follow=True
    )
    text = answer.content.decode()
    assert "Drained: running jobs are stopped" in text and "over budget" in text
    assert "olga, " in text and "Release" in text
    assert "Release" not in visitors.text("viewer", "/workspaces/acme-vision/")
    cluster = visitors.text("admin", "/clusters/gpu-east/")
    assert "Held queues" in cluster and "HoldAndDrain" in cluster
    promises.set_stop_policy(fleet.owner, budget=fleet.vision.budget, policy="None", reason="ok")
    assert "Held queues" not in visitors.text("admin", "/clusters/gpu-east/")
    assert "Release" not in visitors.text("owner", "/workspaces/acme-vision/")


def test_stuck_actions_stand_on_the_cluster(visitors: Visitors, east: Cluster) -> None:
    state = seen(east, "train")
    services.act_on_workloads(
        visitors.fleet.owner, jobs=[("gpu-east", state.uid)], verb="deactivate", reason="x"
    )
    WorkloadAction.objects.update(state="failed", message="The portal has no right.")
    text = visitors.text("admin", "/clusters/gpu-east/")
    assert "not carried out" in text and "The portal has no right." in text


def test_a_job_of_a_name_that_no_database_keeps_is_none(visitors: Visitors, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("clusters.selectors.workload_detail", lambda *given: asked.append(given))
    monkeypatch.setattr("clusters.services.jobs_at_stake", lambda *_, **given: asked.append(given))
    assert visitors["owner"].get("/jobs/hub/a%00b/").status_code == 404
    refused = visitors["owner"].get(f"{ACT}?job=hub/a%00b")
    assert refused.status_code == 400 and "is not a job" in refused.content.decode()
    assert visitors["owner"].post(ACT, {"job": "hub/a\0b", "verb": "deactivate"}).status_code == 400
    assert asked == []


def test_a_nul_does_not_come_to_the_database(visitors: Visitors) -> None:
    for address in ("/jobs/hub/a%00b/", f"{ACT}?job=hub/a%00b"):
        assert visitors["owner"].get(address).status_code in (400, 404)
