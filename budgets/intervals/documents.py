"""Kueue Workload documents → the fields that the meter needs, stored with every raw event.

The payload keeps Kueue's own shape, so that a stored event can be read again by later code; pod
templates are reduced to the devices one pod asks for.

Source: kueue.x-k8s.io/v1beta2 Workload; spec money, sections 1.2 to 1.4.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from budgets.intervals.model import Assignment, Condition, PodSet, WorkloadFacts
from budgets.units import MOST_COUNTED_GPUS, YEARS, FlavorName

GPU_RESOURCES = frozenset({"nvidia.com/gpu"})
ORIGIN_LABEL = "kueue.x-k8s.io/multikueue-origin"
ORIGIN_UID_ANNOTATION = "kueue.x-k8s.io/multikueue-origin-uid"
REPLACES_ANNOTATION = "kueue.x-k8s.io/workload-slice-replacement-for"
AFTER_GAP = "afterGap"
COMPLETED_AT = "completedAt"
"""What an event's payload says besides the Workload: see ``WorkloadEvent`` of the model."""
_NOTHING = Raw(b"null")
_QUANTITY = re.compile(r"(\d+)(?:(Ki|[kMGTPE]i?)|[eE]\+?(\d{1,2}))?", re.ASCII)
_MULTIPLES: Mapping[str, int] = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", start=1)},
}

Document = Mapping[str, Any]


