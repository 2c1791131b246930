"""``manage.py rehearse``: one budget down the whole road, on embedded and on real clusters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
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


def granted(fleet: Fleet, folder: Path, *, mode: str) -> list[str]:
    """Kubeconfigs of the portal's service account under exactly the generated rights."""
    workers = tuple(f"worker-{n}" for n in range(1, len(fleet.workers) + 1))
    arguments = []
    for plane, name in zip(fleet.clusters, ("manager", *workers), strict=True):
        role = "manager" if name == "manager" else "worker"
        grant_rights(plane, role=role, mode=mode, workers=workers if role == "manager" else ())
        path = folder / f"{name}.kubeconfig"
        path.write_text(plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE))
        arguments += ["--manager" if role == "manager" else "--worker", str(path)]
    user = folder / "user.kubeconfig"
    user.write_text(fleet.manager.admin_kubeconfig.read_text())
    return [*arguments, "--user", str(user), "--mode", mode]


@pytest.mark.embedded
def test_rehearsal_is_green_on_embedded_clusters() -> None:
    status, report = rehearse()
    assert [row["step"] for row in report["steps"]] == STEPS, report
    assert report["ok"], report
    assert status == 0
    assert report["notes"][0].startswith("kept: namespace rehearsal-")


@pytest.mark.embedded
def test_rehearsal_names_the_step_that_failed() -> None:
    """A device resource has a domain; without one the budget's flavor is refused."""
    status, report = rehearse("--resource", "gpu", "--timeout", "20")
    assert status == 1
    assert report["failed"] == "budget"


@pytest.mark.controlplane
@pytest.mark.django_db
def test_rehearsal_is_green_beside_a_real_kueue(kueue_fleet: Fleet, tmp_path: Path) -> None:
    """Three real control planes, Kueue decides and dispatches, under the generated rights."""
    arguments = granted(kueue_fleet, tmp_path, mode="kueue")
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
        worker.start_scheduler()
        worker.start_kwok()
    arguments = granted(bare_fleet, tmp_path, mode="portal")
    status, report = rehearse(*arguments, "--node-label", "type=kwok", "--timeout", "60")
    assert report["ok"], report
    assert status == 0
