"""Kueue's rules for Workloads: what may not change under a reservation, and what must agree.

Source: Kueue v0.19.2, CRD expressions and workload webhook; `spec/admission.md` 1.6,
`spec/dispatch.md` 2.8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Cause, Document
from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.kueue.amounts import parse_decimal

IMMUTABLE = "field is immutable"


def spec_of(document: Document | None) -> Mapping[str, Any]:
    """Its ``spec``; empty where it, or the whole document, is not there."""
    return (document or {}).get("spec") or {}


def each(owner: Mapping[str, Any], key: str, path: str) -> Iterator[tuple[str, Any]]:
    """Items of a list, each with its path; none where there is no list."""
    for index, item in enumerate(owner.get(key) or []):
        yield f"{path}.{key}[{index}]", item


def object_fault(field: str, message: str) -> Cause:
    """What an expression about an object as a whole finds."""
    return problems.invalid(field, "object", message)


def workload_cel(old: Document | None, new: Document) -> Iterator[Cause]:
    """The CRD's expressions."""
    spec, status = spec_of(new), new.get("status") or {}
    reserved = is_true(new, "QuotaReserved")
    if reserved and "admission" in status:
        assigned = len(status["admission"].get("podSetAssignments") or [])
        if assigned != len(spec.get("podSets") or []):
            text = "podSetAssignments must have the same number of podSets as the spec"
            yield object_fault("", text)
    if "priorityClassRef" in spec and "priority" not in spec:
        yield object_fault("spec", "priority should not be nil when priorityClassRef is set")
    kinds = {"scheduling.k8s.io": "PriorityClass", "kueue.x-k8s.io": "WorkloadPriorityClass"}
    reference = spec.get("priorityClassRef")
    if reference and reference["kind"] != kinds[reference["group"]]:
        group = reference["group"]
        text = f"only the {kinds[group]} kind is allowed for the {group} group"
        yield object_fault("spec.priorityClassRef", text)
    for path, pod_set in each(spec, "podSets", "spec"):
        if pod_set.get("minCount", 0) > pod_set["count"]:
            yield object_fault(path, "minCount should be positive and less or equal to count")
    if "clusterName" in status and status.get("nominatedClusterNames"):
        yield object_fault("status", "clusterName and nominatedClusterNames are mutually exclusive")
    if old is not None:
        yield from _change_cel(old, new)


def _change_cel(old: Document, new: Document) -> Iterator[Cause]:
    before, after = spec_of(old), spec_of(new)
    name = (old.get("status") or {}).get("clusterName")
    if name and (new.get("status") or {}).get("clusterName", name) != name:
        yield object_fault("status", "clusterName is immutable once set")
    if is_true(old, "QuotaReserved"):
        yield from _reserved_reference_cel(
            before.get("priorityClassRef"), after.get("priorityClassRef")
        )
        if is_true(new, "QuotaReserved") and before.get("queueName") != after.get("queueName"):
            yield object_fault("", "queueName is immutable while workload quota reserved")
    if is_true(old, "Admitted") and is_true(new, "Admitted"):
        key = "maximumExecutionTimeSeconds"
        if before.get(key, 0) != after.get(key, 0):
            yield object_fault("", f"{key} is immutable while workload quota reserved")


