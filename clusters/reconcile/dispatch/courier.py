"""Carries dispatch actions out: each method is one action, as one or two requests.

Every request is guarded by a resourceVersion or a UID, and goes through the ``Writer`` of its
cluster. A method returns the objects as they are afterwards, for the images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.documents.conditions import Condition
from clusters.documents.keys import Document
from clusters.documents.times import stamp
from clusters.errors import AlreadyExists, Forbidden
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import steps as step
from clusters.reconcile.admission import status
from clusters.reconcile.admission.image import Image
from clusters.reconcile.jobs import remote
from clusters.reconcile.jobs.adapters import Adapter
from clusters.reconcile.runtime.writer import Verb, Write, Writer

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

    def show_in(self, image: Image, *, namespace: str) -> None:
        """Let an image know at once what a watch would tell it later."""
        if self.document is not None:
            image.put(self.resource, self.document)
            return
        known = image.get(self.resource, f"{namespace}/{self.name}")
        if known is not None:
            image.drop(self.resource, known)


@dataclass(frozen=True, slots=True)
class Matter:
    """One workload as it was when its actions were decided.

    Attributes:
        key: ``namespace/name``.
        check: Name of the AdmissionCheck.
        local: The manager's Workload.
        job: The manager's job.
        adapter: Of its kind; None without a job.
        marks: For copies.
        now: Time of the decision.
    """

    key: str
    check: str
    local: dict[str, Any]
    job: dict[str, Any] | None
    adapter: Adapter | None
    marks: remote.CopyMarks
    now: datetime

    def status_patches(
        self, remote_jobs: Sequence[Document]
    ) -> Iterator[tuple[Document, dict[str, Any]]]:
        """What has to be brought to the manager: object and patch, of every member."""
        if self.job is None or self.adapter is None:
            return
        there = {item["metadata"]["name"]: item for item in remote_jobs}
        for member in self.adapter.members(self.job):
            copied = there.get(member["metadata"]["name"])
            if copied is not None:
                patch = self.adapter.status_patch(member, copied, now=self.now)
                if patch is not None:
                    yield member, patch


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
        self, matter: Matter, action: step.Action, remote_jobs: Sequence[Document]
    ) -> list[Effect]:
        """Carry one action out; an empty list when there was nothing to write.

        Args:
            matter: The workload.
            action: What to do.
            remote_jobs: What the worker of the action has of its job.
        """
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
                return self._copy_status(matter, remote_jobs)
            case step.MarkJobInactive():
                return self._mark_inactive(matter)
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
                changed["lastTransitionTime"] = stamp(matter.now)
            # Never left to what an earlier Retry said: without it, it is at once.
            changed.pop("requeueAfterSeconds", None)
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

    def _copy_status(self, matter: Matter, remote_jobs: Sequence[Document]) -> list[Effect]:
        return [
            self._job_status("copy-status", matter, member, patch)
            for member, patch in matter.status_patches(remote_jobs)
        ]

    def _mark_inactive(self, matter: Matter) -> list[Effect]:
        """In its job's status, for its controller to see; else the quota is freed right here."""
        if matter.job is None or matter.adapter is None:
            return []
        adapter = matter.adapter
        found: list[Effect] = []
        for member in adapter.members(matter.job):
            if adapter.is_active(member):
                patch = adapter.inactive_patch(member, now=matter.now)
                if patch is not None:
                    found.append(self._job_status("mark-inactive", matter, member, patch))
        if found:
            return found
        release = status.release_patch(matter.local, now=matter.now)
        return self._patch_local("release", matter, release)

    def _job_status(
        self, name: str, matter: Matter, job: Document, patch: dict[str, Any]
    ) -> Effect:
        assert matter.adapter is not None
        metadata = job["metadata"]
        [effect] = self._send(
            Write(
                name, Verb.PATCH, matter.adapter.resource, metadata["namespace"],
                metadata["name"], patch, subresource="status",
            )
        )  # fmt: skip
        return effect

    def _tell(self, matter: Matter, reason: str, message: str) -> None:
        if not self._told(matter.key, message):
            return
        metadata = matter.local["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']}{reason}{message}".encode()).hexdigest()[:12]
        name = f"{metadata['name'][:240]}.{digest}"
        at = stamp(matter.now)
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
