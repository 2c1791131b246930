"""A cluster of its own, from the budget to the bill: on embedded and on real API servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from budgets import services
from budgets.models import Interval, StatementLine, UsageRecord, Workspace
from budgets.services import billing
from budgets.services.spending import remove_spend_rule
from clusters import selectors
from clusters.devcluster.controllers import JobRunner
from clusters.documents import labels
from clusters.documents.conditions import condition, is_true
from clusters.documents.queues import FLEET_QUEUE, dispatched_queue
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.manifests.names import ADMISSION_CHECK, SPEND_CHECK
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post
from clusters.manifests.wish import PolicyWish
from clusters.models import Cluster, WorkloadState
from clusters.reconcile.admission.body import AdmissionBody
from clusters.reconcile.context import registered
from clusters.services import change_role
from clusters.vault import unseal
from portal.rehearsal.world import gpu_job
from tests.billing.conftest import active_card, price
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import NodeShape
from tests.controlplane.rest import ApiError
from tests.policies.ground import apply_policies
from tests.reconcile.deciding import deciding
from tests.reconcile.fleet_rows import Hand, dev_server, quota_hand, register
from tests.reconcile.real_clusters import admin_client, grant_to, register_real
from tests.reconcile.real_road import Road, hand_over_namespaces
from tests.reconcile.spend_hand import SpendHand, granted, spend_hand, spent
from tests.reconcile.usage_hand import UsageHand, ago, kueue_on, usage_hand
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.django_db
LAB = "gpu-east"
"""Where the small fleet has most of its GPUs; here it is a cluster of its own."""
VISION, SPEECH = "acme-vision", "acme-speech"


@dataclass
class Lone:
    """The one cluster: who submits there, and the bodies that a test turns."""

    fleet: SmallFleet
    user: KubeClient
    quota: Hand
    usage: UsageHand
    spend: SpendHand
    admission: AdmissionBody | None

    def turn(self) -> None:
        self.quota.settle(turns=1)
        if self.admission is not None:
            self.admission.turn()
        self.spend.body.turn()
        self.usage.body._reported_at = 0.0
        self.usage.body.turn()

    def until(self, check: Callable[[], Any]) -> Any:
        ends = time.monotonic() + 2 * PATIENCE_S
        while True:
            self.turn()
            if found := check():
                return found
            assert time.monotonic() < ends, self.told()
            time.sleep(0.02)

    def told(self) -> str:
        found = self.user.list(r.WORKLOAD).items
        return str([(item["metadata"]["name"], item.get("status")) for item in found])

    def submit(self, name: str, namespace: str = VISION, *, seconds: int = 600) -> None:
        made = gpu_job(name, namespace, gpus=8, seconds=seconds, image="none", is_dispatched=False)
        self.user.create(r.JOB, made)

    def workload(self, name: str, namespace: str = VISION) -> dict[str, Any]:
        for found in self.user.list(r.WORKLOAD, Selection(namespace=namespace)).items:
            owners = found["metadata"].get("ownerReferences") or []
            if any(owner["name"] == name for owner in owners):
                return found
        return {}

    def runs(self, name: str, namespace: str = VISION) -> bool:
        job = self.user.get(r.JOB, name, namespace=namespace)
        is_started = bool((job.get("status") or {}).get("startTime"))
        return is_started and is_true(self.workload(name, namespace), "Admitted")

    def waits(self, name: str) -> bool:
        found = self.workload(name)
        return bool(found) and not is_true(found, "QuotaReserved")

    def is_over(self, name: str, namespace: str = VISION) -> bool:
        return is_true(self.workload(name, namespace), "Finished")

    def clear(self) -> None:
        for namespace in (VISION, SPEECH):
            for job in self.user.list(r.JOB, Selection(namespace=namespace)).items:
                with suppress(NotFound):
                    self.user.delete(r.JOB, job["metadata"]["name"], namespace=namespace)


@contextmanager
def lone(fleet: SmallFleet, user: KubeClient, *, mode: str) -> Iterator[Lone]:
    """gpu-east is registered as a cluster of its own by now; nothing else is there."""
    services.retire_capacity(None, cluster="gpu-west", reason="There is one cluster.")
    facts = registered(LAB)
    assert facts is not None
    assert facts.facts.is_single
    with ExitStack() as stack:
        client = stack.enter_context(KubeClient.from_kubeconfig(unseal(facts.sealed)))
        found = Lone(
            fleet,
            user,
            stack.enter_context(quota_hand(LAB)),
            stack.enter_context(usage_hand(LAB)),
            stack.enter_context(spend_hand(client, facts.facts)),
            stack.enter_context(deciding(LAB, AdmissionBody)) if mode == "portal" else None,
        )
        yield found
        found.clear()
        Cluster.objects.update(state=Cluster.State.DRAINING, writes_enabled=True)
        found.until(lambda: not Cluster.objects.exclude(state="removed").exists())


@pytest.fixture
def embedded(fleet: SmallFleet, settings) -> Iterator[Lone]:
    """The portal decides on an embedded cluster."""
    settings.PORTAL_INSTALLATION = "lone"
    with dev_server(LAB, webhooks=True) as server:
        runner = JobRunner(server.cluster)
        runner.start()
        register(LAB, server.kubeconfig, role="single", mode="portal")
        try:
            with (
                KubeClient.from_kubeconfig(server.kubeconfig) as user,
                lone(fleet, user, mode="portal") as found,
            ):
                yield found
        finally:
            runner.stop()


def real(fleet: SmallFleet, planes: Fleet, settings, *, mode: str) -> Iterator[Lone]:
    """Of a shared fleet its first worker alone, under the generated rights of a single cluster."""
    settings.PORTAL_INSTALLATION = f"t{time.monotonic_ns() % 10**9}"
    settings.KUEUE_PROOF_SECONDS = PATIENCE_S if mode == "kueue" else 0.5
    plane = planes.workers[0]
    hand_over_namespaces(plane)
    plane.create_nodes(3, shape=NodeShape(labels={"gpu": "h100"}), prefix=f"lone-{mode}")
    register_real(plane, LAB, role="single", mode=mode)
    with admin_client(plane) as user, lone(fleet, user, mode=mode) as found:
        yield found


@pytest.fixture
def kueue(fleet: SmallFleet, kueue_fleet: Fleet, settings) -> Iterator[Lone]:
    """A real Kueue decides on a real API server."""
    yield from real(fleet, kueue_fleet, settings, mode="kueue")


@pytest.fixture
def bare(fleet: SmallFleet, bare_fleet: Fleet, settings) -> Iterator[Lone]:
    """The portal decides on a real API server."""
    bare_fleet.workers[0].play_pods()
    yield from real(fleet, bare_fleet, settings, mode="portal")


COLUMNS = [
    pytest.param("embedded", marks=pytest.mark.embedded),
    pytest.param("kueue", marks=pytest.mark.controlplane),
    # In the lanes a rehearsal walks there.
    pytest.param("bare", marks=[pytest.mark.controlplane, pytest.mark.slow]),
]


@pytest.fixture(params=COLUMNS)
def cluster(request: pytest.FixtureRequest) -> Lone:
    return request.getfixturevalue(request.param)


def test_a_job_for_another_cluster_holds_nothing_and_says_what_to_change(embedded: Lone) -> None:
    """spec.managedBy leaves it to dispatch, and there is none."""
    embedded.fleet.revise(embedded.fleet.vision, line("h100", 8, 16))
    embedded.until(lambda: is_synced(embedded))
    made = gpu_job("left", VISION, gpus=8, seconds=600, image="none", is_dispatched=True)
    assert made["spec"]["managedBy"] == labels.MULTIKUEUE
    embedded.user.create(r.JOB, made)
    embedded.until(lambda: condition(embedded.workload("left"), "QuotaReserved"))
    found = condition(embedded.workload("left"), "QuotaReserved")
    assert found["reason"] == "Inadmissible"
    assert "submit it again without that field" in found["message"]

    def told() -> list[dict[str, Any]]:
        events = embedded.user.list(r.EVENT, Selection(namespace=VISION)).items
        return [item for item in events if item["reason"] == "Refused"]

    [event] = embedded.until(told)
    assert event["message"] == found["message"]
    # What others submit has all of the quota.
    embedded.submit("mine")
    embedded.until(lambda: embedded.runs("mine"))
    assert embedded.waits("left")


@pytest.mark.controlplane
@pytest.mark.parametrize("is_portal_mode", [True, False], ids=["portal", "kueue"])
def test_policies_of_a_manager_that_runs_jobs_tell_its_two_queues_apart(
    bare_cluster: ControlPlane, is_portal_mode: bool
) -> None:
    """A job for a worker is refused in ``default`` and taken in ``fleet``."""
    post = Post(True, is_portal_mode, "grown", has_own_queue=True)
    place = {"metadata": {"name": "grown-team", "labels": {labels.INSTALLATION: "grown"}}}
    bare_cluster.rest.ensure("/api/v1/namespaces", {"kind": "Namespace", **place})
    apply_policies(bare_cluster, policy_documents(PolicyWish(post)))

    def answer(queue: str, *, is_dispatched: bool) -> str:
        made = gpu_job(
            "job", "grown-team", gpus=1, seconds=1, image="none", is_dispatched=is_dispatched
        )
        made["metadata"]["labels"][labels.QUEUE] = queue
        try:
            tenant.create("/apis/batch/v1/namespaces/grown-team/jobs?dryRun=All", made)
        except ApiError as error:
            return str(error)
        return ""

    tenant = bare_cluster.rest_as("alice")
    want = "Jobs that go to a worker are submitted to queue fleet"
    try:
        eventually(
            lambda: want in answer("default", is_dispatched=True),
            why=lambda: answer("default", is_dispatched=True),
        )
        assert answer(FLEET_QUEUE, is_dispatched=True) == ""
        assert answer("default", is_dispatched=False) == ""
    finally:
        tenant.close()


@pytest.mark.controlplane
@pytest.mark.parametrize("is_portal_mode", [True, False], ids=["portal", "kueue"])
def test_policies_of_a_cluster_of_its_own_refuse_a_job_for_another_one(
    bare_cluster: ControlPlane, is_portal_mode: bool
) -> None:
    """In both modes; the same job without the field is taken."""
    post = Post(False, is_portal_mode, "alone", is_single=True)
    place = {"metadata": {"name": "alone-team", "labels": {labels.INSTALLATION: "alone"}}}
    bare_cluster.rest.ensure("/api/v1/namespaces", {"kind": "Namespace", **place})
    apply_policies(bare_cluster, policy_documents(PolicyWish(post)))

    def answer(name: str, **spec: Any) -> str:
        made = gpu_job(name, "alone-team", gpus=1, seconds=1, image="none", is_dispatched=False)
        made["spec"] |= {"suspend": True, **spec}
        try:
            tenant.create("/apis/batch/v1/namespaces/alone-team/jobs?dryRun=All", made)
        except ApiError as error:
            return str(error)
        return ""

    tenant = bare_cluster.rest_as("alice")
    left = {"managedBy": labels.MULTIKUEUE}
    want = "leave out spec.managedBy, which is kueue.x-k8s.io/multikueue"
    try:
        eventually(lambda: want in answer("left", **left), why=lambda: answer("left", **left))
        assert answer("mine") == ""
    finally:
        tenant.close()


def is_synced(cluster: Lone) -> bool:
    """Whether the newest budgets stand on the cluster, their queues included."""
    found = {row["metadata"]["name"] for row in cluster.user.list(r.LOCAL_QUEUE).items}
    return "default" in found and Road.is_settled()


def kinds_there(cluster: Lone) -> set[str]:
    listed = (r.MULTIKUEUE_CLUSTER, r.MULTIKUEUE_CONFIG, r.ADMISSION_CHECK, r.SECRET)
    return {
        f"{kind.kind} {item['metadata']['name']}"
        for kind in listed
        for item in cluster.user.list(kind).items
        if item["metadata"].get("labels", {}).get(labels.INSTALLATION)
        == cluster.quota.context.cluster.installation
    }


def billable(workspace: Workspace) -> int:
    """GPU-seconds of closed intervals; none is left open."""
    rows = Interval.objects.filter(workspace=workspace).exclude(state="superseded")
    assert {row.kind for row in rows} <= {"billable"}
    return sum(
        row.gpus * int((row.end - row.start).total_seconds()) for row in rows if row.end is not None
    )


def test_a_budget_is_admitted_reclaimed_metered_and_billed_on_one_cluster(cluster: Lone) -> None:
    """The floor, then burst out of what a neighbour lends, until the neighbour wants it back."""
    fleet = cluster.fleet
    fleet.revise(fleet.vision, line("h100", 8, 16))
    fleet.revise(fleet.speech, line("h100", 8))
    active_card(fleet, price("h100", "360.00", "720.00", "0"))
    cluster.until(lambda: is_synced(cluster))
    assert kinds_there(cluster) == set()

    # 1. Admission: the floor and the burst run, more waits for its ceiling.
    cluster.submit("floor")
    cluster.until(lambda: cluster.runs("floor"))
    cluster.submit("burst")
    cluster.until(lambda: cluster.runs("burst"))
    # Use is counted in whole seconds: some of burst, however quick the machine is.
    enough = time.monotonic() + 2
    cluster.until(lambda: time.monotonic() > enough)
    cluster.submit("beyond")
    cluster.until(lambda: cluster.waits("beyond"))
    # 2. The neighbour's floor is a guarantee: what was lent comes back.
    cluster.submit("theirs", SPEECH)
    both = ("floor", "burst")
    cluster.until(lambda: cluster.runs("theirs", SPEECH) and not all(map(cluster.runs, both)))
    assert any(map(cluster.runs, both))

    # 3. The page of jobs has each once, on this cluster.
    cluster.until(lambda: WorkloadState.objects.filter(cluster__slug=LAB).count() == 4)
    page = selectors.workloads(fleet.owner, selectors.WorkloadFilter())
    assert {row.name.split("-")[1] for row in page.rows} == {"floor", "burst", "beyond"}
    assert {row.worker for row in page.rows} == {LAB}

    # 4. Use: what the intervals hold is in the facts, floor and burst apart.
    cluster.clear()
    open_ones = Interval.objects.filter(end=None).exclude(state="superseded")
    cluster.until(lambda: not cluster.user.list(r.WORKLOAD, Selection(namespace=VISION)).items)
    cluster.until(lambda: not open_ones.exists())

    def has_metered() -> bool:
        services.meter_usage(services.utc_now())
        rows = UsageRecord.objects.filter(workspace=fleet.vision)
        return sum(row.committed_used + row.burst for row in rows) == billable(fleet.vision) > 0

    cluster.until(has_metered)
    rows = UsageRecord.objects.filter(workspace=fleet.vision)
    burst_s = sum(row.burst for row in rows)
    assert burst_s > 0

    # 5. Money: burst at its own price, to the second.
    months = {f"{row.hour:%Y-%m}" for row in rows if row.burst}
    for month in months:
        billing.draw_up_statements(fleet.finance, month=month)
    lines = StatementLine.objects.filter(workspace=fleet.vision, kind="burst")
    billed = sum(row.amount for row in lines)
    exact = Decimal(burst_s) * 720 / 3600
    assert abs(billed - exact) <= Decimal("0.01") * len(lines)


def test_a_hard_cap_holds_new_jobs_back_on_one_cluster(cluster: Lone) -> None:
    """The portal's own check, where jobs are submitted; MultiKueue's is not there."""
    fleet = cluster.fleet
    fleet.revise(fleet.vision, line("h100", 8, 16))
    spent(fleet, burst_hours=20)
    rule = granted(fleet, 10)
    cluster.until(lambda: is_synced(cluster) and kinds_there(cluster))
    assert kinds_there(cluster) == {f"AdmissionCheck {SPEND_CHECK}"}
    cluster.submit("capped")
    cluster.until(lambda: cluster.workload("capped"))
    cluster.until(lambda: stop_policy(cluster) == "Hold")
    assert not cluster.runs("capped")
    remove_spend_rule(fleet.owner, rule=rule, reason="test")
    cluster.spend.settle_now()
    cluster.until(lambda: cluster.runs("capped"))


@pytest.mark.controlplane
def test_a_real_kueue_runs_a_job_on_while_its_cluster_becomes_a_manager_and_one_again(
    kueue: Lone, kueue_fleet: Fleet
) -> None:
    """Every object is accepted, and the admission of the job is the same one at the end."""
    plane, queue = kueue_fleet.workers[0], dispatched_queue(VISION)
    kueue.fleet.revise(kueue.fleet.vision, line("h100", 16, 16))
    kueue.until(lambda: is_synced(kueue))
    kueue.submit("across")
    kueue.until(lambda: kueue.runs("across"))
    admitted = condition(kueue.workload("across"), "Admitted")

    def become(role: str, is_there: Callable[[], bool]) -> None:
        row = Cluster.objects.get(slug=LAB)
        made = change_role(kueue.fleet.admin, cluster=row, role=role, reason="test")
        grant_to(plane, made)
        with quota_hand(LAB) as hand:

            def is_so() -> bool:
                hand.sweep()
                hand.settle(turns=5)
                return is_there()

            eventually(is_so, why=kueue.told)

    def queues() -> set[str]:
        return {row["metadata"]["name"] for row in kueue.user.list(r.CLUSTER_QUEUE).items}

    become("manager_runs_jobs", lambda: queue in queues() and len(kinds_there(kueue)) == 1)
    checks = kueue.user.get(r.CLUSTER_QUEUE, queue)["spec"]["admissionChecksStrategy"]
    assert checks["admissionChecks"] == [{"name": ADMISSION_CHECK}]
    kueue.submit("beside")
    eventually(lambda: kueue.runs("beside"), why=kueue.told)
    become("single", lambda: queue not in queues() and not kinds_there(kueue))
    assert kueue.runs("across")
    assert condition(kueue.workload("across"), "Admitted") == admitted


@pytest.mark.embedded
def test_what_calls_itself_a_copy_is_billed_on_a_cluster_of_its_own(
    fleet: SmallFleet, settings
) -> None:
    """Beside a fleet whose manager marks its copies so; there is nobody to copy from here."""
    register("hub", "none", role="manager", mode="portal")
    with dev_server(LAB) as server:
        register(LAB, server.kubeconfig, role="single", mode="portal")
        with KubeClient.from_kubeconfig(server.kubeconfig) as client, usage_hand(LAB) as hand:
            there = kueue_on(client, VISION)
            there.submit("false", origin=settings.PORTAL_INSTALLATION)
            there.admit("false", ago(60))
            hand.until(Interval.objects.exists)
    assert Interval.objects.get().kind == Interval.Kind.BILLABLE
    assert not WorkloadState.objects.get().is_remote_copy


def stop_policy(cluster: Lone) -> str:
    return str(cluster.user.get(r.CLUSTER_QUEUE, VISION)["spec"].get("stopPolicy"))
