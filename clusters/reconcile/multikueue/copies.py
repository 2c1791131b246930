"""Dispatch's actions on one worker; only what carries this manager's origin is changed or deleted.

What the worker has of the workload is read in the shift's thread, when the action was decided; the
requests are sent from a thread of that worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of, bound
from clusters.errors import AlreadyExists, Conflict, NotFound, Refusal, Terminal
from clusters.jobs import batch, remote
from clusters.jobs.table import JobKinds
from clusters.jobs.workloads import prebuilt_name
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import steps as step
from clusters.reconcile.multikueue.group import (
    jobs_there,
    members_made,
    shrunk_pod_sets,
    stands_for,
)
from clusters.reconcile.multikueue.local import Local
from clusters.reconcile.runtime.job_cache import JobCache
from clusters.reconcile.runtime.pool import Sender
from clusters.reconcile.runtime.writer import Write


class Foreign(Exception):
    """An object of the name is there that does not carry our origin."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What a worker has of one workload.

    Attributes:
        local: The manager's side.
        workload: Its copy; None without one.
        jobs: What the worker has of its job, each with its kind.
    """

    local: Local
    workload: Document | None
    jobs: Sequence[tuple[Resource, dict[str, Any]]]

    @classmethod
    def on(cls, cache: JobCache, local: Local, kinds: JobKinds, *, is_removed: bool) -> Copies:
        """As a worker's cache has it; what is to be removed leaves siblings what is theirs."""
        elastic = None if is_removed else local.job
        there = jobs_there(local.key, cache, kinds, elastic=elastic, is_removed=is_removed)
        return cls(local, cache.get(r.WORKLOAD, local.key), kinds.with_resources(there))

    def carry_out(
        self, action: step.Action, sender: Sender, *, is_gone: Callable[[], bool]
    ) -> None:
        """Carry one action out; nothing where it has become pointless.

        Args:
            action: One of those on workers.
            sender: Sends to the worker.
            is_gone: Asks the manager itself whether the Workload is really gone.

        Raises:
            Foreign: a job or Workload of the name is there that is not ours.
        """
        match action:
            case step.RemoveCopy(why=why, only_unchanged=exact):
                if why != "gone" or is_gone():
                    self._remove(sender, exact=exact)
            case step.CreateCopy():
                self._create_copy(sender)
            case step.CreateJob():
                self._create_job(sender)
            case step.FollowJob():
                self._follow_job(sender)
            case step.StopCopy():
                self._patch(sender, "stop-copy", {"active": False})
            case step.UpdatePriority(priority=priority, reference=reference):
                named = {"priorityClassRef": dict(reference)} if reference is not None else {}
                self._patch(sender, "update-priority", {"priority": priority, **named})

    def _create_copy(self, sender: Sender) -> None:
        """Make the Workload, once the worker has shown that it would take the job."""
        local = self.local
        if local.job is None or local.kind is None:
            return
        tried = local.kind.copy_of(local.job, local.there, marks=local.marks)
        write = Write.create("dry-run", local.kind.resource, tried, is_dry_run=True)
        pod_sets = local.kind.copied_pod_sets(local.there, self._made(sender, write))
        body = remote.workload_copy(local.there, pod_sets, marks=local.marks)
        self._made(sender, Write.create("create-copy", r.WORKLOAD, body))

    def _create_job(self, sender: Sender) -> None:
        """Make the job of an admitted copy; of a group every member that was not made yet.

        Where no engine will make it the owner of the copy, the copy is marked first: a job that is
        gone afterwards was deleted, and is not made a second time under this reservation.
        """
        local, kind = self.local, self.local.kind
        if kind is None:
            return
        made = members_made(self.workload) if self.workload is not None else frozenset()
        members = [
            member
            for member in local.members
            if member["metadata"]["uid"] not in made and not kind.is_past(member)
        ]
        marked = None
        if not kind.is_adopted and self.workload is not None:
            uids = {str(member["metadata"]["uid"]) for member in members}
            marked = self._mark_job_made(sender, self.workload, made | uids)
        for member in members:
            body = kind.copy_of(member, local.there, marks=local.marks)
            try:
                self._made(sender, Write.create("create-job", kind.resource, body))
            except (Terminal, Foreign):
                # Refused for certain, so nothing was made.
                if marked is not None:
                    self._mark_job_made(sender, marked, made)
                raise
            made |= {str(member["metadata"]["uid"])}

    def _follow_job(self, sender: Sender) -> None:
        """Change its job as the manager's was changed; delete members that it lost.

        A copy that shrank goes before its job.
        """
        local, kind = self.local, self.local.kind
        if local.job is None or kind is None:
            return
        if self.workload is not None:
            smaller = shrunk_pod_sets(self.workload, local.there)
            if smaller is not None:
                digest = remote.digest_of({**self.workload["spec"], "podSets": smaller})
                marks = {labels.SENT_DIGEST: digest}
                self._patch(sender, "shrink-copy", {"podSets": smaller}, marks=marks)
        if not stands_for(local.there, local.job):
            return
        wanted = {item["metadata"]["name"]: item for item in local.members}
        for resource, job in self.jobs:
            name = job["metadata"]["name"]
            if not remote.is_ours(job, local.marks.origin):
                continue
            if name not in wanted:
                sender.send(Write.delete("remove-member", resource, job))
                continue
            patch = kind.follow_patch(wanted[name], job)
            if patch is not None:
                sender.send(Write.patch("follow-job", resource, job, patch))

    def _remove(self, sender: Sender, *, exact: bool) -> None:
        """Delete job, then Workload; whatever is not ours stays."""
        origin = self.local.marks.origin
        for resource, job in self.jobs:
            if remote.is_ours(job, origin):
                sender.send(Write.delete("remove-job", resource, job))
        if self.workload is None or not remote.is_ours(self.workload, origin):
            return
        finalizers = self.workload["metadata"].get("finalizers") or []
        if labels.IN_USE_FINALIZER in finalizers:
            left = [item for item in finalizers if item != labels.IN_USE_FINALIZER]
            body = {"metadata": {"finalizers": left or None}}
            with contextlib.suppress(NotFound):  # it is gone: all that was wanted
                sender.send(Write.patch("unfinalize", r.WORKLOAD, self.workload, body))
        sender.send(Write.delete("remove-copy", r.WORKLOAD, self.workload, exact=exact))

    def _mark_job_made(
        self, sender: Sender, workload: Document, members: Collection[str]
    ) -> Document | None:
        """Note which of the manager's objects were made beside a copy; none takes the mark off."""
        marks = {labels.JOB_MADE: self.local.marks.attempt if members else None}
        if self.local.kind is not None and self.local.kind.is_grouped:
            marks[labels.MEMBERS_MADE] = ",".join(sorted(members)) or None
        body = bound(workload)
        body["metadata"]["annotations"] = marks
        return sender.send(Write.patch("mark-job", r.WORKLOAD, workload, body))

    def _made(self, sender: Sender, write: Write) -> Document:
        try:
            document = sender.send(write)
        except AlreadyExists:
            return self._ours(sender, write)
        assert document is not None
        return document

    def _ours(self, sender: Sender, write: Write) -> Document:
        """The object that has the name already, if it is ours and of this job."""
        found = sender.client.get(write.resource, write.name, namespace=write.namespace)
        what = write.resource.kind
        if not remote.is_ours(found, self.local.marks.origin):
            raise Foreign(f"a {what} of this name that is not ours is there")
        if self._is_of_another(found):
            raise Conflict(Refusal(f"a {what} of an earlier job of this name is still there"))
        sender.note(write.resource, found)
        return found

    def _is_of_another(self, found: Document) -> bool:
        """Whether an object of ours goes, or is linked to another Workload or owner than ours."""
        job, linked = self.local.job, prebuilt_name(found)
        if found["metadata"].get("deletionTimestamp"):
            return True
        if linked and job is not None and batch.is_elastic(job):
            return not batch.has_been(job, linked)
        if linked:
            return bool(linked != self.local.there["metadata"]["name"])
        origin = annotations_of(found).get(labels.ORIGIN_UID)
        return bool(origin and job is not None and origin != job["metadata"]["uid"])

    def _patch(
        self,
        sender: Sender,
        name: str,
        fields: dict[str, Any],
        *,
        marks: dict[str, str] | None = None,
    ) -> None:
        if self.workload is None:
            return
        body = remote.guarded(self.workload, fields)
        body["metadata"] |= {"annotations": marks} if marks else {}
        sender.send(Write.patch(name, r.WORKLOAD, self.workload, body))
