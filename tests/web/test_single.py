"""Pages of a cluster of its own: what is offered there, and what is not."""

from __future__ import annotations

import pytest

from clusters.models import Cluster, ClusterHealth
from clusters.vault import seal
from tests.builders import SmallFleet, line
from tests.web.conftest import Visitors
from tests.web.test_clusters import ADDRESS, kubeconfig

pytestmark = pytest.mark.django_db


def cluster(slug: str, role: str) -> Cluster:
    made = Cluster.objects.create(
        slug=slug,
        name=slug.title(),
        role=role,
        mode="kueue",
        server=f"https://{slug}.invalid",
        context=slug,
        user_kind="bearer token",
        kubeconfig_sealed=seal("none"),
    )
    ClusterHealth.objects.create(cluster=made, reachable=True)
    return made


def test_registration_proposes_a_cluster_of_its_own(visitors: Visitors) -> None:
    answer = visitors["admin"].post(ADDRESS, {"kubeconfig": kubeconfig(token="t")})
    assert answer.context["form"].initial["role"] == "single"
    assert "a cluster of its own: jobs are submitted there, and run there" in answer.text


def test_its_page_offers_maintenance_and_nothing_of_multikueue(visitors: Visitors) -> None:
    cluster("lab", "single")
    page = visitors["admin"].get("/clusters/lab/").text
    assert "Cordon for maintenance" in page
    assert "What if it is drained" in page
    for word in ("multikueue token", "Jobs that bypass the manager", "Guard …"):
        assert word not in page
    offered = visitors["admin"].get("/fleet/maintenance/plan/").text
    assert 'value="lab"' in offered


def test_its_page_leads_to_another_role_and_says_what_that_changes(visitors: Visitors) -> None:
    cluster("lab", "single")
    assert "Change the role …" in visitors["admin"].get("/clusters/lab/").text
    page = visitors["admin"].get("/clusters/lab/role/").text
    assert "A manager that also runs jobs itself: what changes" in page
    assert "AdmissionCheck <code>gpu-budget-portal</code>: is made" in page
    cluster("hub", "manager")
    page = visitors["admin"].get("/clusters/lab/role/").text
    assert "A manager that also runs jobs itself: not possible now" in page
    assert "Lab can stay a single cluster beside it" in page
    typed = {"role": "manager_runs_jobs", "reason": "grow"}
    answer = visitors["admin"].post("/clusters/lab/role/", typed)
    assert answer.status_code == 422
    assert "There is already a manager" in answer.text


def test_capacity_of_it_can_be_stated_and_is_refused_where_the_flavor_stands_elsewhere(
    visitors: Visitors,
) -> None:
    for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("lab", "single")):
        cluster(slug, role)
    typed = {"section": "stated", "cluster": "lab", "flavor": "h100", "gpus": "8"}
    answer = visitors["admin"].post("/setup/capacity/", typed)
    assert answer.status_code == 422
    assert "Make another flavor" in answer.text


def test_workspace_says_where_its_jobs_are_submitted(visitors: Visitors, fleet: SmallFleet) -> None:
    address = "/workspaces/acme-vision/"
    assert "No cluster is registered yet." in visitors["owner"].get(address).text
    cluster("gpu-east", "single")
    fleet.revise(fleet.vision, line("h100", 8))
    assert "On the cluster Gpu-East, where the job runs." in visitors["owner"].get(address).text
    cluster("hub", "manager")
    # Its flavor stands on the one cluster: nothing of it is sent to the fleet.
    page = visitors["owner"].get(address).text
    assert "On the cluster Gpu-East" in page
    assert "On the manager cluster" not in page
