"""The road's steps, each in the way the portal itself goes."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import Interval, UsageRecord
from budgets.plan import ClusterPlace, RevisionDraft, plan_quota, short_form_lines
from clusters import services
from clusters.documents.conditions import is_true
from clusters.errors import ClusterError, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.models import AppliedGeneration, Cluster, ObjectState
from clusters.reconcile.claims import roles_for
from clusters.reconcile.shift import run_shift
from portal.rehearsal.report import Options, Report, StepFailed, wait_until
from portal.rehearsal.world import gpu_job, kubeconfigs

ACCOUNT = "rehearsal"
JOB = "rehearsal"
ROLES = {"manager": Cluster.Role.MANAGER, "cluster": Cluster.Role.SINGLE}
"""Of clusters by their slugs here; all others are workers."""


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
        with self._report.step("register") as facts:
            self.admin = promises.create_first_admin(
                username="rehearsal",
                email="rehearsal@example.com",
                password=secrets.token_urlsafe(18),
            )
            default = "portal" if self._options.is_embedded else "kueue"
            mode = self._options.mode or default

            def register(slug: str) -> str:
                is_worker = slug.startswith("worker-")
                try:
                    cluster = services.register_cluster(
                        self.admin,
                        slug=slug,
                        name=slug,
                        role=ROLES.get(slug, Cluster.Role.WORKER),
                        mode=(self._options.worker_mode if is_worker else None) or mode,
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
        gpus = self._options.gpus
        with self._report.step("budget") as facts:
            flavor = promises.create_flavor(
                self.admin,
                slug=f"rehearsal-{self.suffix}",
                name="Rehearsal",
                resource_name=self._options.resource,
                node_labels=self._node_labels(),
                gpus_per_node=max(1, gpus),
            )
            account = promises.create_account(self.admin, slug=ACCOUNT, name="Rehearsal")
            for slug in self.workers:
                services.state_capacity(
                    self.admin, cluster=slug, flavor=flavor, gpus=2 * gpus, reason="Rehearsal"
                )
            self.workspace = promises.create_workspace(
                self.admin, account=account, slug=self.suffix, name="Rehearsal", home_flavor=flavor
            )
            lines = short_form_lines(
                home_flavor=flavor.slug, committed=gpus, ceiling=2 * gpus, preferred=None
            )
            revision = promises.revise_budget(
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
        with self._report.step("plan") as facts:
            in_force = selectors.promises_in_force()
            for slug in self.workers:
                plan = plan_quota(in_force, ClusterPlace(slug, is_manager=False))
                quota = next(q for q in plan.queues if q.name == self.workspace.namespace).quotas
                facts.append(f"{slug} {sum(q.nominal for q in quota.values())} GPUs")

    def _apply(self) -> None:
        subject = f"budget:{self.workspace.namespace}"
        with self._report.step("apply") as facts:
            clusters = self._start_shifts()
            applied = AppliedGeneration.objects.filter(subject=subject)
            wait_until(
                "the budget on every cluster",
                self._options.timeout,
                lambda: applied.count() == len(clusters),
                self._trouble,
            )
            facts.append(f"{len(clusters)} clusters, namespace {self.workspace.namespace}")
            self._report.notes.append(f"kept: namespace {self.workspace.namespace}")

    def _start_shifts(self) -> list[Cluster]:
        """One shift for each role of each cluster; the clusters, in the order they were named."""
        clusters = list(Cluster.objects.order_by("pk"))
        for cluster in clusters:
            for role in roles_for(cluster):
                self._start_shift(cluster.slug, role)
        return clusters

    def _start_shift(self, slug: str, role: str) -> None:
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
        for cluster in Cluster.objects.exclude(blocked_reason=""):
            services.resolve_block(
                self.admin, cluster=cluster, apply_ours=True, reason="An earlier rehearsal's"
            )

        failed = ObjectState.objects.filter(state__in=("failed", "foreign")).first()
        return f"{failed.kind} {failed.name}: {failed.message}" if failed else ""

    def _submit(self, configs: dict[str, str]) -> None:
        way_in = next(slug for slug in configs if slug in ROLES)
        text = Path(self._options.user).read_text() if self._options.user else configs[way_in]
        with self._report.step("submit") as facts:
            self.user = KubeClient.from_kubeconfig(text)
            namespace = self.workspace.namespace
            job = gpu_job(
                JOB,
                namespace,
                gpus=self._options.gpus,
                seconds=self._options.run_seconds,
                image=self._options.image,
                resource=self._options.resource,
                command=self._options.run or (),
                is_dispatched=not self._options.is_single,
            )
            self.user.create(r.JOB, job)
            self._made_job = True
            facts.append(f"job {namespace}/{JOB} with {self._options.gpus} GPUs")

    def _workload(self) -> dict[str, Any]:
        """The Workload of the Job where it was submitted, {} before it is there."""
        selection = Selection(namespace=self.workspace.namespace)
        for item in self.user.list(r.WORKLOAD, selection).items:
            owners = item["metadata"].get("ownerReferences") or []
            if any(owner["name"] == JOB for owner in owners):
                return item
        return {}

    def _condition(self, kind: str) -> bool:
        return is_true(self._workload(), kind)

    def _job_status(self) -> dict[str, Any]:
        job = self.user.get(r.JOB, JOB, namespace=self.workspace.namespace)
        return dict(job.get("status") or {})

    def _follow(self) -> None:
        timeout = self._options.timeout
        with self._report.step("admit"):
            wait_until("its quota", timeout, lambda: self._condition("QuotaReserved"))
        if not self._options.is_single:
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
                promises.meter_usage()
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
        with self._report.step("clean up") as facts:
            if self._made_job:
                try:
                    self.user.delete(r.JOB, JOB, namespace=self.workspace.namespace)
                except NotFound:
                    facts.append("the job was gone")
                except ClusterError as error:
                    facts.append(f"the job stays: {error.message}")
                self.user.close()
            if not self._shifts:  # a step before them failed; they are who takes clusters out
                self._start_shifts()
            for role in (Cluster.Role.WORKER, Cluster.Role.MANAGER, Cluster.Role.SINGLE):
                self._deregister(role)

    def _deregister(self, role: str) -> None:
        """The portal's own way out: queues are drained, everything of ours is deleted."""
        rows = Cluster.objects.filter(role=role)
        for cluster in rows.exclude(state=Cluster.State.REMOVED):
            services.deregister_cluster(self.admin, cluster=cluster, reason="Rehearsal")
        left = rows.exclude(state=Cluster.State.REMOVED)
        wait_until(f"every {role} clean", self._options.timeout, lambda: not left.exists())

    def _end_shifts(self) -> None:
        self._stop.set()
        for thread in self._shifts:
            thread.join(20)
