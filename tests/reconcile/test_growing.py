"""One cluster becomes a manager that runs jobs itself, and one cluster again; jobs run across."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings as portal

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import Interval, StatementLine, UsageRecord
from budgets.services import billing
from clusters import selectors, services
from clusters.devcluster.controllers import JobRunner
from clusters.documents import labels
from clusters.documents.queues import FLEET_QUEUE, dispatched_queue
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.manifests.names import ADMISSION_CHECK
from clusters.models import Cluster, WorkloadState
from clusters.reconcile.admission.body import AdmissionBody
from clusters.reconcile.context import registered
from clusters.reconcile.dispatch.body import DispatchBody
from clusters.reconcile.usage.build import Source, build
from portal.rehearsal.world import gpu_job
from tests.billing.conftest import active_card, price
from tests.builders import SmallFleet, line
from tests.reconcile.deciding import deciding
from tests.reconcile.fleet_rows import Hand, dev_server, quota_hand, register
from tests.reconcile.usage_hand import Kueue, UsageHand, ago, kueue_on, usage_hand
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]
HOME, AWAY = "gpu-east", "gpu-west"
VISION = "acme-vision"
SENT = dispatched_queue(VISION)


@dataclass
class Growing:
    """A cluster of its own, and another one that becomes its worker."""

    fleet: SmallFleet
    mode: str
    home: KubeClient
    away: KubeClient
    worker_kubeconfig: str

    @property
    def row(self) -> Cluster:
        return Cluster.objects.get(slug=HOME)

    def become(self, role: str) -> Cluster:
        return services.change_role(self.fleet.admin, cluster=self.row, role=role, reason="test")

    def sync(self, slug: str = HOME) -> None:
        with quota_hand(slug) as hand:
            hand.settle()
            hand.sweep()
            hand.settle()

    def see(self, reached: Callable[[], Any], slug: str = HOME) -> None:
        with usage_hand(slug) as hand:
            hand.until(reached)

    def names(self, resource: r.Resource, namespace: str = "") -> set[str]:
        where = Selection(namespace=namespace) if namespace else Selection()
        return {row["metadata"]["name"] for row in self.home.list(resource, where).items}

    def checks(self, queue: str) -> list[str]:
        spec = self.home.get(r.CLUSTER_QUEUE, queue)["spec"]
        strategy = spec.get("admissionChecksStrategy") or {}
        return [row["name"] for row in strategy.get("admissionChecks") or ()]


@pytest.fixture(params=["portal", "kueue"])
def growing(request: pytest.FixtureRequest, fleet: SmallFleet, settings) -> Iterator[Growing]:
    settings.PORTAL_INSTALLATION = "growing"
    settings.KUEUE_PROOF_SECONDS = 0.2
    promises.retire_capacity(None, cluster=AWAY, reason="It is not registered yet.")
    with ExitStack() as stack:
        servers = [stack.enter_context(dev_server(slug)) for slug in (HOME, AWAY)]
        clients = [
            stack.enter_context(KubeClient.from_kubeconfig(server.kubeconfig)) for server in servers
        ]
        register(HOME, servers[0].kubeconfig, role="single", mode=request.param)
        home, away = clients
        yield Growing(fleet, request.param, home, away, servers[1].kubeconfig)


def held_seconds() -> dict[str, int]:
    """Workload → GPU-seconds that are billed; every interval has ended."""
    found: dict[str, int] = {}
    for row in Interval.objects.filter(kind="billable").exclude(state="superseded"):
        assert row.end is not None
        seconds = row.gpus * int((row.end - row.start).total_seconds())
        found[row.workload] = found.get(row.workload, 0) + seconds
    return found


def of(phase: str, *names: str) -> Callable[[], bool]:
    """Whether Workloads of these names are in a phase, as the database has it."""
    states = WorkloadState.objects.filter(name__in=names, phase=phase, is_remote_copy=False)
    return lambda: states.count() == len(names)


def rebuild(slug: str) -> None:
    """All that was ever seen on a cluster is built again, as after any late event."""
    found = registered(slug)
    assert found is not None
    uids = WorkloadState.objects.filter(cluster__slug=slug).values_list("uid", flat=True)
    build(Source(found.facts.pk, slug, frozenset({"nvidia.com/gpu"})), list(uids))


def test_a_cluster_grows_and_comes_back_with_its_jobs_queues_and_bill(growing: Growing) -> None:
    """Each job runs across a change, and each of its seconds is billed once, to the cent."""
    fleet = growing.fleet
    fleet.revise(fleet.vision, line("h100", 0, 16))
    active_card(fleet, price("h100", "360.00", "720.00", "0"), price("a100", "0", "90.00", "0"))
    growing.sync()
    before = growing.home.get(r.CLUSTER_QUEUE, VISION)
    own, now = kueue_on(growing.home, VISION), ago(0)

    def at(seconds: float) -> datetime:
        return now - timedelta(seconds=seconds)

    # 1. One cluster: a job runs.
    own.submit("across")
    own.admit("across", at(3600))
    growing.see(of("running", "across"))

    # 2. It becomes a manager while the job runs: its queue is the very same, a second one comes.
    growing.become("manager_runs_jobs")
    growing.sync()
    after = growing.home.get(r.CLUSTER_QUEUE, VISION)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert growing.names(r.LOCAL_QUEUE, VISION) == {"default", FLEET_QUEUE}
    assert growing.checks(VISION) == []
    assert growing.checks(SENT) == [ADMISSION_CHECK]

    # 3. A worker with GPUs of another flavor; a job goes there, one more runs here.
    register(AWAY, growing.worker_kubeconfig, mode=growing.mode)
    services.state_capacity(fleet.admin, cluster=AWAY, flavor=fleet.flavors["a100"], gpus=16)
    fleet.revise(fleet.vision, line("h100", 0, 16), line("a100", 0, 16))
    growing.sync()
    growing.sync(AWAY)
    assert quota(growing.home, VISION) == {"h100": ("0", "16"), "a100": ("0", "0")}
    assert quota(growing.home, SENT) == {"h100": ("0", "0"), "a100": ("0", "16")}
    there = {row["metadata"]["name"] for row in growing.away.list(r.LOCAL_QUEUE).items}
    assert there == {"default", FLEET_QUEUE}
    dispatch(growing, began=at(3000), ended=at(2000))
    own.submit("back")
    own.admit("back", at(1800))
    growing.see(of("running", "across", "back"))
    shown = {
        row.name: row.worker
        for row in selectors.workloads(fleet.owner, selectors.WorkloadFilter()).rows
    }
    assert shown == {"across": HOME, "back": HOME, "sent": AWAY}

    # 4. The first job ends under a manager; nothing of it was cut or counted twice.
    own.finish("across", at(1200))
    growing.see(of("finished", "across"))

    # 5. The way back, while the other one runs.
    with pytest.raises(Rejected, match="De-register every worker first"):
        growing.become("single")
    services.deregister_cluster(
        fleet.admin, cluster=Cluster.objects.get(slug=AWAY), reason="test", abandon=True
    )
    growing.sync()
    growing.become("single")
    growing.sync()
    assert growing.names(r.LOCAL_QUEUE, VISION) == {"default"}
    assert growing.names(r.CLUSTER_QUEUE).isdisjoint({SENT})
    for kind in (r.MULTIKUEUE_CLUSTER, r.MULTIKUEUE_CONFIG, r.ADMISSION_CHECK):
        assert growing.names(kind) == set()
    assert growing.home.get(r.CLUSTER_QUEUE, VISION)["metadata"]["uid"] == before["metadata"]["uid"]
    own.finish("back", at(600))
    growing.see(of("finished", "back"))

    # 6. The books: to the second, also when everything is built again in the other role.
    want = {"across": 8 * 2400, "back": 8 * 1200, "sent": 8 * 1000}
    assert held_seconds() == want
    rows = set(Interval.objects.values_list("pk", "state", "kind", "start", "end"))
    rebuild(HOME)
    assert set(Interval.objects.values_list("pk", "state", "kind", "start", "end")) == rows
    for slug in (HOME, AWAY):
        promises.record_progress(cluster=slug, complete_until=ago(0))
    promises.meter_usage(promises.utc_now())
    facts = UsageRecord.objects.filter(workspace=fleet.vision)
    assert sum(row.committed_used + row.burst for row in facts) == sum(want.values())
    for month in sorted({f"{row.hour:%Y-%m}" for row in facts if row.burst}):
        billing.draw_up_statements(fleet.finance, month=month)
    lines = StatementLine.objects.filter(workspace=fleet.vision, kind="burst")
    exact = Decimal(8 * 3600) * 720 / 3600 + Decimal(8 * 1000) * 90 / 3600
    assert sum(row.amount for row in lines) == exact


def dispatch(growing: Growing, *, began: datetime, ended: datetime) -> None:
    """A job of queue fleet as dispatch leaves it on both sides, and its whole run."""
    manager = Kueue(growing.home, VISION, queue=FLEET_QUEUE, cluster_queue=SENT)
    worker = kueue_on(growing.away, VISION)
    manager.submit("sent")
    manager.reserve_on_manager("sent", began, worker=AWAY)
    origin = portal.PORTAL_INSTALLATION if growing.mode == "portal" else "multikueue"
    worker.submit("sent", origin=origin)
    worker.admit("sent", began, flavor="a100")
    growing.see(of("running", "sent"))
    growing.see(
        lambda: WorkloadState.objects.filter(phase="running", name="sent").count() == 2, AWAY
    )
    worker.finish("sent", ended)
    manager.finish("sent", ended)
    growing.see(lambda: WorkloadState.objects.filter(phase="finished", name="sent").exists(), AWAY)
    growing.see(of("finished", "sent"))


def quota(client: KubeClient, queue: str) -> dict[str, tuple[str, str]]:
    """Flavor → nominal quota and borrowing limit of a queue's GPUs."""
    groups = client.get(r.CLUSTER_QUEUE, queue)["spec"]["resourceGroups"]
    return {
        flavor["name"]: (row["nominalQuota"], row["borrowingLimit"])
        for group in groups
        for flavor in group["flavors"]
        for row in flavor["resources"]
        if flavor["name"] != "host"
    }


