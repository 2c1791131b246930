"""Every budget shape on a real Kueue: real Jobs with CPU, memory and GPUs run as promised.

Nothing is mocked: promises are planned and rendered as the portal does it, applied to a real API
server, and a real Kueue 0.19.2 admits or does not; pods run on simulated nodes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from budgets.plan import (
    AccountPromise,
    ClusterPlace,
    FlavorPromise,
    Line,
    PoolPromise,
    Promises,
    StopPolicy,
    WorkspacePromise,
    plan_quota,
    short_form_lines,
)
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.manifests.translate import Site, render
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import GPU, RUN_FOR, NodeShape
from tests.kube.apply import apply_documents
from tests.waiting import eventually

pytestmark = pytest.mark.controlplane
LONG = "10m"


def admitted_flavor(workload: Mapping[str, Any]) -> str:
    """Flavor of the GPUs that a workload holds now, empty while it waits."""
    conditions = {c["type"]: c["status"] for c in workload.get("status", {}).get("conditions", [])}
    if conditions.get("Admitted") != "True":
        return ""
    return str(workload["status"]["admission"]["podSetAssignments"][0]["flavors"][GPU])


@dataclass
class Tenancy:
    """One test's flavors, accounts and workspaces on one real worker."""

    cluster: ControlPlane
    client: KubeClient
    prefix: str
    nodes: Mapping[str, int]
    workspaces: list[WorkspacePromise] = field(default_factory=list)
    accounts: list[AccountPromise] = field(default_factory=list)
    pools: list[PoolPromise] = field(default_factory=list)

    def flavor(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def account(self, name: str, **pool: int) -> str:
        slug = f"{self.prefix}{name}"
        amounts = {self.flavor(flavor): gpus for flavor, gpus in pool.items()}
        split = {(flavor, self.cluster.name): gpus for flavor, gpus in amounts.items()}
        self.accounts.append(AccountPromise(slug, pool=amounts, pool_split=split))
        return slug

    def platform(self, accounts: list[str], shares: Mapping[str, int], **amounts: int) -> None:
        named = {self.flavor(flavor): gpus for flavor, gpus in amounts.items()}
        self.pools.append(
            PoolPromise(
                name=f"{self.prefix}-shared",
                generation=1,
                amounts=named,
                split={(flavor, self.cluster.name): gpus for flavor, gpus in named.items()},
                shares={
                    account: {self.flavor(f): gpus for f, gpus in shares.items()}
                    for account in accounts
                },
            )
        )

    def workspace(
        self,
        account: str,
        name: str,
        *lines: tuple[str, int, int, int],
        preference: tuple[str, ...] = (),
        stop: StopPolicy = StopPolicy.NONE,
    ) -> str:
        """Lines are (flavor, committed, ceiling, lendable)."""
        namespace = f"{account}-{name}"
        written = tuple(Line(self.flavor(f), c, b, lend) for f, c, b, lend in lines)
        self.workspaces = [w for w in self.workspaces if w.namespace != namespace]
        self.workspaces.append(
            WorkspacePromise(
                account=account,
                workspace=name,
                namespace=namespace,
                lines=written,
                preference=tuple(map(self.flavor, preference)),
                split={
                    (line.flavor, self.cluster.name): (line.committed, line.lendable)
                    for line in written
                },
                stop_policy=stop,
            )
        )
        return namespace

    def apply(self) -> None:
        promises = Promises(
            flavors=tuple(
                FlavorPromise(self.flavor(name), GPU, node_labels=(("shape", self.flavor(name)),))
                for name in self.nodes
            ),
            accounts=tuple(self.accounts),
            pools=tuple(self.pools),
            workspaces=tuple(self.workspaces),
        )
        plan = plan_quota(promises, ClusterPlace(self.cluster.name, is_manager=False))
        report = apply_documents(self.client, render(plan, site=Site(self.prefix)))
        assert report.is_complete, [str(failed.error) for failed in report.failed]

    def submit(self, namespace: str, name: str, *, gpus: int, per_pod: int = 4) -> None:
        """A Job of ``gpus / per_pod`` pods that runs for long."""
        requests = {"cpu": "4", "memory": "16Gi", GPU: str(per_pod)}
        container = {
            "name": "main",
            "image": "registry.invalid/train:1",
            "resources": {"requests": requests, "limits": requests},
        }
        pods = gpus // per_pod
        self.client.create(
            r.JOB,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {"kueue.x-k8s.io/queue-name": "default"},
                },
                "spec": {
                    "suspend": True,
                    "parallelism": pods,
                    "completions": pods,
                    "template": {
                        "metadata": {"annotations": {RUN_FOR: LONG}},
                        "spec": {"restartPolicy": "Never", "containers": [container]},
                    },
                },
            },
        )

    def flavors_of(self, namespace: str) -> dict[str, str]:
        """Job name → flavor that it holds, empty while it waits."""
        found = {}
        for workload in self.client.list(r.WORKLOAD, Selection(namespace=namespace)).items:
            owners = workload["metadata"].get("ownerReferences") or [{"name": "?"}]
            found[owners[0]["name"]] = admitted_flavor(workload).removeprefix(f"{self.prefix}-")
        return found

    def running_pods(self, namespace: str) -> int:
        pods = self.client.list(r.POD, Selection(namespace=namespace)).items
        return sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)

    def expect(self, namespace: str, **wanted: str) -> None:
        """Waits until exactly these jobs hold exactly these flavors, and that it stays so."""
        named = {name.replace("_", "-"): flavor for name, flavor in wanted.items()}
        until(lambda: self.flavors_of(namespace) == named, lambda: self.flavors_of(namespace))
        time.sleep(1.0)
        assert self.flavors_of(namespace) == named


