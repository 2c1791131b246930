"""Carries dispatch actions out: each method is one action, as one or two requests.

Every request is guarded by a resourceVersion or a UID, and goes through the ``Writer`` of its
cluster. A method returns the objects as they are afterwards, for the images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.errors import AlreadyExists, Forbidden, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.kueue import multikueue_steps as step
from clusters.reconcile.admission import status
from clusters.reconcile.jobs import batch, keys, remote
from clusters.reconcile.jobs.conditions import Condition
from clusters.reconcile.jobs.keys import Document
from clusters.reconcile.jobs.writer import Verb, Write, Writer

EVENT_TEXT_LIMIT = 1024


class Foreign(Exception):
    """An object of the name is there that does not carry our origin."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One object after a write; `document` None when it was deleted."""

    cluster: str
    resource: Resource
    name: str
    document: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Matter:
    """One workload as it was when its actions were decided.

    Attributes:
        key: ``namespace/name``.
        check: Name of the AdmissionCheck.
        local: The manager's Workload.
        job: The manager's Job.
        marks: For copies.
        now: Time of the decision.
    """

    key: str
    check: str
    local: dict[str, Any]
    job: dict[str, Any] | None
    marks: remote.CopyMarks
    now: datetime


@dataclass(frozen=True, slots=True)
class Station:
    """A cluster to write to."""

    name: str
    client: KubeClient
    writer: Writer


