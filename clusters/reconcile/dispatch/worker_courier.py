"""Carries dispatch actions out on one worker; see ``courier`` for what they share with a manager.

Only what carries this manager's origin is ever changed or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document, annotations_of
from clusters.errors import AlreadyExists, Conflict, NotFound, Refusal, Terminal
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import steps as step
from clusters.reconcile.dispatch.courier import Effect, Foreign, Matter, Station
from clusters.reconcile.dispatch.parts import members_made, shrunk_pod_sets, stands_for
from clusters.reconcile.jobs import batch, remote
from clusters.reconcile.jobs.adapters import Adapter, pods
from clusters.reconcile.runtime.writer import Verb, Write


class WorkerCourier:
    """Actions on one worker.

    Args:
        station: The worker.
        is_gone: Asks the manager itself whether a Workload is really gone.
    """

    def __init__(self, station: Station, is_gone: Callable[[str], bool]) -> None:
        self._station = station
        self._is_gone = is_gone

    def create_copy(self, matter: Matter) -> list[Effect]:
        """Make the Workload, once the worker has shown that it would take the job.

        Raises:
            Foreign: a job or Workload of the name is there that is not ours.
        """
        if matter.job is None or matter.adapter is None:
            return []
        pod_sets = matter.adapter.pod_sets(matter.local, self._dry_run(matter, matter.adapter))
        body = remote.workload_copy(matter.local, pod_sets, marks=matter.marks)
        return [self._create("create-copy", r.WORKLOAD, body, matter)]

    def create_job(self, matter: Matter, workload: Document | None, effects: list[Effect]) -> None:
        """Make the job of an admitted copy; of a group every member that was not made yet.

        Where no engine will make it the owner of the copy, the copy is marked first: a job that is
        gone afterwards was deleted, and is not made a second time under this reservation.

        Args:
            matter: The workload.
            workload: Its copy.
            effects: Takes every write as it happens.

        Raises:
            Foreign: a job of the name is there that is not ours.
        """
        adapter = matter.adapter
        if matter.job is None or adapter is None:
            return
        made = members_made(workload) if workload is not None else frozenset()
        members = [
            member
            for member in adapter.members(matter.job)
            if member["metadata"]["uid"] not in made and not _is_past(member)
        ]
        marked = None
        if not adapter.is_adopted and workload is not None:
            uids = {str(member["metadata"]["uid"]) for member in members}
            marked = self._mark_job_made(workload, matter, made | uids)
            effects.append(marked)
        for member in members:
            body = adapter.body(member, matter.local, marks=matter.marks)
            try:
                effects.append(self._create("create-job", adapter.resource, body, matter))
            except (Terminal, Foreign):
                # Refused for certain, so nothing was made.
                if marked is not None and marked.document is not None:
                    effects.append(self._mark_job_made(marked.document, matter, made))
                raise
            made |= {str(member["metadata"]["uid"])}

    def follow_job(
        self,
        matter: Matter,
        workload: Document | None,
        jobs: Sequence[Document],
        effects: list[Effect],
    ) -> None:
        """Change a worker's job as the manager's was changed; delete members that it lost.

        Args:
            matter: The workload.
            workload: Its copy; one that shrank goes before its job.
            jobs: What the worker has of its job.
            effects: Takes every write as it happens.
        """
        adapter = matter.adapter
        if matter.job is None or adapter is None:
            return
        smaller = shrunk_pod_sets(workload, matter.local) if workload is not None else None
        if workload is not None and smaller is not None:
            spec = {**workload["spec"], "podSets": smaller}
            marks = {labels.SENT_DIGEST: remote.digest_of(spec)}
            effects += self._patch("shrink-copy", workload, {"podSets": smaller}, marks=marks)
        if not stands_for(matter.local, matter.job):
            return
        wanted = {item["metadata"]["name"]: item for item in adapter.members(matter.job)}
        for job in jobs:
            metadata = job["metadata"]
            if not remote.is_ours(job, matter.marks.origin):
                continue
            if metadata["name"] not in wanted:
                effects.append(self._delete("remove-member", adapter.resource, job))
                continue
            patch = adapter.follow_patch(wanted[metadata["name"]], job)
            if patch is not None:
                write = Write(
                    "follow-job", Verb.PATCH, adapter.resource, metadata["namespace"],
                    metadata["name"], patch,
                )  # fmt: skip
                document = self._station.writer.send(write)
                effects.append(
                    Effect(self._station.name, adapter.resource, metadata["name"], document)
                )

    def _mark_job_made(
        self, workload: Document, matter: Matter, members: frozenset[str] | set[str]
    ) -> Effect:
        """Note which of the manager's objects were made beside a copy; none takes the mark off."""
        metadata = workload["metadata"]
        is_group = matter.adapter is not None and matter.adapter.resource == r.POD
        body = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {
                    labels.JOB_MADE: matter.marks.attempt if members else None,
                    **(
                        {labels.MEMBERS_MADE: ",".join(sorted(members)) or None} if is_group else {}
                    ),
                },
            }
        }
        write = Write(
            "mark-job", Verb.PATCH, r.WORKLOAD, metadata["namespace"], metadata["name"], body
        )
        document = self._station.writer.send(write)
        return Effect(self._station.name, r.WORKLOAD, metadata["name"], document)

    def stop_copy(self, workload: Document) -> list[Effect]:
        """Deactivate a copy."""
        return self._patch("stop-copy", workload, {"active": False})

    def update_priority(self, workload: Document, action: step.UpdatePriority) -> list[Effect]:
        """Give a copy another priority."""
        fields: dict[str, Any] = {"priority": action.priority}
        if action.reference is not None:
            fields["priorityClassRef"] = dict(action.reference)
        return self._patch("update-priority", workload, fields)

    def remove(
        self,
        action: step.RemoveCopy,
        key: str,
        *,
        workload: Document | None,
        jobs: Iterable[tuple[Resource, dict[str, Any]]],
        origin: str,
        effects: list[Effect],
    ) -> None:
        """Delete Job, then Workload; whatever is not ours stays.

        Args:
            action: Why, and how exactly.
            key: Of the workload.
            workload: As the worker has it.
            jobs: Jobs there that name it, each with its kind.
            origin: This manager's mark.
            effects: Takes every deletion as it happens.
        """
        if action.why == "gone" and not self._is_gone(key):
            return
        for kind, job in jobs:
            if remote.is_ours(job, origin):
                effects.append(self._delete("remove-job", kind, job))
        if workload is not None and remote.is_ours(workload, origin):
            finalizers = workload["metadata"].get("finalizers") or []
            if labels.IN_USE_FINALIZER in finalizers:
                left = [item for item in finalizers if item != labels.IN_USE_FINALIZER]
                self._unfinalize(workload, left)
            effects.append(
                self._delete("remove-copy", r.WORKLOAD, workload, exact=action.only_unchanged)
            )

    def _dry_run(self, matter: Matter, adapter: Adapter) -> dict[str, Any]:
        assert matter.job is not None
        body = adapter.body(matter.job, matter.local, marks=matter.marks)
        kind, metadata = adapter.resource, body["metadata"]
        write = Write(
            "dry-run", Verb.CREATE, kind, metadata["namespace"], metadata["name"], body,
            is_dry_run=True,
        )  # fmt: skip
        try:
            answer = self._station.writer.send(write)
        except AlreadyExists:
            return self._ours(kind, metadata["namespace"], metadata["name"], matter)
        assert answer is not None
        return answer

    def _create(
        self, name: str, resource: Resource, body: dict[str, Any], matter: Matter
    ) -> Effect:
        metadata = body["metadata"]
        write = Write(name, Verb.CREATE, resource, metadata["namespace"], metadata["name"], body)
        try:
            document = self._station.writer.send(write)
        except AlreadyExists:
            document = self._ours(resource, metadata["namespace"], metadata["name"], matter)
        return Effect(self._station.name, resource, metadata["name"], document)

    def _ours(
        self, resource: Resource, namespace: str, name: str, matter: Matter
    ) -> dict[str, Any]:
        found = self._station.client.get(resource, name, namespace=namespace)
        if not remote.is_ours(found, matter.marks.origin):
            raise Foreign(f"a {resource.kind} of this name that is not ours is there")
        if _is_of_another(found, matter):
            raise Conflict(
                Refusal(f"a {resource.kind} of an earlier job of this name is still there")
            )
        return found

    def _patch(
        self,
        name: str,
        workload: Document,
        fields: dict[str, Any],
        *,
        marks: dict[str, str] | None = None,
    ) -> list[Effect]:
        metadata = workload["metadata"]
        version = {"resourceVersion": metadata["resourceVersion"]}
        body = {
            "metadata": version | ({"annotations": marks} if marks else {}),
            "spec": fields,
        }
        write = Write(name, Verb.PATCH, r.WORKLOAD, metadata["namespace"], metadata["name"], body)
        document = self._station.writer.send(write)
        return [Effect(self._station.name, r.WORKLOAD, metadata["name"], document)]

    def _unfinalize(self, workload: Document, left: list[str]) -> None:
        metadata = workload["metadata"]
        body = {"metadata": {"finalizers": left or None}}
        write = Write(
            "unfinalize", Verb.PATCH, r.WORKLOAD, metadata["namespace"], metadata["name"], body
        )
        try:
            self._station.writer.send(write)
        except NotFound:
            return  # it is gone: all that was wanted

    def _delete(
        self, name: str, resource: Resource, document: Document, *, exact: bool = False
    ) -> Effect:
        metadata = document["metadata"]
        write = Write(
            name, Verb.DELETE, resource, metadata["namespace"], metadata["name"],
            uid=metadata["uid"], version=metadata["resourceVersion"] if exact else "",
        )  # fmt: skip
        self._station.writer.send(write)
        return Effect(self._station.name, resource, metadata["name"], None)


def _is_past(member: Document) -> bool:
    """Whether a member of a group ended, or goes: it is not made again."""
    return pods.is_pod(member) and pods.is_over(member)


def _is_of_another(found: Document, matter: Matter) -> bool:
    """Whether an object of ours goes, or is linked to another Workload or owner than ours."""
    if found["metadata"].get("deletionTimestamp"):
        return True
    linked = batch.prebuilt_name(found)
    if linked and matter.job is not None and batch.is_elastic(matter.job):
        return linked not in batch.slice_names(matter.job)
    if linked:
        return bool(linked != matter.local["metadata"]["name"])
    origin = annotations_of(found).get(labels.ORIGIN_UID)
    return bool(origin and matter.job is not None and origin != matter.job["metadata"]["uid"])
