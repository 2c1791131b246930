"""The rehearsal itself; ``manage.py rehearse`` runs it in a process and database of its own."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import django

log = logging.getLogger(__name__)
ACCOUNT = "rehearsal"
JOB = "rehearsal"
POLL_S = 0.1


class StepFailed(Exception):
    """What did not happen, in a sentence."""


@dataclass(frozen=True)
class Options:
    """What ``manage.py rehearse`` was given."""

    manager: str | None
    worker: list[str] | None
    user: str | None
    mode: str | None
    worker_mode: str | None
    gpus: int
    resource: str
    node_label: list[str]
    image: str
    run: list[str] | None
    run_seconds: int
    timeout: float
    json: bool

    @property
    def is_embedded(self) -> bool:
        return self.manager is None


@dataclass
class Report:
    """Steps with their seconds; printed as they happen, or as one JSON document at the end."""

    as_json: bool
    steps: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Times one step; what is appended to the yielded list is shown beside it."""
        begun = time.monotonic()
        facts: list[str] = []
        trouble: Exception | None = None
        try:
            yield facts
        except Exception as error:
            trouble = error
            self.failed = self.failed or name
            facts.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            row = {
                "step": name,
                "ok": trouble is None,
                "seconds": round(time.monotonic() - begun, 3),
                "facts": facts,
            }
            self.steps.append(row)
            if not self.as_json:
                mark = "ok  " if row["ok"] else "FAIL"
                print(f"{mark} {name:10} {row['seconds']:8.2f} s  {'; '.join(facts)}", flush=True)

    def finish(self) -> int:
        if self.as_json:
            ok = not self.failed
            document = {"ok": ok, "failed": self.failed, "steps": self.steps, "notes": self.notes}
            print(json.dumps(document, indent=1))
        else:
            for note in self.notes:
                print(note)
            print(f"failed at: {self.failed}" if self.failed else "rehearsal green")
        return 1 if self.failed else 0


def kubeconfigs(options: Options, stack: ExitStack) -> dict[str, str]:
    """Cluster slug → kubeconfig; starts embedded clusters where none were given."""
    if not options.is_embedded:
        named = {"manager": str(options.manager)}
        named |= {f"worker-{i}": path for i, path in enumerate(options.worker or [], start=1)}
        return {slug: Path(path).read_text() for slug, path in named.items()}
    from clusters.devcluster.fleet import Fleet, default_plan

    folder = stack.enter_context(_temporary_folder())
    fleet = stack.enter_context(Fleet(default_plan(Path(folder), workers=2)))
    return {slug: server.kubeconfig for slug, server in fleet.servers.items()}


@contextmanager
def _temporary_folder() -> Iterator[str]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="portal-rehearsal-clusters-") as folder:
        yield folder