def until(ready: Callable[[], bool], show: Callable[[], object]) -> None:
    eventually(lambda: ready(), why=lambda: str(show()))


@pytest.fixture
def tenancy(kueue_fleet: Fleet) -> Iterator[Tenancy]:
    """A worker with 32 GPUs each of two flavors that belong to this test."""
    cluster = kueue_fleet.workers[0]
    prefix = f"t{uuid.uuid4().hex[:8]}"
    nodes = {"h100": 4, "spot": 4}
    for name, count in nodes.items():
        shape = NodeShape(gpus=8, labels={"shape": f"{prefix}-{name}"})
        cluster.create_nodes(count, shape=shape, prefix=f"{prefix}-{name}")
    with KubeClient.from_kubeconfig(cluster.admin_kubeconfig.read_text()) as client:
        made = Tenancy(cluster, client, prefix, nodes)
        yield made
        for workspace in made.workspaces:
            for item in client.list(r.JOB, Selection(namespace=workspace.namespace)).items:
                client.delete(r.JOB, item["metadata"]["name"], namespace=workspace.namespace)


def test_committed_floor_without_burst_runs_and_ends_at_the_floor(tenancy: Tenancy) -> None:
    account = tenancy.account("a", h100=8)
    ml = tenancy.workspace(account, "ml", ("h100", 16, 16, 16))
    tenancy.apply()
    tenancy.submit(ml, "floor", gpus=16)
    tenancy.submit(ml, "beyond", gpus=4)
    tenancy.expect(ml, floor="h100", beyond="")
    until(lambda: tenancy.running_pods(ml) == 4, lambda: tenancy.running_pods(ml))


def test_burst_reaches_the_ceiling_from_the_account_pool(tenancy: Tenancy) -> None:
    account = tenancy.account("a", h100=16)
    ml = tenancy.workspace(account, "ml", ("h100", 8, 16, 8))
    tenancy.apply()
    tenancy.submit(ml, "floor", gpus=8)
    tenancy.submit(ml, "burst", gpus=8)
    tenancy.submit(ml, "beyond", gpus=4)
    tenancy.expect(ml, floor="h100", burst="h100", beyond="")


def test_preferred_spot_is_taken_after_the_home_floor_is_used(tenancy: Tenancy) -> None:
    """ "16 committed, burst 32, prefer spot": the floor first, then the platform pool's spot."""
    account = tenancy.account("a")
    tenancy.platform([account], {"spot": 16}, spot=16)
    lines = short_form_lines(home_flavor="h100", committed=16, ceiling=32, preferred="spot")
    ml = tenancy.workspace(
        account,
        "ml",
        *((line.flavor, line.committed, line.ceiling, line.lendable) for line in lines),
        preference=("spot", "h100"),
    )
    tenancy.apply()
    tenancy.submit(ml, "first", gpus=16)
    tenancy.expect(ml, first="h100")
    tenancy.submit(ml, "second", gpus=8)
    tenancy.submit(ml, "third", gpus=12)
    tenancy.expect(ml, first="h100", second="spot", third="")