@dataclass
class Era:
    """The shifts of some clusters under the roles that they have now, turned by hand."""

    quotas: list[Hand]
    usages: list[UsageHand]
    others: list[AdmissionBody | DispatchBody]

    def until(self, check: Callable[[], Any]) -> Any:
        ends = time.monotonic() + 2 * PATIENCE_S
        while True:
            for quota_ in self.quotas:
                quota_.settle(turns=1)
            for body in self.others:
                body.turn()
            for usage in self.usages:
                usage.body._reported_at = 0.0
                usage.body.turn()
            if found := check():
                return found
            assert time.monotonic() < ends, self.told()
            time.sleep(0.02)

    def told(self) -> str:
        return str(
            [
                (hand.context.cluster.slug, found["metadata"]["name"], found.get("status"))
                for hand in self.quotas
                for found in hand.context.client.list(r.WORKLOAD).items
            ]
        )


@contextmanager
def era(*slugs: str, dispatches: bool = False) -> Iterator[Era]:
    with ExitStack() as stack:
        found = Era([], [], [])
        for slug in slugs:
            found.quotas.append(stack.enter_context(quota_hand(slug)))
            found.usages.append(stack.enter_context(usage_hand(slug)))
            found.others.append(stack.enter_context(deciding(slug, AdmissionBody)))
        if dispatches:
            found.others.append(stack.enter_context(deciding(HOME, DispatchBody)))
        yield found