def wait_until(
    what: str, seconds: float, ready: Callable[[], Any], alive: Callable[[], str] = lambda: ""
) -> Any:
    """Polls until ``ready`` returns something true, and returns that.

    Raises:
        StepFailed: the time is up, or ``alive`` told why it cannot come.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = ready()
        if value:
            return value
        if trouble := alive():
            raise StepFailed(f"{what}: {trouble}")
        if time.monotonic() > deadline:
            raise StepFailed(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(POLL_S)


class Rehearsal:
    """The road's steps, each in the way the portal itself goes.

    Shifts run as threads of this process through the same function that the Celery task calls.
    """

    def __init__(self, options: Options, report: Report) -> None:
        self._options = options
        self._report = report
        self._stop = threading.Event()
        self._shifts: list[threading.Thread] = []
        self._outcomes: dict[tuple[str, str], str] = {}
        self._made_job = False
        self.suffix = secrets.token_hex(3)

    def walk(self) -> None:
        """Every step in order; cleans up whatever happens.

        Raises:
            StepFailed: what did not happen.
            Exception: what a step raised; the report names the step.
        """
        with ExitStack() as stack:
            configs = kubeconfigs(self._options, stack)
            stack.callback(self._end_shifts)
            stack.callback(self._clean_up)
            self._register(configs)
            self._budget()
            self._plan()
            self._apply()
            self._submit(configs)
            self._follow()
            self._meter()
            self._page()

    def _register(self, configs: dict[str, str]) -> None:
        from django.db import connection

        from budgets import services
        from clusters import services as cluster_services
        from clusters.models import Cluster

        with self._report.step("register") as facts:
            self.admin = services.create_first_admin(
                username="rehearsal", email="rehearsal@example.com", password=_password()
            )
            default = "portal" if self._options.is_embedded else "kueue"
            mode = self._options.mode or default

            def register(slug: str) -> str:
                is_manager = slug == "manager"
                try:
                    cluster = cluster_services.register_cluster(
                        self.admin,
                        slug=slug,
                        name=slug,
                        role=Cluster.Role.MANAGER if is_manager else Cluster.Role.WORKER,
                        mode=mode if is_manager else self._options.worker_mode or mode,
                        kubeconfig=configs[slug],
                    )
                finally:
                    connection.close()
                return f"{slug} {cluster.mode} {cluster.server}"

            # Side by side: each one waits some seconds for the proof of a live Kueue, or of none.
            with ThreadPoolExecutor(len(configs)) as pool:
                facts += pool.map(register, configs)
            self.workers = [slug for slug in configs if slug != "manager"]

    def _budget(self) -> None:
        from budgets import services
        from budgets.plan import RevisionDraft, short_form_lines
        from portal import actions

        gpus = self._options.gpus
        with self._report.step("budget") as facts:
            flavor = services.create_flavor(
                self.admin,
                slug=f"rehearsal-{self.suffix}",
                name="Rehearsal",
                resource_name=self._options.resource,
                node_labels=self._node_labels(),
                gpus_per_node=max(1, gpus),
            )
            account = services.create_account(self.admin, slug=ACCOUNT, name="Rehearsal")
            for slug in self.workers:
                services.set_capacity(
                    self.admin, cluster=slug, flavor=flavor, gpus=2 * gpus, reason="Rehearsal"
                )
            self.workspace = services.create_workspace(
                self.admin, account=account, slug=self.suffix, name="Rehearsal", home_flavor=flavor
            )
            lines = short_form_lines(
                home_flavor=flavor.slug, committed=gpus, ceiling=2 * gpus, preferred=None
            )
            revision = actions.revise_budget(
                self.admin,
                workspace=self.workspace,
                draft=RevisionDraft(lines=lines, reason="Rehearsal"),
                expected_version=self.workspace.budget.version,
            )
            self.workspace.refresh_from_db()
            facts.append(f"{gpus} committed, burst up to {2 * gpus}, {revision.state}")

    def _node_labels(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self._options.node_label]
        if self._options.is_embedded and not pairs:
            return {"gpu-demo.dev/gpu": "h100", "gpu-demo.dev/market": "on-demand"}
        return {key: value for key, _, value in pairs}

    def _plan(self) -> None:
        from budgets import selectors
        from budgets.plan import ClusterPlace, plan_quota

        with self._report.step("plan") as facts:
            promises = selectors.promises_in_force()
            for slug in self.workers:
                plan = plan_quota(promises, ClusterPlace(slug, is_manager=False))
                quota = next(q for q in plan.queues if q.name == self.workspace.namespace).quotas
                facts.append(f"{slug} {sum(q.nominal for q in quota.values())} GPUs")

    def _apply(self) -> None:
        from clusters.models import AppliedGeneration, Cluster
        from clusters.reconcile.claims import roles_for

        subject = f"budget:{self.workspace.namespace}"
        with self._report.step("apply") as facts:
            clusters = list(Cluster.objects.order_by("pk"))
            for cluster in clusters:
                for role in roles_for(cluster):
                    self._start_shift(cluster.slug, role)
            applied = AppliedGeneration.objects.filter(subject=subject)
            wait_until(
                "the budget on every cluster",
                self._options.timeout,
                lambda: applied.count() == len(clusters),
                self._trouble,
            )
            facts.append(f"{len(clusters)} clusters, namespace {self.workspace.namespace}")
            self._report.notes.append(f"kept: namespace {self.workspace.namespace}")

    def _start_shift(self, slug: str, role: str) -> None:
        from django.db import connection

        from clusters.reconcile.shift import run_shift

        def run() -> None:
            try:
                while not self._stop.is_set():
                    outcome = run_shift(
                        slug, role, stop=self._stop, seconds=3600, holder=f"rehearsal-{slug}-{role}"
                    )
                    self._outcomes[slug, role] = str(outcome)
                    self._stop.wait(1)
            finally:
                connection.close()

        thread = threading.Thread(target=run, name=f"{slug}-{role}", daemon=True)
        self._shifts.append(thread)
        thread.start()

    def _trouble(self) -> str:
        """Why it will not come; what an earlier rehearsal left behind is cleared away."""
        from clusters import services as cluster_services
        from clusters.models import Cluster, ObjectState

        for cluster in Cluster.objects.exclude(blocked_reason=""):
            cluster_services.resolve_block(
                self.admin, cluster=cluster, apply_ours=True, reason="An earlier rehearsal's"
            )

        failed = ObjectState.objects.filter(state__in=("failed", "foreign")).first()
        return f"{failed.kind} {failed.name}: {failed.message}" if failed else ""

    def _submit(self, configs: dict[str, str]) -> None:
        from clusters.kube import resources as r
        from clusters.kube.client import HttpKubeClient

        text = Path(self._options.user).read_text() if self._options.user else configs["manager"]
        with self._report.step("submit") as facts:
            self.user = HttpKubeClient.from_kubeconfig(text)
            namespace = self.workspace.namespace
            self.user.create(r.JOB, rehearsal_job(namespace, self._options))
            self._made_job = True
            facts.append(f"job {namespace}/{JOB} with {self._options.gpus} GPUs")

    def _workload(self) -> dict[str, Any]:
        """The manager's Workload of the Job, {} before it is there."""
        from clusters.kube import resources as r
        from clusters.kube.client import Selection

        selection = Selection(namespace=self.workspace.namespace)
        for item in self.user.list(r.WORKLOAD, selection).items:
            owners = item["metadata"].get("ownerReferences") or []
            if any(owner["name"] == JOB for owner in owners):
                return item
        return {}

    def _condition(self, kind: str) -> bool:
        status = self._workload().get("status") or {}
        return any(
            c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or []
        )

    def _job_status(self) -> dict[str, Any]:
        from clusters.kube import resources as r

        job = self.user.get(r.JOB, JOB, namespace=self.workspace.namespace)
        return dict(job.get("status") or {})

    def _follow(self) -> None:
        timeout = self._options.timeout
        with self._report.step("admit"):
            wait_until("quota on the manager", timeout, lambda: self._condition("QuotaReserved"))
        with self._report.step("dispatch") as facts:
            worker = wait_until(
                "a worker",
                timeout,
                lambda: (self._workload().get("status") or {}).get("clusterName"),
            )
            facts.append(f"to {worker}")
        with self._report.step("run"):
            wait_until(
                "the job running",
                timeout,
                lambda: self._job_status().get("ready") or self._job_status().get("succeeded"),
            )
        with self._report.step("finish"):
            wait_until("the job's end", timeout, lambda: self._condition("Finished"))

    def _meter(self) -> None:
        from budgets import services
        from budgets.models import Interval, UsageRecord

        with self._report.step("meter") as facts:
            rows = Interval.objects.filter(workspace=self.workspace, kind=Interval.Kind.BILLABLE)
            interval = wait_until(
                "a closed interval",
                self._options.timeout,
                lambda: rows.filter(end__isnull=False).first(),
            )
            wanted = sum(
                row.gpus * int((row.end - row.start).total_seconds()) for row in rows if row.end
            )

            def used_now() -> int:
                services.meter_usage()
                facts_rows = UsageRecord.objects.filter(workspace=self.workspace)
                return sum(row.committed_used + row.burst for row in facts_rows)

            # The meter goes as far as the clusters' events are known to be complete.
            wait_until(
                f"hour facts of the {wanted} GPU-seconds that the intervals hold",
                self._options.timeout,
                lambda: used_now() == wanted,
            )
            facts.append(f"{wanted} GPU-seconds on {interval.cluster}")

    def _page(self) -> None:
        from django.test import Client
        from django.urls import reverse

        with self._report.step("page") as facts:
            client = Client()
            client.force_login(self.admin)
            for name, arguments in (("workspace", [self.workspace.namespace]), ("usage", [])):
                answer = client.get(reverse(name, args=arguments))
                if answer.status_code != 200:
                    raise StepFailed(f"page {name} answered {answer.status_code}")
                if self.workspace.name not in answer.content.decode():
                    raise StepFailed(f"page {name} does not show the workspace")
                facts.append(f"{name} {len(answer.content)} bytes")

    def _clean_up(self) -> None:
        """Removes the Job and everything of this installation from the clusters."""
        from clusters.errors import ClusterError, NotFound
        from clusters.kube import resources as r
        from clusters.models import Cluster

        with self._report.step("clean up") as facts:
            if self._made_job:
                try:
                    self.user.delete(r.JOB, JOB, namespace=self.workspace.namespace)
                except NotFound:
                    facts.append("the job was gone")
                except ClusterError as error:
                    facts.append(f"the job stays: {error.message}")
                self.user.close()
            self._deregister(Cluster.Role.WORKER)
            self._deregister(Cluster.Role.MANAGER)

    def _deregister(self, role: str) -> None:
        """The portal's own way out: queues are drained, everything of ours is deleted."""
        from clusters import services as cluster_services
        from clusters.models import Cluster

        rows = Cluster.objects.filter(role=role)
        for cluster in rows.exclude(state=Cluster.State.REMOVED):
            cluster_services.deregister_cluster(self.admin, cluster=cluster, reason="Rehearsal")
        left = rows.exclude(state=Cluster.State.REMOVED)
        wait_until(f"every {role} clean", self._options.timeout, lambda: not left.exists())

    def _end_shifts(self) -> None:
        self._stop.set()
        for thread in self._shifts:
            thread.join(20)


