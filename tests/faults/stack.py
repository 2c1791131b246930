"""The portal's processes as they run for real, to be killed: Redis, Celery workers, beat.

The clusters are embedded ones in this process, so that a test can look at them, freeze them and
count writes; the database is a file, reached only through ``manage.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography.fernet import Fernet

from clusters.devcluster.fleet import EmbeddedFleet, default_plan
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from tests.controlplane.processes import free_port
from tests.servers import redis_binary
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTERS = ("manager", "worker-1", "worker-2")
LEASE_S = 4


def wait_for(what: str, seconds: float, ready: Callable[[], Any]) -> float:
    """Seconds until ``ready`` was true; fails the test when it does not come."""
    begun = time.monotonic()
    eventually(ready, seconds=seconds, why=f"{what} did not happen")
    return time.monotonic() - begun


class Stack:
    """Everything but the web server. A context manager; nothing outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.redis_port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.fleet = EmbeddedFleet(default_plan(folder / "clusters", workers=2))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PORTAL_", "PYTEST_"))},
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": os.environ.get("FAULTS_DATABASE_URL", f"sqlite:///{folder}/db.sqlite3"),
            "CELERY_BROKER_URL": f"redis://127.0.0.1:{self.redis_port}/0",
            "PORTAL_SECRET_KEY": "faults",
            "PORTAL_CREDENTIAL_KEYS": Fernet.generate_key().decode(),
            "PORTAL_INSTALLATION": "faults",
            "PORTAL_CLUSTER_LOOPBACK": "true",
            "LEASE_SECONDS": str(LEASE_S),
            "SHIFT_MEMORY_MB": "1024",
            "SKIP_CHECKS": "1",
        }

    def __enter__(self) -> Self:
        self.fleet.__enter__()
        self.start_redis()
        self.manage("migrate", "--no-input", "--skip-checks")
        kubeconfigs = self.folder / "kubeconfigs"
        kubeconfigs.mkdir()
        for name in CLUSTERS:
            (kubeconfigs / f"{name}.kubeconfig").write_text(self.fleet.servers[name].kubeconfig)
        options = ("--kubeconfigs", str(kubeconfigs), "--days", "0", "--skip-checks")
        self.manage("seed_demo", *options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for name in list(self.processes):
            self.kill(name)
        self.fleet.__exit__(kind, error, _)
        if error is not None:
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}")

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def shell(self, code: str) -> str:
        """Runs code inside the portal, as an admin at the shell would."""
        return self.manage("shell", "-v", "0", "-c", code).strip()

    def revise(self, namespace: str, committed: int, ceiling: int) -> None:
        """Saves a revision through the service, without a nudge: the sweep is the guarantee."""
        self.shell(
            "from budgets import services; from budgets.models import User, Workspace\n"
            "from budgets.plan import RevisionDraft, Line\n"
            f"w = Workspace.objects.get(namespace={namespace!r})\n"
            f"line = Line(w.home_flavor.slug, {committed}, {ceiling}, {committed})\n"
            "services.revise_budget(User.objects.get(username='admin'), workspace=w, "
            "draft=RevisionDraft(lines=(line,), reason='fault test'), "
            "expected_version=w.budget.version)"
        )

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_redis(self) -> None:
        options = ["--bind", "127.0.0.1", "--port", str(self.redis_port), "--save", ""]
        self.start("redis", redis_binary(), *options, "--dir", str(self.folder))

    def start_worker(self, name: str, queues: str, slots: int) -> None:
        celery = [sys.executable, "-m", "celery", "-A", "portal", "worker", "-P", "threads"]
        options = ["-Q", queues, "-c", str(slots), "-n", f"{name}@faults", "--without-mingle"]
        self.start(name, *celery, *options, "-l", "info")

    def start_beat(self) -> None:
        schedule = str(self.folder / "beat")
        celery = [sys.executable, "-m", "celery", "-A", "portal", "beat"]
        self.start("beat", *celery, "-s", schedule, "--pidfile=", "-l", "info")

    def start_celery(self) -> None:
        self.start_worker("shifts", "shift", 14)
        self.start_worker("tasks", "sync,meter", 4)
        self.start_beat()

    def kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, signum)
        process.wait()

    def client(self, name: str) -> KubeClient:
        return KubeClient.from_kubeconfig(self.fleet.servers[name].kubeconfig)

    def queue(self, cluster: str, namespace: str) -> dict[str, Any]:
        """The ClusterQueue as the cluster holds it, {} when there is none."""
        with self.client(cluster) as client:
            found = {q["metadata"]["name"]: q for q in client.list(r.CLUSTER_QUEUE).items}
        return found.get(namespace, {})

    def nominal(self, cluster: str, namespace: str) -> dict[str, int]:
        """Flavor → nominal quota of GPUs on a cluster."""
        spec = self.queue(cluster, namespace).get("spec") or {}
        return {
            flavor["name"]: int(flavor["resources"][0]["nominalQuota"])
            for group in spec.get("resourceGroups") or []
            if group["coveredResources"] == ["nvidia.com/gpu"]
            for flavor in group["flavors"]
        }

    def has_quota(self, namespace: str, flavor: str, gpus: int) -> bool:
        """Whether the manager and the workers together carry exactly this floor."""
        if self.nominal("manager", namespace).get(flavor) != gpus:
            return False
        parts = [self.nominal(name, namespace).get(flavor) for name in CLUSTERS[1:]]
        return None not in parts and sum(part or 0 for part in parts) == gpus

    def facts(self, code: str) -> Any:
        """What an expression over the models comes to, through JSON."""
        return json.loads(self.shell(f"import json\nprint(json.dumps({code}, default=str))"))
