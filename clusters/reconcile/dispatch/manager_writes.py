"""What dispatch writes on the manager: its actions as requests, and who is connected. Pure.

Each is bound to the state that was looked at; those of one verdict go to different objects, or
only the last of them changes the Workload.

Source: spec dispatch 1.1, 1.4; Kueue pkg/controller/admissionchecks/multikueue, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from clusters.documents.conditions import Condition, condition
from clusters.documents.keys import Document, status_of
from clusters.documents.times import stamp
from clusters.jobs.kind import JobKind
from clusters.kube import resources as r
from clusters.kube.resources import Resource
from clusters.kueue.multikueue import steps as step
from clusters.reconcile import workload_status as status
from clusters.reconcile.multikueue.local import Local, config_of, is_dispatch_check, workers_of
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.writer import Write

_BAD_REFERENCE: Final = "Cannot load the AdmissionChecks parameters: "


def manager_writes(
    action: step.Action,
    local: Local,
    remote_jobs: Sequence[Document],
    *,
    now: datetime,
    is_fine: bool = False,
) -> Iterator[Write]:
    """The requests of one action on the manager; none where everything is as it should be.

    ``remote_jobs`` is what the worker of the action has of the workload's job; ``is_fine`` is that
    of the settings.
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
            yield from _marked_inactive(local, now, is_fine=is_fine)
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
    for entry in status_of(local.there).get("admissionChecks") or ():
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


def _marked_inactive(local: Local, now: datetime, *, is_fine: bool) -> Iterator[Write]:
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
    release = status.release_patch(local.there, now=now, is_fine=is_fine)
    yield Write.patch("release", r.WORKLOAD, local.there, release, subresource="status")


# Who is connected


def connection_writes(
    manager: Cache, *, states: Mapping[str, Condition], now: datetime
) -> Iterator[Write]:
    """The status writes that are due, by the condition Active that each worker should show."""
    configs, clusters = manager.of(r.MULTIKUEUE_CONFIG), manager.of(r.MULTIKUEUE_CLUSTER)
    for name, cluster in clusters.items():
        if name in states:
            yield from _due(r.MULTIKUEUE_CLUSTER, cluster, states[name], now)
    for check in manager.of(r.ADMISSION_CHECK).values():
        if is_dispatch_check(check):
            change = _check_condition(check, configs, clusters, states)
            yield from _due(r.ADMISSION_CHECK, check, change, now)


def _check_condition(
    check: Document,
    configs: Mapping[str, Document],
    clusters: Mapping[str, Document],
    states: Mapping[str, Condition],
) -> Condition:
    name = config_of(check)
    if name not in configs:
        lacks = f'MultiKueueConfig.kueue.x-k8s.io "{name}" not found'
        text = _BAD_REFERENCE + (lacks if name else "missing parameters reference")
        return Condition("Active", False, "BadConfig", text)
    wanted = workers_of(check, configs)
    known = [worker for worker in wanted if worker in clusters]
    missing = [worker for worker in wanted if worker not in clusters]
    inactive = [w for w in known if not (w in states and states[w].status)]
    told = {"Missing clusters": missing, "Inactive clusters": inactive}
    text = ", ".join(f"{what}: [{' '.join(names)}]" for what, names in told.items() if names)
    if len(missing) + len(inactive) == len(wanted):
        return Condition("Active", False, "NoUsableClusters", text)
    if text:
        return Condition("Active", True, "SomeActiveClusters", text)
    return Condition("Active", True, "Active", "The admission check is active")


def _due(
    resource: Resource, document: Document, change: Condition, now: datetime
) -> Iterator[Write]:
    shown = condition(document, "Active")
    wanted = ("True" if change.status else "False", change.reason, change.message)
    if (shown.get("status"), shown.get("reason"), shown.get("message")) != wanted:
        body = status.conditions_patch(document, [change], now=now)
        yield Write.patch("connection", resource, document, body, subresource="status")
