"""What is done about a defect: read everything again, decide again, then one careful write or two.

Each cure runs in a thread, returns what it did in words, and does nothing when the fresh look does
not show the defect any more. Only objects with this manager's origin are deleted on a worker.
"""

from __future__ import annotations

from typing import Final

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document
from clusters.errors import NotFound
from clusters.jobs import remote
from clusters.jobs.kind import JobKind
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.steps import RemoveCopy
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.dispatch.copies import Copies
from clusters.reconcile.dispatch.local import Local, attempt_of
from clusters.reconcile.guard.defects import Defect, diagnose
from clusters.reconcile.guard.sighted import Sighted
from clusters.reconcile.reactivation import reactivation
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.pool import Sender
from clusters.reconcile.runtime.writer import Hook, Write, Writer

MANAGER: Final = ""


class Cures:
    """Cures on a manager and its workers.

    Args:
        context: The shift.
        sight: Where workers and their caches are.
        writer: Of the manager.
        hook: Called around every write on a worker.
    """

    def __init__(
        self, context: ShiftContext, *, sight: Sighted, writer: Writer, hook: Hook
    ) -> None:
        self._context, self._sight = context, sight
        self._writer, self._hook = writer, hook

    def remove_stale(self, key: str, worker: str, effects: list[Effect]) -> str:
        """Delete an old copy, its job first: before Kueue takes it, or to give the job back.

        Args:
            key: ``namespace/name`` of the Workload.
            worker: Where the old copy is.
            effects: Takes every deletion as it happens.

        Returns:
            What was done; empty when there is nothing to do any more.
        """
        namespace, _, name = key.partition("/")
        link = self._sight.links.get(worker)
        local = self._read(self._context.client, name, namespace)
        if link is None or link.client is None or local is None:
            return ""
        copy = self._read(link.client, name, namespace)
        chosen = str((local.get("status") or {}).get("clusterName") or "")
        if copy is None or not chosen or chosen == worker or is_true(local, "Finished"):
            return ""
        if not remote.is_ours(copy, self._sight.origin) or not is_true(copy, "Admitted"):
            return ""
        jobs = self._sight.kinds.with_resources(link.cache.jobs_for(key))
        writer = Writer(
            link.client, cluster=worker, fence=self._context.fence,
            may_write=lambda: link.may_write, hook=self._hook,
        )  # fmt: skip
        marks = remote.CopyMarks(self._sight.origin, attempt_of(local))
        copies = Copies(Local(key, local, None, None, "", marks), copy, jobs)
        copies.carry_out(
            RemoveCopy(worker, "stale"),
            Sender(worker, link.client, writer, effects),
            is_gone=lambda: True,
        )
        return f"Deleted the old copy on {worker}, its job first; {chosen} keeps the job."

    def free_quota(self, key: str, effects: list[Effect]) -> str:
        """Write into the manager's job that no pod runs: Kueue then gives the quota back.

        It starts nothing anywhere. Kinds whose status cannot say so stay as they are.
        """
        namespace, _, name = key.partition("/")
        local = self._read(self._context.client, name, namespace)
        if local is None:
            return ""
        found = self._job_of(local)
        if found is None:
            return ""
        kind, job = found
        now = self._context.now()
        patient = self._sight.patient(key, local, now)
        stands = any(item.defect is Defect.STUCK_QUOTA for item in diagnose(patient))
        patch = kind.inactive_patch(job, now=now)
        if not stands or not kind.is_active(job) or patch is None:
            return ""
        self._sender(effects).send(
            Write.patch("free-quota", kind.resource, job, patch, subresource="status")
        )
        return f"Wrote into {kind.resource.kind} {job['metadata']['name']} that no pod of it runs."

    def requeue(self, key: str, effects: list[Effect]) -> str:
        """Take the mark of the rejection away, so that Kueue queues the workload again."""
        namespace, _, name = key.partition("/")
        local = self._read(self._context.client, name, namespace)
        write = reactivation(local) if local is not None else None
        # A workload that somebody deactivated again is left alone.
        if write is None or not write.subresource:
            return ""
        self._sender(effects).send(write)
        return "Took the condition Requeued away: Kueue queues the job again."

    def _sender(self, effects: list[Effect]) -> Sender:
        return Sender(MANAGER, self._context.client, self._writer, effects)

    def _read(self, client: KubeClient, name: str, namespace: str) -> Document | None:
        try:
            return client.get(r.WORKLOAD, name, namespace=namespace)
        except NotFound:
            return None

    def _job_of(self, local: Document) -> tuple[JobKind, Document] | None:
        kind, _, name = self._sight.kinds.owner_of(local)
        if kind is None:
            return None
        namespace = local["metadata"]["namespace"]
        try:
            return kind, self._context.client.get(kind.resource, name, namespace=namespace)
        except NotFound:
            return None
