"""``manage.py rehearse``: one budget down the whole road, on embedded and on real clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from clusters.devcluster.access import ADMIN, Denial
from clusters.devcluster.fleet import EmbeddedFleet, default_plan
from clusters.devcluster.server import DevServer, kubeconfig_text
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT, PORTAL_ACCOUNT
from clusters.models import ClusterHealth, ObjectState, ShiftRun
from portal.rehearsal import reasons
from portal.rehearsal.report import StepFailed, wait_until
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.kube.documents import workload
from tests.reconcile.fleet_rows import dev_server, register
from tests.reconcile.real_clusters import grant_rights

ROOT = Path(__file__).resolve().parent.parent
STEPS = [
    "register",
    "budget",
    "plan",
    "apply",
    "submit",
    "admit",
    "dispatch",
    "run",
    "finish",
    "meter",
    "page",
    "clean up",
]


ALONE = [step for step in STEPS if step != "dispatch"]
"""On one cluster: nothing is sent on."""


def rehearse(*arguments: str, seconds: float = 600) -> tuple[int, dict[str, Any]]:
    """Exit status and report; the rehearsal makes its own database and settings."""
    ours = ("PORTAL_", "DATABASE_URL", "CELERY_", "DJANGO_SETTINGS_MODULE", "PYTEST_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "manage.py", "rehearse", "--json", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def granted(
    manager: ControlPlane,
    workers: Sequence[ControlPlane],
    folder: Path,
    *,
    mode: str,
    worker_mode: str = "",
) -> list[str]:
    """Kubeconfigs of the portal's service account under exactly the generated rights."""
    names = tuple(f"worker-{n}" for n in range(1, len(workers) + 1))
    arguments = ["--mode", mode, "--worker-mode", worker_mode or mode]
    for plane, name in zip((manager, *workers), ("manager", *names), strict=True):
        if plane is manager:
            grant_rights(plane, role="manager", mode=mode, workers=names)
        else:
            grant_rights(plane, role="worker", mode=worker_mode or mode)
        path = folder / f"{name}.kubeconfig"
        path.write_text(plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE))
        arguments += ["--manager" if plane is manager else "--worker", str(path)]
    user = folder / "user.kubeconfig"
    user.write_text(manager.admin_kubeconfig.read_text())
    return [*arguments, "--user", str(user)]


@pytest.mark.embedded
def test_rehearsal_is_green_on_embedded_clusters() -> None:
    status, report = rehearse()
    assert [row["step"] for row in report["steps"]] == STEPS, report
    assert report["ok"], report
    assert status == 0
    assert report["notes"][0].startswith("The namespace rehearsal-")


@pytest.mark.embedded
def test_rehearsal_is_green_on_one_embedded_cluster() -> None:
    status, report = rehearse("--cluster")
    assert [row["step"] for row in report["steps"]] == ALONE, report
    assert report["ok"], report
    assert status == 0
    assert report["steps"][0]["facts"][0].startswith("cluster portal http://127.0.0.1:")


def test_rehearsal_walks_on_one_cluster_or_on_a_fleet_not_on_both() -> None:
    with pytest.raises(CommandError, match="not both"):
        call_command("rehearse", "--cluster", "one.kubeconfig", "--worker", "two.kubeconfig")


@pytest.mark.embedded
def test_rehearsal_names_the_step_that_failed() -> None:
    """A device resource has a domain; without one the budget's flavor is refused."""
    status, report = rehearse("--resource", "gpu", "--timeout", "20")
    assert status == 1
    assert report["failed"] == "budget"
    assert [(row["step"], row["ok"]) for row in report["steps"]] == [
        ("register", True),
        ("budget", False),
        ("clean up", True),
    ]


@contextmanager
def embedded(folder: Path, *, workers: int) -> Iterator[tuple[dict[str, DevServer], list[str]]]:
    """Embedded clusters of the test's own, and the arguments that lead a rehearsal there."""
    with EmbeddedFleet(default_plan(folder, workers=workers)) as fleet:
        arguments = ["--mode", "portal", "--node-label", "gpu.example.com/model=h100"]
        for slug in fleet.servers:
            option = "--worker" if slug.startswith("worker-") else f"--{slug}"
            arguments += [option, str(folder / f"{slug}.kubeconfig")]
        yield fleet.servers, arguments


