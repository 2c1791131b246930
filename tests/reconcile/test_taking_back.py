"""A cluster that was registered by mistake leaves nothing in the books once it is taken back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client

from budgets import selectors, services
from budgets.errors import NotAllowed, Rejected
from budgets.models import (
    AuditEntry,
    CapacityHour,
    Discrepancy,
    Interval,
    MeterState,
    Proposal,
    Role,
    UsageRecord,
    WorkloadUsage,
)
from budgets.services.billing.approvals import decide_proposal
from clusters.models import Cluster, ObjectState, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.build import build
from clusters.services import TakenBack, deregister_cluster, take_back_cluster
from tests.builders import SmallFleet, hours
from tests.reconcile.fleet_rows import register
from tests.reconcile.test_usage_build import RUNS, recorded, source

WHY = "it is gpu-east under another name"


@pytest.fixture
def hub(fleet: SmallFleet) -> Cluster:
    return register("hub", "apiVersion: v1", role="manager")


@pytest.fixture
def east(hub: Cluster) -> Cluster:
    """A worker with a job of the manager's, metered for ten hours."""
    cluster = register("gpu-east", "apiVersion: v1")
    recorded(hub, "m", 1, conditions=RUNS, flavor="h100", worker="gpu-east")
    recorded(cluster, "u", 1, conditions=RUNS, flavor="h100", is_copy=True)
    build(source(hub), ["m"])
    build(source(cluster), ["u"])
    metered()
    return cluster


@pytest.fixture
def twin(east: Cluster) -> Cluster:
    return registered_again()


def registered_again() -> Cluster:
    """The same worker once more: its copy of the job, and a job that is nobody's."""
    cluster = register("gpu-twin", "apiVersion: v1")
    recorded(cluster, "u", 1, conditions=RUNS, flavor="h100", is_copy=True)
    recorded(cluster, "x", 1, conditions=RUNS, flavor="h100", name="own")
    build(source(cluster), ["u", "x"])
    ObjectState.objects.create(
        cluster=cluster, kind="ClusterQueue", name="q", state="synced", changed_at=hours(1)
    )
    CapacityHour.objects.create(cluster="gpu-twin", flavor="h100", hour=hours(400), capacity=1)
    Discrepancy.objects.create(
        kind="capacity", cluster="gpu-twin", flavor="h100", start=hours(2), message="8 of 4"
    )
    metered()
    return cluster


def metered() -> None:
    MeterState.objects.update(complete_until=hours(11))
    services.meter_usage(hours(11))


def books() -> list[Any]:
    held = Interval.objects.exclude(state="superseded").order_by("cluster", "uid", "start")
    return [
        *held.values_list("cluster", "uid", "start", "end", "gpus", "kind"),
        *UsageRecord.objects.order_by("hour", "workspace").values_list("hour", "burst"),
        *WorkloadUsage.objects.order_by("hour", "uid").values_list("cluster", "uid", "hour"),
    ]


def forgotten(twin: Cluster, fleet: SmallFleet) -> Cluster:
    deregister_cluster(fleet.admin, cluster=twin, reason=WHY, abandon=True)
    twin.refresh_from_db()
    return twin


@pytest.mark.django_db
def test_what_a_wrong_cluster_left_is_taken_back_as_if_it_never_was(
    fleet: SmallFleet, east: Cluster
) -> None:
    before = books()
    twin = registered_again()
    assert books() != before, "the same GPUs count twice"
    forgotten(twin, fleet)
    metered()
    assert books() != before, "use stays in the books"

    in_books = books()
    waits = take_back_cluster(fleet.admin, cluster=twin, reason=WHY)
    assert isinstance(waits, Proposal)
    assert waits.seen["GPU-hours that leave the books"] == "80.0000"
    with pytest.raises(Rejected, match="waits; decide that one first"):
        take_back_cluster(fleet.admin, cluster=twin, reason=WHY)
    metered()
    assert books() == in_books, "nothing is taken back before finance approves"

    done = decide_proposal(fleet.finance, proposal=waits, is_approved=True)
    metered()

    assert books() == before
    assert done.outcome == "The use of 2 jobs on Gpu-Twin left the books."
    approval = done.approval
    assert approval is not None
    assert (approval.author, approval.approver) == (fleet.admin, fleet.finance)
    assert not WorkloadState.objects.filter(cluster=twin).exists()
    assert not ObjectState.objects.filter(cluster=twin).exists()
    assert not MeterState.objects.filter(cluster="gpu-twin").exists(), "it would keep months open"
    assert Discrepancy.objects.get().state == "cleared"
    assert WorkloadEvent.objects.filter(cluster="gpu-twin").count() == 2, "what was seen stays"
    entry = AuditEntry.objects.get(action="cluster.take_back")
    assert (entry.actor, entry.reason, entry.cluster) == (fleet.finance, WHY, "gpu-twin")
    assert (entry.after["jobs"], entry.after["hours"], entry.after["discrepancies"]) == (2, 1, 1)
    assert entry.after["intervals"] > 0


