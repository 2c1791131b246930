"""Devices that jobs claim, from the queue to the bill: under the portal and under a real Kueue.

Both decide alike, in the same words, on an embedded cluster and on real API servers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from budgets import services
from budgets.models import Interval, UsageRecord
from clusters import services as cluster_services
from clusters.devcluster.access import Denial
from clusters.devcluster.controllers import JobRunner
from clusters.documents.conditions import condition, is_true
from clusters.jobs.table import KINDS
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kueue.workload.devices import UNREAD
from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
from clusters.models import Cluster, WorkloadState
from clusters.reconcile.one_off import explain_once
from portal.rehearsal.world import gpu_job
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.reconcile import admission_harness as harness
from tests.reconcile.fleet_rows import dev_server, register
from tests.reconcile.real_clusters import admin_client, grant_to
from tests.reconcile.test_single_cluster import LAB, VISION, Lone, billable, is_synced, lone
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.django_db

H100, CLASS, NAMED = "gpus.example.com/h100", "h100.gpu.example.com", "example.com/gpu"
COUNTED = {"resources": {"deviceClassMappings": [{"name": H100, "deviceClassNames": [CLASS]}]}}
AT = "spec.podSets[0].template.spec.resourceClaims[0]"
Document = dict[str, Any]


def of_class(fleet: SmallFleet) -> None:
    """The budget of H100 is one of the resource that their class counts as."""
    services.edit_flavor(None, flavor=fleet.flavors["h100"], resource_name=H100)


@pytest.fixture
def embedded(fleet: SmallFleet, settings) -> Iterator[Lone]:
    """The portal decides on an embedded cluster."""
    settings.PORTAL_INSTALLATION = "claims"
    of_class(fleet)
    with dev_server(LAB, webhooks=True) as server:
        runner = JobRunner(server.cluster)
        runner.start()
        register(LAB, server.kubeconfig, role="single", mode="portal")
        Cluster.objects.update(kueue_configuration=COUNTED)
        try:
            with (
                KubeClient.from_kubeconfig(server.kubeconfig) as user,
                lone(fleet, user, mode="portal") as found,
            ):
                yield found
        finally:
            runner.stop()


def real(fleet: SmallFleet, plane: ControlPlane, settings, *, mode: str) -> Iterator[Lone]:
    """Under the rights and policies that are generated for a cluster where claims count."""
    settings.PORTAL_INSTALLATION = "claims"
    settings.KUEUE_PROOF_SECONDS = PATIENCE_S if mode == "kueue" else 0.5
    of_class(fleet)
    row = Cluster(slug=LAB, role="single", mode=mode, kueue_configuration=COUNTED)
    grant_to(plane, row)
    text = plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
    made = cluster_services.register_cluster(
        None, slug=LAB, name=LAB, role="single", mode=mode, kubeconfig=text
    )
    cluster_services.set_kueue_configuration(fleet.admin, cluster=made, configuration=COUNTED)
    with admin_client(plane) as user, lone(fleet, user, mode=mode) as found:
        yield found


@pytest.fixture
def kueue(fleet: SmallFleet, own_cluster: ControlPlane, settings) -> Iterator[Lone]:
    """A real Kueue decides on a real API server."""
    own_cluster.start_kueue(COUNTED)
    yield from real(fleet, own_cluster, settings, mode="kueue")


@pytest.fixture
def bare(fleet: SmallFleet, own_cluster: ControlPlane, settings) -> Iterator[Lone]:
    """The portal decides on a real API server."""
    yield from real(fleet, own_cluster, settings, mode="portal")


COLUMNS = [
    pytest.param("embedded", marks=pytest.mark.embedded),
    pytest.param("kueue", marks=pytest.mark.controlplane),
    pytest.param("bare", marks=pytest.mark.controlplane),
]


@pytest.fixture(params=COLUMNS)
def cluster(request: pytest.FixtureRequest) -> Lone:
    return request.getfixturevalue(request.param)


def job(name: str, *claims: Document, **requests: str) -> Document:
    """A Job of one pod that claims devices, or asks for them by a name."""
    made = gpu_job(name, VISION, gpus=1, seconds=600, image="none", is_dispatched=False)
    pod = made["spec"]["template"]["spec"]
    [container] = pod["containers"]
    amounts = {"cpu": "1", "memory": "1Gi"} | requests
    container["resources"] = {"requests": amounts, "limits": requests}
    if claims:
        pod["resourceClaims"] = list(claims)
    return made


def by(template: str) -> Document:
    return {"name": template, "resourceClaimTemplateName": template}


def template(name: str, request: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": VISION},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", **request}]}}},
    }


def exactly(count: int, of: str = CLASS) -> Document:
    return {"exactly": {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}}


REFUSED = {
    "all": (
        template("all", {"exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}),
        f'{AT}.devices.requests[0].exactly.allocationMode: Invalid value: "All": '
        "ResourceClaimTemplate all: AllocationMode 'All' is not supported",
    ),
    "first": (
        template(
            "first",
            {
                "firstAvailable": [
                    {
                        "name": "a",
                        "deviceClassName": CLASS,
                        "allocationMode": "ExactCount",
                        "count": 1,
                    }
                ]
            },
        ),
        f"{AT}.devices.requests[0]: Invalid value: null: ResourceClaimTemplate first: "
        "FirstAvailable device selection is not supported",
    ),
    "unmapped": (
        template("unmapped", exactly(1, of="other.example.com")),
        f'{AT}.resourceClaimTemplateName: Not found: "DeviceClass other.example.com is not mapped '
        'in DRA configuration for podset main"',
    ),
}
MISSING = (
    f"{AT}: Internal error: failed to get claim spec for ResourceClaimTemplate two in podset main: "
    'ResourceClaimTemplate.resource.k8s.io "two" not found'
)
SHARED = "KueueDRAIntegration feature does not support use of resource claims"


def told(cluster: Lone, name: str) -> tuple[str, str]:
    found = condition(cluster.workload(name), "QuotaReserved")
    return found.get("reason", ""), found.get("message", "")


def counted(cluster: Lone, name: str) -> str:
    """What the admission of a job says of its devices."""
    assignment = cluster.workload(name)["status"]["admission"]["podSetAssignments"][0]
    assert assignment["flavors"][H100] == "h100"
    return str(assignment["resourceUsage"][H100])


def test_devices_of_claims_are_queued_admitted_metered_and_refused_alike(cluster: Lone) -> None:
    fleet, user = cluster.fleet, cluster.user
    fleet.revise(fleet.vision, line("h100", 8, 8))
    cluster.until(lambda: is_synced(cluster))

    # 1. A claim waits for its template, and goes on by itself when that comes.
    user.create(r.JOB, job("early", by("two")))
    cluster.until(lambda: told(cluster, "early") == ("Inadmissible", MISSING))
    user.create(r.RESOURCE_CLAIM_TEMPLATE, template("two", exactly(2)))
    cluster.until(lambda: cluster.runs("early"))
    assert counted(cluster, "early") == "2"

    # 2. So do devices that are asked for by the name of their class, out of the same quota.
    named = {"metadata": {"name": CLASS}, "spec": {"extendedResourceName": NAMED}}
    user.create(
        r.DEVICE_CLASS, {**named, "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    )
    user.create(r.JOB, job("named", **{NAMED: "1"}))
    cluster.until(lambda: cluster.runs("named"))
    assert counted(cluster, "named") == "1"

    # 3. What does not fit waits, and says how many devices it lacks; so do the pages.
    user.create(r.RESOURCE_CLAIM_TEMPLATE, template("seven", exactly(7)))
    user.create(r.JOB, job("late", by("seven")))
    lacking = (
        f"couldn't assign flavors to pod set main: insufficient unused quota for {H100} in flavor "
        "h100, 2 more needed"
    )
    cluster.until(lambda: told(cluster, "late") == ("Pending", lacking))
    states = WorkloadState.objects.filter(cluster__slug=LAB)
    cluster.until(lambda: states.filter(gpu_total=7, phase="pending").exists())
    assert sorted(states.filter(phase="running").values_list("gpu_total", flat=True)) == [1, 2]

    # Whoever asks the cluster itself counts the same.
    named_late = f"{VISION}/late"
    found = explain_once(user, named_late, configuration=COUNTED, now=services.utc_now())
    assert found.evidence is not None
    assert found.evidence["message"] == lacking

    # 4. What cannot be counted is refused before it is queued.
    for name, (document, message) in REFUSED.items():
        user.create(r.RESOURCE_CLAIM_TEMPLATE, document)
        user.create(r.JOB, job(name, by(name)))
        cluster.until(lambda name=name, want=message: told(cluster, name) == ("Inadmissible", want))
    user.create(r.JOB, job("shared", {"name": "gpu", "resourceClaimName": "mine"}))
    cluster.until(lambda: told(cluster, "shared") == ("Inadmissible", SHARED))

    # 5. Use: what ran is in the facts, by the flavor whose devices it held.
    enough = time.monotonic() + 2  # use is counted in whole seconds
    cluster.until(lambda: time.monotonic() > enough)
    for name in ("late", *REFUSED, "shared"):  # else what waits would run when the others end
        user.delete(r.JOB, name, namespace=VISION)
    cluster.until(lambda: not cluster.workload("late"))
    cluster.clear()
    cluster.until(lambda: not user.list(r.WORKLOAD, Selection(namespace=VISION)).items)
    rows = Interval.objects.filter(workspace=fleet.vision).exclude(state="superseded")
    cluster.until(lambda: rows.exists() and not rows.filter(end=None).exists())
    assert sorted(rows.values_list("flavor", "gpus")) == [("h100", 1), ("h100", 2)]

    def has_metered() -> bool:
        services.meter_usage(services.utc_now())
        found = UsageRecord.objects.filter(workspace=fleet.vision)
        return sum(row.committed_used + row.burst for row in found) == billable(fleet.vision) > 0

    cluster.until(has_metered)


@pytest.mark.embedded
def test_job_waits_again_when_its_template_goes_before_it_has_quota(embedded: Lone) -> None:
    embedded.fleet.revise(embedded.fleet.vision, line("h100", 4, 4))
    embedded.until(lambda: is_synced(embedded))
    user = embedded.user
    user.create(r.RESOURCE_CLAIM_TEMPLATE, template("two", exactly(5)))
    user.create(r.JOB, job("train", by("two")))
    embedded.until(lambda: "insufficient quota" in told(embedded, "train")[1])
    user.delete(r.RESOURCE_CLAIM_TEMPLATE, "two", namespace=VISION)
    embedded.until(lambda: told(embedded, "train") == ("Inadmissible", MISSING))
    user.create(r.RESOURCE_CLAIM_TEMPLATE, template("two", exactly(4)))
    embedded.until(lambda: is_true(embedded.workload("train"), "Admitted"))
    assert counted(embedded, "train") == "4"


@pytest.mark.embedded
def test_where_templates_may_not_be_read_jobs_with_claims_say_so_until_they_may() -> None:
    """Not that a template is missing, which nobody could mend by creating it."""
    counted = {"name": harness.GPU, "deviceClassNames": [CLASS]}
    configuration = {"resources": {"deviceClassMappings": [counted]}}
    train = harness.job("train")
    train["spec"]["template"]["spec"]["resourceClaims"] = [by("two")]
    with harness.Embedded("w1", webhooks=True) as world:
        place = world["w1"]
        assert place.server is not None
        denials = place.server.cluster.access.denials
        denial = Denial(verbs=("list", "watch"), resources=("resourceclaimtemplates",))
        denials.append(denial)
        place.create(*harness.quota_objects(4), template("two", exactly(2)), train)
        world.start("w1", "admission", kueue_configuration=configuration)

        def message() -> str:
            return str(condition(place.workload_of("train") or {}, "QuotaReserved").get("message"))

        eventually(lambda: message().endswith(UNREAD), why=message)
        denials.remove(denial)
        eventually(lambda: is_true(place.workload_of("train") or {}, "Admitted"), why=message)
        found = place.workload_of("train") or {}
        assert found["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] == {
            "cpu": "4",
            "memory": "16Gi",
            harness.GPU: "3",
        }


def test_job_whose_claims_changed_is_no_longer_that_of_its_workload() -> None:
    """What was counted is not what would start, whatever the containers say."""
    kind = KINDS[r.JOB.group, r.JOB.kind]
    made = job("train", by("two"))
    workload = {"spec": {"podSets": kind.asked(made)}}
    assert kind.is_in_sync(made, workload)
    assert not kind.is_in_sync(job("train", by("nine")), workload)
    assert not kind.is_in_sync(job("train", by("two"), by("nine")), workload)