def test_floor_is_got_back_from_a_borrower_on_demand(tenancy: Tenancy) -> None:
    account = tenancy.account("a")
    lender = tenancy.workspace(account, "lender", ("h100", 16, 16, 16))
    borrower = tenancy.workspace(account, "borrower", ("h100", 0, 16, 0))
    tenancy.apply()
    tenancy.submit(borrower, "guest", gpus=16)
    tenancy.expect(borrower, guest="h100")
    tenancy.submit(lender, "owner", gpus=16)
    tenancy.expect(lender, owner="h100")
    tenancy.expect(borrower, guest="")


def test_only_what_is_lendable_is_lent(tenancy: Tenancy) -> None:
    account = tenancy.account("a")
    tenancy.workspace(account, "lender", ("h100", 16, 16, 4))
    borrower = tenancy.workspace(account, "borrower", ("h100", 0, 16, 0))
    tenancy.apply()
    tenancy.submit(borrower, "small", gpus=4)
    tenancy.expect(borrower, small="h100")
    tenancy.submit(borrower, "large", gpus=4)
    tenancy.expect(borrower, small="h100", large="")


def test_tenant_of_a_platform_pool_cannot_touch_another_accounts_floor(tenancy: Tenancy) -> None:
    """Four GPUs of the pool are all that there is for him, however idle the neighbour is."""
    idle, busy = tenancy.account("idle"), tenancy.account("busy")
    tenancy.platform([idle, busy], {"h100": 4}, h100=4)
    tenancy.workspace(idle, "ml", ("h100", 16, 16, 16))
    guest = tenancy.workspace(busy, "ml", ("h100", 0, 32, 0))
    tenancy.apply()
    tenancy.submit(guest, "pool", gpus=4)
    tenancy.expect(guest, pool="h100")
    tenancy.submit(guest, "floor-of-another", gpus=4)
    tenancy.expect(guest, pool="h100", floor_of_another="")


def test_share_of_a_platform_pool_limits_an_account(tenancy: Tenancy) -> None:
    account = tenancy.account("a")
    tenancy.platform([account], {"spot": 8}, spot=16)
    ml = tenancy.workspace(account, "ml", ("spot", 0, 16, 0))
    tenancy.apply()
    tenancy.submit(ml, "share", gpus=8)
    tenancy.submit(ml, "beyond", gpus=8)
    tenancy.expect(ml, share="spot", beyond="")


def test_held_workspace_starts_nothing_and_keeps_what_runs(tenancy: Tenancy) -> None:
    account = tenancy.account("a")
    ml = tenancy.workspace(account, "ml", ("h100", 16, 16, 16))
    tenancy.apply()
    tenancy.submit(ml, "running", gpus=8)
    tenancy.expect(ml, running="h100")
    tenancy.workspace(account, "ml", ("h100", 16, 16, 16), stop=StopPolicy.HOLD)
    tenancy.apply()
    tenancy.submit(ml, "late", gpus=4)
    tenancy.expect(ml, running="h100", late="")


def test_drained_workspace_stops_what_runs(tenancy: Tenancy) -> None:
    account = tenancy.account("a")
    ml = tenancy.workspace(account, "ml", ("h100", 16, 16, 16))
    tenancy.apply()
    tenancy.submit(ml, "running", gpus=8)
    tenancy.expect(ml, running="h100")
    tenancy.workspace(account, "ml", ("h100", 16, 16, 16), stop=StopPolicy.HOLD_AND_DRAIN)
    tenancy.apply()
    tenancy.expect(ml, running="")


def test_dropped_flavor_stays_as_nothing_while_a_job_holds_it(tenancy: Tenancy) -> None:
    account = tenancy.account("a", spot=8)
    ml = tenancy.workspace(
        account, "ml", ("h100", 8, 8, 8), ("spot", 0, 8, 0), preference=("spot",)
    )
    tenancy.apply()
    tenancy.submit(ml, "on-spot", gpus=8)
    tenancy.expect(ml, on_spot="h100")
    tenancy.submit(ml, "more", gpus=8)
    tenancy.expect(ml, on_spot="h100", more="spot")
    tenancy.workspace(account, "ml", ("h100", 8, 8, 8), ("spot", 0, 0, 0))
    tenancy.apply()
    tenancy.submit(ml, "refused", gpus=4)
    tenancy.expect(ml, on_spot="h100", more="spot", refused="")
