"""A backup of yesterday is restored under a portal that went on since: nothing is deleted, the
portal asks, and the ledger says what it lacks. Real PostgreSQL and Redis, all processes."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from tests.faults.ground import Ground, embedded_ground, job_of, real_ground
from tests.faults.house import House
from tests.faults.mishaps import compact, is_real
from tests.faults.observer import JOBS, QUEUES, Observer
from tests.faults.schedule import CLUSTERS, GPUS_PER_WORKER, WORKERS, Arrival
from tests.faults.timeline import MANAGER
from tests.faults.whole_road import INSTALLATION, _is_open
from tests.reconcile.admission_harness import NS, is_true
from tests.servers import has_postgres, postgres_program
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL server")
PATIENCE_S = 180.0
REVISE = """
from budgets import services
from budgets.models import Account, Flavor, User, Workspace
from budgets.plan import RevisionDraft, short_form_lines
admin = User.objects.get(username='admin')
flavor = Flavor.objects.get(slug='h100')
later = services.create_workspace(admin, account=Account.objects.get(), slug='later', name='Later',
                                  home_flavor=flavor)
for name, committed in (('{ns}', 4), ('acme-later', 2)):
    w = Workspace.objects.get(namespace=name)
    lines = short_form_lines(home_flavor='h100', committed=committed, ceiling=16, preferred=None)
    services.revise_budget(admin, workspace=w, draft=RevisionDraft(lines=lines, reason='today'),
                           expected_version=w.budget.version)
"""
DECIDE = """
from budgets.models import User
from clusters import services
from clusters.models import Cluster
for row in Cluster.objects.all():
    services.resolve_block(User.objects.get(username='admin'), cluster=row, apply_ours=True,
                           reason='the backup is right')