def account(name: str) -> str:
    return f"system:serviceaccount:{KUEUE_NAMESPACE}:{name}"


def steps(report: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(row["step"], row["ok"]) for row in report["steps"]]


def told(report: dict[str, Any]) -> list[str]:
    """What was said of the step that failed."""
    return next(row["facts"] for row in report["steps"] if not row["ok"])


def apply_line(slug: str, accounts: str, arguments: str) -> str:
    return (
        f"As an admin of {slug}, apply the rights of {accounts} in kueue-system: "
        f"manage.py worker_rbac {arguments} | kubectl apply --server-side -f -"
    )


@pytest.mark.embedded
def test_rehearsal_without_the_rights_of_dispatch_ends_at_once_and_says_what_to_apply(
    tmp_path: Path,
) -> None:
    """One worker's account may do nothing, the other one's token is not given."""
    reading = Denial(account(MULTIKUEUE_ACCOUNT), ("list", "watch"), (), ("workloads",))
    token = Denial(ADMIN, ("create",), (), ("serviceaccounts/token",))
    with embedded(tmp_path, workers=2) as (servers, arguments):
        servers["worker-1"].cluster.access.denials.append(reading)
        servers["worker-2"].cluster.access.denials.append(token)
        status, report = rehearse(*arguments)
    assert status == 1
    assert steps(report) == [("register", False), ("clean up", True)]
    facts = told(report)
    assert "rights are missing" in facts
    assert "On worker-1 the service account multikueue may not list, watch workloads." in facts
    both = "gpu-budget-portal and multikueue"
    assert apply_line("worker-1", both, "--role worker --mode portal") in facts
    missing = "On worker-2 the kubeconfig may not create serviceaccounts/token in kueue-system."
    assert missing in facts
    assert any(
        fact.startswith("worker-2 gives no token for multikueue: Forbidden: ") for fact in facts
    )
    assert apply_line("worker-2", both, "--role worker --mode portal") in facts
    assert not any("manager" in fact for fact in facts if "may not" in fact)


@pytest.mark.embedded
def test_rehearsal_with_a_kubeconfig_without_the_rights_says_what_to_apply(tmp_path: Path) -> None:
    """The check for a live Kueue is not allowed, so the cluster is not even registered."""
    denied = Denial(account(PORTAL_ACCOUNT), ("create", "delete"), (), ("clusterqueues",))
    with embedded(tmp_path, workers=1) as (servers, arguments):
        manager = servers["manager"]
        manager.cluster.access.denials.append(denied)
        token, _ = manager.cluster.access.mint(KUEUE_NAMESPACE, PORTAL_ACCOUNT, 3600)
        mine = kubeconfig_text("manager", manager.url, token)
        (tmp_path / "manager.kubeconfig").write_text(mine)
        status, report = rehearse(*arguments)
    assert status == 1
    assert steps(report) == [("register", False), ("clean up", True)]
    assert "On manager the kubeconfig may not create, delete clusterqueues." in told(report)
    rights = "--role manager --mode portal --worker worker-1"
    assert apply_line("manager", "gpu-budget-portal", rights) in told(report)
    assert told(report)[0].startswith("manager: mode: The check was not allowed: "), report


@pytest.mark.embedded
def test_rehearsal_asks_for_a_user_where_the_kubeconfig_may_not_submit_jobs(tmp_path: Path) -> None:
    """A kubeconfig with exactly the portal's rights, which is the one that is at hand."""
    jobs = Denial(ADMIN, ("create",), (), ("jobs",))
    with embedded(tmp_path, workers=1) as (servers, arguments):
        servers["manager"].cluster.access.denials.append(jobs)
        status, report = rehearse(*arguments)
    assert status == 1
    assert report["failed"] == "submit"
    assert any("Give --user the kubeconfig of somebody who may" in fact for fact in told(report))
    assert report["steps"][-1]["ok"], "it cleans up all the same"