def _reserved_reference_cel(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[Cause]:
    suffix = "is immutable while workload quota reserved"
    if (before is None) != (after is None):
        yield object_fault("", f"priorityClassRef {suffix}")
    if before is None or after is None:
        return
    for key in ("group", "kind"):
        if before[key] != after[key]:
            yield object_fault("", f"priorityClassRef.{key} {suffix}")
    if after["kind"] == "PriorityClass" and before["name"] != after["name"]:
        text = "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while"
        yield object_fault("", f"{text} workload quota reserved")


def workload_webhook(old: Document | None, new: Document) -> Iterator[Cause]:
    """The validating webhook, for the main resource and for status."""
    pod_sets, status = spec_of(new).get("podSets") or [], new.get("status") or {}
    names = {pod_set["name"] for pod_set in pod_sets}
    if sum("minCount" in pod_set for pod_set in pod_sets) > 1:
        text = "at most one podSet can use minCount"
        yield problems.invalid("spec.podSets", "minCount", text)
    if is_true(new, "QuotaReserved"):
        if "admission" not in status:
            text = "must be set while the QuotaReserved condition is true"
            yield problems.required("status.admission", text)
        else:
            yield from _assignment_webhook(names, status["admission"])
    for check_path, check in each(status, "admissionChecks", "status"):
        for path, update in each(check, "podSetUpdates", check_path):
            if update["name"] not in names:
                yield problems.unsupported(f"{path}.name", update["name"], sorted(names))
    if old is not None:
        yield from _change_webhook(old, new)


def _assignment_webhook(names: set[str], admission: Mapping[str, Any]) -> Iterator[Cause]:
    for path, assignment in each(admission, "podSetAssignments", "status.admission"):
        if assignment["name"] not in names:
            yield Cause(f"{path}.name", "FieldValueNotFound", f"Not found: {assignment['name']!r}")
        count = assignment.get("count")
        for resource, value in (assignment.get("resourceUsage") or {}).items():
            # Kueue counts in milli-units for cpu and in units for the rest; both divide evenly.
            unit = 1000 if resource == "cpu" else 1
            if count and (parse_decimal(str(value)) * unit) % count:
                text = f"is not a multiple of {count}"
                yield problems.invalid(f"{path}.resourceUsage[{resource}]", str(value), text)


def _sizes_aside(document: Document, *, floor: Document | None = None) -> list[Document]:
    """Pod sets as they must stay under quota; those of an elastic workload may shrink."""
    listed = spec_of(document).get("podSets") or []
    marks = document["metadata"].get("annotations") or {}
    if floor is None or marks.get(labels.ELASTIC) != "true":
        return listed
    before = {item["name"]: item["count"] for item in spec_of(floor).get("podSets") or []}
    return [
        item | {"count": max(item["count"], before.get(item["name"], item["count"]))}
        for item in listed
    ]


def _change_webhook(old: Document, new: Document) -> Iterator[Cause]:
    before, after = old.get("status") or {}, new.get("status") or {}
    reserved = is_true(old, "QuotaReserved")
    if reserved and _sizes_aside(old) != _sizes_aside(new, floor=old):
        yield problems.invalid("spec.podSets", "array", IMMUTABLE)
    is_kept = "admission" in before and "admission" in after
    if is_kept and _fixed(before["admission"]) != _fixed(after["admission"]):
        yield object_fault("status.admission", IMMUTABLE)
    if reserved and is_true(new, "QuotaReserved"):
        yield from _reclaim_webhook(before, after)
    name, nominated = after.get("clusterName"), before.get("nominatedClusterNames") or []
    if name and not before.get("clusterName") and name not in nominated:
        text = "when setting clusterName it must be one of the nominatedClusterNames"
        yield problems.invalid("status.clusterName", name, text)
    ready = {c["name"]: c for c in before.get("admissionChecks") or [] if c["state"] == "Ready"}
    for path, check in each(after, "admissionChecks", "status"):
        held = ready.get(check["name"]) if check["state"] == "Ready" else None
        if held and held.get("podSetUpdates") != check.get("podSetUpdates"):
            yield problems.invalid(f"{path}.podSetUpdates", "array", IMMUTABLE)


def _reclaim_webhook(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Cause]:
    counts = {entry["name"]: entry["count"] for entry in after.get("reclaimablePods") or []}
    for entry in before.get("reclaimablePods") or []:
        if counts.get(entry["name"], -1) < entry["count"]:
            text = f"cannot be less than {entry['count']}"
            path = f"status.reclaimablePods[{entry['name']}].count"
            yield problems.invalid(path, counts.get(entry["name"], 0), text)


def _fixed(admission: Mapping[str, Any]) -> Any:
    loose = ("topologyAssignment", "delayedTopologyRequest")
    assignments = [
        {key: value for key, value in entry.items() if key not in loose}
        for entry in admission.get("podSetAssignments") or []
    ]
    return admission.get("clusterQueue"), assignments