class ManagerCourier:
    """Actions on the manager.

    Args:
        station: The manager.
        told: Remembers what people were told already.
    """

    def __init__(self, station: Station, told: Callable[[str, str], bool]) -> None:
        self._station = station
        self._told = told

    def carry_out(
        self, matter: Matter, action: step.Action, remote_job: Document | None
    ) -> list[Effect]:
        """Carry one action out; an empty list when there was nothing to write."""
        match action:
            case step.Nominate(clusters=clusters):
                names = list(clusters) or None
                return self._local("nominate", matter, nominatedClusterNames=names)
            case step.Choose():
                checks = self._checks(matter, "Ready", action.message)
                return self._local(
                    "choose", matter, admissionChecks=checks, clusterName=action.cluster,
                    nominatedClusterNames=None,
                )  # fmt: skip
            case step.SetCheck(state=state, message=message):
                checks = self._checks(matter, state, message)
                return self._local("set-check", matter, admissionChecks=checks)
            case step.CopyStatus():
                return self._copy_status(matter, remote_job)
            case step.MarkJobInactive():
                if matter.job is None:
                    return []
                inactive = remote.inactive_status(matter.job, now=matter.now)
                return self._job_status("mark-inactive", matter.job, inactive)
            case step.Finish(reason=reason, message=message):
                change = Condition("Finished", True, reason, message)
                patch = status.conditions_patch(matter.local, [change], now=matter.now)
                return self._patch_local("finish", matter, patch)
            case step.Tell(reason=reason, message=message):
                self._tell(matter, reason, message)
        return []

    def _checks(self, matter: Matter, state: str, message: str) -> list[dict[str, Any]]:
        found = []
        for entry in (matter.local.get("status") or {}).get("admissionChecks") or ():
            if entry["name"] != matter.check:
                found.append(dict(entry))
                continue
            changed = dict(entry) | {"state": state, "message": message}
            if entry["state"] != state:
                changed["lastTransitionTime"] = keys.stamp(matter.now)
            if state == "Retry":
                # Never left to what an earlier Retry said: zero means at once.
                changed["requeueAfterSeconds"] = 0
            found.append(changed)
        return found

    def _local(self, name: str, matter: Matter, **fields: Any) -> list[Effect]:
        return self._patch_local(name, matter, status.guarded(matter.local, **fields))

    def _patch_local(self, name: str, matter: Matter, patch: dict[str, Any]) -> list[Effect]:
        metadata = matter.local["metadata"]
        return self._send(
            Write(
                name, Verb.PATCH, r.WORKLOAD, metadata["namespace"], metadata["name"], patch,
                subresource="status",
            )
        )  # fmt: skip

    def _copy_status(self, matter: Matter, remote_job: Document | None) -> list[Effect]:
        if matter.job is None or remote_job is None:
            return []
        found = remote.status_copy(matter.job, remote_job, now=matter.now)
        if found.status is None:
            return []
        return self._job_status("copy-status", matter.job, dict(found.status))

    def _job_status(self, name: str, job: Document, wanted: dict[str, Any]) -> list[Effect]:
        metadata = job["metadata"]
        return self._send(
            Write(
                name, Verb.PATCH, r.JOB, metadata["namespace"], metadata["name"],
                remote.status_patch(job, wanted), subresource="status",
            )
        )  # fmt: skip

    def _tell(self, matter: Matter, reason: str, message: str) -> None:
        if not self._told(matter.key, message):
            return
        metadata = matter.local["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']}{reason}{message}".encode()).hexdigest()[:12]
        name = f"{metadata['name'][:240]}.{digest}"
        at = keys.stamp(matter.now)
        body = {
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": r.WORKLOAD.api_version,
                "kind": r.WORKLOAD.kind,
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message[:EVENT_TEXT_LIMIT],
            "type": "Warning",
            "source": {"component": "gpu-budget-portal"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        write = Write("tell", Verb.CREATE, r.EVENT, metadata["namespace"], name, body)
        try:
            self._station.writer.send(write)
        except (AlreadyExists, Forbidden):
            return  # told before, or an identity that may not write Events: an optional right

    def _send(self, write: Write) -> list[Effect]:
        document = self._station.writer.send(write)
        return [Effect(self._station.name, write.resource, write.name, document)]


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
        """Make the Workload, its template with this worker's own defaults.

        Raises:
            Foreign: a Job or Workload of the name is there that is not ours.
        """
        if matter.job is None:
            return []
        template = batch.clean_template(self._dry_run(matter)["spec"]["template"])
        body = remote.workload_copy(matter.local, template, marks=matter.marks)
        return [self._create("create-copy", r.WORKLOAD, body, matter)]

    def create_job(self, matter: Matter) -> list[Effect]:
        """Make the Job of an admitted copy.

        Raises:
            Foreign: a Job of the name is there that is not ours.
        """
        if matter.job is None:
            return []
        body = remote.job_copy(matter.job, matter.local, marks=matter.marks)
        return [self._create("create-job", r.JOB, body, matter)]

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
        jobs: list[dict[str, Any]],
        origin: str,
        effects: list[Effect],
    ) -> None:
        """Delete Job, then Workload; whatever is not ours stays.

        Args:
            action: Why, and how exactly.
            key: Of the workload.
            workload: As the worker has it.
            jobs: Jobs there that name it.
            origin: This manager's mark.
            effects: Takes every deletion as it happens.
        """
        if action.why == "gone" and not self._is_gone(key):
            return
        for job in jobs:
            if remote.is_ours(job, origin):
                effects.append(self._delete("remove-job", r.JOB, job))
        if workload is not None and remote.is_ours(workload, origin):
            finalizers = workload["metadata"].get("finalizers") or []
            if keys.IN_USE_FINALIZER in finalizers:
                left = [item for item in finalizers if item != keys.IN_USE_FINALIZER]
                self._unfinalize(workload, left)
            effects.append(
                self._delete("remove-copy", r.WORKLOAD, workload, exact=action.only_unchanged)
            )

    def _dry_run(self, matter: Matter) -> dict[str, Any]:
        assert matter.job is not None
        body = remote.job_copy(matter.job, matter.local, marks=matter.marks)
        metadata = body["metadata"]
        write = Write(
            "dry-run", Verb.CREATE, r.JOB, metadata["namespace"], metadata["name"], body,
            is_dry_run=True,
        )  # fmt: skip
        try:
            answer = self._station.writer.send(write)
        except AlreadyExists:
            return self._ours(r.JOB, metadata["namespace"], metadata["name"], matter)
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
        return found

    def _patch(self, name: str, workload: Document, fields: dict[str, Any]) -> list[Effect]:
        metadata = workload["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": fields}
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
