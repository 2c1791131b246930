"""Statuses of a cluster as plain values that two runs can be compared by.

Left out: times, UIDs, resource versions, managed fields, and what the specification calls not
deterministic. Workloads go by the name of their Job, since their own names hold a UID.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from clusters.kube import resources as r
from clusters.kube.client import KubeClient

Document = Mapping[str, Any]
Snapshot = dict[str, Any]

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_WORKLOAD = re.compile(r"\bjob-([a-z0-9-]+?)-[0-9a-f]{5}\b")
_SECONDS = re.compile(r"was \d+(\.\d+)?s")
_GENERATED = ("controller-uid", "job-name")
_QUEUE_KINDS = {
    "clusterQueues": r.CLUSTER_QUEUE,
    "localQueues": r.LOCAL_QUEUE,
    "cohorts": r.COHORT,
}
# Sources of events that have nothing to do with admission.
_JOB_CONTROLLER = "job-controller"
# Which flavors were tried on the way; the page and command "why" tell that in full.
_WARNS_OF_EVICTION = frozenset({"AdmissionCheckRejected", "MaximumExecutionTimeExceeded"})
_CONSIDERED = re.compile(r"; Flavors considered: .*")


def snapshot(client: KubeClient, *, with_events: bool) -> Snapshot:
    """Jobs, Workloads, queues and, if asked for, the events of one cluster."""
    jobs, workloads = client.list(r.JOB).items, client.list(r.WORKLOAD).items
    found: Snapshot = {
        "jobs": {_name(job): _job(job) for job in jobs},
        "workloads": {job_name(each): _workload(each) for each in workloads},
    }
    for key, resource in _QUEUE_KINDS.items():
        listed = {_name(each): _status(each) for each in client.list(resource).items}
        if listed:
            found[key] = listed
    if with_events:
        found["events"] = _events(client.list(r.EVENT).items, [*jobs, *workloads])
    return found


def job_name(workload: Document) -> str:
    """Name of the Job that a Workload belongs to; its own for one that has none."""
    for owner in workload["metadata"].get("ownerReferences") or ():
        return str(owner["name"])
    return text_of(str(workload["metadata"]["name"]))


def state_of(workload: Document | None) -> str:
    """The farthest that a workload has come, in the words of a look."""
    if workload is None:
        return "Gone"
    conditions = workload["status"].get("conditions", {})

    def is_true(kind: str) -> bool:
        return bool(conditions.get(kind, {}).get("status") == "True")

    if is_true("Finished"):
        return "Finished"
    if workload["spec"].get("active") is False and not is_true("QuotaReserved"):
        return "Inactive"
    if is_true("Evicted") and is_true("QuotaReserved"):
        return "Evicted"
    if is_true("Admitted"):
        return "Admitted"
    return "Reserved" if is_true("QuotaReserved") else "Pending"


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _job(job: Document) -> Snapshot:
    spec, template = job["spec"], job["spec"]["template"]
    labels = {
        key: value
        for key, value in (template.get("metadata", {}).get("labels") or {}).items()
        if not key.endswith(_GENERATED)
    }
    found = {
        "suspend": bool(spec.get("suspend")),
        "parallelism": spec.get("parallelism"),
        "completions": spec.get("completions"),
        "nodeSelector": template["spec"].get("nodeSelector"),
        "tolerations": template["spec"].get("tolerations"),
        "podLabels": labels,
    }
    return {key: value for key, value in found.items() if value not in (None, {}, [])}


def _workload(workload: Document) -> Snapshot:
    spec = workload["spec"]
    shown = {
        key: spec[key]
        for key in (
            "active", "queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds",
        )
        if key in spec
    }  # fmt: skip
    shown["podSets"] = [
        {key: item[key] for key in ("name", "count", "minCount") if key in item}
        for item in spec["podSets"]
    ]
    return {"spec": shown, "status": _status(workload)}


def _status(document: Document) -> Snapshot:
    return {
        key: value
        for key, value in plain(document.get("status") or {}).items()
        if value not in (None, {}, [])
    }


def plain(value: Any, key: str = "") -> Any:
    """Without times and UIDs; lists of named things in a fixed order."""
    if isinstance(value, Mapping):
        return {
            name: _field(name, entry) for name, entry in sorted(value.items()) if _is_told(name)
        }
    if isinstance(value, list):
        entries = [plain(entry) for entry in value]
        if key == "conditions":
            return {entry.pop("type"): entry for entry in entries}
        if key in ("admissionChecks", "reclaimablePods"):
            return sorted(entries, key=lambda entry: str(entry["name"]))
        if key == "evictions":
            return sorted(entries, key=lambda entry: (entry["reason"], entry["underlyingCause"]))
        return entries
    return text_of(value) if isinstance(value, str) else value


def _field(name: str, value: Any) -> Any:
    if name in ("requeueAt", "accumulatedPastExecutionTimeSeconds"):
        return "<time>"
    return plain(value, name)


def _is_told(name: str) -> bool:
    return name not in ("lastTransitionTime", "lastUpdate", "lastProbeTime")


def text_of(text: str) -> str:
    text = _WORKLOAD.sub(r"job-\1-<hash>", _UID.sub("<uid>", text))
    return _SECONDS.sub("was <n>s", text)


def _events(events: Iterable[Document], present: Iterable[Document]) -> list[str]:
    """One line for each different event of what is there; how often and in which order is chance.

    So is, which reasons to wait a workload had on its way: the present one has to be told.
    """
    by_uid = {each["metadata"]["uid"]: each for each in present}
    found = set()
    for event in events:
        about = by_uid.get(event["involvedObject"].get("uid", ""))
        author = event.get("reportingComponent") or event.get("source", {}).get("component")
        if about is None or author == _JOB_CONTROLLER or _is_past(event, about):
            continue
        text = _CONSIDERED.sub("", text_of(event.get("message") or ""))
        who = f"{event['involvedObject']['kind']} {text_of(_name(about))}"
        found.add(f"{who} {event.get('type')} {event.get('reason')}: {text}")
    return sorted(found)


def _is_past(event: Document, about: Document) -> bool:
    """A reason to wait that does not hold any more."""
    if event.get("type") != "Warning" or event.get("reason") in _WARNS_OF_EVICTION:
        return False
    conditions = (about.get("status") or {}).get("conditions") or ()
    return all(
        (entry["type"], entry["reason"], entry["message"])
        != ("QuotaReserved", event.get("reason"), event.get("message"))
        for entry in conditions
    )