@pytest.mark.embedded
def test_rehearsal_ends_early_where_no_worker_can_be_used_and_says_why(tmp_path: Path) -> None:
    """The rights are there; all the same nobody can read Workloads on the workers."""
    with embedded(tmp_path, workers=2) as (servers, arguments):
        for slug in ("worker-1", "worker-2"):
            faults = servers[slug].cluster.faults
            faults.fail(403, count=10**6, method="GET", path=r"/workloads$")
        status, report = rehearse(*arguments, "--timeout", "200")
    assert status == 1
    assert report["failed"] in ("admit", "dispatch"), report
    why = next(fact for fact in told(report) if "MultiKueueCluster worker-1" in fact)
    assert "is not active: " in why
    assert "injected fault 403" in why
    assert not any("after 200 s" in fact for fact in told(report)), report
    assert any(fact.startswith("Workload job-rehearsal") for fact in told(report)), report


@pytest.mark.embedded
def test_a_conflict_that_goes_away_does_not_end_a_rehearsal(tmp_path: Path) -> None:
    """The second one in a row keeps the queue failed for two seconds."""
    with embedded(tmp_path, workers=0) as (servers, arguments):
        faults = servers["cluster"].cluster.faults
        faults.fail(409, count=2, method="PATCH", path=r"/clusterqueues/[^/]+$")
        status, report = rehearse(*arguments, "--timeout", "200")
        assert report["ok"], report
        assert not faults.before("PATCH", "/clusterqueues/any"), "nothing met the conflicts"
    assert status == 0
    assert steps(report) == [(step, True) for step in ALONE]


def test_a_step_that_fails_says_what_is_known_of_it() -> None:
    with pytest.raises(StepFailed, match="the job has no quota after 0 s") as late:
        wait_until("the job has no quota", 0, lambda: False, lambda: "", lambda: ["a", "b"])
    assert late.value.told == ("a", "b")
    with pytest.raises(StepFailed, match="the job has no quota: gone") as early:
        wait_until("the job has no quota", 60, lambda: False, lambda: "gone", lambda: ["a"])
    assert early.value.told == ("a",)


def test_a_trouble_counts_once_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that goes away in between begins anew; others do not hide it."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    standing = reasons.TroubleClock()
    assert standing.first({"a": "a fails", "b": "b fails"}) == ""
    now += reasons.STANDS_S - 1
    assert standing.first({"b": "b fails"}) == ""
    now += 1
    assert standing.first({"a": "a fails", "b": "b fails still"}) == "b fails still"


@pytest.mark.django_db
def test_a_fleet_is_hopeless_once_no_worker_can_be_used() -> None:
    east, west = (register(slug, "") for slug in ("east", "west"))
    assert reasons.unusable_workers() == {}
    says = ClusterHealth.objects.filter(cluster=east)
    says.update(multikueue_active="False", multikueue_message="cannot watch\n workloads")
    assert reasons.unusable_workers() == {}
    ClusterHealth.objects.filter(cluster=west).update(multikueue_active="False")
    words = "MultiKueueCluster east is not active: cannot watch  workloads"
    assert words in reasons.unusable_workers().values()


@pytest.mark.embedded
@pytest.mark.django_db
def test_objects_and_shifts_are_quoted_in_bounded_lines() -> None:
    hostile = "no quota\x1b[31m\n" + "x" * 5000
    pending = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": hostile,
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    }
    with dev_server("east") as server:
        row = register("east", server.kubeconfig, role="single", mode="portal")
        with KubeClient.from_kubeconfig(server.kubeconfig) as client:
            client.create(r.WORKLOAD, workload("default", "job-train"))
            status = {"status": {"conditions": [pending]}}
            options = WriteOptions(subresource="status")
            client.patch(r.WORKLOAD, "job-train", status, namespace="default", options=options)
        ObjectState.objects.create(
            cluster=row,
            kind="ClusterQueue",
            name="train",
            state="failed",
            message=f"Conflict: {hostile}",
            changed_at=row.created_at,
        )
        ShiftRun.objects.create(
            cluster=row,
            role="quota",
            started_at=row.created_at,
            heartbeat_at=row.created_at,
            parked=3,
            parked_says="Cohort acme could not be written",
        )
        ClusterHealth.objects.update(reason="Forbidden", message=hostile)
        lines = reasons.told({"east": server.kubeconfig}, "default")
    assert all(line.isprintable() and len(line) < 1000 for line in lines), lines
    begun = (
        "Workload job-train on east: QuotaReserved False (Pending: no quota [31m xxx",
        "ClusterQueue train on east: Conflict: no quota [31m xxx",
        "The quota shift of east has set 3 aside: Cohort acme could not be written",
        "east cannot be used: Forbidden: no quota [31m xxx",
    )
    for start in begun:
        assert any(line.startswith(start) for line in lines), (start, lines)
    assert len(lines) == len(begun), lines