@pytest.mark.django_db
def test_use_leaves_the_books_only_once_finance_agrees(fleet: SmallFleet, twin: Cluster) -> None:
    """Admins and owners, alone or together, take no use out of the books."""
    waits = take_back_cluster(fleet.admin, cluster=forgotten(twin, fleet), reason=WHY)
    assert isinstance(waits, Proposal)
    in_books = books()
    for actor in (fleet.admin, fleet.owner, fleet.auditor):
        with pytest.raises(NotAllowed):
            decide_proposal(actor, proposal=waits, is_approved=True)
    services.grant_role(None, user=fleet.admin, role=Role.FINANCE)
    with pytest.raises(NotAllowed):
        decide_proposal(fleet.admin, proposal=waits, is_approved=True)
    with time_machine.travel(services.utc_now() + timedelta(days=2)):
        with pytest.raises(NotAllowed, match="other than the proposer"):
            decide_proposal(fleet.admin, proposal=waits, is_approved=True)
        decide_proposal(fleet.finance, proposal=waits, is_approved=False, reason="it is used")
    metered()
    assert books() == in_books


@pytest.mark.django_db
def test_what_is_not_in_the_books_is_taken_back_at_once(fleet: SmallFleet, hub: Cluster) -> None:
    empty = register("gpu-twin", "apiVersion: v1")
    recorded(empty, "w", 1, conditions={}, flavor="h100")
    build(source(empty), ["w"])
    done = take_back_cluster(fleet.admin, cluster=forgotten(empty, fleet), reason=WHY)
    assert isinstance(done, TakenBack)
    assert (done.jobs, done.intervals) == (1, 0)
    assert not Proposal.objects.exists()
    assert not WorkloadState.objects.filter(cluster=empty).exists()


@pytest.mark.django_db
def test_only_a_removed_cluster_is_taken_back_and_only_by_an_admin(
    fleet: SmallFleet, twin: Cluster
) -> None:
    before = books()
    with pytest.raises(Rejected, match="Forget the cluster first"):
        take_back_cluster(fleet.admin, cluster=twin, reason=WHY)
    Cluster.objects.filter(slug="hub").update(state="removed")
    with pytest.raises(Rejected, match="how use on its workers is billed"):
        take_back_cluster(fleet.admin, cluster=Cluster.objects.get(slug="hub"), reason=WHY)
    forgotten(twin, fleet)
    with pytest.raises(NotAllowed):
        take_back_cluster(fleet.finance, cluster=twin, reason=WHY)
    with pytest.raises(Rejected):
        take_back_cluster(fleet.admin, cluster=twin, reason="")
    assert books() == before


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["worker", "single"])
def test_an_admin_takes_it_back_on_a_page(fleet: SmallFleet, twin: Cluster, role: str) -> None:
    Cluster.objects.filter(pk=twin.pk).update(role=role)
    twin.refresh_from_db()
    clients = {name: Client() for name in ("admin", "finance")}
    for name, client in clients.items():
        client.force_login(getattr(fleet, name))
    admin, address = clients["admin"], "/clusters/gpu-twin/take-back/"
    assert admin.get(address).status_code == 404, "it is still registered"
    forgotten(twin, fleet)
    assert address in admin.get("/clusters/").content.decode()
    assert address not in clients["finance"].get("/clusters/").content.decode()
    assert clients["finance"].get(address).status_code == 403
    assert b"are no longer counted" in admin.get(address).content

    wrong = admin.post(address, {"slug": "gpu-east", "reason": WHY})
    assert wrong.status_code == 422 and b"Type gpu-twin to confirm" in wrong.content
    done = admin.post(address, {"slug": "gpu-twin", "reason": WHY}, follow=True)
    assert (
        "is made. The cluster&#x27;s use stays in the books until one of finance approves"
        in text_of(done)
    )
    waits = Proposal.objects.get()
    finance, proposal = clients["finance"], f"/billing/approvals/{waits.pk}/"
    assert proposal in text_of(finance.get("/billing/approvals/"))
    asked = text_of(finance.get(proposal))
    assert "GPU-hours that leave the books" in asked and WHY in asked
    assert admin.post(proposal, {"decision": "approve"}).status_code == 403
    assert finance.post(proposal, {"decision": "approve"}).status_code == 302
    assert address not in text_of(admin.get("/clusters/"))
    assert admin.get(address).status_code == 404, "nothing is left"
    assert not selectors.freshness().clusters.get("gpu-twin")
    Cluster.objects.filter(slug="hub").update(state="removed")
    assert "/clusters/hub/take-back/" not in text_of(admin.get("/clusters/"))
    assert admin.get("/clusters/hub/take-back/").status_code == 404, "a manager never is"


def text_of(answer: Any) -> str:
    return str(answer.content.decode())