MOST_OWNERS: Final = 4
"""Of an object that nobody controls: enough to ask when it ended, however large its group is."""


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
                for owner in telling_owners(metadata)
            ],
        },
        "spec": {
            **_some(spec, ("queueName", "priority", "active")),
            "podSets": [
                {
                    "name": pod_set.get("name", "main"),
                    "count": pod_set.get("count", 0),
                    "gpus": max(
                        _pod_gpus(pod_set, gpu_resources),
                        _claimed_gpus(pod_set, status, gpu_resources),
                    ),
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


class _Status(Struct, frozen=True, rename="camel"):
    """A payload's status; what is only compared or read seldom stays text."""

    conditions: list[Raw] = []
    admission: Raw = _NOTHING
    reclaimable_pods: Raw = _NOTHING
    scheduling_stats: Raw = _NOTHING
    cluster_name: str | None = None


class _Payload(Struct, frozen=True, rename={"after_gap": AFTER_GAP, "completed_at": COMPLETED_AT}):
    metadata: Raw
    spec: Raw
    status: _Status
    after_gap: bool = False
    completed_at: str | None = None


_PAYLOAD = Decoder(_Payload)


class Read(Struct, frozen=True):
    """A payload and what it says, to read the next state of the same Workload by."""

    facts: WorkloadFacts
    payload: _Payload

    @property
    def after_gap(self) -> bool:
        """Whether nothing was watched right before."""
        return self.payload.after_gap

    @property
    def completed_at(self) -> datetime | None:
        """When the job behind a missing Workload ended, if that was known.

        Raises:
            BadDocument: It is no time.
        """
        text = self.payload.completed_at
        return None if text is None else _time(text, field=COMPLETED_AT)


def read_payload(
    payload: str,
    *,
    gpu_resources: Collection[str] = GPU_RESOURCES,
    before: Read | None = None,
    unread: Callable[[str], datetime] | None = None,
) -> Read:
    """Read a payload that :func:`needed_fields` made.

    Args:
        payload: One state of a Workload, JSON.
        gpu_resources: Resource names that are whole devices.
        before: Another state, read with the same resources. What is written alike in both is not
            read again; the result is the same without it.
        unread: What stands for a time that cannot be read, by where it stood and what it was.

    Raises:
        BadDocument: A needed field is missing or is no time or whole number.
    """
    try:
        found = _PAYLOAD.decode(payload)
        return Read(_facts(found, gpu_resources, before, unread), found)
    except MsgspecError as error:
        raise BadDocument(str(error)) from error


def _facts(
    found: _Payload,
    gpu_resources: Collection[str],
    before: Read | None,
    unread: Callable[[str], datetime] | None,
) -> WorkloadFacts:
    status = found.status
    if (
        before is not None
        and before.payload.metadata == found.metadata
        and before.payload.spec == found.spec
    ):
        fixed = before.facts
    else:
        fixed = _fixed_facts(decode(found.metadata), decode(found.spec), unread)
    if before is not None and before.payload.status.admission == status.admission:
        cluster_queue, assignments = before.facts.cluster_queue, before.facts.assignments
    else:
        admission = decode(status.admission) or {}
        cluster_queue = admission.get("clusterQueue", "")
        assignments = _assignments(admission, gpu_resources)
    return replace(
        fixed,
        conditions=tuple(sorted([_condition_or(bytes(row), unread) for row in status.conditions])),
        cluster_queue=cluster_queue,
        assignments=assignments,
        reclaimable=_reclaimable(status.reclaimable_pods),
        cluster_name=status.cluster_name or "",
        evictions=_evictions(status.scheduling_stats),
    )


def _fixed_facts(
    metadata: Document, spec: Document, unread: Callable[[str], datetime] | None
) -> WorkloadFacts:
    """What metadata and spec say; most states of a Workload share it."""
    if unread is not None:
        named = [key for key in ("creationTimestamp", "deletionTimestamp") if key in metadata]
        metadata = {**metadata, **{key: _legible(metadata[key], key, unread) for key in named}}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    owner: Document = next(iter(telling_owners(metadata)), {})
    is_variant = owner.get("kind") == "Workload"
    deleting = metadata.get("deletionTimestamp")
    return WorkloadFacts(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        created_at=_time(metadata.get("creationTimestamp"), field="creationTimestamp"),
        deleting_since=None if deleting is None else _time(deleting, field="deletionTimestamp"),
        queue=spec.get("queueName", ""),
        priority=int(spec.get("priority") or 0),
        job_kind=owner.get("kind", ""),
        job_name=owner.get("name", ""),
        job_uid=owner.get("uid", ""),
        is_active=spec.get("active") is not False,
        pod_sets=tuple(
            PodSet(row["name"], int(row["count"]), int(row["gpus"]))
            for row in spec.get("podSets") or []
        ),
        origin=labels.get(ORIGIN_LABEL, ""),
        manager_uid=annotations.get(ORIGIN_UID_ANNOTATION, ""),
        replaces=annotations.get(REPLACES_ANNOTATION, ""),
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


def telling_owners(metadata: Document) -> list[Document]:
    """The owner that controls an object, else the first few: a group is owned by all its pods."""
    owners = metadata.get("ownerReferences") or []
    return [owner for owner in owners if owner.get("controller")][:1] or owners[:MOST_OWNERS]


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
            gpus += before.gpus if before else 0
            if gpus > MOST_COUNTED_GPUS:
                raise BadDocument(f"resourceUsage of {name}: nobody has {gpus} devices")
            found[name, flavor] = Assignment(
                pod_set=name,
                flavor=FlavorName(flavor),
                count=int(row.get("count") or 0),
                gpus=gpus,
            )
    return tuple(sorted(found.values()))


def _pod_gpus(pod_set: Document, gpu_resources: Collection[str]) -> int:
    """Devices of one pod: Σ containers, or the largest init container when that is more."""
    pod = ((pod_set.get("template") or {}).get("spec")) or {}
    containers, inits = pod.get("containers") or [], pod.get("initContainers") or []
    beside = [row for row in inits if row.get("restartPolicy") == "Always"]
    starters = [row for row in inits if row.get("restartPolicy") != "Always"]
    together = 0
    for resource in gpu_resources:
        running = sum(_request(row, resource) for row in [*containers, *beside])
        starting = max((_request(row, resource) for row in starters), default=0)
        together += max(running, starting)
    return together


def _claimed_gpus(pod_set: Document, status: Document, gpu_resources: Collection[str]) -> int:
    """Devices of one pod that asks for them by claims: what was counted when it was looked at.

    Only a scheduler knows what a claim comes to: Kueue tells it in ``status.resourceRequests`` of
    what waits, and in ``status.admission`` of what was admitted.
    """
    pod = ((pod_set.get("template") or {}).get("spec")) or {}
    if not pod.get("resourceClaims"):
        return 0
    name, count = pod_set.get("name", "main"), int(pod_set.get("count") or 0)
    admission = status.get("admission") or {}
    asked = [(row, row.get("resources"), count) for row in status.get("resourceRequests") or []]
    asked += [
        (row, row.get("resourceUsage"), int(row.get("count") or count))
        for row in admission.get("podSetAssignments") or []
    ]
    found = 0
    for row, amounts, pods in asked:
        for resource in gpu_resources if row.get("name", "main") == name and pods else ():
            total = _whole((amounts or {}).get(resource, 0), field=f"devices of {name}")
            found = max(found, total // pods)
    return found


def _request(container: Document, resource: str) -> int:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return _whole(amounts.get(resource, 0), field=f"request of {resource}")


def _whole(quantity: Any, *, field: str) -> int:
    """Read a device count as Kubernetes writes it: 8, "8", "2k" or "2e3"; never through a float."""
    found = _QUANTITY.fullmatch(str(quantity))
    factor = _MULTIPLES.get(found[2] or "") if found else None
    if found is None or factor is None:
        raise BadDocument(f"{field}: {str(quantity)!r} is not a whole number of devices")
    return int(found[1] + "0" * int(found[3] or 0)) * factor


@lru_cache(maxsize=65_536)
def _condition(text: bytes) -> Condition:
    """Each state of a workload repeats the conditions of the states before."""
    row = decode(text)
    kind = row.get("type", "")
    moment = _time(row.get("lastTransitionTime"), field=f"condition {kind}")
    return Condition(kind, row.get("status") == "True", moment, row.get("reason") or "")


def _condition_or(text: bytes, unread: Callable[[str], datetime] | None) -> Condition:
    try:
        return _condition(text)
    except BadDocument:
        if unread is None:
            raise
    row = decode(text)
    return _condition(encode(row | {"lastTransitionTime": unread(text.decode()).isoformat()}))


def _legible(text: Any, key: str, unread: Callable[[str], datetime]) -> str:
    try:
        return _time(text, field=key).isoformat()
    except BadDocument:
        return unread(f"{key}: {text!r}").isoformat()


def _reclaimable(part: Raw) -> tuple[tuple[str, int], ...]:
    if part == _NOTHING:  # as nearly always
        return ()
    return tuple(sorted((row["name"], int(row["count"])) for row in decode(part) or ()))


def _evictions(part: Raw) -> int:
    if part == _NOTHING:
        return 0
    rows = (decode(part) or {}).get("evictions") or []
    return min(MOST_COUNTED_GPUS, sum(int(row.get("count") or 0) for row in rows))


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
    # Whoever holds something since the year 1 has 17 million hours to be metered.
    if moment.year not in YEARS:
        raise ValueError("lies in no year that anything is metered in")
    return moment.astimezone(UTC).replace(microsecond=0)