def test_real_jobs_run_on_while_the_portal_decides_under_each_role(
    fleet: SmallFleet, settings
) -> None:
    """Submitted as people do, admitted, started and dispatched by the portal's own shifts."""
    settings.PORTAL_INSTALLATION = "growing"
    settings.KUEUE_PROOF_SECONDS = 0.2
    promises.retire_capacity(None, cluster=AWAY, reason="It is not registered yet.")
    with ExitStack() as stack:
        servers = {slug: stack.enter_context(dev_server(slug)) for slug in (HOME, AWAY)}
        for server in servers.values():
            runner = JobRunner(server.cluster)
            runner.start()
            stack.callback(runner.stop)
        home = stack.enter_context(KubeClient.from_kubeconfig(servers[HOME].kubeconfig))
        register(HOME, servers[HOME].kubeconfig, role="single", mode="portal")
        fleet.revise(fleet.vision, line("h100", 16, 16))

        def submit(name: str, queue: str, *, seconds: int = 3600) -> None:
            is_sent = queue == FLEET_QUEUE
            made = gpu_job(
                name, VISION, gpus=8, seconds=seconds, image="none", is_dispatched=is_sent
            )
            made["metadata"]["labels"][labels.QUEUE] = queue
            home.create(r.JOB, made)

        def status(name: str) -> dict[str, Any]:
            return home.get(r.JOB, name, namespace=VISION).get("status") or {}

        def has(queue: str) -> bool:
            found = home.list(r.LOCAL_QUEUE, Selection(namespace=VISION)).items
            return queue in {row["metadata"]["name"] for row in found}

        def become(role: str) -> None:
            row = Cluster.objects.get(slug=HOME)
            services.change_role(fleet.admin, cluster=row, role=role, reason="test")

        with era(HOME) as alone:
            alone.until(lambda: has("default"))
            submit("across", "default")
            began = alone.until(lambda: status("across").get("startTime"))

        become("manager_runs_jobs")
        west = services.register_cluster(
            fleet.admin,
            slug=AWAY,
            name="West",
            role="worker",
            mode="portal",
            kubeconfig=servers[AWAY].kubeconfig,
        )
        services.state_capacity(fleet.admin, cluster=AWAY, flavor=fleet.flavors["a100"], gpus=16)
        promises.set_envelope(
            None, account=fleet.acme, flavor=fleet.flavors["a100"], committed=8, ceiling=8, pool=0
        )
        fleet.revise(fleet.vision, line("h100", 16, 16), line("a100", 8, 8))
        with era(HOME, AWAY, dispatches=True) as both:
            both.until(lambda: has(FLEET_QUEUE))
            submit("sent", FLEET_QUEUE, seconds=1)
            submit("back", "default")
            both.until(lambda: status("sent").get("succeeded"))
            both.until(lambda: status("back").get("startTime"))
            both.until(lambda: WorkloadState.objects.filter(phase="finished").count() == 2)
            services.deregister_cluster(fleet.admin, cluster=west, reason="test")
            both.until(lambda: not Cluster.objects.registered().workers().exists())

        become("single")
        with era(HOME) as again:
            again.until(lambda: not has(FLEET_QUEUE))
            assert status("across")["startTime"] == began
            for name in ("across", "back"):
                assert status(name)["active"] == 1
                home.delete(r.JOB, name, namespace=VISION)
            # What was superseded counts nowhere and keeps the end that it had.
            counted = Interval.objects.exclude(state="superseded")
            again.until(lambda: not counted.filter(end=None).exists())

    rows = counted.exclude(kind="manager_wait")
    assert {(row.job_name, row.cluster, row.flavor, row.kind, row.state) for row in rows} == {
        ("across", HOME, "h100", "billable", "closed"),
        ("back", HOME, "h100", "billable", "closed"),
        ("sent", AWAY, "a100", "billable", "closed"),
    }
    assert len(rows) == 3, "no run was cut by a change of role"
