"""The road's steps, each in the way the portal itself goes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import Interval, UsageRecord
from budgets.plan import ClusterPlace, RevisionDraft, plan_quota, short_form_lines
from clusters import services
from clusters.documents.conditions import is_true
from clusters.errors import AdmissionDenied, ClusterError, Forbidden, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.models import AppliedGeneration, Cluster
from clusters.reconcile.claims import roles_for
from clusters.reconcile.shift import run_shift
from portal.rehearsal import reasons
from portal.rehearsal.report import Options, Report, StepFailed, plain, wait_until
from portal.rehearsal.world import gpu_job, kubeconfigs

ACCOUNT = "rehearsal"
JOB = "rehearsal"
ROLES = {"manager": Cluster.Role.MANAGER, "cluster": Cluster.Role.SINGLE}
"""Of clusters by their slugs here; all others are workers."""
NO_USER = (
    "The portal's own account may not submit jobs, and needs not. Give --user the kubeconfig of "
    "somebody who may; yours as an admin of the cluster will do."
)


class Rehearsal:
    """The road's steps, each in the way the portal itself goes.

    Shifts run as threads of this process through the same function that the Celery task calls.
    """

    def __init__(self, options: Options, report: Report) -> None:
        self._options = options
        self._report = report
        self._stop = threading.Event()
        self._shifts: list[threading.Thread] = []
        self._configs: dict[str, str] = {}
        self._standing = reasons.TroubleClock()
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
            configs = self._configs = kubeconfigs(self._options, stack)
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

            def draft(slug: str) -> Cluster:
                role = ROLES.get(slug, Cluster.Role.WORKER)
                of_workers = self._options.worker_mode if role == Cluster.Role.WORKER else None
                return Cluster(slug=slug, role=role, mode=of_workers or mode)

            drafts = [draft(slug) for slug in configs]

            def register(wish: Cluster) -> str:
                slug = wish.slug
                try:
                    cluster = services.register_cluster(
                        self.admin,
                        slug=slug,
                        name=slug,
                        role=wish.role,
                        mode=wish.mode,
                        kubeconfig=configs[slug],
                    )
                except Rejected as error:
                    lacks = reasons.missing_rights(drafts, configs)
                    raise StepFailed(plain(f"{slug}: {error}"), lacks) from error
                finally:
                    connection.close()
                return f"{slug} {cluster.mode} {cluster.server}"

            # Side by side: each one waits some seconds for the proof of a live Kueue, or of none.
            with ThreadPoolExecutor(len(configs)) as pool:
                facts += pool.map(register, drafts)
            if lacks := list(reasons.missing_rights(Cluster.objects.all(), configs)):
                raise StepFailed("rights are missing", lacks)
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
            state = revision.get_state_display().lower()
            facts.append(f"{gpus} committed, burst limit {2 * gpus}, {state}")

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
                facts.append(f"{slug} gets {sum(q.nominal for q in quota.values())} GPUs")

    def _apply(self) -> None:
        subject = f"budget:{self.workspace.namespace}"
        with self._report.step("apply") as facts:
            clusters = self._start_shifts()
            applied = AppliedGeneration.objects.filter(subject=subject)
            self._wait(
                "the budget is not in place on every cluster",
                lambda: applied.count() == len(clusters),
                self._trouble,
            )
            facts.append(f"{len(clusters)} clusters, namespace {self.workspace.namespace}")
            self._report.notes.append(
                f"The namespace {self.workspace.namespace} stays on the clusters."
            )

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
                    if outcome.message:
                        self._outcomes[slug, role] = plain(str(outcome))
                    self._stop.wait(1)
            finally:
                connection.close()

        thread = threading.Thread(target=run, name=f"{slug}-{role}", daemon=True)
        self._shifts.append(thread)
        thread.start()

    def _wait(
        self, what: str, ready: Callable[[], Any], hopeless: Callable[[], str] = lambda: ""
    ) -> Any:
        return wait_until(what, self._options.timeout, ready, hopeless, self._told)

    def _told(self) -> list[str]:
        """What is known of a step that did not come, a sentence each."""
        ended = sorted(self._outcomes.items())
        shifts = [f"The {role} shift of {slug} ended: {why}" for (slug, role), why in ended]
        return [*shifts, *reasons.told(self._configs, f"{ACCOUNT}-{self.suffix}")]

    def _trouble(self) -> str:
        """Why it will not come; what an earlier rehearsal left behind is cleared away."""
        for cluster in Cluster.objects.exclude(blocked_reason=""):
            services.resolve_block(
                self.admin, cluster=cluster, apply_ours=True, reason="An earlier rehearsal's"
            )
        return self._standing.first(reasons.failed_objects())

    def _no_way(self) -> str:
        """Why the job will not get to a worker."""
        return self._standing.first(reasons.failed_objects() | reasons.unusable_workers())

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
            try:
                self.user.create(r.JOB, job)
            except Forbidden as error:
                if self._options.user or isinstance(error, AdmissionDenied):
                    raise
                raise StepFailed(plain(str(error)), [NO_USER]) from error
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

    def _job_failed(self) -> str:
        return "it failed" if is_true({"status": self._job_status()}, "Failed") else ""

    def _follow(self) -> None:
        with self._report.step("admit"):
            self._wait(
                "the job has no quota", lambda: self._condition("QuotaReserved"), self._no_way
            )
        if not self._options.is_single:
            with self._report.step("dispatch") as facts:
                worker = self._wait(
                    "no worker has taken the job",
                    lambda: (self._workload().get("status") or {}).get("clusterName"),
                    self._no_way,
                )
                facts.append(f"to {worker}")
        with self._report.step("run"):
            self._wait(
                "the job does not run",
                lambda: self._job_status().get("ready") or self._job_status().get("succeeded"),
                self._job_failed,
            )
        with self._report.step("finish"):
            self._wait("the job has not ended", lambda: self._condition("Finished"))

    def _meter(self) -> None:
        with self._report.step("meter") as facts:
            rows = Interval.objects.filter(workspace=self.workspace, kind=Interval.Kind.BILLABLE)
            interval = self._wait(
                "no interval of the job is closed",
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
            self._wait(
                f"the hour facts do not have the {wanted} GPU-seconds of the intervals",
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
                    raise StepFailed(f"the page {name} answered with status {answer.status_code}")
                if self.workspace.name not in answer.content.decode():
                    raise StepFailed(f"the page {name} does not show the workspace")
                facts.append(f"the page {name} has {len(answer.content)} bytes")

    def _clean_up(self) -> None:
        """Removes the Job and everything of this installation from the clusters."""
        with self._report.step("clean up") as facts:
            if self._made_job:
                try:
                    self.user.delete(r.JOB, JOB, namespace=self.workspace.namespace)
                except NotFound:
                    facts.append("the job was deleted already")
                except ClusterError as error:
                    facts.append(f"the job could not be deleted: {error.message}")
                self.user.close()
            if not self._shifts:  # a step before them failed; nobody else writes
                facts.append("no quota was written")
                return
            for role in (Cluster.Role.WORKER, Cluster.Role.MANAGER, Cluster.Role.SINGLE):
                self._deregister(role)

    def _deregister(self, role: str) -> None:
        """The portal's own way out: queues are drained, everything of ours is deleted."""
        rows = Cluster.objects.filter(role=role)
        for cluster in rows.exclude(state=Cluster.State.REMOVED):
            services.deregister_cluster(self.admin, cluster=cluster, reason="Rehearsal")
        left = rows.exclude(state=Cluster.State.REMOVED)
        self._wait(f"not every {role} is clean", lambda: not left.exists())

    def _end_shifts(self) -> None:
        self._stop.set()
        for thread in self._shifts:
            thread.join(20)
