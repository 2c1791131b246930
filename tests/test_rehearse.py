"""``manage.py rehearse``: one budget down the whole road, on embedded and on real clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
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


def rehearse(*arguments: str, seconds: float = 240) -> tuple[int, dict[str, Any]]:
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
    assert report["notes"][0].startswith("kept: namespace rehearsal-")


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