@pytest.mark.controlplane
@pytest.mark.django_db
def test_rehearsal_is_green_beside_a_real_kueue(kueue_fleet: Fleet, tmp_path: Path) -> None:
    """Three real control planes, Kueue decides and dispatches, under the generated rights."""
    arguments = granted(kueue_fleet.manager, kueue_fleet.workers, tmp_path, mode="kueue")
    status, report = rehearse(*arguments, "--node-label", "type=kwok", "--timeout", "60")
    assert report["ok"], report
    assert status == 0
    assert [row["step"] for row in report["steps"]] == STEPS


@pytest.mark.controlplane
@pytest.mark.django_db
def test_rehearsal_is_green_where_the_portal_decides(bare_fleet: Fleet, tmp_path: Path) -> None:
    """Real API servers without a Kueue: the portal admits and dispatches."""
    for worker in bare_fleet.workers:
        worker.create_nodes(1, prefix="rehearsal")
        worker.play_pods()
    arguments = granted(bare_fleet.manager, bare_fleet.workers, tmp_path, mode="portal")
    status, report = rehearse(*arguments, "--node-label", "type=kwok", "--timeout", "60")
    assert report["ok"], report
    assert status == 0
    assert [row["step"] for row in report["steps"]] == STEPS


@pytest.mark.controlplane
@pytest.mark.django_db
def test_rehearsal_is_green_on_a_portal_manager_over_workers_under_kueue(
    kueue_fleet: Fleet, bare_cluster: ControlPlane, tmp_path: Path
) -> None:
    """The supported mix: the portal admits and dispatches, a real Kueue admits on each worker."""
    arguments = granted(
        bare_cluster, kueue_fleet.workers, tmp_path, mode="portal", worker_mode="kueue"
    )
    status, report = rehearse(*arguments, "--node-label", "type=kwok", "--timeout", "60")
    assert report["ok"], report
    assert status == 0
    assert [row["step"] for row in report["steps"]] == STEPS
    modes = [fact.split()[1] for fact in report["steps"][0]["facts"]]
    assert modes == ["portal", "kueue", "kueue"]


def granted_alone(plane: ControlPlane, folder: Path, *, mode: str) -> list[str]:
    """Arguments for one cluster, under exactly the generated rights."""
    grant_rights(plane, role="single", mode=mode)
    path, user = folder / "cluster.kubeconfig", folder / "user.kubeconfig"
    path.write_text(plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE))
    user.write_text(plane.admin_kubeconfig.read_text())
    return ["--cluster", str(path), "--mode", mode, "--user", str(user)]


@pytest.mark.controlplane
@pytest.mark.django_db
def test_rehearsal_is_green_on_one_cluster_beside_a_real_kueue(
    kueue_fleet: Fleet, tmp_path: Path
) -> None:
    """One real control plane where Kueue decides, under the generated rights."""
    arguments = granted_alone(kueue_fleet.workers[0], tmp_path, mode="kueue")
    status, report = rehearse(*arguments, "--node-label", "type=kwok", "--timeout", "60")
    assert report["ok"], report
    assert status == 0
    assert [row["step"] for row in report["steps"]] == ALONE


@pytest.mark.controlplane
@pytest.mark.django_db
def test_rehearsal_is_green_on_one_cluster_where_the_portal_decides(
    bare_fleet: Fleet, tmp_path: Path
) -> None:
    """One real API server without a Kueue: the portal admits, and nothing is dispatched."""
    plane = bare_fleet.workers[0]
    plane.create_nodes(1, prefix="alone")
    plane.play_pods()
    arguments = granted_alone(plane, tmp_path, mode="portal")
    status, report = rehearse(*arguments, "--node-label", "type=kwok", "--timeout", "60")
    assert report["ok"], report
    assert status == 0
    assert [row["step"] for row in report["steps"]] == ALONE
