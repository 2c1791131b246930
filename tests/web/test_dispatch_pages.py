"""Pages that show dispatch: the trail of a job, races of the fleet, settings of a manager."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from clusters.models import Cluster, ClusterHealth, DispatchRound, WorkloadEvent, WorkloadState
from tests.web.conftest import HTMX, Visitors

pytestmark = pytest.mark.django_db


@pytest.fixture
def manager(visitors: Visitors) -> Cluster:
    for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("gpu-west", "worker")):
        row = Cluster.objects.create(
            slug=slug, name=slug.title(), role=role, mode="portal", server="https://x.invalid",
            context=slug, user_kind="bearer token", kubeconfig_sealed=b"sealed",
        )  # fmt: skip
        ClusterHealth.objects.create(cluster=row, reachable=True, last_contact_at=timezone.now())
    return Cluster.objects.get(slug="hub")


@pytest.fixture
def dispatched(manager: Cluster) -> WorkloadState:
    now = timezone.now()
    DispatchRound.objects.create(
        cluster=manager, workload_uid="uid-1", namespace="acme-vision", name="train", attempt="a",
        number=1, dispatcher="gpu-budget-portal.dev/cheapest-fit", started_at=now,
        nominated=["gpu-east", "gpu-west"], why={"gpu-east": "1. in its own quota"},
        winner="gpu-east", losers={"gpu-west": now.isoformat()}, outcome="won", decided_at=now,
        ended_at=now + timedelta(hours=1), ending="Admitting remote lost",
    )  # fmt: skip
    return WorkloadState.objects.create(
        cluster=manager, uid="uid-1", namespace="acme-vision", name="train", job_name="train-job",
        phase="running", gpus={"h100": 8}, gpu_total=8, created_at=now, resource_version="1",
        evictions=1,
    )  # fmt: skip


def test_job_page_shows_its_rounds(visitors: Visitors, dispatched: WorkloadState):
    for role in ("owner", "viewer", "admin"):
        text = visitors.text(role, "/jobs/hub/uid-1/")
        for part in ("Round 1", "cheapest fit", "won", "Admitting remote lost"):
            assert part in text, part
        for part in ("lost the race", "own quota"):
            assert (part in text) is (role == "admin"), part
    assert visitors["stranger"].get("/jobs/hub/uid-1/").status_code == 404


def test_address_of_a_copy_leads_to_the_job(visitors: Visitors, dispatched: WorkloadState):
    WorkloadState.objects.create(
        cluster=Cluster.objects.get(slug="gpu-east"), uid="uid-copy", namespace="acme-vision",
        name="train", is_remote_copy=True, phase="gone", created_at=timezone.now(),
        resource_version="1",
    )  # fmt: skip
    answer = visitors["owner"].get("/jobs/gpu-east/uid-copy/")
    assert (answer.status_code, answer.url) == (302, "/jobs/hub/uid-1/")
    assert "<code>uid-copy</code>" in visitors.text("owner", answer.url)
    assert visitors["stranger"].get("/jobs/gpu-east/uid-copy/").status_code == 404
    dispatched.delete()
    assert "Was deleted before" in visitors.text("owner", "/jobs/gpu-east/uid-copy/")


def test_job_page_shows_preemptions_without_names_of_others(
    visitors: Visitors, dispatched: WorkloadState
):
    condition = {
        "type": "Preempted", "status": "True", "reason": "InCohortReclamation",
        "message": "Preempted to accommodate a workload (UID: uid-2, JobUID: u) due to "
        "reclamation within the cohort; preemptor path: /platform/globex-search",
        "lastTransitionTime": timezone.now().isoformat(),
    }  # fmt: skip
    WorkloadEvent.objects.create(
        cluster="hub", uid="uid-1", type="SEEN", namespace="acme-vision", name="train",
        resource_version="1", observed_at=timezone.now(), digest="d",
        payload={"status": {"conditions": [condition]}},
    )  # fmt: skip
    WorkloadState.objects.create(
        cluster=dispatched.cluster, uid="uid-2", namespace="globex-search", name="query",
        phase="running", created_at=timezone.now(), resource_version="1",
    )  # fmt: skip
    text = visitors.text("owner", "/jobs/hub/uid-1/")
    assert "a workload of another account" in text
    assert "it ran on borrowed GPUs, and the workspace that they are committed to" in text
    assert "globex" not in text
    assert "uid-2" not in text
    assert "/jobs/hub/uid-2/" in visitors.text("admin", "/jobs/hub/uid-1/")
    assert "/jobs/hub/uid-2/" in visitors.text("admin", "/clusters/")


def test_clusters_page_shows_races_outside_of_what_is_polled(
    visitors: Visitors, dispatched: WorkloadState
):
    text = visitors.text("admin", "/clusters/")
    assert "What runs where" in text
    assert '<td class="num" data-label="Races lost">1</td>' in text
    assert "What runs where" not in visitors.text("admin", "/clusters/", **HTMX)


@pytest.mark.parametrize(
    ("section", "want_words"),
    [
        pytest.param({}, "all at once", id="default"),
        pytest.param(
            {
                "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
                "incrementalDispatcherConfig": {"stepSize": 2},
            },
            "incremental, 2 workers every 5 min",
            id="incremental",
        ),
        pytest.param(
            {"dispatcherName": "gpu-budget-portal.dev/cheapest-fit", "workerLostTimeout": "1h"},
            "cheapest fit, 1 worker every 30 s",
            id="cheapest fit",
        ),
        pytest.param({"dispatcherName": "me.org/x"}, "external (me.org/x)", id="external"),
        pytest.param(
            {"externalFrameworks": [{"name": "PipelineRun.v1.tekton.dev"}]},
            "<code>PipelineRun.v1.tekton.dev</code>",
            id="kinds",
        ),
    ],
)
def test_page_of_a_manager_shows_the_dispatcher_in_force(
    visitors: Visitors, manager: Cluster, section, want_words
):
    manager.kueue_configuration = {"multiKueue": section}
    manager.save()
    text = visitors.text("admin", "/clusters/hub/")
    assert want_words in text
    assert "given up after" in text
    assert "given up after" not in visitors.text("admin", "/clusters/gpu-east/")


def test_configuration_with_unusable_dispatch_is_refused(visitors: Visitors, manager: Cluster):
    typed = "multiKueue:\n  workerLostTimeout: soon\n  externalFrameworks: [{name: PipelineRun}]\n"
    answer = visitors["admin"].post("/clusters/hub/configuration/", {"kueue_configuration": typed})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "workerLostTimeout" in text
    assert "PipelineRun.v1.tekton.dev" in text
