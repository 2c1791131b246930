"""What dispatch's actions on the manager come to as requests. Pure.

Each is bound to the state that was looked at; those of one verdict go to different objects, or
only the last of them changes the Workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from clusters.documents.conditions import Condition
from clusters.documents.keys import Document
from clusters.documents.times import stamp
from clusters.jobs.kind import JobKind
from clusters.kube import resources as r
from clusters.kueue.multikueue import steps as step
from clusters.reconcile import workload_status as status
from clusters.reconcile.dispatch.local import Local
from clusters.reconcile.runtime.writer import Write


def manager_writes(
    action: step.Action, local: Local, remote_jobs: Sequence[Document], *, now: datetime
) -> Iterator[Write]:
    """The requests of one action; none where everything is as it should be.

    Args:
        action: One that is carried out on the manager.
        local: The workload, which is there.
        remote_jobs: What the worker of the action has of its job.
        now: Time of the decision.
    """
    workload = local.there
    match action:
        case step.Nominate(clusters=clusters):
            yield _status("nominate", local, nominatedClusterNames=list(clusters) or None)
        case step.Choose():
            checks = _checks(local, "Ready", action.message, now)
            yield _status(
                "choose", local, admissionChecks=checks, clusterName=action.cluster,
                nominatedClusterNames=None,
            )  # fmt: skip
        case step.SetCheck(state=state, message=message):
            yield _status("set-check", local, admissionChecks=_checks(local, state, message, now))
        case step.CopyStatus():
            yield from _copied_status(local, remote_jobs, now)
        case step.MarkJobInactive():
            yield from _marked_inactive(local, now)
        case step.Finish(reason=reason, message=message):
            change = Condition("Finished", True, reason, message)
            patch = status.conditions_patch(workload, [change], now=now)
            yield Write.patch("finish", r.WORKLOAD, workload, patch, subresource="status")


def _status(name: str, local: Local, **fields: Any) -> Write:
    patch = status.guarded(local.there, **fields)
    return Write.patch(name, r.WORKLOAD, local.there, patch, subresource="status")


def _job_status(name: str, kind: JobKind, job: Document, patch: dict[str, Any]) -> Write:
    return Write.patch(name, kind.resource, job, patch, subresource="status")


def _checks(local: Local, state: str, message: str, now: datetime) -> list[dict[str, Any]]:
    found = []
    for entry in (local.there.get("status") or {}).get("admissionChecks") or ():
        if entry["name"] != local.check:
            found.append(dict(entry))
            continue
        changed = dict(entry) | {"state": state, "message": message}
        if entry["state"] != state:
            changed["lastTransitionTime"] = stamp(now)
        # Never left to what an earlier Retry said: without it, it is at once.
        changed.pop("requeueAfterSeconds", None)
        found.append(changed)
    return found


def _copied_status(local: Local, remote_jobs: Sequence[Document], now: datetime) -> Iterator[Write]:
    """What has to be brought to the manager, of every member."""
    there = {item["metadata"]["name"]: item for item in remote_jobs}
    for member in local.members:
        copied = there.get(member["metadata"]["name"])
        if copied is not None and local.kind is not None:
            patch = local.kind.status_patch(member, copied, now=now)
            if patch is not None:
                yield _job_status("copy-status", local.kind, member, patch)


def _marked_inactive(local: Local, now: datetime) -> Iterator[Write]:
    """In its job's status, for its controller to see; else the quota is freed right here."""
    kind = local.kind
    if kind is None:
        return
    patches = [
        (member, kind.inactive_patch(member, now=now))
        for member in local.members
        if kind.is_active(member)
    ]
    if any(patch is not None for _, patch in patches):
        for member, patch in patches:
            if patch is not None:
                yield _job_status("mark-inactive", kind, member, patch)
        return
    release = status.release_patch(local.there, now=now)
    yield Write.patch("release", r.WORKLOAD, local.there, release, subresource="status")
