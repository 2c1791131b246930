"""Kueue Workload documents → the fields that the meter needs, stored with every raw event.

The payload keeps Kueue's own shape, so that a stored event can be read again by later code; pod
templates are reduced to the devices one pod asks for.

Source: kueue.x-k8s.io/v1beta2 Workload; spec money, sections 1.2 to 1.4.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from budgets.intervals.model import Assignment, Condition, PodSet, WorkloadFacts
from budgets.units import FlavorName

GPU_RESOURCES = frozenset({"nvidia.com/gpu"})
ORIGIN_LABEL = "kueue.x-k8s.io/multikueue-origin"
ORIGIN_UID_ANNOTATION = "kueue.x-k8s.io/multikueue-origin-uid"
REPLACES_ANNOTATION = "kueue.x-k8s.io/workload-slice-replacement-for"
_CONDITION_ORDER = attrgetter("type", "status", "since", "reason")
_MULTIPLES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

Document = Mapping[str, Any]


class BadDocument(ValueError):
    """A Workload that cannot be read; the message names the field."""


def needed_fields(
    document: Document, *, gpu_resources: Collection[str] = GPU_RESOURCES
) -> dict[str, Any]:
    """Return what an event stores of a Workload: no pod specs, environment or secrets.

    Args:
        document: A v1beta2 Workload.
        gpu_resources: Resource names that are whole devices.

    Raises:
        BadDocument: A device request is not a whole number.
    """
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    status = document.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return {
        "metadata": {
            **_some(
                metadata,
                ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"),
            ),
            "labels": _some(labels, (ORIGIN_LABEL,)),
            "annotations": _some(annotations, (ORIGIN_UID_ANNOTATION, REPLACES_ANNOTATION)),
            "ownerReferences": [
                _some(owner, ("kind", "name", "uid", "controller"))
                for owner in metadata.get("ownerReferences") or []
            ],
        },
        "spec": {
            **_some(spec, ("queueName", "priority", "active")),
            "podSets": [
                {
                    "name": pod_set.get("name", "main"),
                    "count": pod_set.get("count", 0),
                    "gpus": _pod_gpus(pod_set, gpu_resources),
                }
                for pod_set in spec.get("podSets") or []
            ],
        },
        "status": {
            **_some(status, ("reclaimablePods", "clusterName", "schedulingStats")),
            "conditions": [
                _some(condition, ("type", "status", "lastTransitionTime", "reason"))
                for condition in status.get("conditions") or []
            ],
            **({"admission": _admission(status["admission"])} if status.get("admission") else {}),
        },
    }


def digest_of(payload: Document) -> str:
    """Return the SHA-256 of a payload, hex, the same for any order of keys."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Read:
    """A payload and what it says, to read the next state of the same Workload by."""

    payload: Document
    facts: WorkloadFacts


def read_facts(
    payload: Document,
    *,
    gpu_resources: Collection[str] = GPU_RESOURCES,
    before: Read | None = None,
) -> WorkloadFacts:
    """Read a payload that :func:`needed_fields` made.

    Args:
        payload: One state of a Workload.
        gpu_resources: Resource names that are whole devices.
        before: Another state, read with the same resources. What is equal in both is not read
            again; the result is the same without it.

    Raises:
        BadDocument: A needed field is missing or is no time or whole number.
    """
    status = payload["status"]
    admission = status.get("admission") or {}
    same = before is not None and (
        before.payload["metadata"] == payload["metadata"]
        and before.payload["spec"] == payload["spec"]
    )
    fixed = before.facts if same and before is not None else _fixed_facts(payload)
    if before is not None and admission == (before.payload["status"].get("admission") or {}):
        assignments = before.facts.assignments
    else:
        assignments = _assignments(admission, gpu_resources)
    reclaimable, stats = status.get("reclaimablePods"), status.get("schedulingStats")
    return WorkloadFacts(
        namespace=fixed.namespace,
        name=fixed.name,
        created_at=fixed.created_at,
        deleting_since=fixed.deleting_since,
        queue=fixed.queue,
        priority=fixed.priority,
        job_kind=fixed.job_kind,
        job_name=fixed.job_name,
        job_uid=fixed.job_uid,
        is_active=fixed.is_active,
        pod_sets=fixed.pod_sets,
        conditions=tuple(sorted(map(_condition, status["conditions"]), key=_CONDITION_ORDER)),
        cluster_queue=admission.get("clusterQueue", ""),
        assignments=assignments,
        reclaimable=tuple(sorted((row["name"], int(row["count"])) for row in reclaimable))
        if reclaimable
        else (),
        origin=fixed.origin,
        manager_uid=fixed.manager_uid,
        cluster_name=status.get("clusterName") or "",
        replaces=fixed.replaces,
        variant_of=fixed.variant_of,
        evictions=_evictions(stats) if stats else 0,
    )