def rehearsal_job(namespace: str, options: Options) -> dict[str, Any]:
    """A Job as a person would submit it: CPU, memory and GPUs."""
    from clusters.devcluster.controllers import RUN_SECONDS

    requests = {"cpu": "1", "memory": "1Gi", options.resource: str(options.gpus)}
    annotations = {
        RUN_SECONDS: str(options.run_seconds),
        "pod-complete.stage.kwok.x-k8s.io/delay": f"{options.run_seconds}s",
    }
    container: dict[str, Any] = {
        "name": "main",
        "image": options.image,
        "resources": {"requests": requests, "limits": {options.resource: str(options.gpus)}},
    }
    if options.run:
        container["command"] = options.run
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": JOB,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "default"},
            "annotations": annotations,
        },
        "spec": {
            "suspend": True,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def _password() -> str:
    return secrets.token_urlsafe(18)


def main(text: str) -> int:
    """Runs a rehearsal in this process, whose settings name a database of its own."""
    django.setup()
    from django.core.management import call_command

    options = Options(**json.loads(text))
    report = Report(as_json=options.json)
    call_command("migrate", verbosity=0)
    try:
        Rehearsal(options, report).walk()
    except Exception as error:
        # Whatever a step raised is in the report, which names the step; nothing is hidden.
        log.debug("rehearsal_failed", exc_info=error)
        if not report.failed:
            report.failed = type(error).__name__
            report.notes.append(str(error))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
