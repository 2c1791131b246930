"""The guard's switch and what it tells: pages, API, preflight."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry
from clusters import selectors, services
from clusters.manifests.rights import portal_rules
from clusters.models import Cluster, ClusterHealth, GuardIncident, NominationWay, WorkloadState
from clusters.reconcile.claims import roles_for
from clusters.selectors.places import post_of
from tests.web.conftest import Visitors

pytestmark = pytest.mark.django_db


@pytest.fixture
def manager(visitors: Visitors) -> Cluster:
    for slug, role in (("hub", "manager"), ("gpu-east", "worker")):
        row = Cluster.objects.create(
            slug=slug, name=slug.title(), role=role, mode="kueue", server="https://x.invalid",
            context=slug, user_kind="bearer token", kubeconfig_sealed=b"sealed",
            kueue_configuration={
                "multiKueue": {"dispatcherName": "gpu-budget-portal.dev/cheapest-fit"}
            },
        )  # fmt: skip
        ClusterHealth.objects.create(cluster=row, reachable=True, last_contact_at=timezone.now())
    return Cluster.objects.get(slug="hub")


@pytest.fixture
def incident(manager: Cluster) -> GuardIncident:
    now = timezone.now()
    WorkloadState.objects.create(
        cluster=manager, uid="uid-1", namespace="acme-vision", name="train", job_name="train-job",
        phase="running", gpus={"h100": 8}, gpu_total=8, created_at=now, resource_version="1",
    )  # fmt: skip
    return GuardIncident.objects.create(
        cluster=manager, defect="stale-copy", workload_uid="uid-1", namespace="acme-vision",
        name="train", worker="gpu-east", found="gpu-east still has an old copy of this job",
        done="Deleted the old copy on gpu-east, its job first", state="cured",
        noticed_at=now - timedelta(minutes=2), acted_at=now, ended_at=now,
    )  # fmt: skip


def test_cluster_pages_show_incidents_and_the_way_in_force(
    visitors: Visitors, incident: GuardIncident
):
    NominationWay.objects.create(
        cluster=incident.cluster, way="hand-over", why="The gate is off.", checked_at=timezone.now()
    )
    text = visitors.text("admin", "/clusters/hub/")
    for part in ("M4: merge patch", "The gate is off.", "reports only", "old copy of"):
        assert part in text, part
    assert "Deleted the old copy on gpu-east" in visitors.text("admin", "/clusters/gpu-east/")
    assert "M4: merge patch" not in visitors.text("admin", "/clusters/gpu-east/")


def test_job_page_shows_its_incidents_to_those_who_may_see_the_job(
    visitors: Visitors, incident: GuardIncident
):
    for role in ("owner", "viewer", "admin"):
        text = visitors.text(role, "/jobs/hub/uid-1/")
        assert "returning worker" in text and "still has an old copy of this job" in text
        assert "Cured by the portal" in text
    assert visitors["stranger"].get("/jobs/hub/uid-1/").status_code == 404


def test_admin_sets_the_guard_with_a_reason_and_it_is_audited(visitors: Visitors, manager: Cluster):
    page = "/clusters/hub/guard/"
    assert "returning worker" in visitors.text("admin", page)
    answer = visitors["admin"].post(page, {"guard": "cure", "reason": "tried in the lab"})
    assert answer.status_code == 302
    manager.refresh_from_db()
    assert manager.guard == "cure"
    entry = AuditEntry.objects.get(action="cluster.guard")
    assert (entry.before, entry.after) == ({"guard": "tell"}, {"guard": "cure"})
    assert entry.reason == "tried in the lab"
    assert visitors["owner"].post(page, {"guard": "off", "reason": "x"}).status_code in (403, 404)


def test_guard_is_set_by_admins_on_managers_to_known_values(visitors: Visitors, manager: Cluster):
    worker = Cluster.objects.get(slug="gpu-east")
    with pytest.raises(Rejected, match="Set the guard on the manager"):
        services.set_guard(None, cluster=worker, guard="cure")
    with pytest.raises(Rejected):
        services.set_guard(None, cluster=manager, guard="loud")
    with pytest.raises(NotAllowed):
        services.set_guard(visitors.users["owner"], cluster=manager, guard="cure")


@pytest.mark.parametrize(
    ("guard", "dispatcher", "want_shift"),
    [
        pytest.param("tell", "", True, id="a guard that tells has to look"),
        pytest.param("off", "gpu-budget-portal.dev/cheapest-fit", True, id="the portal nominates"),
        pytest.param("off", "", False, id="nothing to do"),
    ],
)
def test_manager_under_kueue_has_a_dispatch_shift_where_it_has_work(
    manager: Cluster, guard: str, dispatcher: str, want_shift: bool
):
    manager.guard = guard
    manager.kueue_configuration = {"multiKueue": {"dispatcherName": dispatcher}}
    assert ("dispatch" in roles_for(manager)) is want_shift
    worker = Cluster.objects.get(slug="gpu-east")
    assert "dispatch" not in roles_for(worker)


def granted(manager: Cluster, **changes: object) -> set[tuple[str, str]]:
    """(resource, first words of why) of the portal's rules on a manager under Kueue."""
    for name, value in changes.items():
        setattr(manager, name, value)
    manager.save()
    rules = portal_rules(post_of(Cluster(role="manager", mode="kueue")))
    return {(item, rule.why.split(" ")[0]) for rule in rules for item in rule.resources}


def test_rights_follow_guard_and_dispatcher(manager: Cluster):
    nominating, curing = ("workloads/status", "nominating"), ("jobs/status", "giving")
    none = granted(manager, guard="tell", kueue_configuration={})
    assert nominating not in none and curing not in none
    cures = granted(manager, guard="cure")
    assert nominating not in cures and {curing, ("workloads/status", "putting")} <= cures
    dispatcher = {"multiKueue": {"dispatcherName": "gpu-budget-portal.dev/cheapest-fit"}}
    nominates = granted(manager, guard="off", kueue_configuration=dispatcher)
    assert curing not in nominates and {nominating, ("workloads", "nominating")} <= nominates
    documents = selectors.rights_documents(Cluster(role="manager", mode="kueue"))
    assert "mutatingadmissionpolicybindings" in str(documents)


@pytest.mark.parametrize("page", ["/clusters/hub/", "/jobs/hub/uid-1/"])
def test_more_incidents_ask_no_more_questions(
    visitors: Visitors, incident: GuardIncident, page: str
):
    visitors["admin"].get(page)
    with CaptureQueriesContext(connection) as one:
        visitors["admin"].get(page)
    for hours in range(1, 9):
        incident.pk, incident.noticed_at = None, timezone.now() - timedelta(hours=hours)
        incident.save()
    with CaptureQueriesContext(connection) as many:
        text = visitors.text("admin", page)
    assert text.count("still has an old copy") == 9
    assert len(many) == len(one)