def _fixed_facts(payload: Document) -> WorkloadFacts:
    """What metadata and spec say; most states of a Workload share it."""
    metadata, spec = payload["metadata"], payload["spec"]
    owner = _controller(metadata.get("ownerReferences") or [])
    is_variant = owner.get("kind") == "Workload"
    return WorkloadFacts(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        created_at=_time(metadata.get("creationTimestamp"), field="creationTimestamp"),
        deleting_since=_time_or_none(metadata.get("deletionTimestamp"), field="deletionTimestamp"),
        queue=spec.get("queueName", ""),
        priority=int(spec.get("priority") or 0),
        job_kind=owner.get("kind", ""),
        job_name=owner.get("name", ""),
        job_uid=owner.get("uid", ""),
        is_active=spec.get("active") is not False,
        pod_sets=tuple(
            PodSet(row["name"], int(row["count"]), int(row["gpus"])) for row in spec["podSets"]
        ),
        origin=metadata["labels"].get(ORIGIN_LABEL, ""),
        manager_uid=metadata["annotations"].get(ORIGIN_UID_ANNOTATION, ""),
        replaces=metadata["annotations"].get(REPLACES_ANNOTATION, ""),
        variant_of=owner.get("uid", "") if is_variant else "",
    )


def _some(source: Document, names: Sequence[str]) -> dict[str, Any]:
    return {name: source[name] for name in names if source.get(name) is not None}


def _admission(admission: Document) -> dict[str, Any]:
    return {
        **_some(admission, ("clusterQueue",)),
        "podSetAssignments": [
            _some(row, ("name", "count", "flavors", "resourceUsage"))
            for row in admission.get("podSetAssignments") or []
        ],
    }


def _controller(owners: Sequence[Document]) -> Document:
    return next((owner for owner in owners if owner.get("controller")), owners[0] if owners else {})


def _assignments(admission: Document, gpu_resources: Collection[str]) -> tuple[Assignment, ...]:
    found: dict[tuple[str, str], Assignment] = {}
    for row in admission.get("podSetAssignments") or []:
        usage = row.get("resourceUsage") or {}
        for resource, flavor in (row.get("flavors") or {}).items():
            if resource not in gpu_resources:
                continue
            name = row.get("name", "main")
            gpus = _whole(usage.get(resource, 0), field=f"resourceUsage of {name}")
            before = found.get((name, flavor))
            found[name, flavor] = Assignment(
                pod_set=name,
                flavor=FlavorName(flavor),
                count=int(row.get("count") or 0),
                gpus=gpus + (before.gpus if before else 0),
            )
    return tuple(sorted(found.values()))


def _pod_gpus(pod_set: Document, gpu_resources: Collection[str]) -> int:
    """Devices of one pod: Σ containers, or the largest init container when that is more."""
    pod = ((pod_set.get("template") or {}).get("spec")) or {}
    together = 0
    for resource in gpu_resources:
        running = [_request(row, resource) for row in pod.get("containers") or []]
        beside = [
            _request(row, resource)
            for row in pod.get("initContainers") or []
            if row.get("restartPolicy") == "Always"
        ]
        starting = [
            _request(row, resource)
            for row in pod.get("initContainers") or []
            if row.get("restartPolicy") != "Always"
        ]
        together += max(sum(running) + sum(beside), max(starting, default=0))
    return together


def _request(container: Document, resource: str) -> int:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return _whole(amounts.get(resource, 0), field=f"request of {resource}")


def _whole(quantity: Any, *, field: str) -> int:
    """Read a device count as Kubernetes writes it: 8, "8" or "2k"; never through a float."""
    text = str(quantity)
    for suffix, factor in _MULTIPLES.items():
        digits = text.removesuffix(suffix)
        if digits != text and digits.isdecimal():
            return int(digits) * factor
    if not text.isdecimal():
        raise BadDocument(f"{field}: {text!r} is not a whole number of devices")
    return int(text)


def _condition(row: Document) -> Condition:
    get = row.get
    try:
        return _known_condition(
            get("type", ""), get("status"), get("lastTransitionTime"), get("reason", "")
        )
    except TypeError as error:
        raise BadDocument(f"condition {get('type')}: {error}") from error


@lru_cache(maxsize=65_536)
def _known_condition(kind: Any, status: Any, since: Any, reason: Any) -> Condition:
    """Each state of a workload repeats the conditions of the states before."""
    moment = _time(since, field=f"condition {kind}")
    return Condition(str(kind), status == "True", moment, str(reason))


def _evictions(stats: Document) -> int:
    return sum(int(row.get("count") or 0) for row in stats.get("evictions") or [])


def _time_or_none(text: Any, *, field: str) -> datetime | None:
    return None if text is None else _time(text, field=field)


def _time(text: Any, *, field: str) -> datetime:
    if not isinstance(text, str):
        raise BadDocument(f"{field}: there is no time")
    try:
        return _moment(text)
    except ValueError as error:
        raise BadDocument(f"{field}: {text!r} {error}") from error


@lru_cache(maxsize=65_536)
def _moment(text: str) -> datetime:
    """Read a time; many states and workloads share them."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("is not an RFC 3339 time") from error
    if moment.tzinfo is None:
        raise ValueError("has no time zone")
    return moment.astimezone(UTC).replace(microsecond=0)