"""


def queue(client: KubeClient, name: str) -> dict[str, Any]:
    found = {item["metadata"]["name"]: item for item in client.list(r.CLUSTER_QUEUE).items}
    return found.get(name, {})


def floor(ground: Ground, name: str = NS) -> int:
    """Nominal quota on the manager."""
    groups = (queue(ground.clients[MANAGER], name).get("spec") or {}).get("resourceGroups") or []
    for group in groups:
        if group["coveredResources"] == ["nvidia.com/gpu"]:
            return sum(int(one["resources"][0]["nominalQuota"]) for one in group["flavors"])
    return 0


def is_finished(ground: Ground, name: str) -> bool:
    found = ground.clients[MANAGER].get(r.JOB, name, namespace=NS)
    return is_true(found, "Complete")


def submit(ground: Ground, name: str, run_s: float) -> None:
    ground.clients[MANAGER].create(r.JOB, job_of(Arrival(0.0, name, 2, run_s)))


def dump(house: House, path: Path) -> None:
    command = [postgres_program("pg_dump"), "-Fc", "-f", path, house.database_url]
    subprocess.run(command, check=True)


def restore(house: House, path: Path) -> None:
    command = [postgres_program("pg_restore"), "--clean", "--if-exists", "-d", house.database_url]
    subprocess.run([*command, path], check=True)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(embedded_ground, id="embedded", marks=pytest.mark.redis),
        pytest.param(
            real_ground,
            id="real",
            marks=[pytest.mark.controlplane, pytest.mark.slow, pytest.mark.django_db],
        ),
    ],
)
def test_restored_backup_deletes_nothing_asks_and_says_what_is_missing(place, tmp_path):
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backup-")))
        folder.chmod(0o755)
        ground = stack.enter_context(place(is_bare=True))
        house = stack.enter_context(House(folder / "house", installation=INSTALLATION))
        house.furnish(ground.portal, gpus=GPUS_PER_WORKER)
        house.open()
        eventually(lambda: _is_open(ground), seconds=PATIENCE_S, why="the portal does not open")
        observer = stack.enter_context(Observer(ground.admins, lists_anew=True))
        # 1. Yesterday.
        submit(ground, "before", 1.0)
        eventually(lambda: is_finished(ground, "before"), seconds=PATIENCE_S)
        eventually(lambda: watched_on(house) == set(CLUSTERS), seconds=PATIENCE_S)
        dump(house, folder / "backup")
        # 2. Since then: promises changed, one job came and went, one still runs.
        house.manage("shell", "-v", "0", "-c", REVISE.format(ns=NS))
        submit(ground, "between", 3.0)
        submit(ground, "running", 45.0)
        eventually(
            lambda: floor(ground) == 4 and floor(ground, "acme-later") == 2, seconds=PATIENCE_S
        )
        eventually(lambda: is_finished(ground, "between"), seconds=PATIENCE_S)
        eventually(lambda: not copies_of(ground, "between"), seconds=PATIENCE_S)
        # A note is written with the Lease's next renewal.
        time.sleep(5)
        house.shut()
        forget(ground)
        # 3. The backup.
        restore(house, folder / "backup")
        told = len(observer.told())
        house.open()
        eventually(lambda: blocked(house) == set(CLUSTERS), seconds=PATIENCE_S)
        eventually(lambda: gaps(house) == set(CLUSTERS), seconds=PATIENCE_S)
        eventually(lambda: estimated(house) == [("between", 2)], seconds=PATIENCE_S)
        # 4. Nothing was deleted, nothing rolled back; the job runs on.
        since = observer.told()[told:]
        assert not [one for one in since if one.kind == QUEUES and one.change == "DELETED"]
        assert not [one for one in since if one.kind == JOBS and one.change == "DELETED"]
        assert (floor(ground), floor(ground, "acme-later")) == (4, 2)
        # 5. An admin decides that the backup is right.
        house.manage("shell", "-v", "0", "-c", DECIDE)
        eventually(lambda: floor(ground) == 8, seconds=PATIENCE_S, why="the decision has no effect")
        eventually(lambda: not queue(ground.clients[MANAGER], "acme-later"), seconds=PATIENCE_S)
        eventually(
            lambda: is_finished(ground, "running"),
            seconds=PATIENCE_S,
            why=lambda: told_of(ground, "running"),
        )
        assert not blocked(house)


def told_of(ground: Ground, name: str) -> str:
    """Everything that the clusters say of a job."""
    found = [
        (cluster, item.get("kind"), item["metadata"], item.get("status"))
        for cluster, client in ground.clients.items()
        for kind in (r.JOB, r.WORKLOAD)
        for item in client.list(kind).items
        if name in item["metadata"]["name"]
    ]
    return "\n".join(map(str, found))


def watched_on(house: House) -> set[str]:
    rows = house.query("SELECT cluster FROM budgets_meterstate WHERE watched_version <> ''")
    return {cluster for (cluster,) in rows}


def blocked(house: House) -> set[str]:
    rows = house.query("SELECT slug FROM clusters_cluster WHERE blocked_reason LIKE '%backup%'")
    return {slug for (slug,) in rows}


def gaps(house: House) -> set[str]:
    rows = house.query(
        "SELECT cluster FROM budgets_discrepancy WHERE kind = 'unwatched' AND state = 'open'"
    )
    return {cluster for (cluster,) in rows}


def estimated(house: House) -> list[tuple[str, int]]:
    """(job, GPUs) of what is billed as estimated."""
    return house.query(  # type: ignore[return-value]  # as selected
        "SELECT job_name, gpus FROM budgets_interval "
        "WHERE state = 'estimated' AND kind = 'billable' AND job_name = 'between'"
    )


def copies_of(ground: Ground, name: str) -> list[str]:
    found = [ground.clients[worker].list(r.WORKLOAD).items for worker in WORKERS]
    return [item["metadata"]["name"] for part in found for item in part if name in str(item)]


def forget(ground: Ground) -> None:
    """A day passes for the API servers: their history is gone."""
    for place in ground.places.values():
        if is_real(place):
            compact(place)
            place.kill_api_server()
            place.start_api_server()
        else:
            place.server.cluster.store.compact()
