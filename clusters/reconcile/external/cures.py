"""What is done about a defect: read everything again, decide again, then one careful write or two.

Each cure runs in a thread, returns what it did in words, and does nothing when the fresh look does
not show the defect any more. Only objects with this manager's origin are deleted on a worker.
"""

from __future__ import annotations

from clusters.documents.conditions import is_true
from clusters.documents.keys import Document
from clusters.errors import NotFound
from clusters.jobs import remote
from clusters.kueue.multikueue.steps import RemoveCopy
from clusters.reconcile.external.defects import Defect, diagnose
from clusters.reconcile.external.watched_workers import WatchedWorkers
from clusters.reconcile.multikueue.controller import ManagerController, read_workload
from clusters.reconcile.multikueue.copies import Copies
from clusters.reconcile.multikueue.local import Local, attempt_of, chosen_of
from clusters.reconcile.multikueue.workers import MANAGER
from clusters.reconcile.reactivation import reactivation
from clusters.reconcile.runtime.cache import Effect
from clusters.reconcile.runtime.pool import Sender
from clusters.reconcile.runtime.writer import Write


class Cures:
    """Cures on a manager and its workers."""

    def __init__(self, shift: ManagerController, *, workers: WatchedWorkers) -> None:
        self._shift, self._context, self._workers = shift, shift.context, workers

    def carry_out(self, defect: Defect, key: str, worker: str, effects: list[Effect]) -> str:
        """Cure one defect of one workload; an old copy on a worker.

        Returns:
            What was done; empty when there is nothing to do any more.
        """
        local = read_workload(self._context.client, key)
        if local is None:
            return ""
        sender = Sender(MANAGER, self._context.client, self._shift.writer, effects)
        match defect:
            case Defect.STALE_COPY:
                return self._remove_stale(key, local, worker, effects)
            case Defect.STUCK_QUOTA:
                return self._free_quota(key, local, sender)
            case _:
                return self._requeue(local, sender)

    def _remove_stale(self, key: str, local: Document, worker: str, effects: list[Effect]) -> str:
        """Delete an old copy, its job first: before Kueue takes it, or to give the job back."""
        link, origin = self._workers.links.get(worker), self._workers.origin
        if link is None or link.client is None:
            return ""
        copy = read_workload(link.client, key)
        chosen = chosen_of(local)
        if copy is None or not chosen or chosen == worker or is_true(local, "Finished"):
            return ""
        if not remote.is_ours(copy, origin) or not is_true(copy, "Admitted"):
            return ""
        jobs = self._workers.kinds.with_resources(link.cache.jobs_for(key))
        marks = remote.CopyMarks(origin, attempt_of(local))
        Copies(Local(key, local, None, None, "", marks), copy, jobs).carry_out(
            RemoveCopy(worker, "stale"),
            Sender(worker, link.client, self._shift.writer_on(link, link.client), effects),
            is_gone=lambda: True,
        )
        return f"Deleted the old copy on {worker}, its job first; {chosen} keeps the job."

    def _free_quota(self, key: str, local: Document, sender: Sender) -> str:
        """Write into the manager's job that no pod runs: Kueue then gives the quota back.

        It starts nothing anywhere. Kinds whose status cannot say so stay as they are.
        """
        kind, _, name = self._workers.kinds.owner_of(local)
        if kind is None:
            return ""
        try:
            job = sender.client.get(kind.resource, name, namespace=local["metadata"]["namespace"])
        except NotFound:
            return ""
        now = self._context.now()
        patient = self._workers.patient(key, local, now)
        stands = any(item.defect is Defect.STUCK_QUOTA for item in diagnose(patient))
        patch = kind.inactive_patch(job, now=now)
        if not stands or not kind.is_active(job) or patch is None:
            return ""
        sender.send(Write.patch("free-quota", kind.resource, job, patch, subresource="status"))
        return f"Wrote into {kind.resource.kind} {name} that no pod of it runs."

    def _requeue(self, local: Document, sender: Sender) -> str:
        """Take the mark of the rejection away, so that Kueue queues the workload again."""
        write = reactivation(local)
        # A workload that somebody deactivated again is left alone.
        if write is None or not write.subresource:
            return ""
        sender.send(write)
        return "Took the condition Requeued away: Kueue queues the job again."
